"""``ssp sweep``: many runs that differ in some settings, side by side, into one table."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ssp_env.config import named
from ssp_env.disk import make_directories, remove_empty, write_atomically
from ssp_env.errors import ConfigError, RunError, SSPError, UsageError
from ssp_experiments.config import CODE, check_code, shipped
from ssp_experiments.options import Chosen, SweepOptions, Verified, plural
from ssp_experiments.sweeps.definition import (
    ENDED,
    Sweep,
    SweepDirectory,
    Trial,
    read_sweep,
    trials,
)
from ssp_experiments.sweeps.results import Results


def run(chosen: Verified, options: SweepOptions, file: str | None) -> int:
    """Plays what is left of a sweep, and prints its tables."""
    if file is None:
        for known in shipped("sweeps"):
            print(f"{known}: {', '.join(read_sweep(known).all_arms())}")
        return 0

    name = Path(file).stem
    directory = SweepDirectory(options.out or Path("runs") / "sweeps" / name)
    commands: list[str] = []
    if options.resume or options.tables:
        sweep, commands = directory.read(name)
    else:
        sweep = read_sweep(file)
    if options.tables:
        if (chosen, replace(options, out=None)) != (Verified(), SweepOptions(tables=True)):
            raise UsageError("--tables takes --out alone: it makes the tables of what has ended")
        _finish(name, sweep, commands, directory)
        return 0

    sweep = _changed(sweep, chosen, options)
    planned = trials(sweep)
    for trial in planned:
        with named(trial.name):
            check_code(trial.config, _allowed(chosen, options))
            trial.config.check()
    if options.dry_run:
        arms = sweep.all_arms()
        for arm, settings in arms.items():
            print(f"{arm}: {json.dumps(settings)}")
        steps = " or ".join(map(str, sorted({trial.config.steps for trial in planned})))
        counts = f"{plural(len(arms), 'arm')}, {plural(len(sweep.seeds), 'seed')}"
        print(f"{plural(len(planned), 'trial')}: {counts}, {steps} steps each")
        return 0

    check_trials(planned, directory, options.resume)
    left = [trial for trial in planned if directory.state(trial) not in ENDED]
    if left:
        commands = [*dict.fromkeys([*commands, shlex.join(["ssp", *sys.argv[1:]])])]
    failed: dict[str, str] = {}
    with directory.claimed(name, sweep, commands):
        if not options.quiet:
            done = len(planned) - len(left)
            kept = f", as {directory.definition} says" if options.resume else ""
            print(f"{plural(len(left), 'trial')} to run, {done} done{kept}", file=sys.stderr)
        if left:
            from ssp_experiments.sweeps.tuning import tune_trials

            try:
                failed = tune_trials(left, directory, options)
            except KeyboardInterrupt:
                words = ["ssp", "sweep", file, "--out", str(directory.path), "--resume"]
                words += ["--keep-checkpoints"] if options.keep_checkpoints else []
                words += ["--parallel", str(options.parallel)] if options.parallel else []
                print(f"ssp: stopped; continue with: {shlex.join(words)}", file=sys.stderr)
                raise
        for trial in left:
            if trial.name in failed:
                lines = failed[trial.name].strip().splitlines()
                # The exception, and what notes add to it.
                begins = [i for i, line in enumerate(lines) if re.match(r"[\w.]+(: |$)", line)]
                why = " ".join(lines[max(begins, default=-1) :])
                print(f"{trial} FAILED: {why} ({directory.failure(trial)})", file=sys.stderr)
        _finish(name, sweep, commands, directory)
    return 1 if failed else 0


def _changed(sweep: Sweep, chosen: Verified, options: SweepOptions) -> Sweep:
    """The sweep with what the command line asks for; one that is resumed keeps its arms."""
    if chosen.seed is not None:
        raise ConfigError("--seed", chosen.seed, "give --seeds, each arm is trained with each")
    seeds = options.seeds or sweep.seeds
    if options.resume:
        if options.arms:
            fix = "a sweep that is resumed keeps the arms that it began with; leave it out"
            raise ConfigError("--arms", options.arms, fix)
        seeds = tuple(dict.fromkeys([*sweep.seeds, *seeds]))
    elif options.arms:
        sweep = sweep.choose(options.arms)

    return sweep.replace(
        seeds=seeds,
        set={**sweep.set, **chosen.changes({"steps": options.steps})},
        preset=chosen.preset or sweep.preset,
    )


def _allowed(chosen: Chosen, options: SweepOptions) -> set[tuple[str, str]]:
    """The code that the command line names, by setting."""
    changes = chosen.changes()
    named = {str(changes[name]) for name in CODE if name in changes}
    return {(name, value) for name in CODE for value in named | {*options.code}}


def check_trials(planned: Sequence[Trial], directory: SweepDirectory, resume: bool) -> None:
    """Finds out what would make the sweep fail, before anything is written or played."""
    from ssp_experiments.planner import check_memory
    from ssp_experiments.run.checks import open_training

    if not resume and directory.path.is_dir() and any(directory.path.iterdir()):
        fix = "continue the sweep in it by --resume, or choose another --out"
        raise RunError(f"{directory.path} is not empty; {fix}")
    remove_empty(make_directories(directory.trials))
    for trial in planned:
        run = directory.run(trial)
        if run.config.exists():
            run.check(trial.config, resume=True)
            if directory.state(trial) not in ENDED and not run.kept_checkpoints():
                run.check_unsaved(trial.config.checkpoint_every)
    # Seeds change nothing of what is checked.
    for trial in {trial.arm: trial for trial in planned}.values():
        check_memory(trial.config)
        open_training(trial.config)


def _finish(name: str, sweep: Sweep, commands: list[str], directory: SweepDirectory) -> None:
    """Writes results, tables and figure, and prints the tables."""
    results = Results(sweep, trials(sweep), directory)
    tables = results.tables()
    if not tables:
        raise SSPError(f"no trial has ended; the run directories are in {directory.trials}")

    summaries = [run.summary for _, run in results.ended if run.summary]
    commits = ", ".join(sorted({summary["git_commit"] or "unknown" for summary in summaries}))
    machines = ", ".join(sorted({summary["machine"] for summary in summaries}))
    seeds = ", ".join(sorted({str(trial.seed) for trial, _ in results.ended}))
    minutes = float(results.steps["seconds.wall"].sum()) / 60
    text = "\n\n".join(map(str, tables)) + "\n"
    page = (
        f"# {name}\n\n"
        f"{', then '.join(f'`{command}`' for command in commands)}, {datetime.now(UTC):%Y-%m-%d}, "
        f"commit {commits}, {machines}. Preset `{sweep.preset}`, seeds "
        f"{seeds}; ± is half of a 95% interval over seeds (Student's t). "
        f"{plural(len(results.ended), 'trial')} took {minutes:.1f} minutes, added up over "
        f"trials.\n\n![accuracy of all arms, and its curves](figure.png)\n\n{text}"
    )
    write_atomically(directory.path / "tables.md", page)
    write_atomically(directory.path / "results.csv", results.steps.to_csv(index=False))
    results.draw(directory.path / "figure.png")
    print(text)
    print(f"everything is in {directory.path}/ (tables.md, figure.png, results.csv, trials/)")
