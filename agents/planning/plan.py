"""What each GPU of a run will hold, and what a step moves between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from agents.config import LearningConfig
from agents.planning.count import Passes, Size, count_passes, size_of
from ssp_env.game.config import GameConfig

FLOAT, HALF = 4, 2
"""Bytes of float32 and of bfloat16."""


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
    waits: bool = False
    """Whether the engine lets trajectories wait where its cache is full, as vLLM does."""
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
        """Trajectories that an env runner plays side by side."""
        games = -(-self.learning.batch_size // max(1, self.layout.env_runners))
        return games * self.game.attempts

    @property
    def has_reference(self) -> bool:
        """Whether a frozen copy of the policy is held beside it."""
        learning = self.learning
        grpo = any(learning.algorithm(role) == "grpo" for role in learning.learning_roles)
        return learning.kl_coeff > 0 and grpo


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

    def plan(self, job: Job) -> Plan:
        """What this job needs."""
        learner, engine = self._learner(job), self._engine(job)
        learners, runners = max(1, job.layout.learners), max(1, job.layout.env_runners)

        if job.layout.together:
            both = {**learner, **engine}
            on_gpu = job.layout.gpus > 0
            devices = (Device("learner and engine", max(learners, runners), both, on_gpu),)
            return Plan(self.size, devices, self._moved(job))

        layout = job.layout
        return Plan(
            self.size,
            (
                Device("learner", learners, learner, layout.gpus_per_learner > 0),
                Device("engine", runners, engine, layout.gpus_per_env_runner > 0),
            ),
            self._moved(job),
        )

    def _learner(self, job: Job) -> dict[str, int]:
        """What each learner holds."""
        size, passes = self.size, self._passes(job)
        shares = job.layout.learners if job.sharded else 1
        weights, trained = FLOAT * size.parameters // shares, FLOAT * self._trained(job) // shares

        parts = {"weights": weights, "gradients": trained, "Adam's moments": 2 * trained}
        if len(job.learning.learning_roles) > 1:
            # Every `role_norms_every` steps: those of the proposer alone, kept beside all others.
            parts["one role's gradients"] = trained
        if job.learning.lora_rank:
            parts["adapters"] = trained
        elif job.has_reference:
            parts["reference"] = weights

        if job.sharded:
            compute = HALF if job.autocast else FLOAT
            # One layer computes while the next one arrives; what is in no layer stays whole.
            models = 2 if "reference" in parts else 1
            parts["gathered layers"] = models * compute * (2 * size.layer + size.outside)
            most = min(self._trained(job), size.layer + size.outside)
            parts["gradients to deal"] = (compute + FLOAT) * most

        if passes.copies:
            parts["weights in bfloat16"] = passes.copies
        return {**parts, "activations": passes.activations}

    def _engine(self, job: Job) -> dict[str, int]:
        """What the engine of each env runner holds."""
        tokens = (1 if job.waits else job.played) * job.longest
        return {
            "engine's weights": job.engine_bytes * self.size.parameters,
            "KV cache": job.engine_bytes * self.size.cached * tokens,
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
