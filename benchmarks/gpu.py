"""The update and the engine on one device: tokens per second, share of the peak, memory by plan.

    python benchmarks/gpu.py --out benchmarks/results/gpu.json            # one GPU, .5B and 1.5B
    python benchmarks/gpu.py --device cpu --models mini --out cpu.json

Needs PyTorch, transformers and a checkout, neither Ray nor vLLM. Models have the shape of Qwen2.5
and random weights, rows have random tokens. MFU counts what the mathematics asks for: 6 operations
per weight and trained token, 2 per weight and token that the reference reads, and causal attention;
what gradient checkpointing computes twice is not counted. Memory is read on a GPU only; that of a
CPU is the subject of ``benchmarks/plan_memory.py``.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def without_doors() -> None:
    """Makes ``ssp_env`` importable where PettingZoo, Gymnasium and search engines are missing.

    ``import ssp_env`` opens all doors of the game, which need them; engine and update do not.
    """
    sys.path.insert(0, str(ROOT))
    try:
        importlib.import_module("ssp_env")
    except ModuleNotFoundError:
        bare = ModuleType("ssp_env")
        bare.__path__ = [str(ROOT / "ssp_env")]
        sys.modules["ssp_env"] = bare


without_doors()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, Qwen2Config  # noqa: E402

from agents.columns import columns_of  # noqa: E402
from agents.config import LearningConfig  # noqa: E402
from agents.engines.base import Request, StopRule, generate  # noqa: E402
from agents.engines.transformers_engine import TransformersEngine  # noqa: E402
from agents.models import autocast_dtype  # noqa: E402
from agents.planning.plan import Job, Layout, Planner  # noqa: E402
from agents.rows import Row  # noqa: E402
from agents.scoring import TokenScorer, checkpoint_layers  # noqa: E402
from agents.update import Update, adam  # noqa: E402
from experiments.run.provenance import git_commit, machine  # noqa: E402
from ssp_env.game.config import GameConfig  # noqa: E402
from ssp_env.tokenizers.bytes import ByteTokenizer  # noqa: E402

PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
"""Dense bfloat16 operations per second, as the maker states them."""


@dataclass(frozen=True)
class Shape:
    """A model of Qwen2.5's kind, and the rows that it learns from."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    prompt: int
    """Tokens of each row that somebody else wrote."""
    response: int
    """Tokens that the policy wrote."""
    rows: int
    """Rows of an update."""
    per_pass: int
    """Rows of a micro-batch."""

    @property
    def config(self) -> Qwen2Config:
        """The `transformers` config; the output layer is the embedding."""
        return Qwen2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            max_position_embeddings=32_768,
            tie_word_embeddings=True,
        )

    def operations(self, inside: int, reference: bool) -> float:
        """Floating-point operations of an update.

        Args:
            inside: parameters in layers.
            reference: whether a frozen policy reads the rows too.
        """
        length, passes = self.prompt + self.response, 3 + (1 if reference else 0)
        maps = 2.0 * (inside * length + self.hidden * self.vocabulary * self.response)
        attention = 2.0 * self.layers * self.hidden * length**2
        return self.rows * passes * (maps + attention)


MODELS = {
    "mini": Shape(256, 1024, 6, 4, 2, 8_192, 192, 320, 8, 4),
    "0.5b": Shape(896, 4864, 24, 14, 2, 151_936, 2048, 2048, 32, 8),
    "1.5b": Shape(1536, 8960, 28, 12, 2, 151_936, 2048, 2048, 32, 8),
}


def main() -> int:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["0.5b", "1.5b"])
    parser.add_argument("--updates", type=int, default=3, help="timed ones, after one to warm up")
    parser.add_argument("--requests", type=int, default=64, help="sequences that the engine grows")
    parser.add_argument("--new-tokens", type=int, default=256, help="tokens that each gets")
    parser.add_argument("--peak-tflops", type=float, help="of the device, for MFU")
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    device = torch.device(settings.device)

    result: dict[str, Any] = {
        "command": " ".join(["python benchmarks/gpu.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seed": 0,
        "models": {},
    }
    peak = settings.peak_tflops * 1e12 if settings.peak_tflops else peak_of(result["device"])

    for name in settings.models:
        found = {"update": measure_update(MODELS[name], device, settings.updates, peak)}
        free(device)
        found["engine"] = measure_engine(
            MODELS[name], device, settings.requests, settings.new_tokens
        )
        free(device)
        result["models"][name] = found
        print(name, json.dumps(found, indent=2), flush=True)

    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def peak_of(name: str) -> float | None:
    """The device's peak, if it is known."""
    return next((value for part, value in PEAK.items() if part in name), None)


def measure_update(
    shape: Shape, device: torch.device, updates: int, peak: float | None
) -> dict[str, Any]:
    """Updates with gradient checkpointing and a reference, as the presets for GPUs have them."""
    length = shape.prompt + shape.response
    learning = LearningConfig(
        microbatch_tokens=shape.per_pass * length, gradient_checkpointing=True, warmup_steps=0
    )
    attention = "sdpa" if device.type == "cuda" else "eager"
    policy, reference = (scorer(shape, device, attention) for _ in range(2))
    reference.requires_grad_(False)
    checkpoint_layers(policy)

    autocast = autocast_dtype("auto", device)
    optimizer = adam(policy.parameters(), learning)  # the one of learners
    update = Update(policy, optimizer, learning, reference=reference, autocast=autocast)
    columns = {name: column.to(device) for name, column in random_columns(shape).items()}

    update(columns, 0)
    wait(device)
    began = time.perf_counter()
    for step in range(updates):
        update(columns, step)
    wait(device)
    seconds = (time.perf_counter() - began) / updates

    held = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    game = GameConfig(max_prompt_tokens=shape.prompt, max_response_tokens=shape.response)
    layout = Layout(gpus_per_learner=1, gpus_per_env_runner=1)
    planner = Planner(shape.config)
    job = Job(game, learning, layout, autocast=autocast, attention=attention)
    planned = planner.plan(job).devices[0].total
    inside = planner.size.parameters - planner.size.outside
    operations = shape.operations(inside, reference=True)

    return {
        "parameters": planner.size.parameters,
        "precision": str(autocast or torch.float32).removeprefix("torch."),
        "rows": shape.rows,
        "tokens_per_row": length,
        "seconds": seconds,
        "tokens_per_second": shape.rows * length / seconds,
        "operations_per_second": operations / seconds,
        "mfu": operations / seconds / peak if peak else None,
        "peak_bytes": held,
        "planned_bytes": planned,
        "planned_over_peak": planned / held if held else None,
    }


def measure_engine(
    shape: Shape, device: torch.device, requests: int, new_tokens: int
) -> dict[str, Any]:
    """The engine's speed at equally long prompts, none of which stops early."""
    attention = "sdpa" if device.type == "cuda" else "eager"
    lm, tokenizer = model(shape, device, attention), ByteTokenizer()
    if device.type == "cuda":
        lm = lm.to(torch.bfloat16)
    engine = TransformersEngine(lm, tokenizer, StopRule(frozenset(), ()))
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, tokenizer.vocab_size, (requests, min(512, shape.prompt)))

    def grow(tokens: int) -> float:
        began = time.perf_counter()
        asked = [Request(key, ids.tolist(), tokens, 1.0, key) for key, ids in enumerate(prompts)]
        turns = generate(engine, asked)
        wait(device)
        assert all(len(turn.ids) == tokens for turn in turns)
        return time.perf_counter() - began

    grow(2)
    engine.update_weights(lm.state_dict(), 1)
    first = grow(1)
    engine.update_weights(lm.state_dict(), 2)
    seconds = grow(new_tokens)

    return {
        "requests": requests,
        "prompt_tokens": prompts.shape[1],
        "new_tokens": new_tokens,
        "prefill_tokens_per_second": prompts.size / first,
        "new_tokens_per_second": requests * (new_tokens - 1) / (seconds - first),
    }


def model(shape: Shape, device: torch.device, attention: str) -> Any:
    """Random weights; the same for every call."""
    torch.manual_seed(0)
    with device:
        lm = AutoModelForCausalLM.from_config(
            shape.config, attn_implementation=attention, dtype=torch.float32
        )
    return lm.eval()


def scorer(shape: Shape, device: torch.device, attention: str) -> TokenScorer:
    """The model as update and reference take it."""
    return TokenScorer(model(shape, device, attention), 1.0, shape.vocabulary)


def random_columns(shape: Shape) -> dict[str, torch.Tensor]:
    """Rows of both roles, all of one length."""
    rng = np.random.default_rng(0)
    length = shape.prompt + shape.response
    mask = np.zeros(length, dtype=np.uint8)
    mask[shape.prompt :] = 1
    rows = [
        Row(
            rng.integers(0, shape.vocabulary, length).astype(np.int32),
            mask,
            np.log(1 / shape.vocabulary) * mask.astype(np.float32),
            "solver",
            game,
            float(rng.normal()),
            1 / (shape.rows * shape.response),
        )
        for game in range(shape.rows)
    ]
    return {name: torch.as_tensor(column) for name, column in columns_of(rows).items()}


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def free(device: torch.device) -> None:
    """Gives back what nobody holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    sys.exit(main())
