"""The document of a saved game: it comes back as it was, and is refused where anything is missing
or wrong."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import hf_tokenizers
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import begin, by_role, play, propose, rules_of, say

from ssp_env.doors.replay import replay_env
from ssp_env.errors import ConfigError, DataError, UsageError
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Outcome
from ssp_env.game.trajectory import SearchRecord
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
from ssp_env.replay.lines import SMALL_VOCABULARY
from ssp_env.replay.tokenizer import SavedTokenizer
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, GroundTruth
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="module")
def saved(mini: MiniWorld, words: WordTokenizer) -> SavedGame:
    rules = rules_of(mini, words, attempts=2)
    return save_game(play(begin(rules, slots=1), by_role(propose())).games[0], rules)


# -- round trip --------------------------------------------------------------------------------

TEXT = st.text(
    st.characters(exclude_categories=()) | st.sampled_from('\ud800\udc00\x00\x1b\u2028"\\<é'),
    max_size=12,
)
DOCUMENT = st.builds(Document, TEXT, TEXT, TEXT, st.none() | st.floats(allow_nan=False))


@given(
    documents=st.lists(DOCUMENT, max_size=3),
    truth=st.builds(GroundTruth, TEXT, TEXT, st.lists(TEXT, max_size=2).map(tuple)),
    texts=st.tuples(TEXT, TEXT, TEXT),
    logprobs=st.lists(st.floats(), min_size=2, max_size=2),
)
def test_any_text_and_number_comes_back(
    saved: SavedGame,
    documents: list[Document],
    truth: GroundTruth,
    texts: tuple[str, str, str],
    logprobs: list[float],
) -> None:
    prompt, first, *_ = saved.record.trajectories[0].segments
    written = replace(first, tokens=2, ids=(first.ids or ())[:2], logprobs=tuple(logprobs))
    proposer = replace(
        saved.record.trajectories[0],
        segments=(prompt, replace(written, text=texts[0])),
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
    game = replace(saved, record=record)
    text = game.to_text()
    assert text.count("\n") == 2
    back = SavedGame.from_text(text)
    assert back.to_text() == text
    assert repr(back) == repr(game), "scores and NaN included, which == would not tell"
    assert repr(_read(text)) == repr([game])


def _read(text: str) -> list[SavedGame]:
    """As it comes back from a file, whose bytes have to be UTF-8."""
    with NamedTemporaryFile(suffix=".jsonl") as file:
        SavedGame.from_text(text).write(file.name)
        Path(file.name).read_text(encoding="utf-8")
        return list(read_games(file.name))


def test_files(saved: SavedGame, tmp_path: Path) -> None:
    saved.write(tmp_path / "one.jsonl")
    saved.write(tmp_path / "one.jsonl.gz")
    zipped = (tmp_path / "one.jsonl.gz").read_bytes()
    assert gzip.decompress(zipped) == (tmp_path / "one.jsonl").read_bytes()
    for name in ("one.jsonl", "one.jsonl.gz"):
        assert SavedGame.read(tmp_path / name) == saved
    write_games([saved, saved], tmp_path / "two.jsonl")
    assert len((tmp_path / "two.jsonl").read_text().splitlines()) == 3, "one header for both"
    assert list(read_games(tmp_path / "two.jsonl")) == [saved, saved]
    with pytest.raises(DataError, match="holds 2 games, not one"):
        SavedGame.read(tmp_path / "two.jsonl")


def test_files_can_be_joined(saved: SavedGame, mini: MiniWorld, tmp_path: Path) -> None:
    other = played_with(mini, ByteTokenizer())
    write_games([saved, other, saved], tmp_path / "three.jsonl")
    assert list(read_games(tmp_path / "three.jsonl")) == [saved, other, saved]
    for suffix in ("", ".gz"):
        for name, game in (("a", saved), ("b", other)):
            game.write(tmp_path / f"{name}.jsonl{suffix}")
        parts = [(tmp_path / f"{name}.jsonl{suffix}").read_bytes() for name in "ab"]
        (tmp_path / "joined").write_bytes(b"".join(parts))
        assert list(read_games(tmp_path / "joined")) == [saved, other]


def test_games_are_read_one_by_one(saved: SavedGame, tmp_path: Path) -> None:
    saved.write(tmp_path / "games.jsonl")
    with open(tmp_path / "games.jsonl", "a") as file:
        file.write('{"start": 5}\n')
    games = read_games(tmp_path / "games.jsonl")
    assert next(games) == saved
    with pytest.raises(DataError, match=r"games\.jsonl:3: field 'first_slot' is missing"):
        next(games)


def test_a_file_that_is_cut_off(saved: SavedGame, tmp_path: Path) -> None:
    """As a killed process leaves it."""
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


def test_games_without_tokens(mini: MiniWorld, words: WordTokenizer, tmp_path: Path) -> None:
    """They are smaller, say so themselves, and can be rescored but not replayed."""
    rules = rules_of(mini, words, attempts=2)
    games = play(begin(rules, slots=2), by_role(propose())).games
    save_games(games, rules, tmp_path / "full.jsonl")
    save_games(games, rules, tmp_path / "bare.jsonl", tokens=False)
    assert (tmp_path / "bare.jsonl").stat().st_size < (tmp_path / "full.jsonl").stat().st_size
    assert '"tokens":false' in (tmp_path / "bare.jsonl").read_text().splitlines()[0]
    full, bare = (list(read_games(tmp_path / f"{name}.jsonl")) for name in ("full", "bare"))
    assert [one.record for one in bare] == [one.record.without_tokens() for one in full]
    assert [t.mask for t in bare[0].record.trajectories] == [
        t.mask for t in full[0].record.trajectories
    ]
    for call in (replay, replay_env):
        with pytest.raises(UsageError, match="written without token ids"):
            call(bare[0])
    with pytest.raises(UsageError, match="written without token ids"):
        _ = bare[0].record.trajectories[0].ids
    (one, _) = rescore(bare, F1Judge())
    assert one.after.record.solver_reward == 1.0
    with pytest.raises(ConfigError, match="written without token ids, which such a function"):
        rescore(bare, solver_reward=lambda game, attempt: 1.0)
    write_games(bare, tmp_path / "again.jsonl")
    assert list(read_games(tmp_path / "again.jsonl")) == bare


@pytest.mark.parametrize("name", ["nowhere/x.jsonl", "nowhere/x.jsonl.gz", "."])
def test_a_file_that_cannot_be_written(saved: SavedGame, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="cannot be written") as caught:
        write_games([saved], tmp_path / name)
    assert caught.value.path == str(tmp_path / name)


def test_what_is_no_saved_game(saved: SavedGame) -> None:
    name: Any = "games.jsonl"
    for call in (replay, replay_env):
        with pytest.raises(
            UsageError, match=r"not str 'games.jsonl': read_games\(path\) gives the games of a file"
        ):
            call(name)
    for one in (name, Path(name), saved):
        with pytest.raises(
            UsageError,
            match=r"several saved games are wanted, .*: pass read_games\(path\) or a list",
        ):
            rescore(one)
    with pytest.raises(UsageError, match="a SavedGame is wanted, not int 5"):
        rescore([saved, 5])  # type: ignore[list-item]


def test_a_retriever_that_gives_ids_that_are_no_strings(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    class Sloppy:
        def search(self, queries: Any, k: int) -> list[list[Document]]:
            return [[Document(5, "", "mentor")] for _ in queries]  # type: ignore[arg-type]

    rules = rules_of(mini, words, retriever=Sloppy())
    script = say("<search> mentor </search>", "<question> ? </question>")
    (game,) = play(begin(rules, slots=1), script).games
    with pytest.raises(UsageError, match="a document whose id is 5"):
        save_game(game, rules).to_text()


def test_a_game_that_goes_on(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words)
    with pytest.raises(UsageError, match="game 0 goes on"):
        save_game(begin(rules).games[0], rules)


# -- what is refused ---------------------------------------------------------------------------


def drop(*path: Any) -> Callable[[Any], None]:
    """Takes a field out."""

    def change(row: Any) -> None:
        for step in path[:-1]:
            row = row[step]
        del row[path[-1]]

    return change


def put(value: Any, *path: Any) -> Callable[[Any], None]:
    """Gives a field another value."""

    def change(row: Any) -> None:
        for step in path[:-1]:
            row = row[step]
        row[path[-1]] = value

    return change


HEADER, GAME = 0, 1
REFUSED = [
    (HEADER, put(4, "format"), "field 'format' is 4, but this version of ssp-env reads format 3"),
    (HEADER, put(1, "format"), "field 'format' is 1, which an older version of ssp-env wrote"),
    (HEADER, put("2", "format"), "field 'format' is '2', not a version number"),
    (HEADER, put(0, "format"), "field 'format' is 0, not a version number"),
    (HEADER, drop("config", "attempts"), "field 'config.attempts' is missing"),
    (
        HEADER,
        put("3", "config", "attempts"),
        "field 'config.attempts' needs a value of the type int, not str",
    ),
    (
        HEADER,
        put(0, "config", "attempts"),
        "field 'config.attempts' cannot be 0: must be at least 1",
    ),
    (
        HEADER,
        put(True, "config", "top_k"),
        "field 'config.top_k' needs a value of the type int, not bool",
    ),
    (
        HEADER,
        put([1], "config", "asked_searches"),
        "field 'config.asked_searches' needs 2 items, not 1",
    ),
    (
        HEADER,
        put("<", "config", "tags", "search"),
        "field 'config.tags.search' cannot be '<'",
    ),
    (
        HEADER,
        put(5, "prompts", "texts", "solver"),
        "field 'prompts.texts.solver' needs a value of the type str, not int",
    ),
    (
        HEADER,
        put("whale", "tokenizer", "words", 7),
        "field 'tokenizer.words' (or 'tokenizer.tags') does not give the digest",
    ),
    (
        HEADER,
        put("<thin>", "tokenizer", "tags", 0),
        "field 'tokenizer.words' (or 'tokenizer.tags') does not give the digest",
    ),
    (
        HEADER,
        put("0" * 64, "tokenizer", "pieces_sha256"),
        "does not give the digest 'tokenizer.pieces_sha256'",
    ),
    (
        HEADER,
        put(["a", "a"], "tokenizer", "words"),
        "field 'tokenizer.words' is not a vocabulary: a word or tag occurs twice",
    ),
    (
        HEADER,
        put(99999, "tokenizer", "vocab_size"),
        "field 'tokenizer.vocab_size' is 99999, but the tokenizer 'words' has ",
    ),
    (
        HEADER,
        put("bytes", "tokenizer", "kind"),
        "field 'tokenizer.vocab_size' is 1461, but the tokenizer 'bytes' has 258",
    ),
    (GAME, put(1, "extra"), "field 'extra' is not known"),
    (
        GAME,
        put("won", "outcome"),
        "field 'outcome' needs one of pending, valid, invalid, void",
    ),
    (GAME, put("pending", "outcome"), "field 'outcome' is that of a game that goes on"),
    (GAME, put(None, "trajectories", 0, "ending"), "is that of a game that goes on"),
    (GAME, drop("outcome"), "field 'outcome' is missing"),
    (GAME, put([-1], "start", "seed"), "field 'start' has a negative seed or slot: [-1], 0"),
    (GAME, put(10**400, "proposer_reward"), "field 'proposer_reward' is too large a number"),
    (GAME, put([], "trajectories"), "field 'trajectories' hold no attempt to solve"),
    (
        GAME,
        put("proposer", "trajectories", 1, "role"),
        "field 'trajectories' are not in the order of play",
    ),
    (GAME, put([], "start"), "field 'start' needs a value of the type Start, not list"),
    (GAME, put(["a"], "start", "seed"), "field 'start.seed[0]' needs a value of the type int"),
    (
        GAME,
        put("much", "proposer_reward"),
        "field 'proposer_reward' needs a value of the type float | None",
    ),
    (
        GAME,
        put(1, "trajectories", 1, "verdict", "correct"),
        "field 'trajectories[1].verdict.correct' needs a value of the type bool, not int",
    ),
    (GAME, drop("trajectories", 0, "ending"), "field 'trajectories[0].ending' is missing"),
    (
        GAME,
        put("\u00e9", "trajectories", 1, "wrote", 0, "ids"),
        "field 'trajectories[1].wrote[0].ids' is not base64",
    ),
    (
        GAME,
        put(None, "trajectories", 1, "wrote", 0, "ids"),
        "field 'trajectories[1].wrote[0].ids' is missing, though the header promises it",
    ),
    (
        GAME,
        put("AAA=", "trajectories", 1, "wrote", 0, "ids"),
        "wrote[0].ids' holds 2 bytes for 3 tokens, not 2 for each",
    ),
    (GAME, put(-1, "given", 0, "tokens"), "field 'given[0].ids' holds 6 bytes for -1 tokens"),
    (
        GAME,
        put("//////8A", "given", 0, "ids"),
        "field 'given[0].ids' holds 65535 at place 0, outside the vocabulary of 1461",
    ),
    (
        GAME,
        put("AAAA", "trajectories", 1, "wrote", 0, "logprobs"),
        "wrote[0].logprobs' holds 3 bytes for 3 tokens, not 4 or 8 for each",
    ),
    (
        GAME,
        put([9], "trajectories", 0, "given"),
        "field 'trajectories[0].given' has 1 entries for 2 in 'wrote', which take turns",
    ),
    (
        GAME,
        put([9, 1], "trajectories", 0, "given"),
        "field 'trajectories[0].given[0]' points to entry 9 of a table of 4",
    ),
    (
        GAME,
        put(-1, "noise", 0, "document"),
        "field 'noise[0].document' points to entry -1 of a table of ",
    ),
    (
        GAME,
        put([1.0], "trajectories", 1, "searches", 0, "scores"),
        "field 'trajectories[1].searches[0].scores' has 1 entries for 2 documents",
    ),
    (
        GAME,
        put(5, "documents", 0, "text"),
        "field 'documents[0].text' needs a value of the type str, not int",
    ),
]


@pytest.mark.parametrize(("line", "change", "message"), REFUSED)
def test_a_document_that_is_wrong(
    saved: SavedGame, tmp_path: Path, line: int, change: Any, message: str
) -> None:
    lines = saved.to_text().splitlines()
    row = json.loads(lines[line])
    change(row)
    path = tmp_path / "games.jsonl"
    path.write_text(f"{saved.to_text()}\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        list(read_games(path))
    assert (caught.value.path, caught.value.line) == (str(path), 4)
    lines[line] = json.dumps(row)
    with pytest.raises(DataError, match=re.escape(message)):
        SavedGame.from_text("\n".join(lines))


def test_games_that_come_without_a_header(saved: SavedGame, tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_text(saved.to_text().splitlines()[1])
    with pytest.raises(DataError, match=r"games\.jsonl:1: field 'format' is missing: a file"):
        list(read_games(tmp_path / "games.jsonl"))


def test_tokens_that_the_header_denies(saved: SavedGame) -> None:
    header, game = saved.to_text().splitlines()
    denied = header.replace('"tokens":true', '"tokens":false')
    with pytest.raises(DataError, match=r"ids' is there, though the header denies it"):
        SavedGame.from_text(f"{denied}\n{game}")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "5"])
def test_what_is_no_document_at_all(text: str) -> None:
    with pytest.raises(DataError):
        SavedGame.from_text(text)


def test_a_prompt_set_that_cannot_work(saved: SavedGame) -> None:
    def with_texts(texts: dict[str, str]) -> SavedGame:
        prompts = replace(saved.rules.prompts, texts=texts)
        return replace(saved, rules=replace(saved.rules, prompts=prompts))

    texts = dict(saved.rules.prompts.texts)
    with pytest.raises(ConfigError, match="put the placeholder"):
        replay(with_texts({**texts, "solver": "no question"}))
    del texts["solver"]
    with pytest.raises(ConfigError, match="'solver' is missing"):
        replay(with_texts(texts))


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
    "max_query_tokens": 60,
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
    return SavedGame.from_text(save_game(game, rules).to_text())


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
        match=r"give the one that the game was played with: .*here, whose tokenizer\.json",
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


def test_a_tokenizer_that_lay_in_no_directory(mini: MiniWorld, tmp_path: Path) -> None:
    saved = played_with(mini, HuggingFaceTokenizer(hf_tokenizers.byte_level()))
    assert saved.rules.tokenizer.directory is None
    with pytest.raises(ConfigError, match="give the one that the game was played with"):
        replay(saved)
    hf_tokenizers.byte_level().save_pretrained(tmp_path)
    assert replay(saved, tmp_path).identical


class ShoutingTokenizer(ByteTokenizer):
    """Code of the user's own."""

    def encode_data(self, text: str) -> list[int]:
        return super().encode(text.upper())


def test_a_tokenizer_of_ones_own_is_to_be_passed(mini: MiniWorld) -> None:
    saved = played_with(mini, ShoutingTokenizer())
    with pytest.raises(ConfigError, match="ShoutingTokenizer"):
        replay(saved)
    assert replay(saved, ShoutingTokenizer()).identical
    with pytest.raises(ConfigError, match="another one"):
        replay(saved, ByteTokenizer())


def test_another_vocabulary_is_refused(saved: SavedGame, words: WordTokenizer) -> None:
    assert replay(saved, words).identical
    with pytest.raises(ConfigError, match="another one: words"):
        replay(saved, WordTokenizer(words.words[::-1], words.tags))


def test_a_vocabulary_that_was_altered_is_not_called_another_tokenizer(saved: SavedGame) -> None:
    def with_tokenizer(tokenizer: SavedTokenizer) -> SavedGame:
        return replace(saved, rules=replace(saved.rules, tokenizer=tokenizer))

    told = saved.rules.tokenizer
    altered = replace(told, words=("whale", *told.words[1:]))
    with pytest.raises(DataError, match=r"field 'tokenizer.words' .* the document was altered"):
        replay(with_tokenizer(altered))
    wrong = replace(SavedTokenizer.of(ByteTokenizer()), pieces_sha256="0" * 64)
    with pytest.raises(
        DataError, match=r"field 'tokenizer.pieces_sha256' is not the digest of bytes"
    ):
        replay(with_tokenizer(wrong))


def test_logprobs_lose_nothing(saved: SavedGame) -> None:
    """They are packed as float32 where that is exact, and as float64 where it is not."""
    first = saved.record.trajectories[0].segments[1]
    sizes = []
    for value in (0.1, float(np.float32(0.1)), 1e300, float("nan"), -0.0):
        logprobs = (value,) * first.tokens
        segments = list(saved.record.trajectories[0].segments)
        segments[1] = replace(first, logprobs=logprobs)
        proposer = replace(saved.record.trajectories[0], segments=tuple(segments))
        plays = (proposer, *saved.record.trajectories[1:])
        text = replace(saved, record=replace(saved.record, trajectories=plays)).to_text()
        back = SavedGame.from_text(text).record.trajectories[0].segments[1].logprobs
        assert repr(back) == repr(logprobs)
        sizes.append(len(text))
    assert sizes[1] == sizes[4] < sizes[0] == sizes[2] == sizes[3]


def test_ids_of_large_vocabularies(saved: SavedGame) -> None:
    big = replace(saved.rules.tokenizer, vocab_size=SMALL_VOCABULARY + 1, kind="transformers")
    rules = replace(saved.rules, tokenizer=big)
    proposer = saved.record.trajectories[0]
    segments = (replace(proposer.segments[0], ids=(SMALL_VOCABULARY, 1, 2)), *proposer.segments[1:])
    plays = (replace(proposer, segments=segments), *saved.record.trajectories[1:])
    game = SavedGame(rules, replace(saved.record, trajectories=plays))
    assert SavedGame.from_text(game.to_text()) == game
