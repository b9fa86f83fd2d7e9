"""Settings of the algorithm, as RLlib users make them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils import force_list

from ssp_agents.checks import check_settings
from ssp_agents.config import (
    SHARED,
    SHIPPED,
    ComputeConfig,
    EngineConfig,
    Gpus,
    LearningConfig,
)
from ssp_agents.engines.opening import check_same_tokens
from ssp_agents.given import GivenQuestions, check_unseen
from ssp_agents.models import shipped_directory
from ssp_agents.rllib.compat import attribute_of
from ssp_agents.rllib.env_runner import SSPEnvRunner
from ssp_agents.rllib.learner import SSPLearner
from ssp_agents.rllib.module import LLMModule, module_spaces
from ssp_agents.rllib.policies import PoliciesConfig, check_policies, trained_roles
from ssp_env.config import named
from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import GameConfig, world_defaults
from ssp_env.game.prompts import tags_of
from ssp_env.game.protocol import check_tokenizer
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import BatchStrategy, Remembering, make_strategy
from ssp_env.search.index import SearchConfig, check_search, open_search
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Question, World
from ssp_env.worlds import WORLDS, check_world, open_world

LEARNING = frozenset(LearningConfig.model_fields) - {"policies"}
TRAINING = LEARNING | {"model_dir", "engine", "overlap", "policies"}
"""Settings that :meth:`SSPConfig.training` takes."""
CALLED = (
    "on_algorithm_init",
    "on_train_result",
    "on_checkpoint_loaded",
    "on_evaluate_start",
    "on_evaluate_end",
    "on_sample_end",
)
"""Callbacks that are called: ``on_sample_end`` after each game batch, with its
:class:`~ssp_agents.rllib.env_runner.Sample`, the others as RLlib does."""

UNCALLED_OF_LEARNERS = (
    "compute_losses",
    "compute_gradients",
    "postprocess_gradients",
    "postprocess_gradients_for_module",
    "apply_gradients",
)
"""Hooks of RLlib's learners that an update here does without."""

REFUSED = {
    "gamma": "a trajectory is paid once, at its end: nothing is discounted",
    "train_batch_size_per_learner": "set training(batch_size=...), questions per step",
    "train_batch_size": "set training(batch_size=...), questions per step",
    "minibatch_size": "set training(minibatches=...), optimizer updates per step",
    "num_epochs": "every game is learnt from once; set training(minibatches=...) for more updates",
    "grad_clip": "gradients are clipped to the norm 1",
    "optimizer": "Adam is used; set training(lr=..., beta2=..., warmup_steps=...)",
    "env": "the game is set by env_config alone; leave env out",
    "num_envs_per_env_runner": "a runner plays its share of training(batch_size=...) side by side",
    "rollout_fragment_length": "games are played to their end",
    "model_config": "set training(model_dir=...), the directory of a causal LM",
    "num_gpus": "set num_gpus_per_learner and num_gpus_per_env_runner",
    "explore": "set training(temperature=...)",
    "evaluation_parallel_to_training": "evaluations are questions answered between two steps",
    "ignore_env_runner_failures": "what a dead env runner had begun is always played by another",
}
"""RLlib's settings that people try first and that self-play does not read, with what to do."""

ENV_KEYS = ("world", "world_options", "game", "search", "make_rules")


class SSPConfig(PoliciesConfig):
    """RLlib's config, with the game in ``environment`` and the learning in ``training``.

    ``environment(env_config={...})`` takes ``world`` (a name, or a function that makes one),
    ``world_options`` (a dict), ``game`` (a :class:`~ssp_env.game.config.GameConfig` or a dict of
    its fields), ``search`` (a server's address, an index directory, or a dict of the fields of
    :class:`~ssp_env.search.index.SearchConfig`) and ``make_rules`` (a function of world, tokenizer
    and game config, for a retriever, judge or verifier of your own).

    ``training(...)`` takes every field of :class:`~ssp_agents.config.LearningConfig` by name,
    ``model_dir``, a causal LM directory (by default, the policy that ships for the world),
    ``engine``: its kind, a dict of the fields of :class:`~ssp_agents.config.EngineConfig`, or
    one of these, and ``overlap``: whether a step is played while the one before is learnt from.

    One policy, ``llm``, plays both roles. ``training(policies="separate")`` gives each role its
    own, as does ``multi_agent(policies={...}, policy_mapping_fn=...)`` under names of yours; their
    learning rates may differ, also by ``rl_module(algorithm_config_overrides_per_module=...)``.

    >>> config = SSPConfig().training(policies="separate", lora_rank=8, lr=1e-5, proposer_lr=1e-6)
    >>> {name: settings.lr for name, settings in config.resolved_policies().trained.items()}
    {'proposer': 1e-06, 'solver': 1e-05}

    ``debugging(seed=...)`` seeds everything. ``evaluation(...)`` measures the policy on
    ``evaluation_duration`` questions that it never trains on. An RLModule of your own, as
    ``rl_module(rl_module_spec=RLModuleSpec(module_class=...))``, inherits from
    :class:`~ssp_agents.rllib.module.LLMModule`; what plays is its causal LM, ``self.lm``."""

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        from ssp_agents.rllib.algorithm import SSP  # it imports this file

        super().__init__(algo_class=algo_class or SSP)
        self.model_dir = ""
        self.sharding: Any = "ddp"
        self.engine: EngineConfig | dict[str, Any] | str = EngineConfig()
        self.overlap = False
        for name in LEARNING:
            field = LearningConfig.model_fields[name]
            setattr(self, name, field.get_default(call_default_factory=True))
        self.env_runner_cls = SSPEnvRunner
        self.create_local_env_runner = True
        # Connectors work on env steps; our env runners bring rows.
        self.add_default_connectors_to_env_to_module_pipeline = False
        self.add_default_connectors_to_module_to_env_pipeline = False
        # Rollouts of an LLM take long; results that come late must not be dropped.
        self.sample_timeout_s = 24 * 3600.0
        self.leave_connectors_alone()
        # Else DDP deals gradients to its buckets anew after the first pass of a process, and gloo's
        # ring of three or more adds in another order then: a resumed run would differ in last bits.
        self.torch_ddp_kwargs = {"find_unused_parameters": True}
        self.share_or_separate("shared")

    def training(self, **kwargs: Any) -> SSPConfig:
        """Sets fields of :class:`~ssp_agents.config.LearningConfig`, ``model_dir``, ``engine`` and
        ``overlap``.

        RLlib's own settings of training are refused: ``validate()`` says what to set instead.
        """
        theirs = inspect.signature(AlgorithmConfig.training).parameters
        # A name that both have, such as ``lr``, is ours.
        for name in [name for name in kwargs if name not in theirs or name in TRAINING]:
            value = kwargs.pop(name)
            if name not in TRAINING:
                fix = f"no such setting; {nearest(name, TRAINING)}"
                if name in GameConfig.model_fields:
                    fix = f"set environment(env_config={{'game': {{'{name}': {value!r}}}}})"
                raise ConfigError(f"training.{name}", value, fix)
            if name == "policies":
                self.refuse_other_names(value)
                self.share_or_separate(value)
                continue
            if isinstance(value, int | float) and value == -1:
                # It would be dropped when the algorithm copies its config.
                fix = "give another number: RLlib takes this one for a setting that is not set"
                raise ConfigError(f"training.{name}", value, fix)
            setattr(self, name, str(value) if isinstance(value, Path) else value)

        super().training(**kwargs)
        return self

    def learners(self, *, sharding: Any = None, **kwargs: Any) -> SSPConfig:
        """As RLlib's; ``sharding`` says how several learners hold the policy: ``ddp``, each all of
        it, or ``fsdp2``, each a share of weights, gradients, optimizer and reference."""
        self.sharding = sharding or self.sharding
        super().learners(**kwargs)
        return self

    @property
    def gpus(self) -> Gpus:
        """Way in which env runners and learners use GPUs."""
        gpus = self.num_gpus_per_env_runner, self.num_gpus_per_learner
        if gpus[1] == 1 and gpus[0] >= 1 and float(gpus[0]).is_integer():
            return "own"
        if gpus not in ((0, 0), SHARED):
            fix = "two of a kind may meet on a GPU, or some sees none; give 1 and 1 for GPUs of "
            fix += f"their own, or {SHARED[0]} and {SHARED[1]} for one of each on every GPU"
            raise ConfigError("num_gpus_per_env_runner, num_gpus_per_learner", gpus, fix)
        return "shared" if gpus == SHARED else "none"

    @property
    def is_sharded(self) -> bool:
        return bool(self.sharding == "fsdp2")

    def learning(self) -> LearningConfig:
        """The settings of ``training`` in one, validated."""
        values = {name: getattr(self, name) for name in LEARNING}
        values["learning_roles"] = trained_roles(self, values["learning_roles"])
        values["policies"] = "separate" if len(self.policies) > 1 else "shared"
        return LearningConfig(**values)

    def compute(self) -> ComputeConfig:
        """Processes and devices."""
        return ComputeConfig(
            env_runners=self.num_env_runners,
            learners=self.num_learners,
            gpus=self.gpus,
            tensor_parallel=max(1, int(self.num_gpus_per_env_runner)),
            sharding=self.sharding,
            overlap=self.overlap,
        )

    def batch_strategy(self) -> BatchStrategy:
        """A fresh batch strategy, with an empty pool."""
        strategy = make_strategy(self.learning().strategy, self.game().max_searches)
        return Remembering(strategy) if "past_question" in (self.game().filters or ()) else strategy

    def given(self) -> GivenQuestions:
        """The questions that the solver is given, in the order in which it learns from them."""
        if self.questions and self.evaluation_interval:
            self.evaluation_questions()  # refused where any of them is given
        return GivenQuestions.of(self.learning(), self.game(), self.seed or 0)

    def engine_config(self) -> EngineConfig:
        """The engine's settings, validated."""
        given = {"kind": self.engine} if isinstance(self.engine, str) else self.engine
        return given if isinstance(given, EngineConfig) else EngineConfig(**given)

    def game(self) -> GameConfig:
        """The game's settings, validated; fields that are not given are those that suit the
        world."""
        game, world = self.env_config.get("game", {}), self.env_config.get("world", "mini")
        if isinstance(game, GameConfig):
            return game

        default, _ = world_defaults(world if isinstance(world, str) else "")
        return default.replace(**game)

    def search(self) -> SearchConfig:
        """The place that is searched; by default the world's own."""
        return SearchConfig.of(self.env_config.get("search") or "")

    def make_world(self) -> World:
        """Opens the world; every process has its own."""
        world = self.env_config.get("world", "mini")
        options = dict(self.env_config.get("world_options", {}))
        return world(**options) if callable(world) else open_world(world, **options)

    def make_rules(self, world: World, tokenizer: Tokenizer) -> Rules:
        """The rules that games are played by: those of your ``make_rules``, if it was given."""
        make: Callable[..., Rules] | None = self.env_config.get("make_rules")
        if make is not None:
            rules, ours = make(world, tokenizer, self.game()), self.game().model_dump()
            # Loss weights and the record of a run go by the settings; filters may be filled in.
            theirs = rules.config.model_dump() | {"filters": ours["filters"]}
            if changed := {name: value for name, value in theirs.items() if ours[name] != value}:
                fix = "your rules changed it, learning goes by the settings: give it as game"
                raise ConfigError("game", changed, fix)
            return rules
        retriever = open_search(self.search(), world)
        return Rules.build(world, tokenizer, self.game(), retriever=retriever)

    def evaluation_questions(self) -> list[Question]:
        """The questions of an evaluation: the first of each group, then the second, and so on."""
        count = int(self.evaluation_duration)
        groups: dict[str, list[Question]] = {}
        world = self.make_world()
        if "make_rules" in self.env_config:  # they may play another one
            world = self.make_rules(world, HuggingFaceTokenizer.load(self.model_dir)).world
        for question in world.questions(0, per_group=count):
            groups.setdefault(question.group, []).append(question)

        in_turn = chain.from_iterable(zip_longest(*groups.values()))
        questions = [question for question in in_turn if question is not None][:count]
        check_unseen(self.learning(), questions)
        return questions

    def validate(self) -> None:
        """Checks our settings before RLlib checks its own, and before anything is built."""
        if self.num_env_runners and self.create_local_env_runner:
            # It would be one more copy of the model, in a process that may have no GPU for it.
            self.create_local_env_runner = False
        if self.in_evaluation:
            # RLlib's second config, for its evaluation, has the settings of the first one.
            super().validate()
            return
        for key in self.env_config:
            if key not in ENV_KEYS:
                fix = f"{nearest(key, ENV_KEYS)}; parts of your own come by make_rules, or by "
                fix += "--rules my_module:make_rules of ssp train"
                if key in GameConfig.model_fields:
                    fix = f"set env_config={{'game': {{'{key}': {self.env_config[key]!r}}}}}"
                raise ConfigError(f"env_config.{key}", self.env_config[key], fix)
        if not self.model_dir:
            world = self.env_config.get("world", "mini")
            # A world that a function makes has the mini world's policy, unless another is named.
            shipped = world if isinstance(world, str) else "mini"
            if shipped not in SHIPPED:
                fix = f"name a causal LM directory: no policy ships for {world!r}"
                raise ConfigError("model_dir", "", fix)
            self.model_dir = str(shipped_directory(shipped))
        game, learning, engine = self.game(), self.learning(), self.engine_config()
        check_policies(self)
        self._refuse_unread()
        if engine.kind == "vllm" and self.has_own_module:
            fix = "vLLM plays the model of model_dir: engine='transformers' plays your module"
            raise ConfigError("rl_module_spec", self.given_module_spec, fix)
        with named("env_config"):
            world = self.env_config.get("world", "mini")
            if isinstance(world, str):
                check_world(world, **self.env_config.get("world_options", {}))
            elif not callable(world):
                fix = f"give the name of a world ({', '.join(WORLDS)}), or a function that makes it"
                raise ConfigError("world", world, fix)
            if "search" in self.env_config and "make_rules" in self.env_config:
                fix = "make_rules chooses the retriever; leave one of them out"
                raise ConfigError("search", self.env_config["search"], fix)
            check_search(self.search(), self.game().tools)
        compute = self.compute()
        check_settings(game, learning, engine, compute)
        if compute.gpus == "shared" and self.evaluation_num_env_runners:
            fix = "learners leave no GPU to them; leave it at 0, and the env runners answer"
            count = self.evaluation_num_env_runners
            raise ConfigError("evaluation_num_env_runners", count, fix)
        for field, other in learning.other_models.items():
            check_same_tokens(field, other, self.model_dir)
        check_tokenizer(
            HuggingFaceTokenizer.load(self.model_dir), tags_of(game.prompts, game.tools)
        )
        super().validate()

    def _refuse_unread(self) -> None:
        """Refuses settings and callbacks that would be read by nobody, and silently so."""
        # A setting that differs from that of a fresh config is one that somebody has set.
        untouched = vars(type(self)())
        for name, fix in REFUSED.items():
            attribute = attribute_of(name, untouched)
            value, default = getattr(self, attribute), untouched[attribute]
            if value is not default and not bool(value == default):
                raise ConfigError(name, value, f"not used by search self-play; {fix}")

        for cls in force_list(self.callbacks_class):
            for name, theirs in vars(RLlibCallback).items():
                overridden = getattr(cls, name, theirs) is not theirs
                if name.startswith("on_") and name not in CALLED and overridden:
                    fix = f"self-play never calls {name}; it calls {', '.join(CALLED)}"
                    raise ConfigError("callbacks_class", cls, fix)

        learner = self.learner_class
        if not issubclass(learner, SSPLearner):
            raise ConfigError("learner_class", learner, "inherit from ssp_agents.rllib.SSPLearner")
        for name in UNCALLED_OF_LEARNERS:
            if getattr(learner, name) is not getattr(SSPLearner, name):
                fix = f"self-play never calls {name}; override compute_loss_for_module, or name an "
                fix += "algorithm of your own in training(solver_algorithm='module:NAME')"
                raise ConfigError("learner_class", learner, fix)

        duration, unit = self.evaluation_duration, self.evaluation_duration_unit
        if not isinstance(duration, int) or duration < 1 or unit != "episodes":
            fix = "give a number of questions, at least 1; each is an episode, the only unit"
            raise ConfigError("evaluation_duration", (duration, unit), fix)

    def module_settings(self) -> dict[str, Any]:
        return {
            "model": self.model_dir,
            "sharding": self.sharding,
            "lora_rank": self.lora_rank,
            "seed": self.seed or 0,
        }

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        observation, action = module_spaces(HuggingFaceTokenizer.load(self.model_dir).vocab_size)
        return RLModuleSpec(
            module_class=LLMModule,
            observation_space=observation,
            action_space=action,
            model_config=self.model_config,
        )

    def get_default_learner_class(self) -> type[SSPLearner]:
        return SSPLearner
