"""``ssp train``."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.cli import DEFAULT_PRESET, Chosen
from experiments.run.checks import check_early
from experiments.run.process import (
    handling,
    ignore_at_exit,
    quiet_libraries,
    raise_interruption,
    status_of,
    uninterrupted,
)
from experiments.run.rundir import NO_CHECKPOINT, RunDirectory
from ssp_env.commands.base import plural
from ssp_env.errors import RunError, UnhealthyRun

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
    roles = ["solver"] if solver_only else None
    options = {"steps": steps, "learning.learning_roles": roles}
    if out is None:
        base = default_directory(chosen, solver_only)
        out = newest(base) if resume else fresh(base)
    # A preset that is named has to be the one that the run began with, with all that was set.
    held = RunDirectory(out).read_config() if resume and chosen.preset is None else None
    config = chosen.config(options, held)

    check_early(config, out, resume)
    if not quiet:
        print(f"loading PyTorch and Ray ({plural(config.steps, 'step')})", file=sys.stderr)
    quiet_libraries()
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


def default_directory(chosen: Chosen, solver_only: bool) -> Path:
    """Directory of a run that names none, if it is still free."""
    config = chosen.config()
    alone = "-solver-only" if solver_only else ""
    return Path("runs") / f"{chosen.preset or DEFAULT_PRESET}{alone}-seed{config.seed}"


def fresh(base: Path) -> Path:
    """``base``, or the first of ``base-2``, ``base-3`` and so on that does not exist yet."""
    path, number = base, 1
    while path.exists():
        number += 1
        path = Path(f"{base}-{number}")
    return path


def newest(base: Path) -> Path:
    """The last of ``base``, ``base-2``, ``base-3`` and so on that holds a run."""
    pattern = re.compile(re.escape(base.name) + r"(?:-(\d+))?")
    held = [config.parent for config in base.parent.glob("*/config.yaml")]
    runs = [(match, path) for path in held if (match := pattern.fullmatch(path.name))]
    if not runs:
        raise RunError(f"there is no run {base} to resume; name its directory by --out")
    return max(runs, key=lambda run: int(run[0][1] or 1))[1]


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
        f"ssp train --resume --out {shlex.quote(str(out))} (--set health.patience=null never stops)"
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
    steps = plural(summary["steps"], "step")
    console.print(
        f"{steps} in {minutes:.1f} minutes; everything is in {out}/",
        highlight=False,
        soft_wrap=True,
    )


def _cell(summary: dict[str, Any], name: str, group: str) -> str:
    if group not in summary["accuracy"][name]:
        return "-"
    low, high = summary["interval"][name][group]
    return f"{summary['accuracy'][name][group]:.3f} \\[{low:.2f}, {high:.2f}]"
