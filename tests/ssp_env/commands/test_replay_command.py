"""``ssp replay``: what it shows, and its exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import hf_tokenizers
import pytest
from scripted import begin, by_role, play, propose, rules_of, say

from ssp_env.commands.cli import main
from ssp_env.commands.replay import COMMAND
from ssp_env.replay import SavedGame, read_games, save_game, save_games, write_games
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture
def games(mini: MiniWorld, words: WordTokenizer, tmp_path: Path) -> Path:
    """A file with two valid games and an invalid one."""
    rules = rules_of(mini, words, attempts=2)
    played = begin(rules, slots=3)
    last = played.games[2].proposer
    play(played, by_role(lambda t: [1] if t is last else propose()(t)))
    save_games(played.games, rules, tmp_path / "games.jsonl")
    return tmp_path / "games.jsonl"


def spoilt(path: Path) -> Path:
    """The same games with another reward in the second one, and a query that no terminal should
    see."""
    first, second, last = read_games(path)
    attempt = second.attempts[0]
    trajectory = attempt.trajectory
    searches = (
        replace(trajectory.searches[0], query="\x1b[2J \ud800 [bold]"),
        *trajectory.searches[1:],
    )
    attempts = (
        replace(attempt, trajectory=replace(trajectory, searches=searches)),
        *second.attempts[1:],
    )
    write_games([first, replace(second, proposer_reward=0.5, attempts=attempts), last], path)
    return path


def test_command() -> None:
    assert COMMAND.name == "replay"


def test_identical_games(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(games)]) == 0
    out = capsys.readouterr().out
    assert out.count("identical\n") == 4
    assert "3 of 3 games are identical" in out
    question = next(read_games(games)).question
    assert str(question) in " ".join(out.split())
    assert "outcome: invalid (format)" in out


def test_games_that_differ(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(spoilt(games))]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "differs: game: proposer_reward: saved 0.5, replayed 0.0" in out
    assert "differs: solver 1: searches[0].query: saved '\\x1b[2J \\ud800 [bold]'" in out
    assert "2 of 3 games are identical" in out
    assert main(["replay", str(games), "--game", "1"]) == 0
    assert main(["replay", str(games), "--game", "2"]) == 1


def test_one_game(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(games), "--game", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("game 3: ")
    assert out.count("answer:") == 1


def test_another_judge(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(games), "--judge", "f1"]) == 0
    out = capsys.readouterr().out
    assert out.count("f1: solver 1: right -> right") == 2
    assert "f1: proposer 0.0, solver 1.0 -> proposer 0.0, solver 1.0" in out
    assert "f1: nothing to rescore in a game that is invalid" in out


def test_the_tokenizers_directory(
    mini: MiniWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = HuggingFaceTokenizer(hf_tokenizers.byte_level())
    room = {"max_prompt_tokens": 3000, "max_response_tokens": 3000}
    rules = rules_of(mini, tokenizer, **room)
    (game,) = play(begin(rules, slots=1), by_role(say("<question> ? </question>"))).games
    file = str(tmp_path / "game.json")
    save_game(game, rules).write(file)
    assert main(["replay", file]) == 2
    assert "give the one that the game was played with" in capsys.readouterr().err
    hf_tokenizers.byte_level().save_pretrained(tmp_path)
    assert main(["replay", file, "--tokenizer", str(tmp_path)]) == 0


@pytest.mark.parametrize("number", ["0", "4", "-1", "two"])
def test_a_game_that_is_not_there(
    games: Path, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(games), f"--game={number}"]) == 2
    assert "--game" in capsys.readouterr().err


def test_files_that_cannot_be_read(
    games: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    row = json.loads(next(read_games(games)).to_json())
    del row["start"]["slot"]
    (tmp_path / "lacking.jsonl").write_text(json.dumps(row))
    for name, message in (
        ("absent.jsonl", "cannot be read"),
        ("empty.jsonl", "holds no game"),
        ("lacking.jsonl", "lacking.jsonl:1: field 'start.slot' is missing"),
    ):
        assert main(["replay", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err


def test_an_answer_that_no_terminal_can_show(
    games: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = next(read_games(games))
    truth = replace(saved.start.truth, answer="half \ud800 \x1b[2J")
    assert isinstance(saved, SavedGame)
    write_games([replace(saved, start=replace(saved.start, truth=truth))], games)
    assert main(["replay", str(games)]) == 1
    assert "\x1b" not in capsys.readouterr().out
