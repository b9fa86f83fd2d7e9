"""A learner's update of a real policy with adapters, beside that of an earlier checkout.

    git worktree add ../before d6c6ec1c
    python -m benchmarks.learner_speed ../before MODEL_DIR --out learner_speed.json

One row of ``--tokens``, of which the policy wrote the last ``--own``: forward and backward pass,
and a step of Adam on adapters of rank 16, through RLlib's learner. Sides take turns, each turn in a
process of its own with one thread, after a short row to warm up. Times are CPU-seconds; memory is
all that the process has resident at its peak, weights and libraries included.

    python -m benchmarks.learner_speed ../before MODEL_DIR --rows 16 --tokens 850 --prefix 560 \
        --own 60 --sides before now --out learner_group.json

Attempts at questions under one prompt: rows with their first ``--prefix`` tokens in common. The
other checkout passes row by row, as its memory asks for; this one all of them together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import torch

from benchmarks.harness import ROOT, in_turns, parser, write

SIDES: dict[str, tuple[bool, dict[str, Any]]] = {
    "before": (False, {}),
    "now": (True, {}),
    "now, float32": (True, {"dtype": "float32"}),
    "now, bfloat16": (True, {"dtype": "bfloat16"}),
    "now, checkpointed": (True, {"gradient_checkpointing": True}),
}
"""Whether a side is this checkout, and its settings of learning beside the defaults."""


def main() -> None:
    """Measures all sides in turns and writes their ratios to the first."""
    options = parser(__doc__, seed=False)
    options.add_argument("before", type=Path, help="the other checkout")
    options.add_argument("model", type=Path, help="directory of a causal LM")
    options.add_argument("--name", default="", help="what the model is, for the result")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--tokens", type=int, default=1500, help="some 12 GiB of the first side")
    options.add_argument("--own", type=int, default=200, help="tokens that the policy wrote")
    options.add_argument("--rows", type=int, default=1)
    options.add_argument("--prefix", type=int, default=0, help="tokens that rows have in common")
    options.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    settings = options.parse_args()

    def measured(side: str) -> dict[str, float]:
        this, changes = SIDES[side]
        checkout = ROOT if this else settings.before.resolve()
        at_once = settings.tokens * (settings.rows if this else 1)
        given = {"microbatch_tokens": at_once, "model_dir": str(settings.model), **changes}
        shape = {name: getattr(settings, name) for name in ("rows", "tokens", "prefix", "own")}
        found = in_checkout(checkout, {"training": given, **shape})
        print(side, found, file=sys.stderr, flush=True)
        return found

    turns: dict[str, Callable[[], Any]] = {s: partial(measured, s) for s in settings.sides}
    found = in_turns(turns, settings.turns, warm=False)
    result: dict[str, Any] = {
        "model": settings.name or settings.model.name,
        "commit_of_before": commit(settings.before),
        "cpu": units(),
        "rows": {
            **{name: getattr(settings, name) for name in ("rows", "tokens", "prefix", "own")},
            "lora_rank": 16,
        },
    }
    for side, answers in found.items():
        of = {name: median(each[name] for each in answers) for name in answers[0]}
        pairs = list(zip(found[settings.sides[0]], answers, strict=True))
        result[side] = {
            **of,
            "tokens_per_cpu_second": settings.rows * settings.tokens / of["seconds"],
            "times_as_fast": [round(a["seconds"] / b["seconds"], 3) for a, b in pairs],
            "of_peak": round(median(b["peak_gib"] / a["peak_gib"] for a, b in pairs), 3),
        }
    write(settings.out, result)


def in_checkout(checkout: Path, asked: dict[str, Any]) -> dict[str, float]:
    """What an update takes with the code of a checkout."""
    paths = os.pathsep.join(map(str, (checkout, checkout / "agents", checkout / "experiments")))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", __file__, json.dumps(asked)]
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def one_side(
    training: dict[str, Any], rows: int, tokens: int, prefix: int, own: int
) -> dict[str, float]:
    """Seconds and peak memory of one update, in this process."""
    import numpy as np
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

    from ssp_agents.rllib import SSPConfig
    from ssp_agents.rllib.learner import SSPLearner
    from ssp_agents.rllib.module import MODULE_ID
    from ssp_agents.rows import Row

    torch.set_num_threads(1)
    config = SSPConfig().training(
        lora_rank=16, kl_coeff=0.0, learning_roles=("solver",), **training
    )
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: config.get_default_rl_module_spec()})
    learner = SSPLearner(config=config, module_spec=spec)
    learner.build()

    def update(count: int, length: int, own: int) -> dict[str, float]:
        rng = np.random.default_rng(0)
        mask = np.zeros(length, dtype=np.uint8)
        mask[-own:] = 1
        texts = rng.integers(0, 100_000, size=(count, length)).astype(np.int32)
        texts[:, :prefix] = texts[0, :prefix]
        nobody = np.full(length, np.nan, dtype=np.float32)  # the importance ratio is 1
        learnt = [Row(ids, mask, nobody, "solver", 0, 1.0, weight=1 / own) for ids in texts]
        batch = batch_of(learner, learnt)
        result = learner.update(batch=batch, timesteps={"training_step": 1})
        norm: dict[str, float] = {"grad_norm": float(result[MODULE_ID]["grad_norm"])}
        return norm

    update(1, 64, 16)
    Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
    before, began = resident("VmRSS"), process_time()
    norm = update(rows, tokens, own)
    spent = process_time() - began
    return {"seconds": spent, "peak_gib": resident("VmHWM"), "before_gib": before, **norm}


def batch_of(learner: Any, rows: Sequence[Any]) -> Any:
    """The batch of rows, with the code of whichever checkout this process runs."""
    module = import_module("ssp_agents.rllib.module")
    # Checkouts before there were two policies have a function in place of the learner's policies.
    to_batch = getattr(module, "to_batch", None)
    return learner.policies.batches(rows)[0] if to_batch is None else to_batch(rows)


def resident(field: str) -> float:
    """A figure of this process's memory, in GiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 2**20


def units() -> list[str]:
    """What this CPU multiplies in."""
    there = torch.cpu.get_capabilities()
    return [name for name in ("avx2", "avx512_f", "avx512_bf16", "amx_bf16") if there.get(name)]


def commit(checkout: Path) -> str:
    """The commit of a checkout."""
    git = ["git", "-C", str(checkout), "describe", "--always", "--abbrev=40", "--dirty=+changes"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    if sys.argv[1].startswith("{"):
        print(json.dumps(one_side(**json.loads(sys.argv[1]))))
    else:
        main()
