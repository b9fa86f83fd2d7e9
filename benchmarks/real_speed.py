"""The engine of transformers beside a bare loop over the same model, and beside another checkout.

    python -m benchmarks.real_speed --model qwen0.5b --before ../before --out real_speed_qwen.json
    python -m benchmarks.real_speed --device cuda --rows 256 --out real_speed_gpu.json

Sides take turns, one thread each: decode is of some rows behind a long prompt, prefill of a few
prompts of one length, or of very unequal lengths. vLLM runs along in float32 where it is installed
(``make vllm-check``). Seconds are those of the process on a CPU, and of the clock on a GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import ROOT, in_turns, parser, write
from benchmarks.real_model import real_model
from benchmarks.speed import side
from ssp_agents.models import from_gguf

SIDE = Path(__file__).with_name("real_speed_side.py")
MEASURES = ("decode", "prefill", "ragged")
COUNTS = ("profile", "attempts", "groupings")
"""They are taken once. A loop over the model has a profile alone, and vLLM none of them."""


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

    shape = {
        "model": str((settings.model or from_gguf(real_model())).resolve()),
        **{name: getattr(settings, name) for name in ("device", "rows", "length", "prompt")},
        **{name: getattr(settings, name) for name in ("steps", "seed")},
    }
    found = {
        dtype: measured(
            {**shape, "dtype": dtype}, settings.before, settings.turns, set(settings.only)
        )
        for dtype in settings.dtypes
    }
    capability = torch.backends.cpu.get_cpu_capability()
    cpu = {"cpu_capability": capability, "amx": torch.cpu._is_amx_tile_supported()}
    write(settings.out, {**cpu, **shape, "turns": settings.turns, **found})


def measured(
    shape: dict[str, Any], before: Path | None, turns: int, only: set[str]
) -> dict[str, Any]:
    """Medians of all sides, in milliseconds or tokens per second, and ratios turn by turn."""
    kinds: dict[str, tuple[str, Path]] = {"engine": ("engine", ROOT), "bare loop": ("bare", ROOT)}
    if before is not None:
        kinds["before"] = ("engine", before.resolve())
    if shape["dtype"] == "float32" and find_spec("vllm") and only & {*MEASURES}:
        kinds["vLLM"] = ("vllm", ROOT)

    with ExitStack() as stack:
        sides = {}
        for name, (kind, folder) in kinds.items():
            command = [sys.executable, "-P", str(SIDE), kind, json.dumps(shape)]
            sides[name] = stack.enter_context(side(command, folder))
        result: dict[str, Any] = {}
        for what in sorted(only & {*MEASURES}):
            asked = {name: partial(ask, what) for name, ask in sides.items()}
            result[what] = compared(in_turns(asked, turns))
            print(shape["dtype"], what, result[what], file=sys.stderr, flush=True)
        for what in sorted(only & {*COUNTS}):
            result[what] = {
                name: sides[name](what)
                for name, (kind, _) in kinds.items()
                if kind == "engine" or (kind == "bare" and what == "profile")
            }
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
