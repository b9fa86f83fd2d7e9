"""Two policies that learn, beside one that both roles share: seconds and memory of an update.

    python -m benchmarks.two_policies --out two_policies.json

The same rows, half of them of each role, go through RLlib's learner: of a Qwen2 of random weights,
in full and with adapters of rank 16. Sides take turns, each turn in a process of its own with one
thread, after an update to warm up. Seconds are the CPU's, of an update in which no role's gradient
is measured; memory is what the process has resident at its peak, beyond what it had before the
model was loaded, and what its weights and Adam's moments take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch

from benchmarks.harness import in_turns, parser, write
from benchmarks.learner_speed import resident

ADAPTERS = {"lora_rank": 16}
SIDES: dict[str, dict[str, Any]] = {
    "one model": {},
    "two models": {"policies": "separate"},
    "one adapter": ADAPTERS,
    "two adapters": {"policies": "separate", **ADAPTERS},
}
"""Settings of learning; each pair is compared."""
WIDTH, LAYERS, VOCABULARY = 384, 4, 12_000
ROWS, TOKENS, OWN, UPDATES = 64, 128, 64, 2


def main() -> None:
    """Measures all sides in turns, and writes each second one beside the one before it."""
    options = parser(__doc__, seed=False)
    options.add_argument("--turns", type=int, default=3)
    settings = options.parse_args()
    with TemporaryDirectory() as folder:
        parameters = save_model(Path(folder))
        turns: dict[str, Callable[[], Any]] = {s: partial(apart, s, folder) for s in SIDES}
        found = in_turns(turns, settings.turns, warm=False)

    result: dict[str, Any] = {"parameters": parameters, "rows": ROWS, "tokens": TOKENS}
    for side, answers in found.items():
        result[side] = {n: round(median(each[n] for each in answers), 3) for n in answers[0]}
    for one, two in (("one model", "two models"), ("one adapter", "two adapters")):
        ratios = {
            name: round(
                median(b[name] / a[name] for a, b in zip(found[one], found[two], strict=True)), 3
            )
            for name in found[one][0]
        }
        result[f"{two} of {one}"] = ratios
    write(settings.out, result)


def save_model(folder: Path) -> int:
    """A model of random weights, as a directory; its parameters."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from ssp_agents.shipped.tiny.bootstrap import save_policy

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    model = Qwen2ForCausalLM(config)
    save_policy(model, folder)
    return sum(parameter.numel() for parameter in model.parameters())


def apart(side: str, folder: str) -> dict[str, float]:
    """What an update takes, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.two_policies", side, folder]
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    print(side, found, file=sys.stderr, flush=True)
    return found


def one_side(side: str, folder: str) -> dict[str, float]:
    """Seconds of an update, and memory, in this process."""
    import numpy as np

    from ssp_agents.rllib import SSPConfig
    from ssp_agents.rllib.learner import SSPLearner
    from ssp_agents.rows import Row

    torch.set_num_threads(1)
    config = SSPConfig().training(model_dir=folder, microbatch_tokens=2048, **SIDES[side])
    before = resident("VmRSS")
    learner = SSPLearner(config=config, module_spec=config.get_multi_rl_module_spec())
    learner.build()

    rng = np.random.default_rng(0)
    mask = np.zeros(TOKENS, dtype=np.uint8)
    mask[-OWN:] = 1
    nobody = np.full(TOKENS, np.nan, dtype=np.float32)  # the importance ratio is 1
    rows = [
        Row(ids.astype(np.int32), mask, nobody, role, game, 1.0, weight=1e-4)
        for game, ids in enumerate(rng.integers(0, 600, size=(ROWS, TOKENS)))
        for role in [("proposer", "solver")[game % 2]]
    ]
    spent = []
    for step in range(1, 2 + UPDATES):
        batch = learner.policies.batches(rows)[0]
        began = process_time()
        learner.update(batch=batch, timesteps={"training_step": step})
        spent.append(process_time() - began)
    peak = resident("VmHWM") - before
    lms = [learner.policy(name).lm for name in learner.updates]
    weights = {id(p): p.nbytes for lm in lms for p in lm.parameters()}
    states = [update.optimizer.state.values() for update in learner.updates.values()]
    moments = sum(t.nbytes for state in states for held in state for t in held.values())
    held = (sum(weights.values()) + moments) / 2**30
    return {"seconds": median(spent[1:]), "peak_gib": peak, "weights_and_moments_gib": held}


if __name__ == "__main__":
    if sys.argv[1] in SIDES:
        print(json.dumps(one_side(sys.argv[1], sys.argv[2])))
    else:
        main()
