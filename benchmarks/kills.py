"""Training runs that are killed (-9) at random moments and resumed: is the end bit-equal?

Tiny runs of five steps, with a checkpoint after every second, in one process each (and Ray). A
moment is drawn as one of the lines of ``metrics.jsonl``, from the base policy's to the last, and a
time after it of up to 1.5 times what a step takes; so kills hit rollouts, updates, checkpoints,
evaluations and the writing of files. The resumed run has to leave what the run to which nothing
happened left: metrics but for times, all games, and the last checkpoint's weights and moments; and
its tracker has to show each step once. Trackers work offline.
"""

from __future__ import annotations

import hashlib
import json
import os
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
from tests.shown import steps_shown

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
    **{
        f"three learners, {tracker}": {"compute.learners": 3, "tracker": tracker}
        for tracker in ("tensorboard", "wandb", "mlflow")
    },
}
# As many CPUs as processes want: three learners on two cores are slow, and as right.
SSP = "import os; os.cpu_count = lambda: 4; from ssp_env.cli import script; script()"


def main() -> int:
    """Kills, resumes, compares and writes the result; 1 if anything differs."""
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=20, help="of each mode")
    options.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    settings = options.parse_args()

    rng = np.random.default_rng(settings.seed)
    modes: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        for mode in settings.modes:
            whole, run = Path(name, mode), Path(name, "killed")
            assert _begin(whole, mode).wait(PATIENCE) == 0, "the run to which nothing happened"
            kills: list[dict[str, Any]] = []
            while len(kills) < settings.kills:
                kill = _kill(run, mode, whole, rng)
                shutil.rmtree(run)
                if kill is not None:
                    print(mode, json.dumps(kill), flush=True)
                    kills.append(kill)
            modes[mode] = {"resumed_to_the_same_end": sum(k["same"] for k in kills), "kills": kills}

    write(
        settings.out,
        {"steps": STEPS, "settings": SMALL, "seed": settings.seed, "modes": modes},
    )
    return 0 if all(kill["same"] for found in modes.values() for kill in found["kills"]) else 1


def _kill(run: Path, mode: str, whole: Path, rng: np.random.Generator) -> dict[str, Any] | None:
    """Kills a run, resumes it, and compares it with the whole one; ``None`` if it had ended."""
    steps = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()][1:]
    step = float(np.mean([line["seconds"]["wall"] for line in steps]))
    lines, seconds = int(rng.integers(1, STEPS + 2)), float(rng.uniform(0, 1.5)) * step

    process, deadline = _begin(run, mode), time.monotonic() + PATIENCE
    while _lines(run) < lines and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(seconds)
    process.kill()
    if process.wait(PATIENCE) != -signal.SIGKILL:
        return None

    saved = sorted(path.name for path in (run / "checkpoints").glob("*"))
    written = _lines(run)
    status = _begin(run, mode, resume=True).wait(PATIENCE)
    left, expected = _left(run, mode), _left(whole, mode)
    differs = [name for name, value in expected.items() if left[name] != value]
    return {
        "lines_of_metrics": written,
        "seconds_after_the_line": round(seconds, 2),
        "checkpoints": saved,
        "status_of_the_resumed_run": status,
        "differs": differs,
        "same": status == 0 and not differs,
    }


def _begin(run: Path, mode: str, resume: bool = False) -> subprocess.Popen[bytes]:
    values = {**SMALL, **MODES[mode]}
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-c", SSP, "train", "--quiet", "--steps", str(STEPS)]
    command += ["--out", str(run), *(["--resume"] if resume else given)]
    offline = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{_store(run)}"}
    return subprocess.Popen(command, env={**os.environ, **offline})


def _store(run: Path) -> Path:
    return run.with_name("mlflow.db")


def _lines(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def _left(run: Path, mode: str) -> dict[str, Any]:
    """Metrics without times, games, weights and moments of the last checkpoint, steps shown.

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
        "shown": steps_shown(MODES[mode].get("tracker", "tensorboard"), run, _store(run)),
    }


if __name__ == "__main__":
    sys.exit(main())
