"""``ssp train``."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.config import RunConfig, load_preset, make_config
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

DEFAULT_PRESET = "tiny"
UNHEALTHY = 3
"""Exit status of a run that was stopped because its figures went wrong."""


def run(arguments: Namespace) -> int:
    """Trains and prints base and final accuracy."""
    config, out = plan(arguments)
    check_early(config, out, arguments.resume)
    if not arguments.quiet:
        print(f"loading PyTorch ({config.preset}, {_steps(config.steps)})", file=sys.stderr)
    try:
        with handling(raise_interruption):
            from experiments.run.training import train

            summary = train(config, out, resume=arguments.resume, quiet=arguments.quiet)
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


def plan(arguments: Namespace) -> tuple[RunConfig, Path]:
    """Settings and directory of the run that a command line asks for.

    A resumed run starts from the settings in its directory; whatever else is given has to agree
    with them.

    Raises:
        SSPError: an unknown preset or setting, a value that cannot work, or nothing to resume.
    """
    preset = arguments.preset or DEFAULT_PRESET
    if not arguments.resume:
        config = settings(arguments, load_preset(preset))
        return config, Path(arguments.out) if arguments.out else fresh(default_directory(config))

    out = Path(arguments.out or newest(default_directory(settings(arguments, load_preset(preset)))))
    held = RunDirectory(out).read_config()
    agrees = arguments.preset in (None, held.get("preset"))
    if agrees:
        _check_held(held, RunDirectory(out).config)
    return settings(arguments, held if agrees else load_preset(preset)), out


def _check_held(values: dict[str, Any], file: Path) -> None:
    """Makes sure that a run's own settings can be read, before others are laid over them.

    Raises:
        DataError: they cannot; names the file.
    """
    try:
        RunConfig(**values)
    except ConfigError as error:
        raise DataError(file, str(error)) from None


def settings(arguments: Namespace, values: dict[str, Any]) -> RunConfig:
    """What to start from, then the command's own options, then ``--set``.

    Raises:
        ConfigError: an unknown setting, or a value that cannot work.
    """
    names = ("seed", "steps", "world", "model", "rules", "verifier", "search", "solver_only")
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    return make_config(values, set=arguments.set, **given)


def default_directory(config: RunConfig) -> Path:
    """Where a run goes that names no directory, if that is still free."""
    alone = "-solver-only" if config.learning.learning_roles == ("solver",) else ""
    return Path("runs") / f"{config.preset}{alone}-seed{config.seed}"


def after_interrupt(out: Path) -> str:
    """What is left of an interrupted run, and how to go on with it."""
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
    worst, best = summary["bounds"][name][group]
    void = f" (void: {worst:.3f} to {best:.3f})" if worst != best else ""
    return f"{summary['accuracy'][name][group]:.3f} \\[{low:.2f}, {high:.2f}]{void}"
