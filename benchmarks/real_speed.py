"""Tokens per second of SmolLM2-135M-Instruct in the engine of transformers, or of any other model,
beside those of a bare loop over it.

    OMP_NUM_THREADS=1 python -m benchmarks.real_speed --out real_speed.json
    python -m benchmarks.real_speed --device cuda --rows 256 --out real_speed_gpu.json

Prefill reads 4 prompts of 128 tokens; decode is of 32 rows behind 128 tokens. Dtypes, attentions
and the bare loop take turns, with vLLM where it is installed (``make vllm-check``). Seconds are
those of the process on a CPU, and of the clock on a GPU; each side ends with tokens read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.harness import in_turns, parser, write
from benchmarks.real_model import real_model
from ssp_agents.config import EngineConfig
from ssp_agents.engines.base import Engine, Request, StopRule
from ssp_agents.engines.opening import open_engine
from ssp_agents.models import from_gguf, load_model, round_parameters
from ssp_env.tokenizers import HuggingFaceTokenizer

PROMPTS, LENGTH, STEPS = 4, 128, 8


def rates(
    engine: Engine, ids: list[list[int]], rows: int, now: Callable[[], float]
) -> dict[str, float]:
    """Tokens per second."""
    began = now()
    engine.submit([Request(k, row, 1, 1.0, k) for k, row in enumerate(ids)])
    engine.step()
    read = PROMPTS * LENGTH / (now() - began)

    # Equal prompts are read once.
    engine.submit([Request(k, ids[0], STEPS + 1, 1.0, k) for k in range(rows)])
    engine.step()
    began = now()
    for _ in range(STEPS):
        engine.step()
    written = rows * STEPS / (now() - began)
    engine.release(range(rows))
    return {"prefill": round(read, 1), "decode": round(written, 1)}


@torch.inference_mode()
def bare_rates(
    model: Any, ids: list[list[int]], rows: int, now: Callable[[], float]
) -> dict[str, float]:
    """The same of the model alone, in a batch that nobody joins or leaves."""
    read_in = torch.tensor(ids, device=model.device)
    began = now()
    model(input_ids=read_in, use_cache=True, logits_to_keep=1).logits.cpu()
    read = PROMPTS * LENGTH / (now() - began)

    seen = model(input_ids=read_in[:1].expand(rows, -1), use_cache=True, logits_to_keep=1)
    seen.logits.cpu()
    began = now()
    for _ in range(STEPS):
        tokens = torch.multinomial(seen.logits[:, -1].softmax(-1), 1)
        seen = model(input_ids=tokens, past_key_values=seen.past_key_values, use_cache=True)
        tokens.cpu()
    written = rows * STEPS / (now() - began)
    return {"prefill": round(read, 1), "decode": round(written, 1)}


def main() -> None:
    """Measures all, and decode in the engine beside the bare loop."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="model directory (default: SmolLM2's)")
    options.add_argument("--device", default="cpu")
    options.add_argument("--rows", type=int, default=32, help="that decode together")
    options.add_argument("--turns", type=int, default=2, help="timed ones of each")
    settings = options.parse_args()
    torch.set_num_threads(1)
    device, rows = settings.device, settings.rows
    now = time.process_time if device == "cpu" else time.perf_counter
    folder = settings.model or from_gguf(real_model("smollm2"))
    tokenizer = HuggingFaceTokenizer.load(folder)
    drawn = np.random.default_rng(settings.seed).integers(1000, 4000, (PROMPTS, LENGTH)).tolist()

    configs = {
        f"{dtype}, {attention}": EngineConfig(dtype=dtype, attention=attention)
        for dtype in ("float32", "bfloat16")
        for attention in ("eager", "sdpa")
    }
    if find_spec("vllm"):
        configs["vLLM, float32"] = EngineConfig(kind="vllm", dtype="float32")
    sides = {}
    for name, config in configs.items():
        stop = StopRule(frozenset(), ())
        engine = open_engine(config, folder, tokenizer, stop, device=device, longest=256)
        sides[name] = partial(rates, engine, drawn, rows, now)
    for dtype in (torch.float32, torch.bfloat16):
        bare = load_model(folder, attention="sdpa")
        round_parameters(bare, dtype)
        name = f"bare loop, {str(dtype).removeprefix('torch.')}"
        sides[name] = partial(bare_rates, bare.to(device), drawn, rows, now)
    found = in_turns(sides, settings.turns)
    middle = {name: pd.DataFrame(some).median().to_dict() for name, some in found.items()}
    over_bare = {
        dtype: round(
            middle[f"{dtype}, sdpa"]["decode"] / middle[f"bare loop, {dtype}"]["decode"], 2
        )
        for dtype in ("float32", "bfloat16")
    }
    shape = {"device": device, "decode_rows": rows}
    shape |= {"prompts": PROMPTS, "tokens": LENGTH, "steps": STEPS}
    result = {"tokens_per_second": middle, "engine_over_bare_loop": over_bare, "all": found}
    write(settings.out, {"seed": settings.seed, **shape, **result})


if __name__ == "__main__":
    main()
