"""What is shown of a run where there is no terminal, and on narrow ones."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from experiments.run.evaluation import Accuracy
from experiments.run.progress import Progress

FIGURES = {
    "proposer_reward": 0.25,
    "solver_reward": 0.5,
    "valid_rate": 0.125,
    "true_share": 1.0,
    "ambiguous_share": 0.0,
    "question_hops": 2.5,
    "proposer_searches": 2.0,
    "solver_searches": 1.5,
    "reused_games": 3.0,
    "composed_games": 1.0,
    "void_games": 0.0,
    "policy_tokens": 3000.0,
    "invalid_unverified": 0.5,
    "invalid_forged_information": 0.25,
    "invalid_budget_searches": 0.0625,
    "invalid_spoiler": 0.03125,
}
SECONDS = {"step": 1.25, "engine": 0.5}


def shown(steps: int, width: int = 100, terminal: bool = False, **figures: float) -> str:
    """All that a run of so many steps prints."""
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=terminal)
    with Progress(steps, console=console) as progress:
        for step in range(1, steps + 1):
            progress.step(step, FIGURES | figures, SECONDS)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_line_every_ten_steps_without_a_terminal() -> None:
    lines = shown(25).splitlines()
    assert [re.search(r"step (\d+)/25", line)[1] for line in lines] == ["1", "10", "20", "25"]  # type: ignore[index]
    assert lines[1].split("step 10/25  ")[1] == (
        "proposer 0.25  solver 0.50  valid 0.12  true 1.00  hops 2.50  searches 2.00/1.50  "
        "seconds 1.25"
    )


def test_outages_are_shown_where_there_are_some() -> None:
    assert "void 4  seconds" in shown(1, void_games=4.0)


def test_lines_are_never_broken_in_a_file() -> None:
    console = Console(file=io.StringIO(), width=40)
    with Progress(1, console=console) as progress:
        progress.accuracy("base", {str(hops): Accuracy(hops, 10) for hops in range(9)})
    assert isinstance(console.file, io.StringIO)
    (line,) = console.file.getvalue().splitlines()
    assert "accuracy base:  0: 0.000  1: 0.100" in line


def test_panel_shows_all_figures_that_matter() -> None:
    panel = shown(1, terminal=True)
    for text in (
        "proposer 0.25   solver 0.50",
        "0.12   unverified 0.50  forged_information 0.25  budget_searches 0.06",
        "true 1.00   ambiguous 0.00",
        "hops 2.50   reused 3   composed 1   void 0",
        "proposer 2.00   solver 1.50",
        "1.25 s a step   6,000 policy tokens/s",
    ):
        assert text in panel
    assert "spoiler" not in panel


@pytest.mark.parametrize("width", [40, 60, 80])
def test_narrow_terminal_cuts_lines_and_keeps_the_panel_s_height(width: int) -> None:
    panel = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown(3, width=width, terminal=True))
    assert max(len(line) for line in re.split(r"[\r\n]+", panel)) <= width
    heights = {
        len(ups)
        for ups in re.findall(r"(?:\x1b\[1A\x1b\[2K)+", shown(3, width=width, terminal=True))
    }
    assert len(heights) <= 1


def test_figures_that_a_step_does_not_have_are_dashes() -> None:
    console = Console(file=io.StringIO(), width=100)
    with Progress(1, console=console) as progress:
        progress.step(1, {"valid_rate": 0.0}, {"step": 0.5})
    assert isinstance(console.file, io.StringIO)
    assert "proposer -  solver -  valid 0.00" in console.file.getvalue()


def test_void_questions_are_told() -> None:
    console = Console(file=io.StringIO(), width=200)
    with Progress(1, console=console) as progress:
        progress.accuracy("final", {"1": Accuracy(1, 2, 3), "2": Accuracy(0, 0, 5)})
    assert isinstance(console.file, io.StringIO)
    assert (
        "accuracy final:  1: 0.500 (3 void: 0.200 to 0.800)  2: - (5 void: 0.000 to 1.000)"
        in console.file.getvalue()
    )


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, quiet=True) as progress:
        progress.note("hello")
        progress.step(1, FIGURES, SECONDS)
    assert capsys.readouterr() == ("", "")
