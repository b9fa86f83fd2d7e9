"""Runs of ``ssp train`` as users start them, and what is compared of them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

SSP_COMMAND = str(Path(sys.executable).with_name("ssp"))
PATIENCE = 900.0
"""Seconds that anything may take here."""
SMALL = {
    "learning.batch_size": 6,
    "game.attempts": 3,
    "evaluation.per_group": 4,
    "evaluation.every": 100,
    "checkpoint_every": 2,
}
"""Settings of short steps with the tiny policy."""


def sets(assignments: Mapping[str, Any]) -> list[str]:
    """The settings as arguments."""
    return [part for name, value in assignments.items() for part in ("--set", f"{name}={value}")]


def command_of(out: Path, *more: str, steps: int, seed: int = 0) -> list[str]:
    """A command line of ``ssp train`` with :data:`SMALL` settings, or one that resumes."""
    fresh = [] if "--resume" in more else [*sets({**SMALL, "seed": seed})]
    return [SSP_COMMAND, "train", "--steps", str(steps), "--out", str(out), *fresh, *more]


def train(out: Path, *more: str, steps: int, seed: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs such a command to its end.

    Args:
        out: the run directory.
        more: further arguments.
        steps: of the run.
        seed: of the run.
    """
    command = command_of(out, *more, steps=steps, seed=seed)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def begin(command: list[str], **more: Any) -> subprocess.Popen[str]:
    """Starts a command whose errors are of interest."""
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more
    )


def wait_for(path: Path, run: subprocess.Popen[str]) -> None:
    """Waits for what a run is to write.

    Raises:
        RuntimeError: the run ended without it, or it took too long.
    """
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if run.poll() is not None or time.monotonic() > deadline:
            said = run.stderr.read()[-2000:] if run.stderr and run.poll() is not None else ""
            raise RuntimeError(f"no {path.name}; status of the run: {run.poll()} {said}")
        time.sleep(0.01)


@contextmanager
def serving(*what: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``ssp serve``: its address, and its process."""
    command = [SSP_COMMAND, "serve", *what, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        assert address is not None, "the server did not start"
        yield address[0], process
    finally:
        process.kill()
        process.wait()


# -- what a run leaves behind ------------------------------------------------------------------


def figures(run: Path) -> list[dict[str, Any]]:
    """The lines of the metrics, without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def games(run: Path) -> list[str]:
    """The text of every file of games."""
    return [file.read_text() for file in sorted((run / "games").iterdir())]


def weights(run: Path) -> dict[str, str]:
    """The newest checkpoint's weights and moments: file and tensor -> digest of its values.

    Not of the files, which may hold the same tensors in another order.
    """
    newest = max((run / "checkpoints").iterdir())
    return {
        f"{file.relative_to(newest)}: {name}": hashlib.sha256(tensor.tobytes()).hexdigest()
        for file in sorted(newest.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }
