"""What each GPU of a run will hold, and what a step moves between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from agents.config import LearningConfig, played_at_once
from agents.planning.count import Passes, Size, count_passes, count_reading, size_of
from ssp_env.game.config import GameConfig

FLOAT, HALF = 4, 2
"""Bytes of float32 and of bfloat16."""
_SAMPLED = 32
"""Bytes per logit while a token is sampled: logits, log-probabilities, and what they add up to in
double precision."""
_PASSAGE = 512
"""Tokens that an engine's pass is counted for; what it holds grows with their number."""


@dataclass(frozen=True)
class Layout:
    """Which processes a run has, and how they share GPUs."""

    env_runners: int = 0
    """Remote env runners; 0 plays in the main process."""
    learners: int = 0
    """Remote learners; 0 learns in the main process."""
    gpus_per_env_runner: float = 0.0
    """Below 1, several processes share a GPU; 0: on the CPU."""
    gpus_per_learner: float = 0.0
    """Likewise."""
    sharding: str = "ddp"
    """How several learners hold the policy: ``ddp`` (each all of it) or ``fsdp2`` (a share)."""

    @property
    def gpus(self) -> float:
        """GPUs that it takes."""
        runners = max(1, self.env_runners) * self.gpus_per_env_runner
        return runners + max(1, self.learners) * self.gpus_per_learner

    @property
    def takes_turns(self) -> bool:
        """Whether one process plays and learns: what only the one needs is gone for the other."""
        return self.together and not (self.env_runners or self.learners)

    @property
    def together(self) -> bool:
        """Whether engine and learner share a device."""
        if not self.gpus:
            return not (self.env_runners or self.learners)
        both = self.gpus_per_env_runner > 0 and self.gpus_per_learner > 0
        return both and self.gpus_per_env_runner + self.gpus_per_learner <= 1


@dataclass(frozen=True)
class Device:
    """What one device holds at its peak."""

    name: str
    """Such as ``learner``, or ``learner and engine``."""
    count: int
    """How many of them there are."""
    parts: dict[str, int]
    """What is held -> bytes."""
    gpu: bool = True
    """Whether it is a GPU; a process on the CPU otherwise."""

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Plan:
    """What a run needs."""

    size: Size
    """The policy."""
    devices: tuple[Device, ...]
    """Each kind of device."""
    moved: dict[str, int]
    """What a step moves between processes -> bytes, at most."""


@dataclass(frozen=True)
class Job:
    """All that a plan depends on, beside the policy."""

    game: GameConfig
    """Budgets and attempts."""
    learning: LearningConfig
    """Sizes, reference."""
    layout: Layout
    """Processes and GPUs."""
    autocast: torch.dtype | None = torch.bfloat16
    """What the learner's passes are computed in; ``None`` for float32."""
    engine_bytes: int = FLOAT
    """Bytes of a number in the engine."""
    vllm: bool = False
    """Whether vLLM plays, which lets trajectories wait where its cache is full."""
    engine_memory: float = 0.4
    """Share of a GPU's memory that vLLM fills."""
    overlap: bool = False
    """Whether steps are played ahead."""
    direct: bool = False
    """Whether engines read the weights out of the first learner's memory."""
    attention: str = "sdpa"
    """The learner's attention."""

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return self.game.max_prompt_tokens + self.game.max_response_tokens

    @property
    def rows(self) -> int:
        """Rows of that length in one micro-batch."""
        return max(1, self.learning.microbatch_tokens // self.longest)

    @property
    def sharded(self) -> bool:
        """Whether learners hold shares of the policy."""
        return self.layout.sharding == "fsdp2" and self.layout.learners > 1

    @property
    def played(self) -> int:
        """Trajectories that an env runner plays side by side: it plays one round at a time."""
        return played_at_once(self.game, self.learning)

    @property
    def verification(self) -> int:
        """Tokens of the longest trajectory in which the policy verifies; 0 if it reads nothing."""
        reads = self.game.verifier in ("policy", "auto") and not self.game.verifies_by_attempt
        return self.longest + self.game.verification_tokens if reads else 0

    @property
    def resident(self) -> int:
        """Tokens that an engine keeps of all trajectories of a phase, each at its longest."""
        return max(self.played * self.longest, self.questions * self.verification)

    @property
    def questions(self) -> int:
        """Those of a round."""
        return self.played // self.game.attempts

    @property
    def found(self) -> int:
        """Tokens of what a search finds, at most."""
        game = self.game
        return min(game.top_k * game.max_document_tokens, game.max_response_tokens)

    @property
    def has_reference(self) -> bool:
        """Whether a frozen copy of the policy is held beside it."""
        learning = self.learning
        grpo = any(learning.algorithm(role) == "grpo" for role in learning.learning_roles)
        return learning.kl_coeff > 0 and grpo


def _size(parts: dict[str, int]) -> int:
    return sum(parts.values())


def _both(parts: tuple[dict[str, int], dict[str, int]]) -> int:
    return sum(map(_size, parts))


class Planner:
    """Makes plans for one policy. What was counted once is kept."""

    def __init__(self, config: Any) -> None:
        """
        Args:
            config: the policy's `transformers` config; weights are not needed.
        """
        self.size = size_of(config)
        self._config = config
        self._counted: dict[tuple[Any, ...], Passes] = {}
        self._read: dict[torch.dtype, float] = {}

    def plan(self, job: Job, memory: float = 0) -> Plan:
        """What this job needs.

        Args:
            job: what is to run.
            memory: bytes of each GPU, of which vLLM takes its share; 0 counts what it must have.
        """
        layout = job.layout
        (held, passing), (weights, playing) = self._learner(job), self._engine(job, memory)
        learners, runners = max(1, layout.learners), max(1, layout.env_runners)
        if job.direct:
            # All of them at once; caches and what passes leave free need not make room for them.
            travelling = job.engine_bytes * self._trained(job)
            held["weights to be read"] = weights["weights that arrive"] = travelling

        if layout.takes_turns:
            # The engine forgets its caches before the learner's turn, which lets its passes go.
            passing, playing = max((passing, {}), ({}, playing), key=_both)
        if layout.together:
            both = {**held, **passing, **weights, **playing}
            on_gpu = layout.gpus > 0
            devices = (Device("learner and engine", max(learners, runners), both, on_gpu),)
            return Plan(self.size, devices, self._moved(job))

        return Plan(
            self.size,
            (
                Device("learner", learners, {**held, **passing}, layout.gpus_per_learner > 0),
                Device("engine", runners, {**weights, **playing}, layout.gpus_per_env_runner > 0),
            ),
            self._moved(job),
        )

    def least_bytes(self, job: Job) -> int:
        """What vLLM must have: room for the weights and the longest row."""
        return sum(map(_size, self._engine(replace(job, vllm=True), 0)))

    def least_share(self, job: Job, memory: float) -> float:
        """Share of a GPU that vLLM is to have at least, in twentieths: one of them is for its own
        passes, which are not counted."""
        return (math.ceil(20 * self.least_bytes(job) / memory) + 1) / 20

    def _learner(self, job: Job) -> tuple[dict[str, int], dict[str, int]]:
        """What each learner holds, always and during an update."""
        size, passes = self.size, self._passes(job)
        shares = job.layout.learners if job.sharded else 1
        weights, trained = FLOAT * size.parameters // shares, FLOAT * self._trained(job) // shares

        parts = {"weights": weights, "Adam's moments": 2 * trained}
        if job.learning.lora_rank:
            parts["adapters"] = trained
        elif job.has_reference:
            parts["reference"] = weights

        passing = {"gradients": trained}
        if len(job.learning.learning_roles) > 1:
            # Every `role_norms_every` steps: those of the proposer alone, kept beside all others.
            passing["one role's gradients"] = trained
        if job.sharded:
            compute = HALF if job.autocast else FLOAT
            # One layer computes while the next one arrives; what is in no layer stays whole.
            models = 2 if "reference" in parts else 1
            passing["gathered layers"] = models * compute * (2 * size.layer + size.outside)
            most = min(self._trained(job), size.layer + size.outside)
            passing["gradients to deal"] = (compute + FLOAT) * most

        if passes.copies:
            passing["weights in bfloat16"] = passes.copies
        return parts, {**passing, "activations": passes.activations}

    def _engine(self, job: Job, memory: float) -> tuple[dict[str, int], dict[str, int]]:
        """What the engine of each env runner holds, always and while it plays."""
        size, cached = self.size, job.engine_bytes * self.size.cached
        weights = {"engine's weights": job.engine_bytes * size.parameters}
        if job.learning.partner:
            # Taken for one of the policy's size. A trajectory is in one engine's cache alone.
            weights["partner's weights"] = weights["engine's weights"]
        if job.vllm:
            row = cached * max(job.longest, job.verification)
            filled = int(job.engine_memory * memory) - weights["engine's weights"]
            return weights, {"KV cache": max(row, filled)}

        cache = cached * job.resident
        spread = size.spread * job.engine_bytes * job.resident
        passes = spread + self._reading(job) + _SAMPLED * size.vocabulary * job.played
        return weights, {
            "KV cache": cache,
            # Those that join are copied, and then all together.
            "KV cache, while rows join": cache,
            "the engine's passes": passes,
        }

    def _moved(self, job: Job) -> dict[str, int]:
        """Bytes that go between processes in a step."""
        learners, weights, trained = job.layout.learners, self.size.parameters, self._trained(job)
        moved: dict[str, int] = {}

        # In a ring, each learner sends and gets all shares but its own.
        others = (learners - 1) / max(1, learners)
        if job.sharded:
            # Weights arrive for the forward and for the backward pass, and for the reference's.
            gathers = (3 if job.has_reference else 2) * (HALF if job.autocast else FLOAT)
            through = gathers * weights + FLOAT * trained
            moved["each learner, per micro-batch"] = int(others * through)
        elif learners > 1:
            updates = job.learning.minibatches
            moved["each learner, gradients"] = int(2 * others * FLOAT * trained * updates)

        if job.layout.env_runners or learners:
            engines = max(1, job.layout.env_runners)
            moved["weights to the engines"] = job.engine_bytes * trained * engines
        return moved

    def _trained(self, job: Job) -> int:
        """Parameters that learn: all, or those of adapters."""
        rank = job.learning.lora_rank
        return rank * self.size.adapted if rank else self.size.parameters

    def _reading(self, job: Job) -> int:
        """Bytes of an engine's largest pass: over all prompts, or what searches found for all."""
        dtype = torch.float32 if job.engine_bytes == FLOAT else torch.bfloat16
        if dtype not in self._read:
            self._read[dtype] = count_reading(self._config, _PASSAGE, dtype) / _PASSAGE

        mask = job.engine_bytes + 1  # of each token and each that it may look at
        prompt = job.game.max_prompt_tokens
        return int(
            max(
                job.questions * prompt * (self._read[dtype] + mask * prompt),
                job.played * job.found * (self._read[dtype] + mask * job.longest),
            )
        )

    def _passes(self, job: Job) -> Passes:
        how: dict[str, Any] = {
            "rows": job.rows,
            "length": job.longest,
            "own": job.game.max_response_tokens,
            "autocast": job.autocast,
            "attention": job.attention,
            "checkpointing": job.learning.gradient_checkpointing,
            "reference": job.has_reference,
            "sharded": job.sharded,
        }
        key = tuple(how.values())
        if key not in self._counted:
            self._counted[key] = count_passes(self._config, **how)
        return self._counted[key]
