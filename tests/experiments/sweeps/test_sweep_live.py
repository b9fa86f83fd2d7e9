"""What a person sees of a sweep while it is played."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from experiments.config import load_preset, make_config
from experiments.sweeps.live import Board
from experiments.sweeps.plan import Trial
from experiments.sweeps.results import Outcome

CONFIG = make_config({**load_preset("tiny"), "steps": 4})
FIGURES = {"step": 2, "solver_reward": 0.5, "accuracy": 0.75}


def trial(arm: str) -> Trial:
    return Trial(arm, 7, f"{arm}-seed7", {}, CONFIG)


def outcome(arm: str, state: str = "done") -> Outcome:
    lines = [{"step": 0, "accuracy": {"1": 0.5}}, {"step": 4, "accuracy": {"1": 1.0, "2": 0.25}}]
    return Outcome(trial(arm), state, lines, None)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())


def test_one_line_per_trial_without_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=40)
    with Board(4, done=1, console=console) as board:
        for arm in ("a", "b", "c"):
            board.begin(trial(arm))
            board.step(trial(arm), FIGURES)
        board.end(outcome("a"))
        board.end(outcome("b", "stopped"))
        board.fail(trial("c"), "RunError: the disk is full")
        board.stop()
        board.stop()
    assert [line.split(maxsplit=1)[1] for line in shown(console).splitlines()] == [
        "2/4  a, seed 7: 1: 1.000  2: 0.250  (4 steps, 0:00 min)",
        "3/4  b, seed 7: 1: 1.000  2: 0.250  (4 steps, stopped, 0:00 min)",
        "4/4  c, seed 7 FAILED: RunError: the disk is full",
        "stopping; this takes some seconds",
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_live_table_fits_a_narrow_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=True)
    long = trial("proposer_weight=0.01, noise_documents=4, strategy=periodic_reset")
    with Board(3, console=console) as board:
        board.begin(long)
        board.begin(trial("b"))
        board.step(long, FIGURES)
        rows = shown(console).splitlines()
    assert max(map(len, re.split(r"[\r\n]+", "\n".join(rows)))) <= width
    (row,) = [row for row in rows if "2/4" in row][-1:]
    assert re.search(r"prop.*… +━{12} +2/4 +0\.50 +- +0\.75 +0:00", row)
    assert "0 of 3 trials done, 2 running, 1 waiting" in shown(console)


def test_a_single_trial_is_no_trials() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with Board(1, console=console):
        pass
    assert "0 of 1 trial done, 0 running, 1 waiting" in shown(console)


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Board(1, quiet=True) as board:
        board.begin(trial("a"))
        board.end(outcome("a"))
    assert capsys.readouterr() == ("", "")
