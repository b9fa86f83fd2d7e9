"""What ``ssp plan`` counts for a learner on a CPU, beside what its process has resident.

    python -m benchmarks.plan_memory --out plan_memory.json
    python -m benchmarks.plan_memory --model MODEL_DIR --out plan_memory.json

Cases that a file holds already stay in it, with their commands, unless they are measured anew. Each
is a process of its own, with one thread: a policy of random weights that is trained as a whole, or
with ``--model`` a real one, with adapters and without (17 GiB), updated twice on rows of the
longest length.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import origin, parser, write
from benchmarks.learner_speed import resident, units

ADAPTED = {"lora_rank": 16, "rows": 1, "prompt": 1300, "response": 200}
WHOLE = {"rows": 4, "prompt": 256, "response": 256}
SMALL = {"sizes": (512, 2048, 8), **WHOLE}
CASES: dict[str, dict[str, Any]] = {
    "model, LoRA": ADAPTED,
    "model, LoRA, checkpointed": {**ADAPTED, "gradient_checkpointing": True},
    "model, LoRA, float32": {**ADAPTED, "dtype": "float32"},
    "model, all weights": WHOLE,
    "48M": SMALL,
    "48M, float32": {**SMALL, "dtype": "float32"},
    "48M, checkpointed": {**SMALL, "gradient_checkpointing": True},
}
"""Width, width of the MLP and layers; rows of a pass and their tokens; settings of learning."""


def main() -> None:
    """Runs each case and writes plan and peak."""
    options = parser(__doc__, seed=False)
    options.add_argument("--model", type=Path, help="directory of a causal LM")
    options.add_argument("--name", default="", help="what the model is, for the result")
    options.add_argument("--cases", nargs="+", choices=CASES)
    settings = options.parse_args()
    is_real = bool(settings.model)
    wanted = settings.cases or [c for c in CASES if c.startswith("model") == is_real]

    kept = json.loads(settings.out.read_text("utf-8")) if settings.out.is_file() else {}
    found = {name: each for name, each in kept.get("cases", {}).items() if name in CASES}
    for case in wanted:
        if case.startswith("model") != is_real:
            options.error(f"{case}: --model is for the cases that are named after it, and theirs")
        with tempfile.TemporaryDirectory() as folder:
            made = settings.model or policy(CASES[case]["sizes"], Path(folder))
            command = [sys.executable, __file__, case, str(made)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            run = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
        found[case] = {**json.loads(run.stdout.splitlines()[-1]), **origin()}
        if settings.model:
            found[case]["model"] = settings.name
        print(case, found[case], file=sys.stderr, flush=True)
        write(settings.out, {"cpu": units(), "cases": found})


def policy(sizes: tuple[int, int, int], folder: Path) -> Path:
    """A policy of Qwen2.5's kind, of random weights, with the tokenizer that ships."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

    from ssp_agents.models import tiny_directory

    width, inner, layers = sizes
    config = Qwen2Config(
        vocab_size=32_000,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        tie_word_embeddings=True,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_directory()).save_pretrained(folder)
    return folder


def one_case(case: str, model: Path) -> dict[str, Any]:
    """Planned and resident GiB of one case, in this process."""
    import numpy as np
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

    from ssp_agents.models import meta_model
    from ssp_agents.rllib import SSPConfig
    from ssp_agents.rllib.learner import SSPLearner
    from ssp_agents.rllib.module import MODULE_ID, module_spaces
    from ssp_agents.rows import Row
    from ssp_experiments.config import make_config
    from ssp_experiments.estimates import plan, shape_of

    torch.set_num_threads(1)
    given = dict(CASES[case])
    given.pop("sizes", None)
    rows, prompt, response = (given.pop(name) for name in ("rows", "prompt", "response"))
    length, shape = prompt + response, shape_of(meta_model(model))
    learning = {
        "batch_size": 2,
        "round_size": 2,
        "minibatches": 1,
        "microbatch_tokens": rows * length,
        **given,
    }
    game = {"attempts": 2, "max_prompt_tokens": prompt, "max_response_tokens": response}
    compute = {"learners": 1, "env_runners": 1}
    config = make_config({"game": game, "learning": learning, "compute": compute})
    device, _ = plan(shape, config)

    settings = SSPConfig().training(model_dir=model, **learning)
    observation, action = module_spaces(shape.vocabulary)  # all of them, as in training
    module = settings.get_default_rl_module_spec()
    module.observation_space, module.action_space = observation, action
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: module})
    learner = SSPLearner(config=settings, module_spec=spec)
    learner.build()
    rng = np.random.default_rng(0)
    mask = np.zeros(length, dtype=np.uint8)
    mask[prompt:] = 1

    def row(game: int) -> Row:
        ids = rng.integers(0, 30_000, size=length).astype(np.int32)
        nobody = np.full(length, np.nan, dtype=np.float32)
        return Row(ids, mask, nobody, ("proposer", "solver")[game % 2], game, 1.0, 1e-3)

    for step in (0, 10):  # both measure the gradient of each role
        batch = learner.policies.batches([row(game) for game in range(2 * rows)])[0]
        learner.update(batch=batch, timesteps={"training_step": step})
    planned, peak = device.total / 2**30, resident("VmHWM")
    parts = {name: round(size / 2**30, 3) for name, size in device.parts.items()}
    of = {"planned_gib": planned, "peak_gib": peak, "planned_over_peak": planned / peak}
    return {**of, "parts_gib": parts, "parameters": shape.parameters}


if __name__ == "__main__":
    if sys.argv[1] in CASES:
        print(json.dumps(one_case(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
