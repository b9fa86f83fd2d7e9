"""Files of games: what was written comes back, and what is missing, wrong or altered is refused."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import hf_tokenizers
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scripted import begin, by_role, play, propose, rules_of, say, written

from ssp_env.errors import ConfigError, DataError, UsageError
from ssp_env.game.outcome import Outcome
from ssp_env.game.trajectory import SearchRecord
from ssp_env.game.verification import NoiseDocument
from ssp_env.judge.base import Verdict
from ssp_env.replay import SavedGame, read_games, replay, save_game, save_games, write_games
from ssp_env.replay.files import FORMAT, LONGEST_LINE, game_lines, parse_games
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, GroundTruth
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="module")
def saved(mini: MiniWorld, words: WordTokenizer) -> SavedGame:
    rules = rules_of(mini, words, attempts=2)
    return save_game(play(begin(rules, slots=1), by_role(propose())).games[0], rules)


# -- round trip --------------------------------------------------------------------------------

TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('\x00\x1b\u2028"\\<é'), max_size=12
)
SCORE = st.none() | st.floats() | st.builds(np.float32, st.floats(width=32))
DOCUMENT = st.builds(Document, TEXT, TEXT, TEXT, SCORE)


def with_texts(
    saved: SavedGame,
    documents: list[Document],
    truth: GroundTruth,
    texts: tuple[str, str, str],
    logprobs: tuple[float, float],
) -> SavedGame:
    """The game with other texts and numbers in it."""
    prompt, first, *_ = saved.record.trajectories[0].segments
    own = replace(first, tokens=2, ids=(first.ids or ())[:2], logprobs=logprobs, text=texts[0])
    proposer = replace(
        saved.record.trajectories[0],
        segments=(prompt, own),
        searches=(SearchRecord(texts[0], tuple(documents)),),
        result=texts[1],
    )
    record = replace(
        saved.record,
        start=replace(saved.record.start, truth=truth, question=texts[2]),
        trajectories=(proposer, *saved.record.trajectories[1:]),
        noise=tuple(NoiseDocument(document, texts[0]) for document in documents),
        verification=Verdict(True, texts[1]),
    )
    return replace(saved, record=record)


@given(
    documents=st.lists(DOCUMENT, max_size=3),
    truth=st.builds(GroundTruth, TEXT, TEXT, st.lists(TEXT, max_size=2).map(tuple)),
    texts=st.tuples(TEXT, TEXT, TEXT),
    logprobs=st.tuples(st.floats(), st.floats()),
)
def test_any_text_and_number_comes_back(saved: SavedGame, **parts: Any) -> None:
    game = with_texts(saved, **parts)
    floats = [
        replace(d, score=None if d.score is None else float(d.score)) for d in parts["documents"]
    ]
    # repr, since == knows neither scores nor NaN.
    assert repr(written(game)) == repr(with_texts(saved, **{**parts, "documents": floats}))
    assert list(game_lines([written(game)])) == list(game_lines([game]))


def test_half_a_surrogate_pair_is_written_as_tokenizers_read_it(saved: SavedGame) -> None:
    def game(half: str) -> SavedGame:
        document = Document(half, half, half, float("inf"))
        return with_texts(saved, [document], GroundTruth(half, half), (half,) * 3, (0.0, -1.5))

    assert repr(written(game("a \ud800 b"))) == repr(game("a ? b"))


def test_files(saved: SavedGame, mini: MiniWorld, tmp_path: Path) -> None:
    """Plain or gzip, joined, and cut off where their writer was killed."""
    other = played_with(mini, ByteTokenizer())
    for name in ("a.jsonl", "a.jsonl.gz"):
        path, second = tmp_path / name, tmp_path / f"b{name}"
        write_games([saved, saved], path)
        write_games([other], second)
        assert list(read_games(path)) == [saved, saved]
        (tmp_path / "joined").write_bytes(path.read_bytes() + second.read_bytes())
        assert list(read_games(tmp_path / "joined")) == [saved, saved, other]
    text = (tmp_path / "a.jsonl").read_bytes()
    assert text.count(b"\n") == 3, "one header for both"
    assert gzip.decompress(path.read_bytes()) == text

    (tmp_path / "a.jsonl").write_bytes(text[:-30])
    games = read_games(tmp_path / "a.jsonl")
    assert next(games) == saved, "the whole lines are there"
    with pytest.raises(DataError, match=r"a.jsonl:3: cut off: its writer was stopped"):
        next(games)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"a.jsonl.gz: is cut off"):
        list(read_games(path))


def test_a_line_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"format":1,"package":"')
        for _ in range(3):
            file.write(b"a" * (LONGEST_LINE // 2))
    with pytest.raises(DataError, match=r"bomb.jsonl.gz:1: is longer than 32 MB"):
        list(read_games(path))


def test_games_without_tokens(mini: MiniWorld, words: WordTokenizer, tmp_path: Path) -> None:
    rules = rules_of(mini, words, attempts=2)
    games = play(begin(rules, slots=2), by_role(propose())).games
    save_games(games, rules, tmp_path / "full.jsonl")
    save_games(games, rules, tmp_path / "bare.jsonl", tokens=False)
    full, bare = (list(read_games(tmp_path / f"{name}.jsonl")) for name in ("full", "bare"))
    assert not bare[0].rules.tokens
    assert [one.record for one in bare] == [one.record.without_tokens() for one in full]
    with pytest.raises(UsageError, match="written without token ids"):
        replay(bare[0])
    write_games(bare, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "bare.jsonl").read_bytes()


# -- refusals ----------------------------------------------------------------------------------


def test_a_game_that_goes_on_is_not_saved(mini: MiniWorld, words: WordTokenizer) -> None:
    with pytest.raises(UsageError, match="game 0 goes on"):
        save_game(begin(rules_of(mini, words)).games[0], rules_of(mini, words))


def put(value: Any, *path: Any) -> Callable[[Any], None]:
    """Gives a field another value."""

    def change(row: Any) -> None:
        for step in path[:-1]:
            row = row[step]
        row[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (1, put(3, "format"), f"field 'format' is 3, but this version of ssp-env reads {FORMAT}"),
        (1, put(0, "config", "attempts"), "attempts = 0: "),
        (2, put(1, "start", "extra"), "field 'start.extra': "),
        (2, lambda row: row.pop("outcome"), "field 'outcome': Field required"),
        (2, put("0" * 32, "digest"), "field 'digest' does not fit"),
    ],
)
def test_wrong_fields_are_named(
    saved: SavedGame, line: int, change: Callable[[Any], None], message: str
) -> None:
    rows = [json.loads(text) for text in game_lines([saved])]
    change(rows[line - 1])
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        list(parse_games([json.dumps(row).encode() for row in rows], "games.jsonl"))
    assert caught.value.line == line


@pytest.mark.parametrize("line", [b"{", b"null", b"\xff", b"[" * 99999, b'{"start": 5}'])
def test_lines_that_are_no_game(saved: SavedGame, line: bytes) -> None:
    header = next(iter(game_lines([saved]))).encode()
    for lines in ([line], [header, line]):
        with pytest.raises(DataError):
            list(parse_games(lines, "games.jsonl"))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all that is neither an object nor a list, and to empty ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list) and item:
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key)


def another(value: Any, rng: Random) -> Any:
    """Some other value, of the same type or of another one."""
    match value:
        case bool():
            return rng.choice([not value, None])
        case int():
            return rng.choice([value + 1, -value - 1, float(value) + 0.5, str(value)])
        case float():
            return rng.choice([value + 0.25, -value - 1.0, None])
        case str():
            return rng.choice([f"{value} x", value[:-1] + "y", "", 5]) if value else "x"
    return rng.choice([1, "x", True, [0], {"a": 1}])


@settings(max_examples=100)
@given(rng=st.randoms(use_true_random=False))
def test_reading_notices_any_altered_leaf_of_a_line(saved: SavedGame, rng: Random) -> None:
    lines = [json.loads(line) for line in game_lines([saved])]
    row = lines[rng.random() < 0.8]
    *path, last = rng.choice(list(leaves(row)))
    for step in path:
        row = row[step]
    row[last] = another(before := row[last], rng)
    assume(row[last] != before)
    assume(str(row[last]) != str(before))  # settings take "3" for 3
    with pytest.raises(DataError, match=r"games\.jsonl:[12]: "):
        list(parse_games([json.dumps(line).encode() + b"\n" for line in lines], "games.jsonl"))

    # Spaces and escapes are no alteration.
    row[last] = before
    rows = [json.dumps(line, indent=None).encode() + b"\n" for line in lines]
    assert list(parse_games(rows, "games.jsonl")) == [saved]


# -- tokenizers --------------------------------------------------------------------------------


def played_with(mini: MiniWorld, tokenizer: Tokenizer) -> SavedGame:
    """A valid game, with a search in each trajectory."""
    room = {"max_prompt_tokens": 3000, "max_response_tokens": 3000}
    rules = rules_of(mini, tokenizer, attempts=2, verifier="none", **room)
    search, asks = "<search> mentor </search>", "<question> what is the mentor of it ? </question>"
    script = by_role(say(search, asks), say(search, "<answer> rival </answer>"))
    (game,) = play(begin(rules, slots=1), script).games
    assert game.outcome is Outcome.VALID
    return written(save_game(game, rules))


def spoil(file: Path) -> None:
    """Exchanges the ids of two tokens."""
    spec = json.loads(file.read_text())
    vocabulary = spec["model"]["vocab"]
    first, second = list(vocabulary)[20:22] if isinstance(vocabulary, dict) else (20, 21)
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(spec))


@pytest.mark.parametrize("build", [hf_tokenizers.byte_level, hf_tokenizers.unigram])
def test_tokenizers_of_a_directory(
    mini: MiniWorld, build: Callable[[], Any], tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    build().save_pretrained(here)
    saved = played_with(mini, HuggingFaceTokenizer.load(here))
    assert replay(saved).identical, "the directory is still there"
    here.rename(there)
    with pytest.raises(ConfigError, match=r"give the one that the game was played with: .*here"):
        replay(saved)
    assert replay(saved, there).identical
    assert replay(saved, HuggingFaceTokenizer(build())).identical, "from no directory at all"
    spoil(there / "tokenizer.json")
    with pytest.raises(ConfigError, match="the game was played with another one"):
        replay(saved, there)


class ShoutingTokenizer(ByteTokenizer):
    """Code of the user's own."""

    def encode_data(self, text: str) -> list[int]:
        return super().encode(text.upper())


def test_a_tokenizer_of_ones_own_is_to_be_passed(mini: MiniWorld, saved: SavedGame) -> None:
    shouted = played_with(mini, ShoutingTokenizer())
    with pytest.raises(ConfigError, match="ShoutingTokenizer"):
        replay(shouted)
    assert replay(shouted, ShoutingTokenizer()).identical
    for other in (ByteTokenizer(), WordTokenizer(("a", "b"), saved.rules.tokenizer.tags)):
        with pytest.raises(ConfigError, match="another one"):
            replay(shouted, other)
