"""Training runs that are killed (-9) at random moments and resumed: is the end bit-equal?

Tiny runs of five steps, with a checkpoint after every second, in one process each (and Ray). A
moment is drawn as one of the lines of ``metrics.jsonl``, from the base policy's to the last, and a
time after it of up to 1.5 times what a step takes; so kills hit rollouts, updates, checkpoints,
evaluations and the writing of files. The resumed run has to leave what the run to which nothing
happened left: metrics but for times, all games, and the last checkpoint's weights and moments.
Runs are forked off a process that has imported much and started nothing, and share a Ray.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from importlib.metadata import entry_points
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import ray
from safetensors.numpy import load_file

from benchmarks.harness import parser, write

PATIENCE = 900.0
"""Seconds that anything may take here."""
STEPS = 5
SMALL = {
    "learning.batch_size": 6,
    "game.attempts": 3,
    "per_group": 4,
    "evaluate_every": 100,
    "checkpoint_every": 2,
}
_CONTEXT = multiprocessing.get_context("forkserver")
MODES: dict[str, dict[str, Any]] = {
    "one after the other": {},
    "overlapping": {"compute.overlap": "true", "learning.importance_cap": 2.0},
}


def main() -> int:
    """Kills, resumes, compares and writes the result; 1 if anything differs."""
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=20, help="with and without overlap, each")
    settings = options.parse_args()

    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init("local", num_cpus=2, logging_level="ERROR", **quiet)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    _CONTEXT.set_forkserver_preload(["agents.rllib", "experiments.config"])

    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        kills = _kill_all(Path(name), settings)
    modes = {
        mode: {"resumed_to_the_same_end": sum(kill["same"] for kill in found), "kills": found}
        for mode, found in kills.items()
    }
    write(
        settings.out,
        {"steps": STEPS, "settings": SMALL, "seed": settings.seed, "modes": modes},
    )
    return 0 if all(kill["same"] for found in kills.values() for kill in found) else 1


def _kill_all(folder: Path, settings: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    rng = np.random.default_rng(settings.seed)
    kills: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    for mode in MODES:
        whole = folder / mode
        assert _ended(_begin(whole, mode)) == 0, "the run to which nothing happened failed"

        for number in range(settings.kills):
            run = folder / f"{mode} {number}"
            while (kill := _kill(run, mode, whole, rng)) is None:
                shutil.rmtree(run)
            print(mode, json.dumps(kill), flush=True)
            kills[mode].append(kill)
            shutil.rmtree(run)
    return kills


def _kill(run: Path, mode: str, whole: Path, rng: np.random.Generator) -> dict[str, Any] | None:
    """Kills a run, resumes it, and compares it with the whole one; ``None`` if it had ended."""
    steps = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()][1:]
    step = float(np.mean([line["seconds"]["wall"] for line in steps]))
    lines, seconds = int(rng.integers(1, STEPS + 2)), float(rng.uniform(0, 1.5)) * step

    process, deadline = _begin(run, mode), time.monotonic() + PATIENCE
    while _lines(run) < lines and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(seconds)
    process.kill()
    if _ended(process) != -signal.SIGKILL:
        return None

    saved = sorted(path.name for path in (run / "checkpoints").glob("*"))
    written = _lines(run)
    status = _ended(_begin(run, mode, resume=True))
    left, expected = _left(run), _left(whole)
    differs = [name for name, value in expected.items() if left[name] != value]
    return {
        "lines_of_metrics": written,
        "seconds_after_the_line": round(seconds, 2),
        "checkpoints": saved,
        "status_of_the_resumed_run": status,
        "differs": differs,
        "same": status == 0 and not differs,
    }


def _begin(run: Path, mode: str, resume: bool = False) -> ForkServerProcess:
    values = {**SMALL, **MODES[mode]}
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    command = ["train", "--quiet", "--steps", str(STEPS), "--out", str(run)]
    process = _CONTEXT.Process(
        target=_ssp, args=([*command, *(["--resume"] if resume else given)],)
    )
    process.start()
    return process


def _ssp(arguments: list[str]) -> None:
    """The command ``ssp``, as the console runs it."""
    (script,) = entry_points(group="console_scripts", name="ssp")
    sys.argv = ["ssp", *arguments]
    sys.exit(script.load()())


def _ended(process: ForkServerProcess) -> int | None:
    process.join(PATIENCE)
    return process.exitcode


def _lines(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def _left(run: Path) -> dict[str, Any]:
    """Metrics without times, games, weights and moments of the last checkpoint.

    Digests are of tensors, not of files, which may hold the same tensors in another order.
    """
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    newest = max((run / "checkpoints").iterdir())
    return {
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in metrics],
        "games": [file.read_text() for file in sorted((run / "games").iterdir())],
        "weights": {
            f"{file.relative_to(newest)}: {name}": hashlib.sha256(tensor.tobytes()).hexdigest()
            for file in sorted(newest.rglob("*.safetensors"))
            for name, tensor in load_file(file).items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
