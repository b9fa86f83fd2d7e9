"""The engine of transformers beside a bare loop over the same model, and beside another checkout's.

    python -m benchmarks.real_speed --model qwen0.5b --before ../before --out real_speed_qwen.json
    python -m benchmarks.real_speed --device cuda --rows 256 --out real_speed_gpu.json

They take turns in one process, with one thread: decode is of some rows behind a long prompt,
prefill of a few prompts of one length, or of very unequal lengths. vLLM runs along in float32 where
it is installed (``make vllm-check``). Seconds are the process's on a CPU, the clock's on a GPU.
"""

from __future__ import annotations

import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import in_turns, parser, write
from benchmarks.real_model import real_model
from benchmarks.real_speed_sides import BareSide, EngineSide, Shape, Side, engine_of
from ssp_agents.config import EngineConfig
from ssp_agents.engines.base import Request, StopRule
from ssp_agents.engines.opening import open_engine
from ssp_agents.models import from_gguf, load_model, round_parameters
from ssp_env.tokenizers import HuggingFaceTokenizer

MEASURES = ("decode", "prefill", "ragged")
COUNTS = ("profile", "attempts", "groupings")
"""They are taken once, of engines of transformers; a profile, of the loop as well."""


def main() -> None:
    """Measures all sides in each dtype, and how much faster the engine is than each other one."""
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="model directory (default: SmolLM2's)")
    options.add_argument("--before", type=Path, help="another checkout, to compare with")
    options.add_argument("--device", default="cpu")
    options.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    options.add_argument("--rows", type=int, nargs="+", default=[64, 32], help="that decode")
    options.add_argument("--length", type=int, default=1000, help="tokens before these")
    options.add_argument("--prompt", type=int, default=256, help="tokens of a prompt that is read")
    options.add_argument("--steps", type=int, default=4, help="of decode in a turn")
    options.add_argument("--turns", type=int, default=2, help="timed ones of each")
    options.add_argument("--only", nargs="+", default=[*MEASURES, *COUNTS], help="measures")
    settings = options.parse_args()
    torch.set_num_threads(1)

    folder = settings.model or from_gguf(real_model("smollm2"))
    shape = Shape(**{name: getattr(settings, name) for name in Shape.__annotations__})
    found = {}
    for dtype in settings.dtypes:
        model = load_model(folder)
        round_parameters(model, getattr(torch, dtype))
        sides = sides_of(model.to(shape.device), folder, shape, settings.before)
        found[dtype] = measured(model, sides, settings.turns, settings.only)
    cpu = {
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "amx": torch.cpu._is_amx_tile_supported(),
    }
    write(settings.out, {**cpu, **vars(shape), "turns": settings.turns, **found})


def sides_of(model: Any, folder: Path, shape: Shape, before: Path | None) -> dict[str, Side]:
    """The engine, the loop and, where they are to be had, another checkout's engine and vLLM."""
    tokenizer, stop = HuggingFaceTokenizer.load(folder), StopRule(frozenset(), ())
    how = {"device": shape.device, "longest": 2 * shape.length}
    dtype = str(model.dtype).removeprefix("torch.")
    config = EngineConfig(dtype=dtype)
    engine = open_engine(config, folder, tokenizer, stop, model=model, **how)
    sides: dict[str, Side] = {
        "engine": EngineSide(shape, tokenizer, engine, Request),
        "bare loop": BareSide(shape, tokenizer, model),
    }
    if before is not None:
        module = engine_of(before)
        engine = module.TransformersEngine(model, tokenizer, stop)
        sides["before"] = EngineSide(shape, tokenizer, engine, module.Request)
    if dtype == "float32" and find_spec("vllm"):
        config = EngineConfig(kind="vllm", dtype=dtype)
        engine = open_engine(config, folder, tokenizer, stop, **how)
        sides["vLLM"] = EngineSide(shape, tokenizer, engine, Request)
    return sides


def measured(model: Any, sides: dict[str, Side], turns: int, only: list[str]) -> dict[str, Any]:
    """Medians of all sides, in milliseconds or tokens per second, and ratios turn by turn."""
    result: dict[str, Any] = {}
    for what in only:
        if what in MEASURES:
            asked = {name: getattr(side, what) for name, side in sides.items()}
            result[what] = compared(in_turns(asked, turns))
        elif what == "profile":
            result[what] = {n: side.profile() for n, side in sides.items() if n != "vLLM"}
        else:
            own = {n: side for n, side in sides.items() if n in ("engine", "before")}
            result[what] = {n: getattr(side, what)(model) for n, side in own.items()}
        print(model.dtype, what, result[what], file=sys.stderr, flush=True)
    return result


def compared(answers: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians by side, and the engine's speed beside each other side's."""
    found: dict[str, Any] = {}
    for what in answers["engine"][0]:
        values = {name: [answer[what] for answer in some] for name, some in answers.items()}
        found[what] = {name: statistics.median(some) for name, some in values.items()}
        for name in values.keys() - {"engine"}:
            pairs = zip(values["engine"], values[name], strict=True)
            # Of times, or of rates.
            ratios = [a / b if "second" in what else b / a for a, b in pairs]
            found[what][f"engine over {name}"] = round(statistics.median(ratios), 2)
    return {**found, "all": answers}


if __name__ == "__main__":
    main()
