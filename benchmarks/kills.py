"""Training runs that are killed (-9) at random moments and resumed: is the end bit-equal?

Tiny runs of five steps, with a checkpoint after every second, in one process each (and Ray). A
moment is drawn as one of the lines of ``metrics.jsonl``, from the base policy's to the last, and a
time after it of up to 1.5 times what a step takes; so kills hit rollouts, updates, checkpoints,
evaluations and the writing of files. The resumed run has to leave what the run to which nothing
happened left: metrics but for times, all games, and the last checkpoint's weights and moments.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
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
MODES: dict[str, dict[str, Any]] = {
    "one after the other": {},
    "overlapping": {"compute.overlap": "true", "learning.importance_cap": 2.0},
}


def main() -> int:
    """Kills, resumes, compares and writes the result; 1 if anything differs."""
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=20, help="with and without overlap, each")
    settings = options.parse_args()

    rng = np.random.default_rng(settings.seed)
    kills: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        for mode, found in kills.items():
            whole, run = Path(name, mode), Path(name, "killed")
            assert begin(whole, mode).wait(PATIENCE) == 0, "the run to which nothing happened"
            seconds = [line["seconds"]["wall"] for line in lines(whole)[1:]]
            while len(found) < settings.kills:
                after = int(rng.integers(1, STEPS + 2))
                more = float(rng.uniform(0, 1.5) * np.mean(seconds))
                if kill(run, mode, after, more):
                    written = len(lines(run))
                    status = begin(run, mode, resume=True).wait(PATIENCE)
                    now, expected = left(run), left(whole)
                    found.append(
                        {
                            "lines_of_metrics": written,
                            "seconds_after_the_line": round(more, 2),
                            "status_of_the_resumed_run": status,
                            "differs": [what for what in expected if now[what] != expected[what]],
                        }
                    )
                    print(mode, json.dumps(found[-1]), flush=True)
                shutil.rmtree(run)

    write(settings.out, {"steps": STEPS, "settings": SMALL, "seed": settings.seed, "kills": kills})
    every = [each for found in kills.values() for each in found]
    return int(any(each["status_of_the_resumed_run"] or each["differs"] for each in every))


def begin(run: Path, mode: str, resume: bool = False) -> subprocess.Popen[bytes]:
    """Starts a run, or goes on with it."""
    values = {**SMALL, **MODES[mode]}
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    ssp = str(Path(sys.executable).with_name("ssp"))
    command = [ssp, "train", "--quiet", "--steps", str(STEPS), "--out", str(run)]
    return subprocess.Popen([*command, *(["--resume"] if resume else given)])


def kill(run: Path, mode: str, after: int, seconds: float) -> bool:
    """Starts a run and kills it so long after a line of its metrics; false if it had ended."""
    process, deadline = begin(run, mode), time.monotonic() + PATIENCE
    while len(lines(run)) < after and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(seconds)
    process.kill()
    return process.wait(PATIENCE) == -signal.SIGKILL


def lines(run: Path) -> list[Any]:
    """The whole lines of metrics so far."""
    file = run / "metrics.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def left(run: Path) -> dict[str, Any]:
    """Metrics without times, games, weights and moments of the last checkpoint.

    Digests are of tensors, not of files, which may hold the same tensors in another order.
    """
    newest = max((run / "checkpoints").iterdir())
    return {
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in lines(run)],
        "games": [file.read_text() for file in sorted((run / "games").iterdir())],
        "weights": {
            f"{file.relative_to(newest)}: {name}": hashlib.sha256(tensor.tobytes()).hexdigest()
            for file in sorted(newest.rglob("*.safetensors"))
            for name, tensor in load_file(file).items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
