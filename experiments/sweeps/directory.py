"""Where a sweep lies: what it is, a run directory for each trial, and what came out.

================== =========================================================================
``sweep.yaml``     the sweep as it is played, by which commands, and which version plays it
``trials/NAME/``   an ordinary run directory: `ssp report`, `ssp plot`, `ssp replay` read it
``at_a_time.json`` by trial, with how many it shared the machine at most
``results.csv``    one row per trial and step; also as Parquet
``tables.md``      means, intervals and comparisons; ``figure.png`` draws them
``summary.json``   the same as data, with machine, commits and seeds
================== =========================================================================
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from agents.health import OUTAGE
from experiments.run.rundir import RunDirectory
from experiments.sweeps.definition import Sweep
from experiments.sweeps.plan import Trial
from ssp_env.disk import locked, make_directories, remove_empty, write_atomically
from ssp_env.errors import RunError
from ssp_env.settings import plain, read
from ssp_env.version import __version__

FORMAT = 1
ENDED_EARLY = "ended_early.json"
"""In a trial's directory: at which step the sweep ended it, because it had fallen behind."""
TAKEN = "taken_from.json"
"""In a trial's directory: which sweep has played it, if not this one."""
STATES = ("waiting", "begun", "ended early", "stopped", "done")


class SweepDirectory:
    """A directory that holds one sweep."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.definition = self.path / "sweep.yaml"
        self.trials = self.path / "trials"
        self.csv = self.path / "results.csv"
        self.parquet = self.path / "results.parquet"
        self.tables = self.path / "tables.md"
        self.figure = self.path / "figure.png"
        self.summary = self.path / "summary.json"
        self._at_a_time = self.path / "at_a_time.json"

    # -- what it holds -------------------------------------------------------------------------

    def read(self, name: str) -> Sweep:
        """The sweep that was begun here.

        Args:
            name: what it has to be called.

        Raises:
            RunError: there is none, it is another one, or of another version.
        """
        held = self._header()
        if held.get("version") != __version__:
            theirs = f"{held.get('version')}, and this is {__version__}"
            raise RunError(f"{self.path} is a sweep of version {theirs}: choose another --out")
        if held.get("name") != name:
            raise RunError(f"{self.path} holds the sweep {held.get('name')!r}, not {name!r}")
        return read(Sweep, held["sweep"], str(self.definition))

    def run(self, trial: Trial) -> RunDirectory:
        """The run directory of a trial."""
        return RunDirectory(self.trials / trial.name)

    def state(self, trial: Trial) -> str:
        """How far a trial is: one of ``STATES``.

        Raises:
            RunError: what its run says of its end cannot be read.
        """
        run = self.run(trial)
        if run.summary.exists() and read_json(run.summary).get("steps") == trial.config.steps:
            return "done"
        if run.stopped.exists() and read_json(run.stopped)["sign"] != OUTAGE:
            return "stopped"
        if (run.path / ENDED_EARLY).exists():
            return "ended early"
        return "begun" if run.config.exists() else "waiting"

    def name(self) -> str:
        """What the sweep is called.

        Raises:
            RunError: there is none.
        """
        return str(self._header().get("name"))

    def commands(self) -> list[str]:
        """The command lines that played it: the one that began it, and those that went on with it.

        Raises:
            RunError: there is none.
        """
        held = self._header()
        return [str(held["command"]), *map(str, held.get("resumed", ()))]

    def at_a_time(self) -> dict[str, int]:
        """By name of a trial, how many were played at the same time at most, itself included.

        Raises:
            RunError: that cannot be read.
        """
        return read_json(self._at_a_time) if self._at_a_time.exists() else {}

    def _header(self) -> dict[str, Any]:
        """What ``sweep.yaml`` says.

        Raises:
            RunError: there is none, or it is of another version.
        """
        try:
            held = yaml.safe_load(self.definition.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(
                f"{self.path} holds no sweep to resume (sweep.yaml is missing)"
            ) from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise RunError(f"{self.definition} cannot be read: {error}") from error

        if not isinstance(held, dict) or held.get("format") != FORMAT:
            raise RunError(f"{self.definition} is of another version: choose another --out")
        return held

    # -- what is done with it ------------------------------------------------------------------

    def check(self, trials: Sequence[Trial], resume: bool) -> None:
        """Makes sure that a sweep can be played here, and leaves everything as it is.

        Raises:
            RunError: something else is here, or a trial of other settings.
        """
        if not resume:
            try:
                taken = self.path.exists() and any(self.path.iterdir())
            except OSError as error:
                raise RunError(f"{self.path} cannot be used: {error}") from error
            if taken and self.definition.exists():
                raise RunError(
                    f"{self.path} holds a sweep; go on with it by --resume, or choose another --out"
                )
            if taken:
                raise RunError(f"{self.path} is not empty; choose another --out")
            return

        for trial in trials:
            run = self.run(trial)
            if run.config.exists():
                run.check(trial.config, resume=True)

    @contextmanager
    def claimed(self, name: str, sweep: Sweep, command: str, plays: bool = True) -> Iterator[None]:
        """Holds the directory while trials are played. A new one that nothing was written to goes.

        Args:
            name: of the sweep.
            sweep: all of it.
            command: the command line; each that plays is noted once.
            plays: whether it has anything to play.

        Raises:
            RunError: another process holds it, or it cannot be written.
        """
        made, new = make_directories(self.path), not self.definition.exists()
        try:
            with locked(self.path):
                commands = [command] if new else self.commands()
                if plays and command not in commands:
                    commands.append(command)
                header = {
                    "format": FORMAT,
                    "version": __version__,
                    "name": name,
                    "command": commands[0],
                    "resumed": commands[1:],
                }
                text = yaml.safe_dump(
                    {**header, "sweep": plain(sweep)}, sort_keys=False, allow_unicode=True
                )
                write_atomically(self.definition, text)
                self._forget_unbegun()
                yield
        finally:
            if new and not self.trials.exists():
                self.definition.unlink(missing_ok=True)
            remove_empty(made)

    def _forget_unbegun(self) -> None:
        """A trial that was killed before it had written its settings has nothing to go on with, and
        a copy that was not finished is made again."""
        for folder in self.trials.glob("*/"):
            if folder.name.startswith(".") or not RunDirectory(folder).config.exists():
                shutil.rmtree(folder)

    def note_playing(self, names: Collection[str]) -> None:
        """Notes that the trials of these names are played at the same time.

        Raises:
            RunError: that cannot be written.
        """
        known = self.at_a_time()
        more = {name: len(names) for name in names if known.get(name, 0) < len(names)}
        if more:
            write_atomically(self._at_a_time, json.dumps({**known, **more}, indent=2) + "\n")

    def failure(self, trial: Trial) -> Path:
        """The file that holds the error of a trial that failed."""
        return self.trials / f"{trial.name}.failed.txt"

    def fail(self, trial: Trial, error: str) -> None:
        """Writes why a trial failed.

        Raises:
            RunError: that cannot be written.
        """
        make_directories(self.trials)
        write_atomically(self.failure(trial), error)

    def end_early(self, trial: Trial) -> None:
        """Notes that a trial is not gone on with.

        Raises:
            RunError: that cannot be written.
        """
        run = self.run(trial)
        step = run.read_metrics(growing=True)[-1]["step"]
        write_atomically(run.path / ENDED_EARLY, json.dumps({"step": step}) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """
    Raises:
        RunError: it cannot be read.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise RunError(f"{path} holds no JSON object")
    return values
