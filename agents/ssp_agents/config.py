"""Settings of learning, engine and processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from ssp_env.config import Settings, load
from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import GameConfig
from ssp_env.game.strategies import StrategyName
from ssp_env.types import Question

ALGORITHMS = ("grpo", "reinforce", "rae", "dr_grpo", "gspo", "cispo", "rloo")
"""Algorithms that ship; `ssp_agents.losses.ALGORITHMS` holds the functions."""
Aggregation = Literal["sequence", "token", "sum", "constant"]
WITHOUT_RATIO = frozenset({"reinforce", "rae", "rloo"})
"""Those that have no importance ratio without ``importance_cap``."""
TrainedRole = Literal["proposer", "solver"]
ROLES: tuple[TrainedRole, ...] = ("proposer", "solver")
Gpus = Literal["none", "own", "shared"]
"""Ways in which env runners and learners may use GPUs."""
SHARED = 0.6, 0.4
"""Parts of a GPU that an env runner and a learner ask Ray for where they share it: no two of a kind
fit on one."""
SHIPPED = {"mini": "tiny", "small": "tiny", "wiki-sentences": "wiki_small"}
"""Folder of the policy that ships for a world."""


Point = tuple[NonNegativeInt, int | float | tuple[int, int]]
"""A step, and the value of a number of the game from there on."""


class LearningConfig(Settings):
    """Learning of both roles. The defaults are the paper's."""

    section: ClassVar[str] = "learning"

    batch_size: PositiveInt = 256
    """Questions per step (the paper's B)."""
    round_size: PositiveInt = 32
    """Questions of a batch of games, which one env runner plays and whose games share noise
    documents."""
    minibatches: PositiveInt = 2
    """Optimizer updates per step, each on a part of the games."""
    questions: str | tuple[Question, ...] = ""
    """File of questions with answers that the solver learns from
    (:func:`~ssp_env.worlds.questions.read_questions` says what its lines have); in Python, also
    the questions themselves."""
    given_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of a step's questions that come from ``questions``; the others are proposed. ``None``:
    all where there are such questions, as in Search-R1, else none."""
    learning_roles: Annotated[tuple[TrainedRole, ...], Field(min_length=1)] = ROLES
    """Roles that are trained; ``(solver,)`` is the paper's Solver-Only, ``(proposer,)`` its
    Proposer-Only. Where all questions are given, it is the solver alone."""
    policies: Literal["shared", "separate"] = "shared"
    """``shared``: one policy plays both roles. ``separate``: each role has its own, with its own
    optimizer and checkpoints; with ``lora_rank``, both are adapters on one model."""
    proposer_model: str = ""
    """Model directory that a separate proposer begins with; empty: that of the solver."""
    partner: str = ""
    """Model directory of a frozen policy that plays the other role; empty: the policy plays both.
    """
    verifier_model: str = ""
    """Model directory of a frozen verifier (``game.verifier: frozen``); empty: the solver's policy
    as it was before training."""
    verifier_refresh: NonNegativeInt = 0
    """Steps after which a frozen verifier becomes a copy of the solver's policy, again and again;
    0: never."""
    proposer_algorithm: str = "reinforce"
    """``reinforce``; ``rae``, which takes a moving average from its rewards; ``grpo``, ``dr_grpo``,
    ``gspo``, ``cispo`` or ``rloo``, which compare the proposals about one answer
    (``game.proposals`` above 1); or your own as ``module:NAME``, an
    :class:`ssp_agents.losses.Algorithm`."""
    solver_algorithm: str = "grpo"
    """The same for the solver, whose attempts are compared (``game.attempts`` above 1)."""
    credit: str | Callable[..., Any] = ""
    """Share of each turn of a trajectory in its advantage, as a function ``module:NAME``
    (:data:`ssp_agents.rows.Credit`); in Python, also the function itself. Empty: 1 each."""
    proposer_aggregation: Aggregation | None = None
    """Token losses are summed (``sum``; equation 5), averaged within each trajectory
    (``sequence``; equation 4) or over all tokens of the role (``token``), or summed and divided by
    ``game.max_response_tokens`` (``constant``). ``None``: as the algorithm's paper has it."""
    solver_aggregation: Aggregation | None = None
    """The same for the solver."""
    proposer_weight: NonNegativeFloat = 1.0
    """Factor on the proposer's loss; both roles share one step of Adam."""
    importance_cap: Annotated[float, Field(ge=1)] | None = 2.0
    """Bound of importance ratios. ``None``: no bound, and REINFORCE, RAE and RLOO have no ratio."""
    lr: NonNegativeFloat = 1e-6
    """Learning rate of Adam."""
    proposer_lr: NonNegativeFloat | None = None
    """That of a separate proposer; ``None``: as the solver's."""
    warmup_steps: NonNegativeInt = 5
    """Steps over which the learning rate rises linearly from 0."""
    decay_steps: PositiveInt | None = None
    """Steps over which the learning rate falls linearly to 0; ``None``: it stays (the paper's)."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of Adam's second moment; the first moment's is 0.9."""
    kl_coeff: NonNegativeFloat = 0.01
    """Weight of the KL to the frozen reference; REINFORCE has none."""
    kl_cap: PositiveFloat | None = 10.0
    """Most nats that a token below the reference counts in that KL, as in veRL; ``None``: no bound.
    """
    clip: tuple[Annotated[float, Field(ge=0, le=1)], NonNegativeFloat] = (0.2, 0.28)
    """Distances below and above 1 at which the importance ratio is clipped."""
    std_normalise: bool = False
    """Divide advantages within a group by its standard deviation; not those of RLOO."""
    drop_uniform_groups: bool = False
    """Leave out groups of equal rewards; nothing is learnt from them but the KL."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature of self-play."""
    strategy: StrategyName = "periodic_reset"
    """What is played in place of failed proposals: nothing (``dummy``), further proposals
    (``resample``), earlier questions (``reuse``; ``periodic_reset`` forgets them every 10 steps),
    those of the lengths that the step lacks (``balanced``), or half of these and half joined ones
    (``compose``; ``compose_with_examples`` adds right attempts to learn from,
    ``compose_with_proposals`` these and proposals)."""
    lora_rank: NonNegativeInt = 0
    """Rank of adapters (LoRA) that are trained in place of the policy; 0 trains all of it."""
    schedules: dict[str, tuple[Point, ...]] = Field(default_factory=dict)
    """Numbers of the game that change from a step on, as ``{max_searches: [[1, 3], [40, 6]]}``; at
    most the setting itself, by which evaluation goes (:mod:`ssp_env.game.schedule`)."""
    microbatch_tokens: PositiveInt = 16_384
    """Most padded tokens of a learner's forward pass; memory depends on it, results do not."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of a learner's passes; weights, sums and moments stay float32. ``auto``: bfloat16 on GPUs
    that have it, and for policies of 10 million parameters or more on CPUs with AMX or with
    bfloat16 in AVX-512."""
    gradient_checkpointing: bool | None = None
    """Compute layers again in the backward pass: a third more arithmetic, a twentieth of the
    activations' memory, the same results. ``null``: where `ssp plan` says that memory asks for it.
    """

    @field_validator("questions", mode="before")
    @classmethod
    def _check_questions(cls, given: Any) -> Any:
        if isinstance(given, str | Path):
            return str(given)
        several = isinstance(given, list | tuple) and given
        if not several or not all(isinstance(each, Question | dict) for each in given):
            fix = "name a file, or give a list of Questions (ssp_env.types.Question)"
            raise ConfigError("learning.questions", given, fix)
        return tuple(given)

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        share = self.share_given
        if share and not self.questions:
            fix = "name the file that they come from as learning.questions, or leave it out"
            raise ConfigError("learning.given_share", share, fix)
        if share and "solver" not in self.learning_roles:
            fix = "the solver alone learns from given questions: train it too, or leave them out"
            raise ConfigError("learning.learning_roles", self.learning_roles, fix)
        if share == 1:
            object.__setattr__(self, "learning_roles", ("solver",))
            for name in ("partner", "policies"):
                if (value := getattr(self, name)) not in ("", "shared"):
                    fix = "all questions are given, so no proposer plays: leave it out, or lower "
                    fix += "learning.given_share"
                    raise ConfigError(f"learning.{name}", value, fix)
        return self

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        for name in ("proposer_algorithm", "solver_algorithm"):
            value = getattr(self, name)
            if value not in ALGORITHMS and ":" not in value:
                fix = f"one of your own is module:NAME; {nearest(value, ALGORITHMS)}"
                raise ConfigError(f"learning.{name}", value, fix)
        if self.minibatches > self.batch_size:
            fix = "must not exceed batch_size"
            raise ConfigError("learning.minibatches", self.minibatches, fix)
        if self.partner and len(set(self.learning_roles)) > 1:
            fix = "it plays the role that is not trained: give one of them as learning_roles"
            raise ConfigError("learning.partner", self.partner, fix)
        if self.partner and self.policies == "separate":
            fix = "both roles have a policy already: leave it out, or share the policy"
            raise ConfigError("learning.partner", self.partner, fix)
        for name in ("proposer_model", "proposer_lr"):
            value = getattr(self, name)
            if self.policies == "shared" and value not in ("", None):
                fix = "both roles share a policy: leave it out, or set learning.policies=separate"
                raise ConfigError(f"learning.{name}", value, fix)
        if self.proposer_lr is not None and "proposer" not in self.learning_roles:
            fix = "the proposer does not learn: leave it out, or train the proposer too"
            raise ConfigError("learning.proposer_lr", self.proposer_lr, fix)
        return self

    @property
    def share_given(self) -> float:
        """Share of a step's questions that are given, as it was asked for."""
        default = 1.0 if self.questions else 0.0
        return default if self.given_share is None else self.given_share

    def plays(self, role: str) -> bool:
        """True if the policy that learns plays a role, and not its partner. Verification and the
        closed-book gate are the solver's."""
        is_proposer_trained = "proposer" in self.learning_roles
        return not self.partner or (role == "proposer") == is_proposer_trained

    def of_policy(self, roles: Sequence[str]) -> Self:
        """Learning of the policy that plays these roles, and no others."""
        lr = self.lr if self.proposer_lr is None or "solver" in roles else self.proposer_lr
        trained = tuple(role for role in self.learning_roles if role in roles)
        alone = {"policies": "shared", "proposer_model": "", "proposer_lr": None}
        return self.replace(learning_roles=trained, lr=lr, **alone)

    @property
    def other_models(self) -> dict[str, str]:
        """Model directories of policies beside the first one, by the settings that name them."""
        named = ("partner", "proposer_model", "verifier_model")
        return {f"learning.{name}": value for name in named if (value := getattr(self, name))}

    def algorithm(self, role: str) -> str:
        return self.proposer_algorithm if role == "proposer" else self.solver_algorithm


class EngineConfig(Settings):
    """The engine of env runners."""

    section: ClassVar[str] = "engine"

    kind: Literal["transformers", "vllm"] = "transformers"
    """``transformers``, or ``vllm``, which needs its package."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of weights and arithmetic; ``auto``: bfloat16 on GPUs, float32 on CPUs."""
    memory: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of a GPU's memory that vLLM may fill; ``null``: 0.9, and 0.4 of a GPU that it shares.
    """

    def in_half(self, on_gpu: bool) -> bool:
        """True where the engine computes in bfloat16."""
        return self.dtype == "bfloat16" or (self.dtype == "auto" and on_gpu)


class ComputeConfig(Settings):
    """Processes and devices of a run."""

    section: ClassVar[str] = "compute"

    env_runners: NonNegativeInt = 0
    """Remote env runners; 0 plays in the main process."""
    learners: NonNegativeInt = 0
    """Remote learners; 0 learns in the main process."""
    gpus: Gpus = "none"
    """``own``: each env runner and each learner has a GPU of its own. ``shared``, on one machine:
    one env runner and one learner take turns on each GPU (with 0 of both: the main process on one).
    """
    tensor_parallel: PositiveInt = 1
    """GPUs over which each env runner's vLLM spreads a large policy, with ``own``."""
    sharding: Literal["ddp", "fsdp2"] = "ddp"
    """What each of several learners holds of the policy: ``ddp`` (all) or ``fsdp2`` (a share)."""
    threads: PositiveInt = 1
    """PyTorch threads per process. With 1, small models run fastest, and always the same."""
    overlap: bool = False
    """Play each step while the one before is learnt from, with weights one update old. Saves time
    with ``env_runners``."""

    @property
    def gpus_of_each(self) -> tuple[float, float]:
        """GPUs that an env runner and a learner ask Ray for."""
        separate = float(self.tensor_parallel), 1.0
        return {"none": (0.0, 0.0), "own": separate, "shared": SHARED}[self.gpus]

    @property
    def gpus_in_all(self) -> int:
        separate = self.env_runners * self.tensor_parallel + self.learners
        return {"none": 0, "own": separate, "shared": max(1, self.env_runners)}[self.gpus]


# -- what follows from them ----------------------------------------------------------------------


def vllm_share(engine: EngineConfig, shared: bool) -> float:
    """Share of a GPU's memory that vLLM fills."""
    return engine.memory or (0.4 if shared else 0.9)


def compares(learning: LearningConfig, role: str) -> bool:
    """True if a role's algorithm compares rewards within groups."""
    algorithm = learning.algorithm(role)
    if algorithm in ALGORITHMS:
        return algorithm not in ("reinforce", "rae")
    return bool(getattr(load(f"learning.{role}_algorithm", algorithm), "grouped", False))


def given_per_step(learning: LearningConfig, game: GameConfig) -> int:
    """Given questions of a step: the share asked for, in whole groups of proposals.

    >>> quarter = LearningConfig(batch_size=8, questions="q.jsonl", given_share=0.25)
    >>> given_per_step(quarter, GameConfig())
    2
    """
    groups = learning.batch_size // game.proposals
    # floor(x + 1/2) rounds to whole groups, a half upwards.
    proposed = math.floor((1 - learning.share_given) * groups + 0.5) * game.proposals
    return learning.batch_size - proposed if learning.share_given else 0


def played_at_once(game: GameConfig, learning: LearningConfig) -> int:
    """Trajectories that an env runner plays side by side, at most: all attempts of a batch of
    games."""
    return min(learning.batch_size, learning.round_size) * game.attempts
