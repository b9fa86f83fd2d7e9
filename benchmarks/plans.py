"""Tables of docs/training.md: what policies of Qwen2.5's shapes need, as ``ssp plan`` counts."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import Qwen2Config

from agents.planning.plan import Job, Plan, Planner
from benchmarks.origin import origin
from experiments.config import load_preset, make_config
from experiments.run.planned import job_of

SHAPES = {
    "1.5B": (1536, 8960, 28, 12, 2, 151_936, True),
    "7B": (3584, 18_944, 28, 28, 4, 152_064, False),
    "14B": (5120, 13_824, 48, 40, 8, 152_064, False),
    "32B": (5120, 27_648, 64, 40, 8, 152_064, False),
}
"""Width, inner width, layers, heads, key-value heads, vocabulary, whether the output layer is the
embedding."""

RANK = 16
ROUND = 4


def config_of(name: str) -> Qwen2Config:
    """The `transformers` config of a size."""
    width, inner, layers, heads, kv_heads, vocabulary, tied = SHAPES[name]
    return Qwen2Config(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32_768,
    )


def plans(planner: Planner, job: Job) -> dict[str, dict[str, Any]]:
    """One learner, eight with DDP, eight with FSDP2, with a GPU per process; with adapters; and
    engines with smaller rounds or, as little as it can do with, vLLM."""
    one = replace(job, layout=replace(job.layout, learners=1, env_runners=1))
    eight = replace(job, layout=replace(job.layout, learners=8, sharding="ddp"))
    shared = replace(job, layout=replace(job.layout, learners=8, sharding="fsdp2"))
    adapted = {
        f"{name}, adapters of rank {RANK}": replace(
            each, learning=replace(job.learning, lora_rank=RANK)
        )
        for name, each in (("1", one), ("8 fsdp2", shared))
    }
    small = replace(shared, learning=replace(job.learning, round_size=ROUND))
    engines = {
        f"8 fsdp2, rounds of {ROUND}": small,
        "8 fsdp2, vllm": replace(shared, vllm=True),
    }
    jobs = {"1": one, "8 ddp": eight, "8 fsdp2": shared, **adapted, **engines}
    return {name: plain(planner.plan(each)) for name, each in jobs.items()}


def plain(plan: Plan) -> dict[str, Any]:
    """A plan as plain data, in bytes."""
    return {
        **{d.name: {"holds": d.parts, "all": d.total} for d in plan.devices},
        "moved": plan.moved,
    }


def main() -> int:
    """Counts and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="paper-7b")
    settings = parser.parse_args()
    job = job_of(make_config(load_preset(settings.preset)))

    result: dict[str, Any] = {
        **origin("plans"),
        "preset": settings.preset,
        "longest_row": job.longest,
        "models": {},
    }
    for name in SHAPES:
        planner = Planner(config_of(name))
        found = plans(planner, job)
        result["models"][name] = {"parameters": planner.size.parameters, **found}
        for how, each in found.items():
            shown = {kind: round(each[kind]["all"] / 2**30, 1) for kind in ("learner", "engine")}
            print(name, how, shown, flush=True)

    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
