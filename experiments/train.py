"""``ssp train``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.cli import Chosen
from experiments.config import RunConfig
from experiments.run.checks import check_early
from experiments.run.process import (
    handling,
    ignore_at_exit,
    raise_interruption,
    status_of,
    uninterrupted,
)
from experiments.run.rundir import NO_CHECKPOINT, RunDirectory, fresh, newest
from ssp_env.errors import ConfigError, DataError, UnhealthyRun

UNHEALTHY = 3
"""Exit status of a run that was stopped because its figures went wrong."""


def run(
    chosen: Chosen,
    *,
    steps: int | None = None,
    solver_only: bool = False,
    out: Path | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> int:
    """Trains and prints base and final accuracy; see :func:`experiments.cli.train`."""
    more: dict[str, Any] = {"steps": steps, "solver_only": solver_only}
    if resume:
        out = out or newest(default_directory(chosen.config(**more)))
        config = _resumed(chosen, out, **more)
    else:
        config = chosen.config(**more)
        out = out or fresh(default_directory(config))

    check_early(config, out, resume)
    if not quiet:
        print(f"loading PyTorch ({config.preset}, {_steps(config.steps)})", file=sys.stderr)
    try:
        with handling(raise_interruption):
            from experiments.run.training import train

            summary = train(config, out, resume=resume, quiet=quiet)
    except KeyboardInterrupt as interruption:
        with uninterrupted():
            print(f"ssp: {after_interrupt(out)}", file=sys.stderr)
            ignore_at_exit()
            return status_of(interruption)
    except UnhealthyRun as error:
        print(f"ssp: {after_collapse(out, error)}", file=sys.stderr)
        return UNHEALTHY
    show(summary, out)
    return 0


def _resumed(chosen: Chosen, out: Path, **more: Any) -> RunConfig:
    """The settings in a run's directory; whatever else is given has to agree with them.

    Raises:
        DataError: they cannot be read; names the file.
    """
    held = RunDirectory(out).read_config()
    if chosen.preset not in (None, held.get("preset")):
        return chosen.config(**more)
    try:
        RunConfig(**held)
    except ConfigError as error:
        raise DataError(RunDirectory(out).config, str(error)) from None
    return chosen.config(held, **more)


def default_directory(config: RunConfig) -> Path:
    """Directory of a run that names none, if it is still free."""
    alone = "-solver-only" if config.learning.learning_roles == ("solver",) else ""
    return Path("runs") / f"{config.preset}{alone}-seed{config.seed}"


def after_interrupt(out: Path) -> str:
    """Sentence about what is left of an interrupted run, and how to resume it."""
    directory = RunDirectory(out)
    latest = directory.latest_checkpoint()
    if latest is None and directory.config.exists():
        return f"interrupted; {out} holds {NO_CHECKPOINT}"
    if latest is None:
        return "interrupted before the first step; nothing was written"
    return (
        f"stopped; saved up to step {latest[0]}. Go on with: ssp train --resume --out "
        f"{shlex.quote(str(out))}"
    )


def after_collapse(out: Path, error: UnhealthyRun) -> str:
    """Why a run was stopped, what helps, and where it is."""
    latest = RunDirectory(out).latest_checkpoint()
    assert latest is not None, "a run is saved before it is stopped"
    return (
        f"stopped after step {latest[0]}: {error}. Saved in {latest[1]}; to go on all the same: "
        f"ssp train --resume --out {shlex.quote(str(out))} (--set patience=null never stops)"
    )


def show(summary: dict[str, Any], out: Path) -> None:
    """Prints the result."""
    console = Console()
    title = f"accuracy on unseen questions ({summary['world']}, verifier: {summary['verifier']})"
    table = Table(title=title, title_justify="left")
    table.add_column("hops" if summary["world"] == "mini" else "group")
    for name in ("base", "final"):
        table.add_column(f"{name} [95% interval]", justify="right")

    for group in summary["accuracy"]["base"]:
        table.add_row(group, *(_cell(summary, name, group) for name in ("base", "final")))
    console.print(table)

    minutes = summary["wall_seconds"] / 60
    console.print(
        f"{_steps(summary['steps'])} in {minutes:.1f} minutes; everything is in {out}/",
        highlight=False,
        soft_wrap=True,
    )


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _cell(summary: dict[str, Any], name: str, group: str) -> str:
    if group not in summary["accuracy"][name]:
        return "-"
    low, high = summary["interval"][name][group]
    return f"{summary['accuracy'][name][group]:.3f} \\[{low:.2f}, {high:.2f}]"
