"""Files of games: what was written comes back, and what is missing or wrong is refused."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hf_tokenizers
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import begin, by_role, play, propose, rules_of, say, written

from ssp_env.errors import ConfigError, DataError, SSPError, UsageError
from ssp_env.game.outcome import Outcome
from ssp_env.game.trajectory import SearchRecord
from ssp_env.game.verification import NoiseDocument
from ssp_env.judge.base import Verdict
from ssp_env.judge.exact import F1Judge
from ssp_env.replay import (
    SavedGame,
    read_games,
    replay,
    rescore,
    save_game,
    save_games,
    write_games,
)
from ssp_env.replay.files import LONGEST_LINE, game_lines, parse_games
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
    other = played_with(mini, ByteTokenizer())
    for name in ("a.jsonl", "a.jsonl.gz"):
        write_games([saved, saved], tmp_path / name)
        write_games([other], tmp_path / name.replace("a", "b"))
        assert list(read_games(tmp_path / name)) == [saved, saved]
        parts = [(tmp_path / name.replace("a", letter)).read_bytes() for letter in "ab"]
        (tmp_path / "joined").write_bytes(b"".join(parts))
        assert list(read_games(tmp_path / "joined")) == [saved, saved, other]
    text = (tmp_path / "a.jsonl").read_bytes()
    assert text.count(b"\n") == 3, "one header for both"
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == text


def test_games_are_read_one_by_one(saved: SavedGame, tmp_path: Path) -> None:
    """Also from a file whose writer was killed."""
    for name in ("games.jsonl", "games.jsonl.gz"):
        write_games([saved] * 3, tmp_path / name)
    path = tmp_path / "games.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    games = read_games(path)
    assert [next(games), next(games)] == [saved, saved], "the whole lines are there"
    with pytest.raises(DataError, match=r"games.jsonl:4: cut off: its writer was stopped"):
        next(games)
    zipped = tmp_path / "games.jsonl.gz"
    zipped.write_bytes(zipped.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"games.jsonl.gz: is cut off"):
        list(read_games(zipped))


def test_a_line_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"format":6,"package":"')
        for _ in range(3):
            file.write(b"a" * (LONGEST_LINE // 2))
    with pytest.raises(DataError, match=r"bomb.jsonl.gz:1: is longer than 32 MB"):
        list(read_games(path))


def test_games_without_tokens(mini: MiniWorld, words: WordTokenizer, tmp_path: Path) -> None:
    """They are smaller, say so themselves, and can be rescored but not replayed."""
    rules = rules_of(mini, words, attempts=2)
    games = play(begin(rules, slots=2), by_role(propose())).games
    save_games(games, rules, tmp_path / "full.jsonl")
    save_games(games, rules, tmp_path / "bare.jsonl", tokens=False)
    assert (tmp_path / "bare.jsonl").stat().st_size < (tmp_path / "full.jsonl").stat().st_size
    full, bare = (list(read_games(tmp_path / f"{name}.jsonl")) for name in ("full", "bare"))
    assert not bare[0].rules.tokens
    assert [one.record for one in bare] == [one.record.without_tokens() for one in full]
    masks = [[t.mask for t in one[0].record.trajectories] for one in (bare, full)]
    assert masks[0] == masks[1]
    with pytest.raises(UsageError, match="written without token ids"):
        replay(bare[0])
    with pytest.raises(UsageError, match="written without token ids"):
        _ = bare[0].record.trajectories[0].ids
    (one, _) = rescore(bare, F1Judge())
    assert one.after.record.solver_reward == 1.0
    with pytest.raises(UsageError, match="written without token ids"):
        rescore(bare, solver_reward=lambda game, attempt: 1.0)
    write_games(bare, tmp_path / "again.jsonl")
    assert list(read_games(tmp_path / "again.jsonl")) == bare


# -- refusals ----------------------------------------------------------------------------------


def test_wrong_arguments(
    saved: SavedGame, mini: MiniWorld, words: WordTokenizer, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="game 0 goes on"):
        save_game(begin(rules_of(mini, words)).games[0], rules_of(mini, words))


def put(value: Any, *path: Any) -> Callable[[Any], None]:
    """Gives a field another value."""

    def change(row: Any) -> None:
        for step in path[:-1]:
            row = row[step]
        row[path[-1]] = value

    return change


HEADER, GAME = 0, 1
SEGMENT = ("trajectories", 1, "segments", 1)
REFUSED = [
    (HEADER, put(3, "format"), "field 'format' is 3, but this version of ssp-env reads 6"),
    (HEADER, put(0, "config", "attempts"), "attempts = 0: "),
    (HEADER, put(5, "prompts", "solver"), "field 'prompts.solver': "),
    (GAME, put(1, "start", "extra"), "field 'start.extra': "),
    (GAME, lambda row: row.pop("outcome"), "field 'outcome': Field required"),
    (GAME, put("0" * 32, "digest"), "field 'digest' does not fit"),
]


@pytest.mark.parametrize(("place", "change", "message"), REFUSED)
def test_refused_lines(
    saved: SavedGame, place: int, change: Callable[[Any], None], message: str
) -> None:
    lines = [json.loads(line) for line in game_lines([saved])]
    change(lines[place])
    rows = [json.dumps(line).encode() + b"\n" for line in lines]
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        list(parse_games(rows, "games.jsonl"))
    assert caught.value.line == place + 1


@pytest.mark.parametrize("line", [b"{", b"null", b"\xff", b"[" * 99999, b'{"start": 5}'])
def test_lines_that_are_no_game(saved: SavedGame, line: bytes) -> None:
    header = next(iter(game_lines([saved]))).encode()
    for lines in ([line], [header, line]):
        with pytest.raises(DataError):
            list(parse_games(lines, "games.jsonl"))


# -- tokenizers --------------------------------------------------------------------------------

BUILT: dict[str, Callable[[], Any]] = {
    "tags as tokens": lambda: hf_tokenizers.byte_level(tags=True, chat=True),
    "tags spelled": hf_tokenizers.byte_level,
    "metaspace": hf_tokenizers.metaspace,
    "unigram": hf_tokenizers.unigram,
}
ROOM = {
    "max_prompt_tokens": 3000,
    "max_response_tokens": 3000,
    "verifier": "none",
}


def played_with(mini: MiniWorld, tokenizer: Tokenizer) -> SavedGame:
    """A valid game, with a search in each trajectory."""
    search, question = (
        "<search> mentor </search>",
        "<question> what is the mentor of it ? </question>",
    )
    rules = rules_of(mini, tokenizer, attempts=2, **ROOM)
    script = by_role(say(search, question), say(search, "<answer> rival </answer>"))
    (game,) = play(begin(rules, slots=1), script).games
    assert game.outcome is Outcome.VALID
    return written(save_game(game, rules))


def spoil(file: Path) -> None:
    """Exchanges the ids of two tokens."""
    spec = json.loads(file.read_text())
    vocabulary = spec["model"]["vocab"]
    if isinstance(vocabulary, dict):
        first, second = list(vocabulary)[20:22]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    else:
        vocabulary[20], vocabulary[21] = vocabulary[21], vocabulary[20]
    file.write_text(json.dumps(spec))


@pytest.mark.parametrize("kind", BUILT)
def test_tokenizers_of_a_directory(mini: MiniWorld, kind: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    BUILT[kind]().save_pretrained(here)
    saved = played_with(mini, HuggingFaceTokenizer.load(here))
    assert replay(saved).identical, "the directory is still there"
    here.rename(there)
    with pytest.raises(
        ConfigError,
        match=r"give the one that the game was played with: .*here",
    ):
        replay(saved)
    assert replay(saved, there).identical
    assert replay(saved, HuggingFaceTokenizer(BUILT[kind]())).identical, (
        "it may lie in no directory at all"
    )
    file = there / "tokenizer.json"
    spoil(file)
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
    with pytest.raises(ConfigError, match="another one"):
        replay(shouted, ByteTokenizer())
    tokenizer = saved.rules.tokenizer
    for altered in ({"words": ("whale", *tokenizer.words[1:])}, {"kind": "bytes"}):
        rules = replace(saved.rules, tokenizer=replace(tokenizer, **altered))
        with pytest.raises(SSPError, match=r"tokenizer|vocabulary"):
            replay(replace(saved, rules=rules))
