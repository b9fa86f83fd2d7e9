"""Trials that another sweep has played already: the same settings and seed, by the same code.

Sweeps share arms: with the settings that ship, ``self-play`` of `opponents` is ``4 documents`` of
`noise`. Two runs of one seed play the same games, so a copy is what playing again would give.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.run.provenance import git_commit, other_code
from experiments.run.rundir import RunDirectory, flat
from experiments.sweeps.directory import TAKEN, SweepDirectory, read_json
from experiments.sweeps.plan import Trial
from ssp_env.disk import write_atomically
from ssp_env.errors import ConfigError, RunError
from ssp_env.settings import plain


@dataclass(frozen=True)
class Taken:
    """Where a trial was played."""

    sweep: str
    """The name of the other sweep."""
    trial: str
    """The name of its trial."""
    directory: str
    """Its run directory, relative to that of the sweep that takes it."""
    git_commit: str
    """The commit that played it."""

    def __str__(self) -> str:
        return f"{self.trial} of {self.sweep}"


@dataclass(frozen=True)
class Found:
    """A run of the same settings and seed as a trial."""

    trial: Trial
    source: Path
    taken: Taken | None
    """``None`` if it cannot stand for the trial."""
    why_not: str = ""

    def __str__(self) -> str:
        what = "taken" if self.taken else "not taken"
        why = f": {self.why_not}" if self.why_not else ""
        return f"{self.trial}: {what} from {self.source}{why}"


def sweeps_in(places: Sequence[str], own: SweepDirectory) -> list[SweepDirectory]:
    """The sweeps in these directories; each is a sweep's own, or holds several.

    Args:
        places: directories, as a command line names them.
        own: the sweep that is played, which is left out.

    Raises:
        ConfigError: there is no such directory.
    """
    found: list[SweepDirectory] = []
    for place in map(Path, places):
        if not place.is_dir():
            raise ConfigError("--reuse", str(place), "there is no such directory")
        inside = [place, *sorted(child for child in place.iterdir() if child.is_dir())]
        found.extend(SweepDirectory(path) for path in inside)
    return [
        sweep
        for sweep in found
        if sweep.definition.exists() and sweep.path.resolve() != own.path.resolve()
    ]


def find_played(
    wanted: Sequence[Trial], sweeps: Sequence[SweepDirectory], own: SweepDirectory, keep: bool
) -> list[Found]:
    """The runs of the same settings, one at most that can be taken for each trial; in their order.

    Args:
        wanted: trials that have not begun.
        sweeps: where to look, the first one first.
        own: the sweep that wants them.
        keep: whether the trials are to have their checkpoints.

    Raises:
        RunError: a run cannot be read.
    """
    played: dict[str, list[tuple[SweepDirectory, RunDirectory]]] = {}
    for sweep, run in _runs(sweeps):
        played.setdefault(_key(run.read_config()), []).append((sweep, run))

    found = []
    for trial in wanted:
        for sweep, run in played.get(_key(plain(trial.config)), []):
            found.append(_judged(trial, sweep, run, own, keep))
            if found[-1].taken:
                break
    return found


def take(found: Found, own: SweepDirectory, keep: bool) -> None:
    """Copies a run into a sweep, in full or not at all, with a note of where it is from.

    Args:
        found: one that can be taken.
        own: the sweep that takes it.
        keep: whether its checkpoints are copied as well.

    Raises:
        RunError: it cannot be read or written.
    """
    assert found.taken is not None
    final = own.run(found.trial).path
    unfinished = own.trials / f".{found.trial.name}.unfinished"
    left_out = () if keep else (RunDirectory(found.source).checkpoints.name,)
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(found.source, unfinished, ignore=shutil.ignore_patterns(*left_out))
        write_atomically(unfinished / TAKEN, json.dumps(asdict(found.taken), indent=2) + "\n")
        unfinished.rename(final)
    except OSError as error:
        raise RunError(f"{found.source} cannot be copied to {final}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_taken(run: RunDirectory) -> Taken | None:
    """Where a trial was taken from; ``None`` if it was played here.

    Raises:
        RunError: the note cannot be read.
    """
    note = run.path / TAKEN
    if not note.exists():
        return None
    try:
        return Taken(**read_json(note))
    except TypeError as error:
        raise RunError(f"{note} cannot be read: {error}") from error


def _runs(sweeps: Sequence[SweepDirectory]) -> Iterator[tuple[SweepDirectory, RunDirectory]]:
    for sweep in sweeps:
        for folder in sorted(sweep.trials.glob("[!.]*/")):
            run = RunDirectory(folder)
            if run.config.exists():
                yield sweep, run


def _key(values: dict[str, Any]) -> str:
    """All settings, the seed among them."""
    return json.dumps(flat(values), sort_keys=True, default=str)


def _judged(
    trial: Trial, sweep: SweepDirectory, run: RunDirectory, own: SweepDirectory, keep: bool
) -> Found:
    """Whether a run can stand for a trial."""
    summary = read_json(run.summary) if run.summary.exists() else {}
    if summary.get("steps") != trial.config.steps:
        return Found(trial, run.path, None, "it was not played to its end")
    if keep and run.latest_checkpoint() is None:
        return Found(trial, run.path, None, "its checkpoints are gone")

    theirs = summary.get("git_commit")
    other = other_code(theirs, git_commit())
    if other:
        return Found(trial, run.path, None, other)

    first = read_taken(run)
    name = first.sweep if first else sweep.name()
    trial_name = first.trial if first else run.path.name
    where = os.path.relpath(run.path.resolve(), own.path.resolve())
    return Found(trial, run.path, Taken(name, trial_name, where, str(theirs)))
