"""The run directory, in which every file is there in full or not at all.

============================= ====================================================================
``config.yaml``               the settings, in full
``metrics.jsonl``             one line per step; step 0 is the base policy
``games/step_000001.jsonl``   every game of the step, as ``ssp replay`` reads it
``checkpoints/step_000040/``  everything to resume from, and ``policy/``, a model directory
``tensorboard/``              the same figures for TensorBoard
``summary.json``              the result
``stopped.json``              why the run was stopped, if its figures went wrong
============================= ====================================================================
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from agents.health import Diagnosis
from experiments.config import RunConfig
from ssp_env.disk import (
    locked,
    make_directories,
    remove_empty,
    replacing,
    write_atomically,
)
from ssp_env.errors import RunError
from ssp_env.game.record import GameRecord
from ssp_env.replay.files import SavedGame, game_lines
from ssp_env.replay.header import SavedRules

NO_CHECKPOINT = (
    "a run that ended before its first checkpoint; start it over with --resume, or "
    "choose another --out"
)
CHANGEABLE = re.compile(
    r"steps|checkpoint_every|checkpoints_kept|record_tokens|patience"
    r"|compute\.(env_runners|learners|gpus_per_\w+|sharding|threads)"
    r"|search\.(device|server\.(url|token_env|deadline|connections))"
    r"|openai\.(base_url|api_key_env|timeout|concurrency)"
)
"""Settings in which a resumed run may differ from its directory: none decides which games are
played."""


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

    # -- the beginning of a run ----------------------------------------------------------------

    @contextmanager
    def claimed(self, config: RunConfig, resume: bool) -> Iterator[int]:
        """Locks the directory for a run; yields the step to continue from (0: a new run).

        A new run that fails or is interrupted before it wrote a line of metrics leaves nothing
        behind.

        Raises:
            RunError: it holds a run already, another run's settings, nothing to resume, or cannot
                be written.
        """
        made = make_directories(self.path)
        begun = False
        try:
            with locked(self.path):
                step = self._first_step(config, resume)
                begun = step == 0
                if step:
                    self._drop_after(step)
                elif resume:
                    self._clear()
                self.write_config(config)
                yield step
        except BaseException:
            if begun and not self.metrics.exists():
                self._clear()
            remove_empty(made)
            raise

    def check(self, config: RunConfig, resume: bool) -> None:
        """Raises what :meth:`claimed` would raise, and leaves the directory as it is."""
        made = make_directories(self.path)
        try:
            with locked(self.path):
                self._first_step(config, resume)
        finally:
            remove_empty(made)

    def _first_step(self, config: RunConfig, resume: bool) -> int:
        latest = self.latest_checkpoint()
        if not resume:
            way = "choose another --out"
            if latest is not None:
                way = f"continue it with --resume, or {way}"
            elif self.config.exists() and self.metrics.exists():
                way = f"it holds {NO_CHECKPOINT}"
            if any(self.path.iterdir()):
                raise RunError(f"{self.path} is not empty; {way}")
            return 0

        theirs, ours = flat(self.read_config()), flat(config.model_dump(mode="json"))
        differing = [
            name
            for name in sorted({*theirs, *ours})
            if theirs.get(name) != ours.get(name) and not CHANGEABLE.fullmatch(name)
        ]
        if differing:
            raise RunError(
                f"{self.path} holds a run with other settings ({', '.join(differing)}); "
                "leave them as they were, or choose another --out"
            )
        step = latest[0] if latest else 0
        if step > config.steps:
            raise RunError(f"{self.path} is at step {step} already; ask for more --steps")
        return step

    # -- what a run writes ---------------------------------------------------------------------

    def write_config(self, config: RunConfig) -> None:
        """Writes the settings."""
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomically(self.config, text)

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Adds one line to ``metrics.jsonl``; a figure that is not finite becomes ``null``.

        Raises:
            RunError: it cannot be written (a full disk, say). Resuming drops a line that was cut
                off.
        """
        try:
            with open(self.metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(finite(line), allow_nan=False) + "\n")
        except OSError as error:
            raise RunError(f"{self.metrics} cannot be written: {error}") from error

    def write_games(
        self, step: int, rules: SavedRules, games: Iterable[GameRecord], tokens: bool = True
    ) -> None:
        """Writes all games of a step.

        Args:
            step: names the file.
            rules: what the games were played by.
            games: in the order of the step.
            tokens: write token ids and log-probabilities, without which no game can be replayed.
        """
        make_directories(self.games)
        saved = (SavedGame(rules, game) for game in games)
        with replacing(self.games / f"step_{step:06d}.jsonl") as file:
            file.writelines(game_lines(saved, tokens=tokens))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Writes the result."""
        write_atomically(self.summary, json.dumps(summary, indent=2) + "\n")

    def write_stopped(self, diagnosis: Diagnosis) -> None:
        """Writes why the run was stopped; the next checkpoint takes it away again."""
        write_atomically(self.stopped, json.dumps(asdict(diagnosis), indent=2) + "\n")

    def save_checkpoint(
        self, step: int, save: Callable[[Path], None], kept: int | None = None
    ) -> Path:
        """Lets ``save`` fill a new checkpoint, makes it visible by a rename, and deletes old ones.

        Args:
            step: names it.
            save: writes into a folder.
            kept: how many stay; all where it is ``None``.

        Raises:
            RunError: it cannot be written.
        """
        from safetensors import SafetensorError

        final = self.checkpoints / f"step_{step:06d}"
        unfinished = self.checkpoints / f".unfinished_{step:06d}"
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            save(unfinished)
            shutil.rmtree(final, ignore_errors=True)
            unfinished.rename(final)
            self.stopped.unlink(missing_ok=True)
            for _, old in self.kept_checkpoints()[: -kept if kept else 0]:
                shutil.rmtree(old)
        except (OSError, SafetensorError) as error:
            raise RunError(f"the checkpoint {final} cannot be written: {error}") from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return final

    # -- what was written ----------------------------------------------------------------------

    def read_config(self) -> dict[str, Any]:
        """The settings that the directory's run was started with.

        Raises:
            RunError: there is no run, or its settings cannot be read.
        """
        try:
            values = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path} holds no run to resume (config.yaml is missing)") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise RunError(f"{self.config} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise RunError(f"{self.config} holds no settings")
        return values

    def read_metrics(self, *, growing: bool = False) -> list[dict[str, Any]]:
        """All lines of ``metrics.jsonl``.

        Args:
            growing: a run is writing: leave out a last line whose end is not there yet.

        Raises:
            RunError: there are none, or one is no line of metrics; names the line.
        """
        try:
            texts = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{self.path} holds no metrics: {error}") from error
        if growing and texts and not texts[-1].endswith("\n"):
            texts.pop()
        if not texts:
            raise RunError(f"{self.metrics} is empty")

        lines = []
        for number, text in enumerate(texts, start=1):
            try:
                lines.append(json.loads(text))
                lines[-1]["step"]
            except (ValueError, LookupError, TypeError) as error:
                what = f"no line of metrics ({error!r})" if text.endswith("\n") else "cut off"
                raise RunError(f"{self.metrics}:{number}: {what}") from error
        return lines

    def read_stopped(self) -> Diagnosis | None:
        """Why the run was stopped after its newest checkpoint; ``None`` if it was not."""
        if not self.stopped.exists():
            return None
        try:
            return Diagnosis(**json.loads(self.stopped.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{self.stopped} cannot be read: {error}") from error

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """Step and folder of the newest checkpoint."""
        found = self.kept_checkpoints()
        return found[-1] if found else None

    def kept_checkpoints(self) -> list[tuple[int, Path]]:
        """Steps and folders of all checkpoints that are there, the oldest first."""
        folders = self.checkpoints.glob("step_*")
        return sorted((int(folder.name.removeprefix("step_")), folder) for folder in folders)

    # -- going back ----------------------------------------------------------------------------

    def go_back(self) -> int:
        """Deletes what came after the newest checkpoint; its step, or 0 where there is none."""
        latest = self.latest_checkpoint()
        step = latest[0] if latest else 0
        self._drop_after(step)
        return step

    def _drop_after(self, step: int) -> None:
        """Deletes what came after the checkpoint: those steps are played again, to the same result.

        The last line may have been cut off by a crash, or be of a step after the checkpoint;
        earlier ones are whole.
        """
        try:
            if self.metrics.exists():  # it begins with the measured base policy
                lines = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
                whole = [line for line in lines if line.endswith("\n")]
                kept = [line for line in whole if json.loads(line)["step"] <= step]
                write_atomically(self.metrics, "".join(kept))
            for file in self.games.glob("step_*.jsonl"):
                if int(file.stem.removeprefix("step_")) > step:
                    file.unlink()
            self.summary.unlink(missing_ok=True)
            for left in self.path.rglob(".*unfinished*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RunError(f"{self.path} cannot be resumed: {error}") from error

    def _clear(self) -> None:
        """Deletes a run that has no checkpoint."""
        for file in (self.metrics, self.config):
            file.unlink(missing_ok=True)
        for folder in (self.tensorboard, self.games, self.checkpoints):
            shutil.rmtree(folder, ignore_errors=True)


def fresh(base: str | Path) -> Path:
    """``base``, or the first of ``base-2``, ``base-3`` and so on that does not exist yet."""
    path, number = Path(base), 1
    while path.exists():
        number += 1
        path = Path(f"{base}-{number}")
    return path


def newest(base: str | Path) -> Path:
    """The last of ``base``, ``base-2``, ``base-3`` and so on that holds a run.

    Raises:
        RunError: none does.
    """
    base = Path(base)
    pattern = re.compile(re.escape(base.name) + r"(?:-(\d+))?")
    held = [config.parent for config in base.parent.glob("*/config.yaml")]
    runs = [(match, path) for path in held if (match := pattern.fullmatch(path.name))]
    if not runs:
        raise RunError(f"there is no run {base} to resume; name its directory by --out")
    return max(runs, key=lambda run: int(run[0][1] or 1))[1]


def finite(value: Any) -> Any:
    """The same with ``None`` for every number that is not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found.update({f"{name}.{inner}": deep for inner, deep in flat(value).items()})
        else:
            found[name] = value
    return found
