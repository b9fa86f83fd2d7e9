"""The run directory (docs/run_directory.md): every file is there in full or not at all, but
``metrics.jsonl``, whose last line a kill may cut off."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from ssp_agents.checksums import check_weights
from ssp_agents.health import Diagnosis
from ssp_env import disk, removed
from ssp_env.errors import RunError
from ssp_env.game.record import GameRecord
from ssp_env.replay.files import SavedGame, SavedRules, game_lines
from ssp_experiments.config import RunConfig, flat, read_yaml

CHANGEABLE = re.compile(
    r"steps|checkpoint_every|checkpoints_kept|patience|tracker"
    r"|compute\.(env_runners|learners|gpus|tensor_parallel|sharding|threads)"
    r"|search\.token_env|openai\.(base_url|api_key_env)"
)
"""Settings in which a resumed run may differ: none decides which games are played."""


class RunDirectory:
    """A directory that holds one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.summary = self.path / "summary.json"
        self.stopped = self.path / "stopped.json"
        self.checkpoints = self.path / "checkpoints"
        self.games = self.path / "games"
        self.tensorboard = self.path / "tensorboard"
        self.tracked = self.path / "tracked.txt"
        self.taught = self.path / "taught.txt"

    @contextmanager
    def claimed(self, config: RunConfig, resume: bool, taught: str | None = None) -> Iterator[int]:
        """Locks the directory for a run; yields the step to continue from (0: a new run).

        ``taught`` says what games an imitation learns from; it has to be the same again.

        A new run that fails or is interrupted before it wrote a line of metrics leaves nothing
        behind.
        """
        # The directory itself is locked, so it is made before.
        made = disk.make_directories(self.path)
        begun = False
        try:
            with disk.locked(self.path):
                step = self._first_step(config, resume, taught)
                # What has a checkpoint is never cleared away below.
                begun = step == 0
                if step:
                    self.go_back()
                elif resume:
                    self.check_unsaved(config.checkpoint_every)
                    self._clear(self.metrics, self.config, self.taught)
                self.write_config(config)
                if taught:
                    disk.write_atomically(self.taught, taught)
                yield step
        except BaseException:
            if begun and not self.metrics.exists():
                self._clear(self.metrics, self.config, self.taught, self.tracked)
            disk.remove_empty(made)
            raise

    def check(self, config: RunConfig, resume: bool) -> None:
        """Raises what :meth:`claimed` would raise, and leaves the directory as it is."""
        made = disk.make_directories(self.path)
        try:
            with disk.locked(self.path):
                self._first_step(config, resume)
        finally:
            disk.remove_empty(made)

    def check_state(self) -> None:
        """Refuses a run of ``ssp train`` whose newest checkpoint has lost its state."""
        if self.taught.exists() or (latest := self.latest_checkpoint()) is None:
            return
        state = latest[1] / "algorithm" / "algorithm_state.pkl"
        if not state.is_file():
            what = f"{state} is missing: restore it from a copy, or delete this checkpoint"
            raise RunError(f"{what} and resume the one before")

    def _first_step(self, config: RunConfig, resume: bool, taught: str | None = None) -> int:
        if not resume:
            if any(self.path.iterdir()):
                way = "continue its run with --resume, or " if self.metrics.exists() else ""
                raise RunError(f"{self.path} is not empty; {way}choose another --out")
            return 0

        before = self.taught.read_text() if self.taught.exists() else None
        if before != taught:
            other = " of other games" if taught else ", which ssp imitate goes on with"
            what = f"an imitation{other}" if before else "a run of ssp train"
            raise RunError(f"{self.path} holds {what}; choose another --out")
        # The checkpoint's own settings: those of the directory may have been edited since.
        step, place = self.latest_checkpoint() or (0, self.path)
        theirs = removed.without_off("", flat(self.read_config(place)))
        ours = flat(config.model_dump(mode="json"))
        names = [name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name)]
        fixed = {name for name in names if not CHANGEABLE.fullmatch(name)}
        # A server may move, but no other search may take its place.
        if all("://" in str(each.get("search.source")) for each in (theirs, ours)):
            fixed -= {"search.source"}
        if fixed:
            what = f"{self.path} holds a run with other settings ({', '.join(sorted(fixed))})"
            raise RunError(f"{what}; leave them as they were, or choose another --out")
        if step > config.steps:
            raise RunError(f"{self.path} is at step {step} already; ask for more --steps")
        if step:
            check_weights(place / "algorithm")
            self._check_figures(1 if before else 0)
        return step

    def _check_figures(self, first: int) -> None:
        """Refuses a run that has lost lines of metrics which its newest checkpoint came after."""
        saved = [step for step, _ in self.kept_checkpoints()]
        there = {line["step"] for line in self.read_metrics()}
        lost = next((step for step in range(first, saved[-1] + 1) if step not in there), None)
        if lost is None:
            return
        later = [f"step_{step:06d}" for step in saved if step >= lost]
        fix = "begin another run with another --out"
        if len(later) < len(saved):
            fix = f"delete {', '.join(later)} in {self.checkpoints} to play them again"
        what = f"{self.metrics} has lost its line of step {lost}, which was saved"
        raise RunError(f"{what}; restore the file from a copy, or {fix}")

    # -- what a run writes ---------------------------------------------------------------------

    def write_config(self, config: RunConfig) -> None:
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        disk.write_atomically(self.config, text)

    def write_tracked(self, tracker: str, name: str) -> None:
        disk.write_atomically(self.tracked, f"{tracker} {name}")

    def read_tracked(self, tracker: str) -> str | None:
        """The run's name with this tracker, if it has one."""
        known = self.tracked.read_text().partition(" ") if self.tracked.exists() else ("", "", "")
        return known[2] if known[0] == tracker else None

    def append_metrics(self, line: dict[str, Any]) -> dict[str, Any]:
        """Adds one line to ``metrics.jsonl``; returns it with ``None`` for every figure that is not
        finite, which JSON cannot hold."""
        line = finite(line)
        try:
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise disk.write_error(self.metrics, error) from error
        return line

    def write_games(self, step: int, rules: SavedRules, games: Iterable[GameRecord]) -> None:
        """Writes all games of a step, in their order, with the rules that they were played by."""
        disk.make_directories(self.games)
        with disk.replacing(self.games / f"step_{step:06d}.jsonl") as file:
            file.writelines(game_lines(SavedGame(rules, game) for game in games))

    def write_summary(self, summary: dict[str, Any]) -> None:
        disk.write_atomically(self.summary, json.dumps(summary, indent=2) + "\n")

    def write_stopped(self, diagnosis: Diagnosis) -> None:
        """Writes why the run was stopped; the next checkpoint deletes it."""
        disk.write_atomically(self.stopped, json.dumps(asdict(diagnosis), indent=2) + "\n")

    def save_checkpoint(
        self, step: int, save: Callable[[Path], None], kept: int | None = None
    ) -> None:
        """Lets ``save`` fill a new checkpoint; the newest ``kept`` stay (``None``: all)."""
        from safetensors import SafetensorError

        final = self.checkpoints / f"step_{step:06d}"
        try:
            with disk.new_folder(final) as unfinished:
                save(unfinished)
                shutil.copy(self.config, unfinished)
            self.stopped.unlink(missing_ok=True)
            for _, old in self.kept_checkpoints()[: -kept if kept else 0]:
                shutil.rmtree(old)
        except (OSError, SafetensorError) as error:
            what = f"the checkpoint {final} cannot be written: {error}"
            raise RunError(f"{what}; make room, then resume the run") from error

    # -- what was written ----------------------------------------------------------------------

    def read_config(self, checkpoint: Path | None = None) -> dict[str, Any]:
        """The settings that the run was started with, or those of a checkpoint, as plain data."""
        file = (checkpoint or self.path) / self.config.name
        if not file.exists():
            raise RunError(f"{file.parent} holds no run to resume or read (config.yaml is missing)")
        return read_yaml(file, RunConfig)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of ``metrics.jsonl``, but for a last one whose end is not there: a run is
        writing it, or was killed and plays that step again when it is resumed."""
        try:
            texts = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
            lines = [json.loads(text) for text in texts if text.endswith("\n")]
        except FileNotFoundError:
            lines = []
        except (OSError, ValueError) as error:
            raise RunError(f"{self.metrics} cannot be read: {error}") from error
        if not lines:
            raise RunError(f"{self.metrics} is empty: the base policy is not measured yet")
        for number, line in enumerate(lines, 1):
            if not isinstance(line, dict) or type(line.get("step")) is not int:
                raise RunError(f"{self.metrics} cannot be read: line {number} has no step")
        return lines

    def read_summary(self) -> dict[str, Any] | None:
        """The result; ``None`` while the run is not finished."""
        return _read_json(self.summary)

    def read_stopped(self) -> Diagnosis | None:
        """Why the run was stopped after its newest checkpoint; ``None`` if it was not."""
        fields = _read_json(self.stopped)
        return None if fields is None else Diagnosis(**fields)

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """Step and folder of the newest checkpoint."""
        return next(reversed(self.kept_checkpoints()), None)

    def kept_checkpoints(self) -> list[tuple[int, Path]]:
        """Steps and folders of all checkpoints that are there, the oldest first."""
        return [*by_step(self.checkpoints).items()]

    @property
    def game_files(self) -> dict[int, Path]:
        return by_step(self.games)

    def go_back(self) -> int:
        """Deletes what came after the newest checkpoint, whose steps are played again, to the same
        result; the checkpoint's step, or 0 where there is none."""
        step, _ = self.latest_checkpoint() or (0, self.path)
        try:
            if self.metrics.exists():  # it begins with the measured base policy
                lines = self.read_metrics()
                kept = [json.dumps(line) + "\n" for line in lines if line["step"] <= step]
                disk.write_atomically(self.metrics, "".join(kept))
            for played, file in self.game_files.items():
                if played > step:
                    file.unlink()
            self.summary.unlink(missing_ok=True)
            # What a kill has left half written.
            for left in self.path.rglob(".*unfinished*"):
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path} cannot be resumed: {error}") from error
        return step

    def check_unsaved(self, checkpoint_every: int) -> None:
        """Refuses a run without checkpoints that has saved some, which are not there any more."""
        # A line for each step, and one for the base.
        steps = self.metrics.read_text().count("\n") - 1 if self.metrics.exists() else 0
        if self.summary.exists() or steps > checkpoint_every:
            why = "its checkpoints are gone (a sweep deletes them without --keep-checkpoints)"
            raise RunError(f"{self.path}: {why}; begin another run with another --out")

    def _clear(self, *files: Path) -> None:
        """Deletes these files, and the folders, of a run that has no checkpoint."""
        for file in files:
            file.unlink(missing_ok=True)
        for folder in (self.tensorboard, self.path / "wandb", self.games, self.checkpoints):
            shutil.rmtree(folder, ignore_errors=True)


def _read_json(file: Path) -> dict[str, Any] | None:
    """The object in a file; ``None`` where there is no file."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{file} cannot be read: {error}; delete it and resume the run") from error


def check_empty(out: Path) -> None:
    """Makes sure that nothing is there yet, or an empty directory."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")


def by_step(folder: Path) -> dict[int, Path]:
    """The files of games, or checkpoints, in a folder, by step; copies under other names are not
    taken for them."""
    pattern = re.compile(r"step_(\d+)(\.jsonl(\.gz)?)?")
    matches = [(pattern.fullmatch(path.name), path) for path in folder.glob("*")]
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def finite(value: Any) -> Any:
    """The same as JSON holds it, with ``None`` for every number that is not finite."""
    return json.loads(json.dumps(value), parse_constant=lambda name: None)
