"""Tokens per CPU-second of SmolLM2-135M-Instruct in the engine of transformers on a CPU, or of any
other model, beside those of a bare loop over it.

    OMP_NUM_THREADS=1 python -m benchmarks.real_speed --out real_speed.json

Prefill reads 4 prompts of 128 tokens; decode is 32 rows behind 128 tokens. Dtypes, attentions and
the bare loop take turns, with vLLM where it is installed (``make vllm-check``).
"""

from __future__ import annotations

import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.harness import in_turns, parser, write
from benchmarks.real_model import real_model
from ssp_agents.config import EngineConfig
from ssp_agents.engines.base import Engine, Request, StopRule
from ssp_agents.engines.opening import open_engine
from ssp_agents.models import from_gguf, load_model
from ssp_env.tokenizers import HuggingFaceTokenizer

ROWS, PROMPTS, LENGTH, STEPS = 32, 4, 128, 8


def rates(engine: Engine, ids: list[list[int]]) -> dict[str, float]:
    """Tokens per CPU-second."""
    began = time.process_time()
    engine.submit([Request(k, row, 1, 1.0, k) for k, row in enumerate(ids)])
    engine.step()
    read = PROMPTS * LENGTH / (time.process_time() - began)

    # Equal prompts are read once.
    engine.submit([Request(k, ids[0], STEPS + 1, 1.0, k) for k in range(ROWS)])
    engine.step()
    began = time.process_time()
    for _ in range(STEPS):
        engine.step()
    written = ROWS * STEPS / (time.process_time() - began)
    engine.release(range(ROWS))
    return {"prefill": round(read, 1), "decode": round(written, 1)}


@torch.inference_mode()
def bare_rates(model: Any, ids: list[list[int]]) -> dict[str, float]:
    """The same of the model alone, in a batch that nobody joins or leaves."""
    began = time.process_time()
    model(input_ids=torch.tensor(ids), use_cache=True, logits_to_keep=1)
    read = PROMPTS * LENGTH / (time.process_time() - began)

    seen = model(input_ids=torch.tensor(ids[:1] * ROWS), use_cache=True, logits_to_keep=1)
    began = time.process_time()
    for _ in range(STEPS):
        tokens = torch.multinomial(seen.logits[:, -1].softmax(-1), 1)
        seen = model(input_ids=tokens, past_key_values=seen.past_key_values, use_cache=True)
    written = ROWS * STEPS / (time.process_time() - began)
    return {"prefill": round(read, 1), "decode": round(written, 1)}


def main() -> None:
    """Measures all, and decode beside what eager float32 does in the engine, and the bare loop."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="model directory (default: SmolLM2's)")
    options.add_argument("--turns", type=int, default=2, help="timed ones of each")
    settings = options.parse_args()
    torch.set_num_threads(1)
    folder = settings.model or from_gguf(real_model())
    tokenizer = HuggingFaceTokenizer.load(folder)
    drawn = np.random.default_rng(settings.seed).integers(1000, 4000, (PROMPTS, LENGTH)).tolist()

    engines = {
        f"{dtype}, {attention}": open_engine(
            EngineConfig(dtype=dtype, attention=attention),
            folder,
            tokenizer,
            StopRule(frozenset(), ()),
        )
        for dtype in ("float32", "bfloat16")
        for attention in ("eager", "sdpa")
    }
    if find_spec("vllm"):
        config, stop = EngineConfig(kind="vllm", dtype="float32"), StopRule(frozenset(), ())
        engines["vLLM, float32"] = open_engine(config, folder, tokenizer, stop, longest=256)
    sides = {name: partial(rates, engine, drawn) for name, engine in engines.items()}
    sides["bare loop"] = partial(bare_rates, load_model(folder, attention="sdpa"), drawn)
    found = in_turns(sides, settings.turns)
    middle = {n: {what: median(r[what] for r in rs) for what in rs[0]} for n, rs in found.items()}
    decode = {name: each["decode"] for name, each in middle.items()}
    faster = {name: round(rate / decode["float32, eager"], 2) for name, rate in decode.items()}
    over_bare = round(decode["float32, sdpa"] / decode["bare loop"], 2)
    shape = {"decode_rows": ROWS, "prompts": PROMPTS, "tokens": LENGTH, "steps": STEPS}
    result = {"tokens_per_cpu_second": middle, "decode_over_float32_eager": faster}
    result |= {"engine_over_bare_loop": over_bare, "all": found}
    write(settings.out, {"seed": settings.seed, **shape, **result})


if __name__ == "__main__":
    main()
