"""What a person sees of a run: a live panel on a terminal, a line every few steps elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from experiments.evaluation import Accuracy

LINE_EVERY = 10
"""Steps between two lines where there is no terminal."""


class Progress:
    """Shows steps, figures and accuracies as they come."""

    def __init__(self, steps: int, *, quiet: bool = False, console: Console | None = None) -> None:
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
        self._task = self._bar.add_task("self-play", total=steps)
        self._figures: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._began = time.monotonic()
        self._live = Live(self._panel(), console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live.is_started:
            self._live.stop()

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(f"{self._clock()} {text}", highlight=False)

    def accuracy(self, label: str, result: dict[str, Accuracy]) -> None:
        """Accuracies with their intervals."""
        parts = [f"{group}: {a.value:.3f} [{a.interval()[0]:.2f}, {a.interval()[1]:.2f}]" for group, a in result.items()]
        self.note(f"accuracy {label}:  " + "   ".join(parts).replace("[", r"\["))

    def step(self, step: int, figures: dict[str, float], seconds: dict[str, float]) -> None:
        """One step is done."""
        self._figures, self._seconds = figures, seconds
        self._bar.update(self._task, completed=step)
        if self._console.is_terminal:
            self._live.update(self._panel())
        elif step % LINE_EVERY == 0 or step == self._steps or step == 1:
            f = figures
            line = (
                f"step {step}/{self._steps}  proposer {_show(f, 'proposer_reward')}  solver {_show(f, 'solver_reward')}  "
                f"valid {_show(f, 'valid_rate')}  hops {_show(f, 'question_hops')}  searches "
                f"{_show(f, 'proposer_searches')}/{_show(f, 'solver_searches')}  true {_show(f, 'true_share')}  "
                f"{seconds['step']:.1f} s"
            )
            self.note(line)

    def _panel(self) -> Group:
        f, s = self._figures, self._seconds
        table = Table.grid(padding=(0, 3))
        reasons = sorted(((v, k.removeprefix("invalid_")) for k, v in f.items() if k.startswith("invalid_")), reverse=True)
        rate = f["policy_tokens"] / s["engine"] if f.get("policy_tokens") and s.get("engine") else 0.0
        cells = [
            ("reward", f"proposer {_show(f, 'proposer_reward')}   solver {_show(f, 'solver_reward')}"),
            ("valid", f"{_show(f, 'valid_rate')}   " + "  ".join(f"{name} {share:.2f}" for share, name in reasons[:3])),
            ("accepted", f"true {_show(f, 'true_share')}   ambiguous {_show(f, 'ambiguous_share')}"),
            ("questions", f"hops {_show(f, 'question_hops')}   reused {f.get('reused_games', 0):.0f}   void {f.get('void_games', 0):.0f}"),
            ("searches", f"proposer {_show(f, 'proposer_searches')}   solver {_show(f, 'solver_searches')}"),
            ("speed", f"{s.get('step', 0):.2f} s a step   {rate:,.0f} policy tokens/s"),
        ]
        for name, value in cells:
            table.add_row(Text(name, style="dim"), value)
        return Group(self._bar, table)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60:3d}:{seconds % 60:02d}"


def _show(figures: dict[str, float], name: str) -> str:
    return f"{figures[name]:.2f}" if name in figures else "-"
