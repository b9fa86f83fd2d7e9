"""The document of a saved game: it comes back as it was, and is refused where anything is missing
or wrong."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hf_tokenizers
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
from ssp_env.replay import (
    SavedGame,
    read_games,
    replay,
    rescore,
    save_game,
    write_games,
)
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
    assert saved.proposer is not None
    proposer = replace(
        saved.proposer,
        ids=saved.proposer.ids[:4],
        runs=(2, 2),
        logprobs=tuple(logprobs),
        searches=(SearchRecord(texts[0], tuple(documents)),),
        result=texts[1],
    )
    game = replace(
        saved,
        start=replace(saved.start, truth=truth, question=texts[2]),
        proposer=proposer,
        noise=tuple(NoiseDocument(document, texts[0]) for document in documents),
        verification=Verdict(True, texts[1]),
    )
    text = game.to_json()
    assert text.isascii()
    assert "\n" not in text
    back = SavedGame.from_json(text)
    assert back.to_json() == text
    assert repr(back) == repr(game), "scores and NaN included, which == would not tell"


def test_files(saved: SavedGame, tmp_path: Path) -> None:
    saved.write(tmp_path / "one.json")
    saved.write(tmp_path / "one.json.gz")
    assert (
        gzip.decompress((tmp_path / "one.json.gz").read_bytes())
        == (tmp_path / "one.json").read_bytes()
    )
    for name in ("one.json", "one.json.gz"):
        assert SavedGame.read(tmp_path / name) == saved
    write_games([saved, saved], tmp_path / "two.jsonl")
    assert list(read_games(tmp_path / "two.jsonl")) == [saved, saved]
    with pytest.raises(DataError, match="holds 2 games, not one"):
        SavedGame.read(tmp_path / "two.jsonl")


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
        save_game(game, rules)


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


REFUSED = [
    (drop("format"), "field 'format' is missing: this is no saved game"),
    (
        put(2, "format"),
        "field 'format' is 2, but this version of ssp-env reads up to 1: upgrade it",
    ),
    (put("1", "format"), "field 'format' is '1', not a version number"),
    (put(0, "format"), "field 'format' is 0, not a version number"),
    (drop("config", "attempts"), "field 'config.attempts' is missing"),
    (
        put("3", "config", "attempts"),
        "field 'config.attempts' needs a value of the type int, not str",
    ),
    (
        put(0, "config", "attempts"),
        "field 'config.attempts' cannot be 0: must be at least 1",
    ),
    (put(True, "config", "top_k"), "field 'config.top_k' needs a value of the type int, not bool"),
    (put([1], "config", "asked_searches"), "field 'config.asked_searches' needs 2 items, not 1"),
    (put("<", "config", "tags", "search"), "field 'config.tags.search' cannot be '<'"),
    (put(1, "extra"), "field 'extra' is not known"),
    (
        put("won", "outcome"),
        "field 'outcome' needs one of pending, valid, invalid, void",
    ),
    (put([-1], "start", "seed"), "field 'start' has a negative seed or slot: [-1], 0"),
    (put(10**400, "proposer_reward"), "field 'proposer_reward' is too large a number"),
    (put([], "attempts"), "field 'attempts' is empty in a valid game"),
    (put([], "start"), "field 'start' needs a value of the type Start, not list"),
    (put(["a"], "start", "seed"), "field 'start.seed[0]' needs a value of the type int"),
    (
        put("much", "proposer_reward"),
        "field 'proposer_reward' needs a value of the type float | None",
    ),
    (
        put(1, "attempts", 1, "verdict", "correct"),
        "field 'attempts[1].verdict.correct' needs a value of the type bool, not int",
    ),
    (
        drop("attempts", 0, "trajectory", "ending"),
        "field 'attempts[0].trajectory.ending' is missing",
    ),
    (
        put("x", "attempts", 0, "trajectory", "ids", 7),
        "'attempts[0].trajectory.ids[7]' needs a value of the type int, not str",
    ),
    (
        put(10**6, "attempts", 0, "trajectory", "ids", 7),
        "field 'attempts[0].trajectory.ids[7]' is 1000000, outside the vocabulary",
    ),
    (
        put(-1, "attempts", 0, "trajectory", "ids", 7),
        "field 'attempts[0].trajectory.ids[7]' is -1, outside the vocabulary",
    ),
    (put(99, "proposer", "runs", 0), "field 'proposer.runs' does not divide"),
    (put([], "proposer", "runs"), "field 'proposer.runs' does not divide"),
    (put([], "proposer", "logprobs"), "field 'proposer.logprobs' has 0 entries for"),
    (
        put(5, "proposer", "searches", 0, "documents", 0, "text"),
        "documents[0].text' needs a value of the type str, not int",
    ),
    (
        put(5, "prompts", "texts", "solver"),
        "field 'prompts.texts.solver' needs a value of the type str, not int",
    ),
    (
        put("whale", "tokenizer", "words", 7),
        "field 'tokenizer.words' (or 'tokenizer.tags') does not give the digest",
    ),
    (
        put("<thin>", "tokenizer", "tags", 0),
        "field 'tokenizer.words' (or 'tokenizer.tags') does not give the digest",
    ),
    (
        put("0" * 64, "tokenizer", "pieces_sha256"),
        "does not give the digest 'tokenizer.pieces_sha256'",
    ),
    (
        put(["a", "a"], "tokenizer", "words"),
        "field 'tokenizer.words' is no vocabulary: a word or tag occurs twice",
    ),
    (
        put(99999, "tokenizer", "vocab_size"),
        "field 'tokenizer.vocab_size' is 99999, but the tokenizer 'words' has ",
    ),
    (
        put("bytes", "tokenizer", "kind"),
        "field 'tokenizer.vocab_size' is 1461, but the tokenizer 'bytes' has 258",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_a_document_that_is_wrong(
    saved: SavedGame, tmp_path: Path, change: Any, message: str
) -> None:
    row = json.loads(saved.to_json())
    change(row)
    path = tmp_path / "games.jsonl"
    path.write_text(f"{saved.to_json()}\n\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        list(read_games(path))
    assert (caught.value.path, caught.value.line) == (str(path), 3)
    with pytest.raises(DataError, match=re.escape(message)):
        SavedGame.from_json(json.dumps(row))


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "5"])
def test_what_is_no_document_at_all(text: str) -> None:
    with pytest.raises(DataError):
        SavedGame.from_json(text)


def test_a_prompt_set_that_cannot_work(saved: SavedGame) -> None:
    texts = dict(saved.prompts.texts)
    with pytest.raises(ConfigError, match="put the placeholder"):
        replay(
            replace(saved, prompts=replace(saved.prompts, texts={**texts, "solver": "no question"}))
        )
    del texts["solver"]
    with pytest.raises(ConfigError, match="'solver' is missing"):
        replay(replace(saved, prompts=replace(saved.prompts, texts=texts)))


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
    return SavedGame.from_json(save_game(game, rules).to_json())


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
    assert saved.tokenizer.directory is None
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
    altered = replace(saved.tokenizer, words=("whale", *saved.tokenizer.words[1:]))
    with pytest.raises(DataError, match=r"field 'tokenizer.words' .* the document was altered"):
        replay(replace(saved, tokenizer=altered))
    wrong = replace(SavedTokenizer.of(ByteTokenizer()), pieces_sha256="0" * 64)
    with pytest.raises(
        DataError, match=r"field 'tokenizer.pieces_sha256' is not the digest of bytes"
    ):
        replay(replace(saved, tokenizer=wrong))
