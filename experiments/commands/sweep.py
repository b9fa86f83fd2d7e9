"""``ssp sweep``: many runs that differ in some settings, side by side, into one table."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Shown

from experiments.config import parse_assignment, search_section
from experiments.run.provenance import git_commit, machine
from experiments.run.rundir import flat
from experiments.sweeps.definition import Sweep, find, read_sweep, shipped
from experiments.sweeps.directory import SweepDirectory
from experiments.sweeps.plan import (
    Trial,
    check_settings,
    check_trials,
    choose,
    extend,
    missing_models,
    overridden,
    trials,
    unequal_answers,
)
from experiments.sweeps.results import Outcome, read_outcomes, rows, write_rows
from experiments.sweeps.reuse import Found, find_played, sweeps_in, take
from experiments.sweeps.source import Source
from experiments.sweeps.tables import Table, as_data, left_out, make_tables, markdown, show
from ssp_env.commands.base import plural
from ssp_env.disk import make_directories, write_atomically
from ssp_env.errors import ConfigError, SSPError

ENDED = ("done", "stopped", "ended early")


def run(arguments: Namespace) -> int:
    """Plays what is left of a sweep, and prints its tables."""
    if arguments.list:
        return _list()
    if arguments.name is None:
        raise SSPError(f"name a sweep ({', '.join(shipped())}) or a YAML file of your own")
    if arguments.parallel is not None and arguments.parallel < 1:
        raise ConfigError("--parallel", arguments.parallel, "must be at least 1")

    source = Source(find(arguments.name))
    name = source.path.stem
    directory = SweepDirectory(arguments.out or Path("runs") / "sweeps" / name)
    if arguments.tables:
        held = directory.read(name)
        _check_tables(held, arguments)
        _finish(name, held, trials(held, source), directory)
        return 0

    sweep = _resumed(directory.read(name), source, arguments) if arguments.resume else None
    sweep = sweep or _begun(read_sweep(source), arguments)
    planned = trials(sweep, source)
    now = _now(planned, arguments)
    reused = _reusable(sweep, now, directory, arguments.reuse or ())
    unequal = unequal_answers(planned)
    for notice in (*overridden(now, _changes(arguments)), *([unequal] if unequal else ())):
        print(f"ssp: {notice}", file=sys.stderr)
    if arguments.dry_run:
        _tell([*missing_models(now), *reused])
        return _show_plan(sweep, now)

    directory.check(now, arguments.resume)
    _check_packages()
    check_trials(now, source)
    command = shlex.join(["ssp", *sys.argv[1:]])
    plays = any(directory.state(trial) not in ENDED for trial in now)
    with directory.claimed(name, sweep, command, plays):
        _take(sweep, reused, directory, arguments.quiet)
        failed = _play(sweep, now, directory, arguments)
        _finish(name, sweep, planned, directory)
    return 1 if failed else 0


def _begun(defined: Sweep, arguments: Namespace) -> Sweep:
    """A new sweep: what its file says, with what the command line says of it."""
    sweep = _changed(defined, arguments)
    if arguments.seeds is not None:
        sweep = replace(sweep, seeds=tuple(arguments.seeds))
    return choose(sweep, arguments.arms)


def _resumed(held: Sweep, source: Source, arguments: Namespace) -> Sweep:
    """A sweep that is gone on with: all that it had, with the arms and seeds that are named."""
    sweep = _changed(held, arguments)
    check_settings(trials(held, source), trials(sweep, source))
    return extend(sweep, read_sweep(source), arguments.arms, arguments.seeds)


def _now(planned: Sequence[Trial], arguments: Namespace) -> list[Trial]:
    """The trials that this command is to play: those of the arms and seeds that it names."""
    arms, seeds = arguments.arms, arguments.seeds
    return [
        trial
        for trial in planned
        if (not arms or trial.arm in arms) and (seeds is None or trial.seed in seeds)
    ]


def _check_tables(held: Sweep, arguments: Namespace) -> None:
    """Tables are of all that a sweep has, so that nobody reads a choice of trials for all of them.

    Raises:
        ConfigError: the command line asks for some arms or seeds alone.
        RunError: it names other settings.
    """
    for name, given, has in (
        ("--seeds", arguments.seeds, held.seeds),
        ("--arms", arguments.arms, held.all_arms()),
    ):
        if given is not None and {*given} != {*has}:
            fix = "tables are of all arms and seeds of the sweep; leave it out with --tables"
            raise ConfigError(name, given, fix)
    check_settings(trials(held), trials(_changed(held, arguments)))


def _check_packages() -> None:
    """Both are imported late, the second one when everything has been played.

    Raises:
        ModuleNotFoundError: one of them is not installed.
    """
    for package in ("ray", "matplotlib"):
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def _changes(arguments: Namespace) -> dict[str, Any]:
    """Settings of all runs that the command line names, by dotted name."""
    changes: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("steps", "world", "model")
        if getattr(arguments, name) is not None
    }
    if arguments.search is not None:
        changes |= flat({"search": search_section(arguments.search)})
    return changes | dict(parse_assignment(assignment) for assignment in arguments.set)


def _changed(sweep: Sweep, arguments: Namespace) -> Sweep:
    """The sweep with the settings that the command line names."""
    sweep = replace(sweep, set={**flat(sweep.set), **_changes(arguments)})
    if arguments.preset is not None:
        sweep = replace(sweep, preset=arguments.preset)
    if arguments.keep_checkpoints:
        sweep = replace(sweep, keep_checkpoints=True)
    return sweep


def _reusable(
    sweep: Sweep, planned: Sequence[Trial], directory: SweepDirectory, places: Sequence[str]
) -> list[Found]:
    """What other sweeps have played of what is waiting here."""
    others = sweeps_in(places, directory)
    waiting = [trial for trial in planned if directory.state(trial) == "waiting"]
    return find_played(waiting, others, directory, sweep.keep_checkpoints)


def _take(sweep: Sweep, reused: Sequence[Found], directory: SweepDirectory, quiet: bool) -> None:
    if not quiet:
        _tell(reused)
    for found in reused:
        if found.taken:
            take(found, directory, sweep.keep_checkpoints)


def _tell(lines: Sequence[object]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _play(
    sweep: Sweep, planned: Sequence[Trial], directory: SweepDirectory, arguments: Namespace
) -> int:
    """Plays the trials that have not ended; how many failed."""
    left = [trial for trial in planned if directory.state(trial) not in ENDED]
    done = len(planned) - len(left)
    if not arguments.quiet:
        to_play = f"starting Ray ({plural(len(left), 'trial')} to play, {done} done)"
        ended = f"nothing is left to play: {plural(done, 'trial')} ended before"
        print(to_play if left else ended, file=sys.stderr)
    if not left:
        return 0

    from experiments.sweeps.live import Board
    from experiments.sweeps.tuning import tune_trials

    try:
        with Board(len(planned), done=done, quiet=arguments.quiet) as board:
            return tune_trials(
                left,
                directory,
                board,
                halving=sweep.halving,
                keep_checkpoints=sweep.keep_checkpoints,
                parallel=arguments.parallel,
            )
    except KeyboardInterrupt:
        # Even if no trial has got as far as a directory of its own, the sweep has begun.
        make_directories(directory.trials)
        print(f"ssp: stopped; go on with: {_resuming(arguments, directory)}", file=sys.stderr)
        raise


def _resuming(arguments: Namespace, directory: SweepDirectory) -> str:
    """The command that goes on with a sweep: what its directory does not hold is said again."""
    words = ["ssp", "sweep", arguments.name, "--out", str(directory.path)]
    if arguments.parallel is not None:
        words += ["--parallel", str(arguments.parallel)]
    if arguments.resume and arguments.arms:
        words += ["--arms", *arguments.arms]
    if arguments.resume and arguments.seeds is not None:
        words += ["--seeds", *map(str, arguments.seeds)]
    return shlex.join([*words, "--resume"])


def _finish(name: str, sweep: Sweep, planned: Sequence[Trial], directory: SweepDirectory) -> None:
    """Writes results, tables and figure, and prints the tables."""
    from experiments.sweeps.figure import draw

    outcomes = read_outcomes(directory, planned)
    made = make_tables(sweep, outcomes)
    if not made:
        raise SSPError(f"no trial has ended; the run directories are in {directory.trials}")

    write_rows(directory, rows(name, outcomes))
    known = _provenance(name, directory, outcomes)
    write_atomically(directory.tables, _page(sweep, known, made))
    summary = {**known, "arms": as_data(sweep, outcomes), "left_out": left_out(outcomes)}
    write_atomically(directory.summary, json.dumps(summary, indent=2) + "\n")
    draw(sweep, outcomes, directory.figure)
    show(made)
    print(f"everything is in {directory.path}/ (tables.md, figure.png, results.csv, trials/)")


# -- what is written and shown -----------------------------------------------------------------


def _provenance(
    name: str, directory: SweepDirectory, outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """Where the figures come from."""
    summaries = [o.summary for o in outcomes if o.summary is not None]
    wall = sum(line["seconds"]["wall"] for o in outcomes for line in o.lines)
    command, *resumed = directory.commands()
    return {
        "sweep": name,
        "command": command,
        "resumed": resumed,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commits": sorted({s["git_commit"] or "unknown" for s in summaries})
        or [git_commit() or "unknown"],
        "machines": sorted({s["machine"] for s in summaries}) or [machine()],
        "seeds": sorted({o.trial.seed for o in outcomes if o.ended}),
        "trials": sum(o.ended for o in outcomes),
        "trial_hours": round(wall / 3600, 4),
        "at_a_time": _at_a_time(outcomes),
        "taken": {o.trial.name: asdict(o.taken) for o in outcomes if o.taken},
    }


def _at_a_time(outcomes: Sequence[Outcome]) -> int | None:
    """How many trials shared the machine at most; ``None`` where that is not known of all."""
    known = [o.at_a_time for o in outcomes if o.lines]
    return None if None in known else max((most for most in known if most), default=None)


def _page(sweep: Sweep, known: dict[str, Any], made: Sequence[Table]) -> str:
    """The tables as Markdown, with what they rest on."""
    commands = ", then ".join(f"`{command}`" for command in [known["command"], *known["resumed"]])
    most = known["at_a_time"]
    how = "one after the other" if most == 1 else f"up to {most} at a time" if most else ""
    how = how or "added up over trials"
    lines = [
        f"# {sweep.title or known['sweep']}",
        "",
        f"{commands}, {known['date']}, commit {', '.join(known['git_commits'])}, "
        f"{'; '.join(known['machines'])}. Preset `{sweep.preset}`, seeds "
        f"{', '.join(map(str, known['seeds']))}; ± is half of a 95% interval over seeds "
        f"(Student's t). {plural(known['trials'], 'trial')} took "
        f"{_spoken_time(known['trial_hours'])}, {how}.",
        "",
        "![accuracy of all arms, and its way there](figure.png)",
        "",
    ]
    return "\n".join(lines) + "\n" + markdown(made)


def _spoken_time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"


def _list() -> int:
    console = Console(highlight=False)
    shown = Shown(box=box.SIMPLE_HEAD, padding=(0, 1))
    for head in ("sweep", "what it compares", "arms", "seeds"):
        shown.add_column(head)
    for name in shipped():
        sweep = read_sweep(Source(find(name)))
        shown.add_row(name, sweep.title, ", ".join(sweep.all_arms()), str(len(sweep.seeds)))
    console.print(shown)
    return 0


def _show_plan(sweep: Sweep, planned: Sequence[Trial]) -> int:
    """What would be played."""
    console = Console(highlight=False)
    shown = Shown(box=box.SIMPLE_HEAD, padding=(0, 1))
    for head in ("arm", "settings"):
        shown.add_column(head)
    arms = {trial.arm: trial.settings for trial in planned}
    for arm, settings in arms.items():
        text = "  ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        mark = " (the others are compared with it)" if arm == sweep.compared_with else ""
        shown.add_row(f"{arm}{mark}", text or "the preset's own")
    console.print(shown, markup=False)
    seeds, steps = {trial.seed for trial in planned}, {trial.config.steps for trial in planned}
    counts = (plural(len(arms), "arm"), plural(len(seeds), "seed"))
    each = f"{' or '.join(map(str, sorted(steps)))} steps each"
    console.print(f"{plural(len(planned), 'trial')}: {', '.join(counts)}, {each}")
    return 0
