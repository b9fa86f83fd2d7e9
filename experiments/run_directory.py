"""The run directory: where everything of a run lies, written so that nothing is ever half there.

====================================  ======================================================================
``config.yaml``                       the settings, in full
``metrics.jsonl``                     a line a step; step 0 is the base policy (see ``docs`` in the README)
``games/step_000001.jsonl``           every game of the step: transcripts, documents, noise, verdicts, rewards
``checkpoints/step_000040/``          everything that is needed to go on; ``policy/`` in it is a model directory
``tensorboard/``                      the same figures for TensorBoard
``summary.json``                      the result
====================================  ======================================================================
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from experiments.config import RunConfig, to_plain
from ssp_env.errors import RunError
from ssp_env.game.record import GameRecord

MIN_FREE_BYTES = 200 * 1024 * 1024
"""A run does not start with less free disk than this."""
KEPT_CHECKPOINTS = 2
CHANGEABLE = ("steps", "checkpoint_every", "compute")
"""Settings in which a resumed run may differ from its directory."""


class RunDirectory:
    """A directory that holds one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics = self.path / "metrics.jsonl"
        self.summary = self.path / "summary.json"
        self.checkpoints = self.path / "checkpoints"
        self.games = self.path / "games"

    def open(self, config: RunConfig, resume: bool) -> int:
        """Claims the directory for a run; returns the step to go on from (0: a new run).

        Raises:
            RunError: it holds a run already, another run's settings, nothing to resume, or cannot be written.
        """
        held = self.path / "config.yaml"
        if resume:
            step = self._check_resumable(held, config)
        else:
            if self.path.exists() and any(self.path.iterdir()):
                raise RunError(f"{self.path} is not empty; go on with it by --resume, or choose another --out")
            step = 0
        self._check_writable()
        write_atomically(held, yaml.safe_dump(to_plain(config), sort_keys=False))
        if resume:
            self._drop_after(step)
        return step

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Adds one line to ``metrics.jsonl``.

        Raises:
            RunError: it cannot be written (a full disk, say).
        """
        try:
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
        except OSError as error:
            raise RunError(f"{self.metrics} cannot be written: {error}") from error

    def write_games(self, step: int, games: Iterable[GameRecord]) -> None:
        """Writes all games of a step.

        Raises:
            RunError: they cannot be written.
        """
        text = "".join(json.dumps(game.to_dict(), ensure_ascii=False) + "\n" for game in games)
        self.games.mkdir(exist_ok=True)
        write_atomically(self.games / f"step_{step:06d}.jsonl", text)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Writes the result."""
        write_atomically(self.summary, json.dumps(summary, indent=2) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of ``metrics.jsonl``.

        Raises:
            RunError: there are none, or one is not JSON.
        """
        try:
            return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise RunError(f"{self.path} holds no metrics: {error}") from error
        except json.JSONDecodeError as error:
            raise RunError(f"{self.metrics}: a line is not JSON ({error})") from error

    def save_checkpoint(self, step: int, save: Callable[[Path], None]) -> Path:
        """Lets ``save`` fill a new checkpoint, makes it visible in one move, and forgets old ones.

        Raises:
            RunError: it cannot be written.
        """
        final = self.checkpoints / f"step_{step:06d}"
        unfinished = self.checkpoints / f".unfinished_{step:06d}"
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            save(unfinished)
            shutil.rmtree(final, ignore_errors=True)
            unfinished.rename(final)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise RunError(f"the checkpoint {final} cannot be written: {error}") from error
        for _, old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)
        return final

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """Step and folder of the newest checkpoint."""
        found = self._checkpoints()
        return found[-1] if found else None

    def _checkpoints(self) -> list[tuple[int, Path]]:
        if not self.checkpoints.is_dir():
            return []
        found = [(re.fullmatch(r"step_(\d+)", child.name), child) for child in self.checkpoints.iterdir()]
        return sorted((int(match[1]), child) for match, child in found if match)

    def _check_resumable(self, held: Path, config: RunConfig) -> int:
        if not held.is_file():
            raise RunError(f"{self.path} holds no run to resume (config.yaml is missing)")
        theirs, ours = yaml.safe_load(held.read_text(encoding="utf-8")), to_plain(config)
        differing = [key for key in ours if key not in CHANGEABLE and theirs.get(key) != ours[key]]
        if differing:
            raise RunError(
                f"{self.path} holds a run with other settings ({', '.join(differing)} differ); "
                "leave them as they were, or choose another --out"
            )
        latest = self.latest_checkpoint()
        if latest is None:
            raise RunError(f"{self.path} holds no checkpoint to resume from; start anew in another --out")
        return latest[0]

    def _check_writable(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".probe"
            probe.write_bytes(b"x" * 4096)
            probe.unlink()
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error}") from error
        if free < MIN_FREE_BYTES:
            raise RunError(f"{self.path}: only {free >> 20} MiB of disk are free; at least {MIN_FREE_BYTES >> 20} are needed")

    def _drop_after(self, step: int) -> None:
        """Forgets what was written after the checkpoint; those steps are played again, to the same result."""
        kept = [line for line in self.read_metrics() if line["step"] <= step]
        write_atomically(self.metrics, "".join(json.dumps(line) + "\n" for line in kept))
        if self.games.is_dir():
            for file in self.games.glob("step_*.jsonl"):
                if int(file.stem.removeprefix("step_")) > step:
                    file.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Writes a file in full or not at all.

    Raises:
        RunError: it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise RunError(f"{path} cannot be written: {error}") from error
