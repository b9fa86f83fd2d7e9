"""The directory of a sweep: its definition, a run directory for each trial, and the results.

================== =========================================================================
``sweep.yaml``     the sweep as it is played, and the commands that played it
``trials/NAME/``   an ordinary run directory: `ssp report`, `ssp plot`, `ssp replay` read it
``results.csv``    one row per trial and step
``tables.md``      means, intervals and comparisons; ``figure.png`` draws them
``summary.json``   the same as data, with machine, commits and seeds
================== =========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from agents.health import OUTAGE
from experiments.run.rundir import RunDirectory
from experiments.sweeps.definition import Sweep, Trial
from ssp_env.disk import locked, make_directories, write_atomically
from ssp_env.errors import RunError
from ssp_env.version import __version__

ENDED = ("done", "stopped")
"""States of a trial that has a result: all steps, or stopped because its figures went wrong."""


class SweepDirectory:
    """A directory that holds one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.definition = self.path / "sweep.yaml"
        self.trials = self.path / "trials"

    def read(self, name: str) -> tuple[Sweep, list[str]]:
        """The sweep that was begun here, and the commands that played it.

        Args:
            name: the name that it has to have.

        Raises:
            RunError: there is none, it is another one, or of another version.
        """
        try:
            held = yaml.safe_load(self.definition.read_text(encoding="utf-8"))
            found, version, commands = held["name"], held["version"], list(held["commands"])
        except FileNotFoundError:
            what = f"{self.path} holds no sweep to resume (sweep.yaml is missing)"
            raise RunError(what) from None
        except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError) as error:
            raise RunError(f"{self.definition} cannot be read: {error!r}") from error
        if (found, version) != (name, __version__):
            theirs = f"the sweep {found!r} of version {version}, not {name!r} of {__version__}"
            raise RunError(f"{self.path} holds {theirs}: choose another --out")
        return Sweep(**held["sweep"]), commands

    def check_free(self) -> None:
        """
        Raises:
            RunError: something is here.
        """
        if self.definition.exists():
            what = f"{self.path} holds a sweep; continue it by --resume, or choose another --out"
            raise RunError(what)
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RunError(f"{self.path} is not empty; choose another --out")

    @contextmanager
    def claimed(self, name: str, sweep: Sweep, commands: Sequence[str]) -> Iterator[None]:
        """Holds the directory while trials are played, with the sweep written down.

        Raises:
            RunError: another process holds it, or it cannot be written.
        """
        make_directories(self.trials)
        with locked(self.path):
            header = {"name": name, "version": __version__, "commands": list(commands)}
            held = {**header, "sweep": sweep.model_dump(mode="json")}
            text = yaml.safe_dump(held, sort_keys=False, allow_unicode=True)
            write_atomically(self.definition, text)
            yield

    def run(self, trial: Trial) -> RunDirectory:
        """The run directory of a trial."""
        return RunDirectory(self.trials / trial.name)

    def state(self, trial: Trial) -> str:
        """State of a trial: ``waiting``, ``begun``, or one of :data:`ENDED`.

        Raises:
            RunError: a file of the run cannot be read.
        """
        run = self.run(trial)
        if (self.summary(trial) or {}).get("steps") == trial.config.steps:
            return "done"
        stopped = run.read_stopped()
        # An outage is no result: the same trial goes well where its services are there.
        if stopped is not None and stopped.sign != OUTAGE:
            return "stopped"
        return "begun" if run.config.exists() else "waiting"

    def summary(self, trial: Trial) -> dict[str, Any] | None:
        """The summary of a trial, if it has one.

        Raises:
            RunError: it cannot be read.
        """
        file = self.run(trial).summary
        if not file.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{file} cannot be read: {error}") from error
        return found

    def failure(self, trial: Trial) -> Path:
        """The file that holds the error of a trial that failed."""
        return self.trials / f"{trial.name}.failed.txt"
