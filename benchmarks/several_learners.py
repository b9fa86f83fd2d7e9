"""The same two updates by one learner, by two with DDP and by two with FSDP2, with checkpoints that
go from one to the other, of all weights and of adapters; and ``ssp train`` with learners that share
a policy.

Learners are processes that Ray starts, joined by gloo. The rows are those of two steps of the
preset ``tiny``, played by the policy that ships."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.rllib.algorithm import SSP
from agents.rows import Row
from benchmarks.origin import origin
from experiments.config import RunConfig, load_preset, make_config
from experiments.run.cluster import algorithm_config, local_ray
from experiments.run.rundir import RunDirectory

LAYOUTS: dict[str, dict[str, Any]] = {
    "one": {"learners": 0, "sharding": "ddp"},
    "two, ddp": {"learners": 2, "sharding": "ddp"},
    "two, fsdp2": {"learners": 2, "sharding": "fsdp2"},
}
RESUMED = (("two, fsdp2", "one"), ("one", "two, fsdp2"), ("two, fsdp2", "two, ddp"))
"""Who wrote a checkpoint after the first update, and who makes the second one."""

Weights = dict[str, np.ndarray]


def main() -> int:
    """Compares, and writes what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=16)
    settings = parser.parse_args()
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        result = {
            **origin("several_learners"),
            "seed": 0,
            "all_weights": two_updates(settings.batch_size, Path(folder), 0),
            "adapters_of_rank_4": two_updates(settings.batch_size, Path(folder), 4),
            "ssp_train": whole_runs(settings.batch_size, Path(folder)),
        }

    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


# -- the same rows -----------------------------------------------------------------------------


def two_updates(batch_size: int, folder: Path, rank: int) -> dict[str, Any]:
    """All layouts learn from the same rows, with adapters of this rank."""
    learning = {"batch_size": batch_size, "lora_rank": rank}
    folder = folder / str(rank)
    with local_ray(_config(learning, learners=2)):
        with _algorithm(learning, LAYOUTS["one"]) as algorithm:
            start, updates = _weights(algorithm), list(_rows(algorithm, 2))

        ends: dict[str, Weights] = {}
        found: dict[str, Any] = {}
        for name, layout in LAYOUTS.items():
            with _algorithm(learning, layout) as algorithm:
                figures = [_learn(algorithm, updates[0], 0)]
                algorithm.save_to_path(str(folder / name))
                figures.append(_learn(algorithm, updates[1], 1))
                ends[name] = _weights(algorithm)

            written = sorted((folder / name / "learner").iterdir())
            files = {path.name: path.stat().st_size for path in written}
            norms = [figure["grad_norm"] for figure in figures]
            found[name] = {"grad_norms": norms, "checkpoint": files, **_seconds(figures)}

        for name in LAYOUTS:
            found[name]["against one"] = apart(ends[name], ends["one"])
        return {
            "rows": [len(rows) for rows in updates],
            "learning_rate": _config(learning).learning.lr,
            "moved": apart(ends["one"], start),
            "learners": found,
            "resumed": [
                _resumed(learning, folder, writer, reader, updates[1], ends)
                for writer, reader in RESUMED
            ],
        }


def _resumed(
    learning: dict[str, Any],
    folder: Path,
    writer: str,
    reader: str,
    rows: list[Row],
    ends: dict[str, Weights],
) -> dict[str, Any]:
    """The second update, from another layout's checkpoint."""
    with _algorithm(learning, LAYOUTS[reader]) as algorithm:
        algorithm.restore_from_path(str(folder / writer))
        figures = _learn(algorithm, rows, 1)
        weights = _weights(algorithm)
    return {
        "written_by": writer,
        "resumed_by": reader,
        "grad_norm": figures["grad_norm"],
        "against the writer, uninterrupted": apart(weights, ends[writer]),
    }


def apart(one: Weights, other: Weights) -> dict[str, float]:
    """How far two sets of weights are from each other."""
    gaps = np.concatenate([np.abs(one[name] - other[name]).ravel() for name in one])
    return {
        "largest": float(gaps.max()),
        "share above 1e-5": float((gaps > 1e-5).mean()),
        "share above 1e-6": float((gaps > 1e-6).mean()),
    }


def _rows(algorithm: SSP, steps: int) -> Iterator[list[Row]]:
    """What the present policy plays in each of the first steps."""
    for step in range(steps):
        samples = algorithm._play(step, algorithm._strategy.get_state())
        yield algorithm.credit([row for sample in samples for row in sample.rows])


def _learn(algorithm: SSP, rows: list[Row], step: int) -> dict[str, float]:
    """One update; its figures and seconds."""
    algorithm._steps = step
    began = time.perf_counter()
    learning, game = algorithm.config.learning(), algorithm.config.game()
    figures = algorithm._learn(rows, learning.batch_size, game.attempts)
    return {**figures, "seconds": time.perf_counter() - began}


def _seconds(figures: list[dict[str, float]]) -> dict[str, list[float]]:
    return {"seconds": [round(figure["seconds"], 2) for figure in figures]}


def _weights(algorithm: SSP) -> Weights:
    return {name: np.array(value) for name, value in algorithm.policy_weights().items()}


@contextmanager
def _algorithm(learning: dict[str, Any], layout: dict[str, Any]) -> Iterator[SSP]:
    algorithm = algorithm_config(_config(learning, **layout)).build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def _config(learning: dict[str, Any], **compute: Any) -> RunConfig:
    values = load_preset("tiny")
    values["compute"] = compute
    # More micro-batches on one learner than on the other, so that one of them has to wait.
    values["learning"] |= {**learning, "microbatch_tokens": 2048}
    values["learning"]["drop_uniform_groups"] = False  # a policy so young has few others
    return make_config(values)


# -- whole runs --------------------------------------------------------------------------------


def whole_runs(batch_size: int, folder: Path) -> dict[str, Any]:
    """``ssp train`` of two steps with each layout; then a third, with the learners exchanged."""
    found: dict[str, Any] = {}
    for name in ("one", "two, fsdp2"):
        found[name] = _train(folder / f"run {name}", batch_size, 2, LAYOUTS[name])

    for name, other in (("one", "two, fsdp2"), ("two, fsdp2", "one")):
        run = folder / f"run {name}"
        resumed = _train(run, batch_size, 3, LAYOUTS[other], "--resume")
        found[f"{name}, resumed with {other}"] = resumed

    adapted = _train(folder / "adapted", batch_size, 2, LAYOUTS["two, fsdp2"], rank=4)
    return {**found, "two, fsdp2, adapters of rank 4": adapted}


def _train(
    run: Path, batch_size: int, steps: int, layout: dict[str, Any], *options: str, rank: int = 0
) -> dict[str, Any]:
    changes = [f"learning.batch_size={batch_size}", "evaluation.per_group=5"]
    changes += [f"learning.lora_rank={rank}"]
    changes += [f"compute.{name}={value}" for name, value in layout.items()]
    ssp = "import sys; from ssp_env.commands.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", ssp, "train", "--quiet", "--out", str(run), *options]
    command += ["--preset", "tiny", "--steps", str(steps)]
    began = time.perf_counter()
    command += [word for change in changes for word in ("--set", change)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    lines = [line for line in RunDirectory(run).read_metrics() if line["step"]]
    shown = ("learner_loss", "learner_grad_norm", "engine_gap", "valid_rate", "solver_reward")
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "steps": [{name: line.get(name) for name in ("step", *shown)} for line in lines],
    }


if __name__ == "__main__":
    sys.exit(main())
