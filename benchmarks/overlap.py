"""One step off-policy (`compute.overlap`): what it saves, and that it changes no result.

Runs of the same seed, with one remote env runner, one after the other in turns: without and with
overlap. Then one with overlap that plays in the main process, and one that is killed (-9) after a
checkpoint and resumed: both have to leave the same games and figures as the first with overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.origin import origin

OVERLAP = "compute.overlap=true"
QUICK = (
    "learning.importance_cap=2.0",
    "evaluation.every=100000",
    "evaluation.per_group=5",
    "checkpoint_every=2",
)
DEADLINE = 600.0


def main() -> int:
    """Measures, compares and writes the result; 1 if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", type=int, default=2, help="runs of each kind that are timed")
    settings = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        result = _measured(Path(name), settings)
    result |= {
        **origin("overlap"),
        "seed": 0,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if all(result["same_as_uninterrupted"].values()) else 1


def _measured(folder: Path, settings: argparse.Namespace) -> dict[str, Any]:
    steps = settings.steps
    remote = ("compute.env_runners=1",)
    seconds: dict[str, list[float]] = {"one after the other": [], "overlapping": []}
    for turn in range(settings.turns):
        for kind, more in zip(seconds, ((), (OVERLAP,)), strict=True):
            run = folder / f"{kind} {turn}"
            _train(run, steps, *remote, *more)
            seconds[kind] += [line["seconds"]["step"] for line in _metrics(run)[2:]]

    whole = folder / "overlapping 0"
    here, killed = folder / "here", folder / "killed"
    _train(here, steps, OVERLAP)
    died_after = _killed(killed, steps, *remote, OVERLAP)
    _train(killed, steps, resume=True)

    medians = {kind: median(values) for kind, values in seconds.items()}
    return {
        "steps": steps,
        "seconds_per_step": medians,
        "ratio": medians["one after the other"] / medians["overlapping"],
        "killed_after_step": died_after,
        "same_as_uninterrupted": {
            "played in the main process": _left(here) == _left(whole),
            "killed and resumed": _left(killed) == _left(whole),
        },
    }


def _command(out: Path, steps: int, settings: tuple[str, ...], resume: bool) -> list[str]:
    ssp = str(Path(sys.executable).with_name("ssp"))
    begun = ["--resume"] if resume else ["--preset", "tiny"]
    sets = [] if resume else [word for s in (*QUICK, *settings) for word in ("--set", s)]
    return [ssp, "train", *begun, "--steps", str(steps), "--out", str(out), "--quiet", *sets]


def _train(out: Path, steps: int, *settings: str, resume: bool = False) -> None:
    command = _command(out, steps, settings, resume)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _killed(out: Path, steps: int, *settings: str) -> int:
    """Kills a run in the middle of its fifth step; returns the last step that it wrote."""
    process = subprocess.Popen(
        _command(out, steps, settings, False), stdout=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + DEADLINE
    while len(_metrics(out)) < 5:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the run ended by itself, with status {process.poll()}")
        time.sleep(0.05)

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return int(_metrics(out)[-1]["step"])


def _metrics(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    return [json.loads(line) for line in lines]


def _left(run: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """All that a run leaves behind but times."""
    figures = [{n: v for n, v in line.items() if n != "seconds"} for line in _metrics(run)]
    games = {file.name: file.read_text() for file in sorted((run / "games").iterdir())}
    return figures, games


if __name__ == "__main__":
    sys.exit(main())
