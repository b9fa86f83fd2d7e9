"""``ssp replay``: which games it shows, what it shows of them, and its exit status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hf_tokenizers
import pytest
from scripted import begin, by_role, play, propose, rules_of, say, solve

from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.replay import read_games, save_game, save_games, write_games
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld

Shown = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run(mini: MiniWorld, words: WordTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of three steps; in each a void game, two valid ones and an invalid one."""
    rules, run = rules_of(mini, words, attempts=2), tmp_path_factory.mktemp("run")
    (run / "games").mkdir()
    for step in (1, 2, 10):
        played = begin(rules, slots=4, seed=[step])
        first, *_, last = played.pending()
        played.void([first], ServiceError("engine", "out of \x1b[2J memory", calls=3))
        script = propose()
        play(played, by_role(lambda t, last=last, script=script: [1] if t is last else script(t)))
        save_games(played.games, rules, run / "games" / f"step_{step:06d}.jsonl")
    return run


@pytest.fixture
def games(run: Path, tmp_path: Path) -> Path:
    """A file with two valid games and an invalid one."""
    write_games([*read_games(run / "games" / "step_000001.jsonl")][1:], tmp_path / "games.jsonl")
    return tmp_path / "games.jsonl"


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """What a command line prints, to either stream."""

    def lines(*arguments: object, status: int = 0) -> list[str]:
        assert main(["replay", *map(str, arguments)]) == status
        captured = capsys.readouterr()
        return (captured.err if status == 2 else captured.out).splitlines()

    return lines


def test_a_few_games_are_printed_in_full(games: Path, shown: Shown) -> None:
    out = shown(games)
    assert out.count("replayed: identical to the record") == 3
    assert "3 of 3 games are identical" in out
    first = next(read_games(games)).record
    for text in (
        "game 1: slot 1; world mini, weights of step 0, ssp-env ",
        f"question: {first.question}  (1 hop; right in this world: {first.answer})",
        "(noise, game ",
        "solver 1: right, paid 1",
        "outcome: valid; proposer 0.0, solver 1.0",
        "proposer ended by format",
        "outcome: invalid (format); proposer 0.0",
    ):
        assert text in "\n".join(out), text


def test_a_run_is_listed_a_line_a_game(run: Path, shown: Shown) -> None:
    out = shown(run)
    assert out[0].split()[:7] == ["game", "step", "slot", "outcome", "reason", "solved", "proposer"]
    assert [line.split()[:4] for line in out[1:3]] == [
        ["1", "1", "0", "void"],
        ["2", "1", "1", "valid"],
    ]
    assert "2/2" in out[2]
    assert out[9].split()[:3] == ["9", "10", "0"], "steps are in the order of their numbers"
    assert out[-1] == "12 of 12 games; --game N prints one in full"
    assert shown(run / "games") == out
    assert shown(run, "--limit", 2)[3:] == [
        "2 of 12 games; --limit 0 lists all; --game N prints one in full"
    ]
    first = "\n".join(shown(run, "--game", 1))
    assert "memory [calls: 3]\noutcome: void (engine)\n" in first
    assert "\x1b" not in first


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("--step", "2", "--full"), [5, 6, 7, 8]),
        (("--step", "2-10", "--slot", "1"), [6, 10]),
        (("--outcome", "void"), [1, 5, 9]),
        (("--reason", "format"), [4, 8, 12]),
        (("--game", "7"), [7]),
    ],
)
def test_games_are_chosen(
    run: Path, arguments: tuple[str, ...], numbers: list[int], shown: Shown
) -> None:
    lines = [line for line in shown(run, *arguments) if line.startswith("game ")]
    assert [int(line.split()[1].rstrip(":")) for line in lines] == numbers


def test_games_that_differ(run: Path, games: Path, shown: Shown) -> None:
    assert shown(run, "--check") == ["12 of 12 games are identical"]

    first, second, last = read_games(games)
    *plays, attempt, end = second.record.trajectories
    attempt = replace(attempt, searches=(replace(attempt.searches[0], query="\x1b[2J [bold]"),))
    record = replace(second.record, proposer_reward=0.5, trajectories=(*plays, attempt, end))
    write_games([first, replace(second, record=record), last], games)

    out = shown(games, "--check", status=1)
    assert out[0].startswith("game 2: slot 2 differs: solver 1: searches[0].query: saved '\\x1b")
    assert out[1].endswith("differs: game: proposer_reward: saved 0.5, replayed 0.0")
    assert out[2] == "2 of 3 games are identical"
    shown(games, "--game", 1, status=0)
    shown(games, "--game", 2, status=1)


def test_the_tokenizers_directory(mini: MiniWorld, tmp_path: Path, shown: Shown) -> None:
    tokenizer = HuggingFaceTokenizer(hf_tokenizers.byte_level())
    rules = rules_of(mini, tokenizer, max_prompt_tokens=3000, max_response_tokens=3000)
    (game,) = play(begin(rules, slots=1), by_role(say("<question> ? </question>"))).games
    file = tmp_path / "game.jsonl"
    write_games([save_game(game, rules)], file)
    assert "give the one that the game was played with" in shown(file)[-1]
    shown(file, "--check", status=2)
    hf_tokenizers.byte_level().save_pretrained(tmp_path)
    assert "replayed: identical to the record" in shown(file, "--tokenizer", tmp_path)
    hf_tokenizers.metaspace().save_pretrained(tmp_path / "other")
    shown(file, "--tokenizer", tmp_path / "other", status=2)


def test_another_judge(mini: MiniWorld, words: WordTokenizer, games: Path, shown: Shown) -> None:
    rules = rules_of(mini, words, attempts=2)
    played = begin(rules, slots=4)

    def solver(trajectory: Any) -> str:
        """In the second game, the right answer and a word beside it."""
        game = next(g for g in played.games if trajectory in g.trajectories())
        wordy = f"<answer> {game.truth.answer} rival </answer>"
        return wordy if game.slot == 1 else solve(trajectory)

    play(played, by_role(propose(), solver))
    saved = [save_game(game, rules) for game in played.games]
    start = saved[1].record.start
    truth = replace(start.truth, aliases=(f"{start.truth.answer} rival mentor",))
    record = replace(saved[1].record, start=replace(start, truth=truth))
    saved[1] = replace(saved[1], record=record)
    write_games(saved, games)
    *listed, change, summary = shown(games, "--judge", "f1")
    assert len(listed) == 6
    assert change.startswith("f1: game 2: slot 1: wrong -> right, wrong -> right; proposer 1.0 -> ")
    assert summary.startswith(
        "f1: 2 of 8 verdicts change in 4 valid games; mean solver reward 0.75"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--game", "0"), "holds 3 games, but none that is asked for"),
        (("--step", "two"), "--step two: give a step, such as 80, or a range"),
        (("--limit", "-1"), "--limit"),
        (("--outcome", "won"), "--outcome"),
        (("--judge", "f2"), "f2"),
    ],
)
def test_what_cannot_be_chosen(
    games: Path, arguments: tuple[str, ...], message: str, shown: Shown
) -> None:
    assert message in "\n".join(shown(games, *arguments, status=2))


def test_files_that_cannot_be_read(tmp_path: Path, shown: Shown) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "other.jsonl").write_text('{"id": "1", "contents": "a passage"}\n')
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("absent.jsonl", "absent.jsonl: cannot be read: No such file"),
        ("empty.jsonl", "holds no game"),
        ("other.jsonl", "other.jsonl:1: field 'format' is missing: a file of games begins with"),
        ("folder", "holds no games: name a run directory or a file of games"),
    ):
        assert message in shown(tmp_path / name, status=2)[0]
