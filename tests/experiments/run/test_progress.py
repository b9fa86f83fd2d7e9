"""Progress of a run where there is no terminal, and on narrow ones; accuracies by group."""

from __future__ import annotations

import io
import re
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from ssp_agents.rollout import sampled
from ssp_env.game.outcome import Ending, Outage
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.judge.base import Verdict
from ssp_env.types import Question, Role
from ssp_experiments.run import progress as progress_module
from ssp_experiments.run.progress import Progress, heartbeat
from ssp_experiments.run.training import Accuracy, accuracies

FIGURES = {"valid_rate": 0.125, "invalid_unverified": 0.5}
GONE = Outage("engine", "it is gone")


def shown(steps: int, width: int = 100, terminal: bool = False, **figures: float) -> str:
    """All that a run of so many steps prints."""
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=terminal)
    with patch.object(progress_module, "Console", lambda **_: console):
        progress = Progress(steps)
    with progress:
        for step in range(1, steps + 1):
            progress.step(step, FIGURES | figures, 1.25)
        progress.note(f"accuracy final:  1: {Accuracy(1, 2, 3)}  2: {Accuracy(0, 0, 5, GONE)}")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_is_a_line_every_ten_steps() -> None:
    *lines, accuracy = shown(25, width=40, void_games=4.0).splitlines()
    steps = [match[1] for line in lines if (match := re.search(r"step (\d+)/25", line))]
    assert steps == ["1", "10", "20", "25"]
    assert "valid 0.12  true -  void 4  invalid unverified 0.50" in lines[1]
    assert "1: 0.500 (3 void)  2: - (5 void: it is gone)" in accuracy


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_cuts_lines_and_keeps_the_panel_s_height(width: int) -> None:
    printed = shown(3, width=width, terminal=True)
    panel = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed)
    assert max(len(line) for line in re.split(r"[\r\n]+", panel)) <= width
    assert len({len(ups) for ups in re.findall(r"(?:\x1b\[1A\x1b\[2K)+", printed)}) <= 1


def test_a_long_step_shows_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "BEAT", 0.05)
    monkeypatch.setattr(sampled, "turns", 1234)
    notes: SimpleQueue[str] = SimpleQueue()
    with heartbeat(notes.put):
        assert notes.get(timeout=30).startswith("1,234 turns, ")


# -- accuracies --------------------------------------------------------------------------------


def record(outcome: str, *right: bool) -> GameRecord:
    empty: dict[str, Any] = dict.fromkeys(GameRecord.__dataclass_fields__)
    # One's own reward may pay wrong answers a little, and right ones nothing.
    plays = tuple(
        TrajectoryRecord(
            Role.SOLVER, (), (), Ending.ACTION, "x", Verdict(correct), 0.0 if correct else -0.05
        )
        for correct in right
    )
    return GameRecord(**{**empty, "outcome": outcome, "trajectories": plays})


def question(group: str) -> Question:
    return Question("q", "what ?", ("x",), group)


def test_accuracy_is_the_first_attempt_s_by_group() -> None:
    asked = [question(group) for group in ("2", "1", "2", "2", "1")]
    played = [
        record("valid", True),
        record("valid", False, True),
        record("valid", False),
        record("void"),
        record("invalid"),
    ]
    assert accuracies(asked, played) == {"1": Accuracy(0, 2), "2": Accuracy(1, 2, 1)}
