"""Training runs that are killed (-9) at random moments and resumed: is the end bit-equal?

Tiny runs of five steps, with a checkpoint after every second, in one process each (and Ray). A
moment is drawn as one of the lines of ``metrics.jsonl``, from the base policy's to the last, and a
time after it of up to 1.5 times what a step takes; so kills hit rollouts, updates, checkpoints,
evaluations and the writing of files. The resumed run has to leave what the run to which nothing
happened left: metrics but for times, all games, and the last checkpoint's weights and moments.

Runs are forked off a process that has imported everything and started nothing, and share a Ray;
this saves nine tenths of their time and shares nothing that they compute.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import ray

from benchmarks.origin import origin
from benchmarks.runs import PATIENCE, SMALL, figures, games, sets, weights

STEPS = 5
MODES: dict[str, dict[str, Any]] = {
    "one after the other": {},
    "overlapping": {"compute.overlap": "true", "learning.importance_cap": 2.0},
}
IMPORTED = ["experiments.commands.train", "experiments.run.training", "experiments.run.cluster"]
_CONTEXT = multiprocessing.get_context("forkserver")


def main() -> int:
    """Kills, resumes, compares and writes the result; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=20, help="with and without overlap, each")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()

    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    _CONTEXT.set_forkserver_preload(IMPORTED)

    result: dict[str, Any] = {
        "steps": STEPS,
        "settings": SMALL,
        **origin("kills"),
        "seed": settings.seed,
        "modes": {name: {"resumed_to_the_same_end": 0, "kills": []} for name in MODES},
    }

    def note(mode: str, kill: dict[str, Any]) -> None:
        print(mode, json.dumps(kill), flush=True)
        found = result["modes"][mode]
        found["kills"].append(kill)
        found["resumed_to_the_same_end"] = sum(kill["same"] for kill in found["kills"])
        settings.out.write_text(json.dumps(result, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        _kill_all(Path(name), settings, note)
    same = [kill["same"] for mode in result["modes"].values() for kill in mode["kills"]]
    return 0 if all(same) else 1


def _kill_all(
    folder: Path, settings: argparse.Namespace, note: Callable[[str, dict[str, Any]], None]
) -> None:
    """The modes in turn, so that an early end leaves equally many of each."""
    rng = np.random.default_rng(settings.seed)
    calm = {}
    for mode in MODES:
        run = folder / f"calm, {mode}"
        assert _ended(_begun(run, mode)) == 0, "the run to which nothing happened failed"
        calm[mode] = run

    for number in range(settings.kills):
        for mode, whole in calm.items():
            run = folder / f"{mode} {number}"
            while (kill := _kill(run, mode, whole, rng)) is None:
                shutil.rmtree(run)
            note(mode, kill)


def _kill(run: Path, mode: str, whole: Path, rng: np.random.Generator) -> dict[str, Any] | None:
    """Kills a run, resumes it, and compares it with the one to which nothing happened; ``None`` if
    it was over before."""
    lines, seconds = int(rng.integers(1, STEPS + 2)), float(rng.uniform(0, 1.5)) * _step(whole)
    process = _begun(run, mode)
    _await(run / "metrics.jsonl", lines, process)
    time.sleep(seconds)
    process.kill()
    if _ended(process) != -signal.SIGKILL:
        return None

    saved = sorted(path.name for path in (run / "checkpoints").glob("*"))
    written = _lines(run / "metrics.jsonl")
    status = _ended(_begun(run, mode, resume=True))
    same = {
        "metrics": figures(run) == figures(whole),
        "games": games(run) == games(whole),
        "weights": weights(run) == weights(whole),
    }
    return {
        "lines_of_metrics": written,
        "seconds_after_the_line": round(seconds, 2),
        "checkpoints": saved,
        "status_of_the_resumed_run": status,
        "differs": [name for name, equal in same.items() if not equal],
        "same": status == 0 and all(same.values()),
    }


def _begun(run: Path, mode: str, resume: bool = False) -> ForkServerProcess:
    given = ["--resume"] if resume else [*sets({**SMALL, **MODES[mode]})]
    arguments = ["train", "--quiet", "--steps", str(STEPS), "--out", str(run), *given]
    process = _CONTEXT.Process(target=_ssp, args=(arguments,))
    process.start()
    return process


def _ssp(arguments: list[str]) -> None:
    """What the command ``ssp`` does."""
    from ssp_env.cli import main as ssp

    sys.exit(ssp(arguments))


def _ended(process: ForkServerProcess) -> int | None:
    process.join(PATIENCE)
    return process.exitcode


def _await(file: Path, lines: int, process: ForkServerProcess) -> None:
    deadline = time.monotonic() + PATIENCE
    while _lines(file) < lines and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)


def _lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def _step(run: Path) -> float:
    """Seconds of a step, in the mean."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return float(np.mean([line["seconds"]["wall"] for line in lines[1:]]))


if __name__ == "__main__":
    sys.exit(main())
