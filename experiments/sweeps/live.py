"""What a person sees of a sweep: a line per trial that has ended, a live table of the others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from experiments.sweeps.plan import Trial
from experiments.sweeps.results import Outcome
from ssp_env.commands.base import plural

BAR = 12
"""Characters of a bar."""
HEADS = ("trial", "", "step", "solver", "valid", "accuracy", "min")


class Board:
    """Shows trials as they begin, go on and end."""

    def __init__(
        self, total: int, *, done: int = 0, quiet: bool = False, console: Console | None = None
    ) -> None:
        """
        Args:
            total: how many trials the sweep has.
            done: how many have ended already.
            quiet: show nothing.
            console: where to; standard error when not given.
        """
        self._console = console if console is not None else Console(stderr=True, quiet=quiet)
        self._total, self._done, self._failed = total, done, 0
        self._stops = False
        self._running: dict[str, tuple[Trial, float, Mapping[str, Any]]] = {}
        self._began = time.monotonic()
        # Drawn anew each time, by a thread of its own: its clocks go on between two steps.
        self._live = Live(
            get_renderable=self._table,
            console=self._console,
            refresh_per_second=2,
            transient=True,
        )

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(f"{_clock(self._began)}  {text}"), soft_wrap=True)

    def stop(self) -> None:
        """Ctrl-C has come; trials are being ended. A second one has nothing more to say."""
        if not self._stops:
            self._stops = True
            self.note("stopping; this takes some seconds")

    def begin(self, trial: Trial) -> None:
        """A trial has been given to a process."""
        self._running[trial.name] = (trial, time.monotonic(), {})
        self._update()

    def step(self, trial: Trial, figures: Mapping[str, Any]) -> None:
        """A trial has done a step."""
        began = self._running[trial.name][1] if trial.name in self._running else time.monotonic()
        self._running[trial.name] = (trial, began, figures)
        self._update()

    def end(self, outcome: Outcome) -> None:
        """A trial has ended."""
        trial = outcome.trial
        began = self._end(trial)
        self._done += 1

        step = outcome.lines[-1]["step"]
        how = "" if outcome.state == "done" else f", {outcome.state}"
        groups = {group: value for group, value in outcome.accuracy.items() if group != "mean"}
        accuracy = "  ".join(f"{group}: {value:.3f}" for group, value in groups.items())
        accuracy = accuracy or "an outage hit its last evaluation"
        took = f"{_clock(began).strip()} min" if began else "earlier"
        self.note(f"{self._count()}  {trial}: {accuracy}  ({step} steps{how}, {took})")
        self._update()

    def fail(self, trial: Trial, why: str) -> None:
        """A trial has ended in an error; the others go on."""
        self._end(trial)
        self._failed += 1
        self.note(f"{self._count()}  {trial} FAILED: {why}")
        self._update()

    def _end(self, trial: Trial) -> float | None:
        running = self._running.pop(trial.name, None)
        return running[1] if running else None

    def _count(self) -> str:
        width = len(str(self._total))
        return f"{self._done + self._failed:{width}d}/{self._total}"

    def _update(self) -> None:
        if self._live.is_started:
            self._live.refresh()

    def _table(self) -> Group:
        table = Table.grid(padding=(0, 1))
        for head in HEADS:
            # Where there is little room, it is names that are cut.
            left = head in HEADS[:2]
            table.add_column(no_wrap=head != HEADS[0], justify="left" if left else "right")
        if self._running:
            table.add_row(*(Text(head, style="dim") for head in HEADS))
        for trial, began, figures in list(self._running.values()):
            table.add_row(*_cells(trial, began, figures))

        waiting = self._total - self._done - self._failed - len(self._running)
        failed = f", {self._failed} failed" if self._failed else ""
        line = (
            f"{self._done} of {plural(self._total, 'trial')} done{failed}, "
            f"{len(self._running)} running, "
            f"{waiting} waiting; {_clock(self._began).strip()} min"
        )
        return Group(table, Text(line, style="dim"))


def _cells(trial: Trial, began: float, figures: Mapping[str, Any]) -> tuple[Text, ...]:
    step, steps = int(figures.get("step", 0)), trial.config.steps
    full = BAR * step // steps
    bar = Text("━" * full, style="green") + Text("━" * (BAR - full), style="dim")
    names = ("solver_reward", "valid_rate", "accuracy")
    shown = (Text(_figure(figures.get(name))) for name in names)
    name = Text(str(trial), no_wrap=True, overflow="ellipsis")
    return name, bar, Text(f"{step}/{steps}"), *shown, Text(_clock(began).strip())


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _clock(began: float) -> str:
    seconds = int(time.monotonic() - began)
    return f"{seconds // 60:3d}:{seconds % 60:02d}"
