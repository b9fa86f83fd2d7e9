"""Files of games: what was written comes back, and what is missing, wrong or altered is refused."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import hf_tokenizers
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import begin, by_role, play, rules_of, say, written

from ssp_env.errors import ConfigError, DataError, UsageError
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord
from ssp_env.replay import SavedGame, read_games, replay, save_game, write_games
from ssp_env.replay.files import FORMAT, LONGEST_LINE, _digest, game_lines, parse_games
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="module")
def saved(games: list[SavedGame]) -> SavedGame:
    return games[1]


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(record=st.from_type(GameRecord))
def test_any_record_comes_back(saved: SavedGame, record: GameRecord) -> None:
    game = replace(saved, record=record)
    # repr, since == knows neither scores nor NaN.
    assert repr(written(game)) == repr(game)
    assert list(game_lines([written(game)])) == list(game_lines([game]))


def test_what_is_no_utf8_is_written_as_tokenizers_read_it(saved: SavedGame) -> None:
    """And NumPy's numbers as Python's."""
    record = replace(saved.record, question="a\ud800", weights_version=np.int64(4))
    came = replace(record, question="a?", weights_version=4)
    assert repr(written(replace(saved, record=record)).record) == repr(came)


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


def test_games_without_tokens(games: list[SavedGame], tmp_path: Path) -> None:
    write_games(games, tmp_path / "bare.jsonl", tokens=False)
    bare = list(read_games(tmp_path / "bare.jsonl"))
    assert not bare[0].rules.tokens
    assert [one.record for one in bare] == [one.record.without_tokens() for one in games]
    with pytest.raises(UsageError, match="written without token ids"):
        replay(bare[0])
    # Even onto the file that they are read from.
    before = (tmp_path / "bare.jsonl").read_bytes()
    write_games(read_games(tmp_path / "bare.jsonl"), tmp_path / "bare.jsonl")
    assert (tmp_path / "bare.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("line", "field", "value", "message"),
    [
        (1, "format", 3, f"field 'format' is 3, but this version of ssp-env reads {FORMAT}"),
        (2, "outcome", 5, "field 'outcome': "),
    ],
)
def test_wrong_fields_are_named(
    saved: SavedGame, line: int, field: str, value: Any, message: str
) -> None:
    rows = [json.loads(text) for text in game_lines([saved])]
    rows[line - 1][field] = value
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        list(parse_games([json.dumps(row).encode() for row in rows], "games.jsonl"))
    assert caught.value.line == line


@settings(max_examples=100)
@given(header=st.booleans(), place=st.integers(0), change=st.integers(1, 255))
def test_reading_notices_any_altered_byte(
    saved: SavedGame, header: bool, place: int, change: int
) -> None:
    lines = [bytearray(line.encode()) for line in game_lines([saved])]
    assert list(parse_games(map(bytes, lines), "games.jsonl")) == [saved]
    line = lines[0 if header else 1]
    line[place % len(line.rstrip())] ^= change
    with pytest.raises(DataError, match=r"games\.jsonl:[12]: "):
        list(parse_games(map(bytes, lines), "games.jsonl"))


def test_a_file_of_an_older_version_is_read(saved: SavedGame) -> None:
    """A new setting has its default, and one that is gone was off; the digest is of the lines as
    they were written."""
    header, line = game_lines([saved])
    older = json.loads(header)
    del older["config"]["retries"]
    older["config"]["gate_errors"] = [0.0, 0.0]
    then = json.dumps(older)
    body = line[: line.rindex(',"digest"')] + "}"
    lines = [then, line.replace(json.loads(line)["digest"], _digest(then.encode(), body.encode()))]
    assert list(parse_games([each.encode() for each in lines], "games.jsonl")) == [saved]


def played_with(mini: MiniWorld, tokenizer: Tokenizer) -> SavedGame:
    """A valid game, with a search in each trajectory."""
    room = {"max_prompt_tokens": 3000, "max_response_tokens": 3000}
    rules = rules_of(mini, tokenizer, attempts=2, verifier="none", **room)
    search, asks = "<search> mentor </search>", "<question> what is the mentor of it ? </question>"
    script = by_role(say(search, asks), say(search, "<answer> rival </answer>"))
    (game,) = play(begin(rules, num_games=1), script).games
    assert game.outcome is Outcome.VALID
    return written(save_game(game, rules))


def test_tokenizers_of_a_directory(mini: MiniWorld, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    hf_tokenizers.byte_level().save_pretrained(here)
    saved = played_with(mini, HuggingFaceTokenizer.load(here))
    assert replay(saved).identical, "the directory is still there"
    here.rename(there)
    with pytest.raises(ConfigError, match=r"give the one that the game was played with: .*here"):
        replay(saved)
    assert replay(saved, there).identical
    assert replay(saved, HuggingFaceTokenizer(hf_tokenizers.byte_level())).identical

    spec = json.loads((there / "tokenizer.json").read_text())
    vocabulary = spec["model"]["vocab"]
    first, second = list(vocabulary)[20:22]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (there / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(ConfigError, match="the game was played with another one"):
        replay(saved, there)


@pytest.mark.parametrize("line", [b"{", b"null", b"\xff", b"[" * 99999, b'{"start": 5}'])
def test_lines_that_are_no_game(saved: SavedGame, line: bytes) -> None:
    header = next(iter(game_lines([saved]))).encode()
    for lines in ([line], [header, line]):
        with pytest.raises(DataError):
            list(parse_games(lines, "games.jsonl"))
