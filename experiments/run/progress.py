"""What a person sees of a run: a live panel on a terminal, a line every few steps elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from experiments.run.evaluation import Accuracy

LINE_EVERY = 10
"""Steps between two lines where there is no terminal."""


class Progress:
    """Shows steps, figures and accuracies as they come."""

    def __init__(
        self, steps: int, *, done: int = 0, quiet: bool = False, console: Console | None = None
    ) -> None:
        """
        Args:
            steps: how many there are to be.
            done: how many an earlier part of the run has done.
            quiet: show nothing.
            console: where to; standard error when not given.
        """
        self._console = console if console is not None else Console(stderr=True, quiet=quiet)
        self._steps = steps
        self._bar = Bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("self-play", total=steps, completed=done)
        self._figures: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._began = time.monotonic()
        self._live = Live(self._panel(), console=self._console, refresh_per_second=4)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def show_panel(self) -> None:
        """From now on, steps are shown in a live panel, where there is a terminal."""
        if self._console.is_terminal and not self._live.is_started:
            self._live.start()

    def note(self, text: str) -> None:
        """A line that stays."""
        if not self._console.is_terminal:
            self._console.print(Text(f"{self._clock()} {text}"), soft_wrap=True)
            return

        # In columns, so that what does not fit goes on under its own beginning.
        line = Table.grid(padding=(0, 1))
        line.add_row(Text(self._clock(), style="dim"), Text(text))
        self._console.print(line)

    def accuracy(self, label: str, result: dict[str, Accuracy]) -> None:
        """Accuracies by group; how many questions an outage hit, and what they could have been."""
        parts = []
        for group, a in result.items():
            low, high = a.bounds
            void = f" ({a.void} void: {low:.3f} to {high:.3f})" if a.void else ""
            parts.append(f"{group}: {a.value:.3f}{void}" if a.asked else f"{group}: -{void}")

        self.note(f"accuracy {label}:  " + "  ".join(parts))

    def step(self, step: int, figures: dict[str, float], seconds: dict[str, float]) -> None:
        """One step is done."""
        self._figures, self._seconds = figures, seconds
        self._bar.update(self._task, completed=step)
        self.show_panel()

        if self._console.is_terminal:
            self._live.update(self._panel())
        elif step % LINE_EVERY == 0 or step == self._steps or step == 1:
            self.note(
                f"step {step}/{self._steps}  "
                + "  ".join(f"{name} {value}" for name, value in self._brief())
            )

    def _brief(self) -> list[tuple[str, str]]:
        """What a line has room for."""
        f = self._figures
        brief = [
            ("proposer", _show(f, "proposer_reward")),
            ("solver", _show(f, "solver_reward")),
            ("valid", _show(f, "valid_rate")),
            ("true", _show(f, "true_share")),
            ("hops", _show(f, "question_hops")),
            ("searches", f"{_show(f, 'proposer_searches')}/{_show(f, 'solver_searches')}"),
        ]
        if f.get("void_games"):
            brief.append(("void", f"{f['void_games']:.0f}"))

        return [*brief, ("seconds", _show(self._seconds, "step"))]

    def _panel(self) -> Group:
        f, s = self._figures, self._seconds
        table = Table.grid(padding=(0, 3))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        reasons = sorted(
            ((v, k.removeprefix("invalid_")) for k, v in f.items() if k.startswith("invalid_")),
            reverse=True,
        )
        tokens = (
            f"{f['policy_tokens'] / s['engine']:,.0f}"
            if f.get("policy_tokens") and s.get("engine")
            else "-"
        )
        games = "   ".join(
            f"{kind} {_count(f, f'{kind}_games')}" for kind in ("reused", "composed", "void")
        )
        cells = [
            (
                "reward",
                f"proposer {_show(f, 'proposer_reward')}   solver {_show(f, 'solver_reward')}",
            ),
            (
                "valid",
                f"{_show(f, 'valid_rate')}   "
                + "  ".join(f"{name} {share:.2f}" for share, name in reasons[:3]),
            ),
            (
                "accepted",
                f"true {_show(f, 'true_share')}   ambiguous {_show(f, 'ambiguous_share')}",
            ),
            ("questions", f"hops {_show(f, 'question_hops')}   {games}"),
            (
                "searches",
                f"proposer {_show(f, 'proposer_searches')}   solver {_show(f, 'solver_searches')}",
            ),
            ("speed", f"{_show(s, 'step')} s a step   {tokens} policy tokens/s"),
        ]
        for name, value in cells:
            table.add_row(name, Text(value))

        return Group(self._bar, table)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60:3d}:{seconds % 60:02d}"


def _show(figures: dict[str, float], name: str) -> str:
    return f"{figures[name]:.2f}" if name in figures else "-"


def _count(figures: dict[str, float], name: str) -> str:
    return f"{figures[name]:.0f}" if name in figures else "-"
