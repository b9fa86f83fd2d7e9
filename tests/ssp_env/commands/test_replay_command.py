"""``ssp replay``: which games it shows, what it shows of them, and its exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hf_tokenizers
import pytest
from scripted import begin, by_role, play, propose, rules_of, say, solve

from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.rules import Rules
from ssp_env.replay import SavedGame, read_games, save_game, save_games, write_games
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld

Captured = pytest.CaptureFixture[str]


def batch(rules: Rules, slots: int, seed: int) -> list[Game]:
    """Valid games, but for the last, which is invalid, and the first, which is void where there are
    more than three."""
    played = begin(rules, slots=slots, seed=[seed])
    last = played.games[-1].proposer
    if slots > 3:
        first = played.games[0].proposer
        assert first is not None
        played.void([first], ServiceError("engine", "out of \x1b[2J memory", calls=3))
    play(played, by_role(lambda t: [1] if t is last else propose()(t)))
    return played.games


@pytest.fixture
def rules(mini: MiniWorld, words: WordTokenizer) -> Rules:
    return rules_of(mini, words, attempts=2)


@pytest.fixture
def games(rules: Rules, tmp_path: Path) -> Path:
    """A file with two valid games and an invalid one."""
    save_games(batch(rules, 3, 1), rules, tmp_path / "games.jsonl")
    return tmp_path / "games.jsonl"


@pytest.fixture
def run(rules: Rules, tmp_path: Path) -> Path:
    """A run directory of three steps, with five games each."""
    run = tmp_path / "run"
    (run / "games").mkdir(parents=True)
    for step in (1, 2, 10):
        path = run / "games" / f"step_{step:06d}.jsonl"
        save_games(batch(rules, 5, step), rules, path)
    return run


def shown(capsys: Captured, *arguments: object, status: int = 0) -> str:
    """What a command line prints."""
    capsys.readouterr()
    assert main(["replay", *map(str, arguments)]) == status
    return capsys.readouterr().out


# -- what is shown -----------------------------------------------------------------------------


def test_a_few_games_are_printed_in_full(games: Path, capsys: Captured) -> None:
    out = shown(capsys, games)
    assert out.count("replayed: identical to the record\n") == 3
    assert "3 of 3 games are identical" in out
    first = next(read_games(games)).record
    for text in (
        "game 1: slot 0; world mini, weights of step 0, ssp-env ",
        f"question: {first.question}  (1 hop; right in this world: {first.answer})",
        "(evidence)",
        "(noise, game ",
        "solver 1: right, paid 1",
        "outcome: valid; proposer 0.0, solver 1.0",
    ):
        assert text in out, text
    assert "proposer ended by format" in out
    assert "outcome: invalid (format); proposer 0.0" in out


def test_a_run_is_listed_a_line_a_game(run: Path, capsys: Captured) -> None:
    out = shown(capsys, run).splitlines()
    assert out[0].split()[:7] == ["game", "step", "slot", "outcome", "reason", "solved", "proposer"]
    assert [line.split()[:4] for line in out[1:3]] == [
        ["1", "1", "0", "void"],
        ["2", "1", "1", "valid"],
    ]
    assert out[11].split()[:3] == ["11", "10", "0"], "steps are in the order of their numbers"
    assert "2/2" in out[2]
    assert out[-1] == "15 of 15 games; --game N prints one in full"
    assert shown(capsys, run / "games").splitlines() == out
    first = shown(capsys, run, "--game", 1)
    assert "memory [calls: 3]\noutcome: void (engine)\n" in first
    assert "\x1b" not in first


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("--step", "2", "--full"), [6, 7, 8, 9, 10]),
        (("--step", "2-10", "--slot", "1"), [7, 12]),
        (("--outcome", "void"), [1, 6, 11]),
        (("--reason", "format"), [5, 10, 15]),
        (("--game", "7"), [7]),
    ],
)
def test_games_are_chosen(
    run: Path, arguments: tuple[str, ...], numbers: list[int], capsys: Captured
) -> None:
    out = shown(capsys, run, *arguments)
    lines = [line for line in out.splitlines() if line.startswith("game ")]
    assert [int(line.split()[1].rstrip(":")) for line in lines] == numbers


# -- replays -----------------------------------------------------------------------------------


def spoilt(path: Path) -> Path:
    """The same games with another reward and another query in the second one."""
    first, second, last = read_games(path)
    plays = list(second.record.trajectories)
    search = replace(plays[1].searches[0], query="\x1b[2J [bold]")
    plays[1] = replace(plays[1], searches=(search,))
    record = replace(second.record, proposer_reward=0.5, trajectories=tuple(plays))
    write_games([first, replace(second, record=record), last], path)
    return path


def test_games_that_differ(games: Path, capsys: Captured) -> None:
    out = shown(capsys, spoilt(games), status=1)
    assert "differs: game: proposer_reward: saved 0.5, replayed 0.0" in out
    assert "differs: solver 1: searches[0].query: saved '\\x1b[2J [bold]'" in out
    assert "2 of 3 games are identical" in out
    shown(capsys, games, "--game", 1, status=0)
    shown(capsys, games, "--game", 2, status=1)


def test_every_game_is_checked(run: Path, games: Path, capsys: Captured) -> None:
    assert shown(capsys, run, "--check") == "15 of 15 games are identical\n"
    assert shown(capsys, run, "--check", "--outcome", "void") == "3 of 3 games are identical\n"
    out = shown(capsys, spoilt(games), "--check", status=1).splitlines()
    assert out[0].startswith("game 2: slot 1 differs: solver 1: searches[0].query: ")
    assert out[-1] == "2 of 3 games are identical"


def test_the_tokenizers_directory(mini: MiniWorld, tmp_path: Path, capsys: Captured) -> None:
    tokenizer = HuggingFaceTokenizer(hf_tokenizers.byte_level())
    room = {"max_prompt_tokens": 3000, "max_response_tokens": 3000}
    rules = rules_of(mini, tokenizer, **room)
    (game,) = play(begin(rules, slots=1), by_role(say("<question> ? </question>"))).games
    file = tmp_path / "game.jsonl"
    write_games([save_game(game, rules)], file)
    assert "not replayed: give the one that the game was played with" in shown(capsys, file)
    shown(capsys, file, "--check", status=2)
    hf_tokenizers.byte_level().save_pretrained(tmp_path)
    assert "identical" in shown(capsys, file, "--tokenizer", tmp_path)
    hf_tokenizers.metaspace().save_pretrained(tmp_path / "other")
    shown(capsys, file, "--tokenizer", tmp_path / "other", status=2)


# -- another judge -----------------------------------------------------------------------------


def test_another_judge(rules: Rules, tmp_path: Path, capsys: Captured) -> None:
    played = begin(rules, slots=4)

    def solver(trajectory: Any) -> str:
        """In the second game, the right answer and a word beside it."""
        game = next(g for g in played.games if trajectory in g.trajectories())
        wordy = f"<answer> {game.truth.answer} rival </answer>"
        return wordy if game.slot == 1 else solve(trajectory)

    play(played, by_role(propose(), solver))
    saved = [save_game(game, rules) for game in played.games]
    record = saved[1].record
    truth = replace(record.start.truth, aliases=(f"{record.answer} rival mentor",))
    record = replace(record, start=replace(record.start, truth=truth))
    saved[1] = replace(saved[1], record=record)
    write_games(saved, tmp_path / "games.jsonl")
    out = shown(capsys, tmp_path / "games.jsonl", "--judge", "f1").splitlines()
    assert len(out) == 6 + 2, "a list, the game that changes, and a summary"
    assert out[-2].startswith(
        "f1: game 2: slot 1: wrong -> right, wrong -> right; proposer 1.0 -> "
    )
    assert out[-1].startswith(
        "f1: 2 of 8 verdicts change in 4 valid games; mean solver reward 0.75"
    )


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--game", "0"), "holds 3 games, but none that is asked for"),
        (("--step", "two"), "--step two: give a step, such as 80, or a range"),
        (("--limit", "-1"), "--limit"),
        (("--outcome", "won"), "--outcome"),
    ],
)
def test_what_cannot_be_chosen(
    games: Path, arguments: tuple[str, ...], message: str, capsys: Captured
) -> None:
    assert main(["replay", str(games), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_files_that_cannot_be_read(games: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    header, game, *_ = games.read_text().splitlines()
    row = json.loads(game)
    del row["start"]["slot"]
    (tmp_path / "lacking.jsonl").write_text(f"{header}\n{json.dumps(row)}\n")
    (tmp_path / "cut.jsonl").write_text(f"{header}\n{game[:90]}")
    (tmp_path / "other.jsonl").write_text('{"id": "1", "contents": "a passage"}\n')
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("absent.jsonl", "absent.jsonl: cannot be read: No such file"),
        ("empty.jsonl", "holds no game"),
        ("lacking.jsonl", "lacking.jsonl:2: field 'start.slot': Field required"),
        ("cut.jsonl", "cut.jsonl:2: cut off: its writer was stopped"),
        ("other.jsonl", "other.jsonl:1: field 'format' is missing: a file of games begins with"),
        ("folder", "holds no games: name a run directory or a file of games"),
    ):
        assert main(["replay", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    assert isinstance(next(read_games(games)), SavedGame)
