"""``ssp train``."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import chain, count
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

from ssp_env.errors import RunError, UnhealthyRun
from ssp_experiments.config import code_named
from ssp_experiments.options import Chosen, TrainOptions, plural
from ssp_experiments.run.checks import check_early
from ssp_experiments.run.process import (
    handling,
    quiet_libraries,
    raise_interruption,
    uninterrupted,
)
from ssp_experiments.run.rundir import RunDirectory

UNHEALTHY = 3
"""Exit status of a run that was stopped because its figures went wrong."""


def run(chosen: Chosen, options: TrainOptions) -> int:
    roles = ["solver"] if options.solver_only else None
    changes = {
        "steps": options.steps,
        "learning.learning_roles": roles,
        "learning.questions": options.questions,
    }
    resume, out = options.resume, options.out
    if out is None:
        kind = "-given" if options.questions else "-solver-only" if options.solver_only else ""
        name = f"{chosen.named_preset()}{kind}-seed{chosen.config(changes).seed}"
        out = newest(Path("runs") / name) if resume else fresh(Path("runs") / name)
    # A preset that is named has to be the one that the run began with, with all that was set.
    saved = RunDirectory(out).read_config() if resume and chosen.preset is None else None
    config = chosen.config(changes, saved)

    check_early(config, out, resume)
    if not options.quiet:
        print(f"loading PyTorch and Ray ({plural(config.steps, 'step')})", file=sys.stderr)
    quiet_libraries()
    code = chain(*(("--set", f"{name}={value}") for name, value in code_named(config).items()))
    again = shlex.join(["ssp", "train", "--resume", "--out", str(out), *code])
    try:
        with handling(raise_interruption):
            from ssp_experiments.run.training import train

            summary = train(config, out, resume=resume, quiet=options.quiet)
    except KeyboardInterrupt as interruption:
        with uninterrupted():
            directory = RunDirectory(out)
            if latest := directory.latest_checkpoint():
                left = f"stopped; saved up to step {latest[0]}. Go on with: {again}"
            elif directory.config.exists():
                left = f"interrupted before the first checkpoint. Start it over with: {again}"
            else:
                left = "interrupted before the first step; nothing was written"
            print(f"ssp: {left}", file=sys.stderr)
            return 128 + (SIGTERM if SIGTERM in interruption.args else SIGINT)
    except UnhealthyRun as error:
        text = f"To go on all the same: {again} (--set patience=null never stops)"
        print(f"ssp: stopped and saved: {error}. {text}", file=sys.stderr)
        return UNHEALTHY
    show(summary, out)
    return 0


def fresh(base: Path) -> Path:
    """``base``, or the first of ``base-2``, ``base-3`` and so on that does not exist yet."""
    numbered = (Path(f"{base}-{number}") for number in count(2))
    return next(path for path in chain([base], numbered) if not path.exists())


def newest(base: Path) -> Path:
    """The last of ``base``, ``base-2``, ``base-3`` and so on that holds a run."""
    pattern = re.compile(re.escape(base.name) + r"(?:-(\d+))?")
    folders = [config.parent for config in base.parent.glob("*/config.yaml")]
    runs = [(match, path) for path in folders if (match := pattern.fullmatch(path.name))]
    if not runs:
        raise RunError(f"there is no run {base} to resume; name its directory by --out")
    return max(runs, key=lambda run: int(run[0][1] or 1))[1]


def show(summary: dict[str, Any], out: Path) -> None:
    print(f"accuracy on unseen questions ({summary['world']}, verifier: {summary['verifier']})")
    head = "hops" if summary["world"] == "mini" else "group"
    print(f"{head:16}   {'base [interval]':18}   final [interval]")
    for group in summary["accuracy"]["base"]:
        cells = [f"{group:16}"]
        for name in ("base", "final"):
            low, high = summary["interval"][name][group]
            cells.append(f"{summary['accuracy'][name][group]:.3f} [{low:.2f}, {high:.2f}]")
        print("   ".join(cells))

    minutes, steps = summary["wall_seconds"] / 60, plural(summary["steps"], "step")
    print(f"{steps} in {minutes:.1f} minutes; everything is in {out}/")
