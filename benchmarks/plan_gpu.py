"""What ``ssp plan`` says of a GPU, and what that GPU then takes: a learner's memory and seconds,
and the rate of the engine of transformers.

    python -m benchmarks.plan_gpu --out plan_gpu.json

Policies have the shapes of Qwen2.5 and random weights; the settings are those of a preset. A
learner has a GPU to itself. It updates its policy from the longest rows that the settings allow
(two micro-batches, of both roles); the peak is that of the eleventh update, with the optimizer's
moments there and the gradients of each role kept apart, the seconds are those of the two after it.
The engine then decodes as many rows as a round has, behind equal prompts of a mean row's length.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from benchmarks.harness import parser, write
from ssp_agents.columns import columns_of
from ssp_agents.config import EngineConfig, played_at_once
from ssp_agents.engines.base import Request, StopRule
from ssp_agents.engines.opening import open_engine
from ssp_agents.models import autocast_dtype
from ssp_agents.rows import Row
from ssp_agents.scoring import TokenScorer, checkpoint_layers
from ssp_agents.update import ROLE_NORMS_EVERY, Update, adam
from ssp_env.tokenizers import ByteTokenizer
from ssp_experiments.config import RunConfig, load_preset, make_config
from ssp_experiments.estimates import (
    MEAN_ROW,
    MFU,
    OF_PARAMETERS,
    PEAK,
    RATE,
    TRANSFORMERS,
    longest_row,
    plan,
    rows_per_pass,
    shape_of,
)

SHAPES = {"0.5B": (896, 4864, 24, 14), "1.5B": (1536, 8960, 28, 12)}
"""Width, that of the MLP, layers and heads of Qwen2.5; two of the heads have keys and values."""
VOCABULARY, STEPS = 151_936, 32
ALONE = {"compute.gpus": "own", "compute.env_runners": 1, "compute.learners": 1}


def policy_of(name: str, device: str) -> Any:
    """A causal LM of that shape on the device, in float32."""
    width, inner, layers, heads = SHAPES[name]
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32
        ).eval()


def longest_rows(config: RunConfig, rng: np.random.Generator) -> list[Row]:
    """Two micro-batches of different rows, each at its longest; every fourth is a proposer's."""
    game, length = config.game, longest_row(config.game)
    mask = np.zeros(length, dtype=np.uint8)
    mask[game.max_prompt_tokens :] = 1
    count = 2 * rows_per_pass(game, config.learning)
    return [
        Row(
            rng.integers(0, VOCABULARY, length, dtype=np.int32),
            mask,
            np.full(length, -np.log(VOCABULARY), dtype=np.float32),
            "solver" if number % 4 else "proposer",
            number,
            advantage=1.0 if number % 2 else -1.0,
            weight=1 / (count * int(mask.sum())),
        )
        for number in range(count)
    ]


def learner(name: str, config: RunConfig, device: str, rng: np.random.Generator) -> dict[str, Any]:
    """A learner's peak and seconds, and what was planned."""
    learning = config.learning
    policy, reference = (policy_of(name, device) for _ in range(2))
    shape = shape_of(policy)
    planned = plan(shape, config)[0]
    if learning.gradient_checkpointing:
        checkpoint_layers(policy)
    update = Update(
        TokenScorer(policy, 1.0, VOCABULARY),
        adam(policy.parameters(), learning),
        learning,
        reference=TokenScorer(reference.requires_grad_(False), 1.0, VOCABULARY, entropies=False),
        autocast=autocast_dtype(torch.device(device)),
    )
    rows = longest_rows(config, rng)
    columns = {n: torch.as_tensor(c, device=device) for n, c in columns_of(rows).items()}

    update(columns, 0)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    update(columns, ROLE_NORMS_EVERY)
    peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    seconds = []
    for step in (1, 2):
        began = time.perf_counter()
        update(columns, step)  # ends with figures read back
        seconds.append(time.perf_counter() - began)

    tokens = len(rows) * longest_row(config.game)
    factor = 6 + 2 * learning.gradient_checkpointing + 2 * (learning.kl_coeff > 0)
    flop = factor * shape.parameters * tokens
    return {
        "rows": len(rows),
        "tokens_of_each": longest_row(config.game),
        "planned_bytes": planned.total,
        "planned_parts": planned.parts,
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "planned_over_peak": round(planned.total / peak, 3),
        "seconds": [round(each, 2) for each in seconds],
        "planned_seconds": round(flop / (PEAK * MFU), 2),
        "mfu": round(flop / (min(seconds) * PEAK), 3),
    }


def engine(name: str, config: RunConfig, device: str, rng: np.random.Generator) -> dict[str, Any]:
    """Tokens per second that the engine of transformers decodes, and what was assumed."""
    rows = played_at_once(config.game, config.learning)
    length = int(MEAN_ROW * longest_row(config.game))
    lm = policy_of(name, device)
    parameters = shape_of(lm).parameters
    stop = StopRule(frozenset(), ())
    opened = open_engine(EngineConfig(), "", ByteTokenizer(), stop, device=device, model=lm)
    ids = rng.integers(0, VOCABULARY, length).tolist()
    opened.submit([Request(key, ids, 2 * STEPS + 1, 1.0, key) for key in range(rows)])
    for _ in range(STEPS):  # reads the prompts; kernels are chosen
        opened.step()
    began = time.perf_counter()
    for _ in range(STEPS):
        opened.step()  # ends with tokens read back
    rate = rows * STEPS / (time.perf_counter() - began)
    return {
        "rows": rows,
        "behind_tokens": length,
        "tokens_per_second": round(rate),
        "assumed": round(TRANSFORMERS * RATE * OF_PARAMETERS / parameters),
        "share_of_the_rate_assumed_of_vllm": round(rate * parameters / (RATE * OF_PARAMETERS), 3),
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--device", default="cuda")
    settings = options.parse_args()
    found: dict[str, Any] = {}
    for preset in ("h200", "paper-7b"):
        config = make_config(load_preset(preset), ALONE)
        for name in SHAPES:
            rng = np.random.default_rng(settings.seed)
            measured = {"learner": learner(name, config, settings.device, rng)}
            gc.collect()
            torch.cuda.empty_cache()
            if preset == "h200":
                measured["engine"] = engine(name, config, settings.device, rng)
                gc.collect()
                torch.cuda.empty_cache()
            found[f"{name}, {preset}"] = measured
            write(settings.out, {"seed": settings.seed, "cases": found})


if __name__ == "__main__":
    main()
