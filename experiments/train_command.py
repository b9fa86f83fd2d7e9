"""``ssp train``."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.config import RunConfig, load_preset, make_config, override


def run(arguments: Namespace) -> int:
    """Trains and prints base and final accuracy."""
    config = settings(arguments)
    if arguments.solver_only:
        from experiments.training import solver_only

        config = solver_only(config)
    suffix = "-solver-only" if arguments.solver_only else ""
    out = arguments.out or f"runs/{config.preset}{suffix}-seed{config.seed}"
    from experiments.training import train

    try:
        summary = train(config, out, resume=arguments.resume, quiet=arguments.quiet)
    except KeyboardInterrupt:
        print(f"stopped; the same command with --resume --out {out} goes on", file=sys.stderr)
        return 130
    show(summary, out)
    return 0


def settings(arguments: Namespace) -> RunConfig:
    """Preset, then the command's own options, then ``--set``.

    Raises:
        ConfigError: an unknown preset or setting, or a value that cannot work.
    """
    values = load_preset(arguments.preset)
    for name in ("seed", "steps", "world", "model"):
        value = getattr(arguments, name, None)
        if value is not None:
            values[name] = value
    if getattr(arguments, "verifier", None) is not None:
        values.setdefault("game", {})["verifier"] = arguments.verifier
    for assignment in arguments.set:
        override(values, assignment)
    return make_config(values)


def show(summary: dict[str, Any], out: str) -> None:
    """Prints the result."""
    console = Console()
    title = f"accuracy on unseen questions ({summary['world']}, verifier: {summary['verifier']})"
    table = Table(title=title, title_justify="left")
    table.add_column("hops" if summary["world"] == "mini" else "group")
    for name in ("base", "final"):
        table.add_column(f"{name} [95% interval]", justify="right")
    for group in summary["accuracy"]["base"]:
        cells = [
            f"{summary['accuracy'][name][group]:.3f} \\[{summary['interval'][name][group][0]:.2f}, "
            f"{summary['interval'][name][group][1]:.2f}]"
            for name in ("base", "final")
        ]
        table.add_row(group, *cells)
    console.print(table)
    minutes = summary["wall_seconds"] / 60
    console.print(f"{summary['steps']} steps in {minutes:.1f} minutes; everything is in {out}/", highlight=False)
