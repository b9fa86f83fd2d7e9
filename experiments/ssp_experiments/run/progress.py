"""Progress of a run: a bar with figures on a terminal, a line every few steps elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from ssp_agents.rollout import sampled

LINE_EVERY = 10
"""Steps between two lines where there is no terminal."""
BEAT = 10.0
"""Seconds between two lines that say what has been sampled so far."""


def sampled_here() -> str:
    """How much the engines of this process have sampled."""
    return f"{sampled.turns:,} turns, {sampled.tokens:,} tokens"


@contextmanager
def heartbeat(
    note: Callable[[str], object], count: Callable[[], str] = sampled_here
) -> Iterator[None]:
    """Says every few seconds what ``count`` has come to, by calls of ``note``."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT):
            note(f"{count()} so far")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Progress(Bar):
    """Shows steps, figures and accuracies as they come; a context, which holds the bar. ``done``
    steps of an earlier part of the run count."""

    def __init__(self, steps: int, *, done: int = 0, quiet: bool = False) -> None:
        shown = Console(stderr=True, quiet=quiet)
        self._steps, self._figures, self._seconds = steps, dict[str, float](), 0.0
        self._began = time.monotonic()
        super().__init__(
            TextColumn("[bold]self-play"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=shown,
            disable=not shown.is_terminal,
        )
        self._task = self.add_task("", total=steps, completed=done)

    def get_renderables(self) -> Iterator[RenderableType]:
        """The bar, and the latest figures below it."""
        yield from super().get_renderables()
        for name, value in self._cells().items():
            line = Text(no_wrap=True, overflow="ellipsis").append(f"{name:10}", "dim")
            yield line.append(value)

    def note(self, text: str) -> None:
        """Shows a line that stays."""
        seconds = int(time.monotonic() - self._began)
        clock = f"{seconds // 60:3d}:{seconds % 60:02d}"
        self.console.print(Text(f"{clock} {text}"), soft_wrap=self.disable)

    def step(self, step: int, figures: dict[str, float], seconds: float) -> None:
        """Shows that a step is done, and the seconds that it took."""
        self._figures, self._seconds = figures, seconds
        self.update(self._task, completed=step, refresh=True)
        if self.disable and (step % LINE_EVERY == 0 or step in (1, self._steps)):
            cells = "  ".join(f"{name} {value}" for name, value in self._cells().items())
            self.note(f"step {step}/{self._steps}  {cells}")

    def _cells(self) -> dict[str, str]:
        f = self._figures

        def shown(name: str) -> str:
            return f"{f[name]:.2f}" if name in f else "-"

        def both(name: str) -> str:
            return f"{shown(f'proposer_{name}')}/{shown(f'solver_{name}')}"

        shares = [(v, k.removeprefix("invalid_")) for k, v in f.items() if k.startswith("invalid_")]
        why = [f"{name} {share:.2f}" for share, name in sorted(shares, reverse=True)[:3]]
        void = f"  void {f['void_games']:.0f}" if f.get("void_games") else ""
        given, proposed = {}, {}
        if "given_games" in f:
            cells = f"{shown('given_accuracy')} right  {shown('given_uniform')} all alike"
            given["given"] = f"{cells}  searches {shown('given_searches')}"
            given["epoch"] = shown("given_epoch") + ("" if "proposer_tokens" in f else void)
        if "given_games" not in f or "proposer_tokens" in f:
            proposed = {
                "reward": f"{both('reward')} (proposer/solver)",
                "valid": f"{shown('valid_rate')}  true {shown('true_share')}{void}",
                "invalid": "  ".join(why) or "-",
                "hops": f"{shown('question_hops')}  searches {both('searches')}",
            }
        return {
            **given,
            **proposed,
            "seconds": f"{self._seconds:.2f} a step",
            "sampled": sampled_here(),
        }
