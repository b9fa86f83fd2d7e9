"""``ssp replay``: which games it shows, what it shows of them, and its exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scripted import begin, by_role, play, propose, rules_of

from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch
from ssp_env.game.record import record_game
from ssp_env.replay import SavedGame, SavedRules, read_games, save_games, write_games
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld

Shown = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run(mini: MiniWorld, words: WordTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of two steps; in each two valid games, an invalid one and a void one."""
    rules, run = rules_of(mini, words, attempts=2), tmp_path_factory.mktemp("run")
    (run / "games").mkdir()
    for step in (2, 10):
        played = begin(rules, num_games=4, seed=[step])
        *_, third, last = played.pending()
        played.void([last], ServiceError("engine", "out of \x1b[2J memory", calls=3))
        play(played, by_role(lambda t, third=third: [1] if t is third else propose()(t)))
        save_games(played.games, rules, run / "games" / f"step_{step:06d}.jsonl")
    return run


@pytest.fixture
def three(run: Path, tmp_path: Path) -> Path:
    """A file with two valid games and an invalid one."""
    write_games([*read_games(run / "games" / "step_000002.jsonl")][:3], tmp_path / "games.jsonl")
    return tmp_path / "games.jsonl"


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """What a command line prints, to either stream."""

    def lines(*arguments: object, status: int = 0) -> list[str]:
        assert main(["replay", *map(str, arguments)]) == status
        captured = capsys.readouterr()
        return (captured.err if status == 2 else captured.out).splitlines()

    return lines


def test_a_few_games_are_printed_in_full(three: Path, shown: Shown) -> None:
    out = shown(three)
    assert out.count("replayed: identical to the record") == 3
    assert "3 of 3 games are identical" in out
    first = next(read_games(three)).record
    for text in (
        "game 1: index 0; world mini, weights of step 0, ssp-env ",
        f"question: {first.question}  (1 hop; right in this world: {first.answer})",
        "solver 1: right, paid 1",
        "outcome: invalid (format); proposer 0\n",
    ):
        assert text in "\n".join(out), text


def test_a_run_is_listed_a_line_a_game(run: Path, shown: Shown) -> None:
    out = shown(run)
    assert out[0].split()[:7] == [
        "game",
        "step",
        "index",
        "outcome",
        "reason",
        "solved",
        "proposer",
    ]
    assert [line.split()[:4] for line in (out[1], out[4], out[5])] == [
        ["1", "2", "0", "valid"],
        ["4", "2", "3", "void"],
        ["5", "10", "0", "valid"],
    ]
    assert "2/2" in out[1]
    assert shown(run / "games", "--limit", 2)[3:] == [
        "2 of 8 games; --limit 0 lists all; --game N prints one in full"
    ]
    void = "\n".join(shown(run, "--game", 4))
    assert "memory [calls: 3]\noutcome: void (engine)\n" in void
    assert "\x1b" not in void


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (("--step", "10", "--full"), [5, 6, 7, 8]),
        (("--step", "2-10", "--index", "1"), [2, 6]),
        (("--outcome", "void"), [4, 8]),
        (("--reason", "format"), [3, 7]),
        (("--game", "7"), [7]),
    ],
)
def test_games_are_chosen(
    run: Path, arguments: tuple[str, ...], numbers: list[int], shown: Shown
) -> None:
    lines = [line for line in shown(run, *arguments) if line.startswith("game ")]
    assert [int(line.split()[1].rstrip(":")) for line in lines] == numbers


def test_games_that_differ(run: Path, three: Path, shown: Shown) -> None:
    assert shown(run, "--check") == ["8 of 8 games are identical"]

    first, second, last = read_games(three)
    *plays, attempt = second.record.trajectories
    attempt = replace(attempt, searches=(replace(attempt.searches[0], query="\x1b[2J [bold]"),))
    record = replace(second.record, proposer_reward=0.5, trajectories=(*plays, attempt))
    write_games([first, replace(second, record=record), last], three)

    out = shown(three, "--check", status=1)
    assert out[0].startswith("game 2: index 1 differs: solver 2: searches[0].query: saved '\\x1b")
    assert out[1].endswith("differs: game: proposer_reward: saved 0.5, replayed 0.0")
    assert out[2] == "2 of 3 games are identical"
    shown(three, "--game", 1, status=0)
    shown(three, "--game", 2, status=1)


STRICT = """
class Strict:
    def judge(self, tasks):
        from ssp_env import Verdict
        return [Verdict(False) for _ in tasks]
"""


def test_another_judge_s_verdicts_are_shown(
    three: Path, shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "strict_judge.py").write_text(STRICT)
    assert shown(three, "--judge", "exact")[-1].startswith("exact: 0 of 4 verdicts change in 2 ")
    last = shown(three, "--judge", "strict_judge:Strict")[-1]
    assert "4 of 4 verdicts change in 2 valid games; mean solver reward 1.000 -> 0.000" in last
    assert "MODULE:NAME" in shown(three, "--judge", "exakt", status=2)[-1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hops", 7),
        ("truly_correct", False),
        ("right_answers", ("nobody",)),
        ("question_group", "hard"),
        ("weights_version", 5),
    ],
)
@pytest.mark.parametrize("origin", ["proposed", "given"])
def test_what_world_and_run_know_is_checked_though_the_digest_was_made_anew(
    origin: str, field: str, value: object, tmp_path: Path, words: WordTokenizer, shown: Shown
) -> None:
    world = MiniWorld()
    rules, run = rules_of(world, words, attempts=2), tmp_path / "run"
    if origin == "given":
        asked = world.questions(0, 1)[1:]
        played = GameBatch.of_questions(rules, asked, [0, 0])
        groups = [question.group for question in asked]
    else:
        played, groups = begin(rules, num_games=2), [None, None]
    play(played, by_role(propose()))
    records = [
        SavedGame(SavedRules.of(rules), record_game(game, rules, 2, group))
        for game, group in zip(played.games, groups, strict=False)
    ]
    (run / "games").mkdir(parents=True)
    (run / "config.yaml").write_text("world: mini\n")
    (run / "metrics.jsonl").write_text('{"step": 4, "staleness": 1.0}\n')
    file = run / "games" / "step_000004.jsonl"
    write_games(records, file)
    assert shown(run, "--check")[-1].endswith("games are identical")

    altered = replace(records[0], record=replace(records[0].record, **{field: value}))
    write_games([altered, *records[1:]], file)
    out = shown(run, "--check", status=1)
    assert f"differs: game: {field}" in "".join(out)
    assert f"differs: game: {field}" in "".join(shown(file, "--check", status=1))
