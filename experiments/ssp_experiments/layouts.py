"""Seconds of a training step, estimated by closed formulas, and the fastest layout of some GPUs.

The figures below are taken, not measured here: estimates compare layouts with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ssp_agents.config import played_at_once, vllm_share
from ssp_agents.memory import HALF, Shape, longest_row
from ssp_env.errors import ConfigError
from ssp_experiments.config import RunConfig

PEAK = 989e12
"""FLOP per second of an H100 in bfloat16, from its data sheet."""
MFU = 0.4
"""Share of it that learners reach; 38% to 43% were published of Llama 3 on H100s
(https://arxiv.org/abs/2407.21783, table 4)."""
RATE, OF_PARAMETERS, OF_ROWS = 5_000, 7.6e9, 160
"""Tokens per second that vLLM samples on an H100, of a policy of so many parameters, with so many
rows of some thousand tokens at once (assumed). It falls with larger policies and fewer rows."""
FASTEST = 10_000
"""Tokens per second that one process hands through, whatever the policy (measured on a CPU)."""
TRANSFORMERS = 0.2
"""Share of vLLM's rate that the engine of `transformers` reaches (assumed)."""
MEAN_ROW, SAMPLED = 0.285, 0.2
"""Share of the longest row that a mean row has, and of its tokens that the policy wrote (assumed).
"""
MACHINE = 8
"""GPUs of a machine; Ray can place pairs that share them on one machine alone."""
HANDED_OVER = 1.5e9
"""Bytes of weights per second from learners through the object store to engines (measured on a
CPU)."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a step's parts."""

    play: float
    learn: float
    weights: float
    overlap: bool

    @property
    def step(self) -> float:
        """Seconds of the step."""
        both = self.play, self.learn
        return (max(both) if self.overlap else sum(both)) + self.weights

    def __str__(self) -> str:
        parts = f"play {self.play:.0f}, learn {self.learn:.0f}, weights {self.weights:.0f}"
        at_once = ", playing while learning" if self.overlap else ""
        return f"{self.step:.0f} s a step on H100s ({parts}{at_once}), estimated"


def estimate(shape: Shape, config: RunConfig, memory: float) -> Estimate:
    """Seconds of a step of a run on GPUs of ``memory`` bytes each."""
    compute, game, learning = config.compute, config.game, config.learning
    runners, learners = max(1, compute.env_runners), max(1, compute.learners)
    row = MEAN_ROW * longest_row(game)
    tokens = learning.batch_size * (1 + game.attempts) * row

    # Rows that an engine samples at once: those of a round, or as many as its cache holds.
    at_once = played_at_once(game, learning)
    rate = RATE * compute.tensor_parallel * OF_PARAMETERS / shape.parameters
    if config.engine.kind == "vllm":
        share = vllm_share(config.engine, compute.gpus == "shared")
        cache = share * memory * compute.tensor_parallel - HALF * shape.parameters
        rate *= min(1, min(at_once, cache / (HALF * shape.cached * row)) / OF_ROWS)
    else:
        rate *= TRANSFORMERS * min(1, at_once / OF_ROWS)
    # Runners play whole rounds, so the last ones may leave some of them without work.
    rounds = math.ceil(learning.batch_size / learning.round_size)
    busiest = math.ceil(rounds / runners) / rounds
    play = SAMPLED * tokens * busiest / max(1.0, min(rate, FASTEST))

    # Per token and parameter: 2 forward and 4 backward, 2 to compute layers again, 2 of the KL.
    factor = 6 + 2 * learning.gradient_checkpointing + 2 * (learning.kl_coeff > 0)
    learn = factor * shape.parameters * tokens / (learners * PEAK * MFU)
    sent = learning.lora_rank * shape.adapted or shape.parameters
    weights = HALF * sent / HANDED_OVER
    return Estimate(play, learn, weights, compute.overlap)


def layouts(config: RunConfig, gpus: int) -> Iterator[RunConfig]:
    """The run in each layout of that many GPUs: all shared, or some for engines and the others for
    learners, which then work at once where importance ratios correct for it."""
    compute, engine, spread = config.compute, config.engine, config.compute.tensor_parallel
    overlap = compute.overlap or config.learning.importance_cap is not None
    pairs = gpus if gpus > 1 else 0
    found = [("shared", pairs, pairs, engine)] if gpus <= MACHINE else []
    if found and engine.memory is None and engine.kind == "vllm":
        # What learners that share a policy may leave to the engine.
        found.append(("shared", pairs, pairs, engine.replace(memory=0.6)))
    for engines in range(1, (gpus - 1) // spread + 1):
        found.append(("own", engines, gpus - engines * spread, engine))

    for kind, runners, learners, given in found:
        changed = compute.replace(
            gpus=kind,
            tensor_parallel=spread if kind == "own" else 1,
            env_runners=runners,
            learners=learners,
            sharding="fsdp2" if learners > 1 else "ddp",
            overlap=overlap and kind == "own",
        )
        made = config.replace(compute=changed, engine=given)
        try:
            made.check()
        except ConfigError:
            continue
        yield made


def difference(config: RunConfig, other: RunConfig) -> str:
    """Arguments that make one run's layout another's."""
    found = []
    for section in ("compute", "engine"):
        before = getattr(config, section)
        for name, value in getattr(other, section):
            if value != getattr(before, name):
                found.append(f"--set {section}.{name}={str(value).lower()}")
    return " ".join(found)
