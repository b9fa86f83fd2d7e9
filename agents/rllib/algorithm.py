"""The algorithm, used as RLlib users expect:
``SSPConfig().environment(...).training(...).build_algo().train()``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from agents.config import LearningConfig, check_groups, check_shares
from agents.metrics import step_metrics
from agents.models import tiny_directory
from agents.rllib.batch import MODULE_ID, shard, to_batch
from agents.rllib.env_runner import COMPONENT_STRATEGY, Sample, SSPEnvRunner
from agents.rllib.honoured import EVALUATION, refuse_ignored
from agents.rllib.learner import SSPLearner
from agents.rllib.module import LLMModule, module_spaces
from agents.rows import Row, with_loss_weights
from ssp_env.errors import ConfigError, ServiceError, UsageError, nearest
from ssp_env.game.config import GameConfig, suited
from ssp_env.game.protocol import check_tokenizer
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import Rules
from ssp_env.search.config import SearchConfig, check_search, open_search
from ssp_env.settings import named, read, read_value, suggestion
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Question, World
from ssp_env.worlds import WORLDS, check_world, open_world

LEARNING = frozenset(field.name for field in fields(LearningConfig))
ENV_KEYS = ("world", "world_options", "game", "search", "make_rules")
STRATEGIES = "ssp_strategies"
"""Where a checkpoint keeps the state of the batch strategies."""


class SSPConfig(AlgorithmConfig):
    """RLlib's config, with the game in ``environment`` and the learning in ``training``.

    ``environment(env_config={...})`` takes ``world`` (a name, or a function that makes one),
    ``world_options`` (a dict), ``game`` (a :class:`~ssp_env.game.config.GameConfig` or a dict of
    its fields), ``search`` (a server's address, an index directory, or a dict of the fields of
    :class:`~ssp_env.search.config.SearchConfig`) and ``make_rules`` (a function of world, tokenizer
    and game config, for a retriever, judge or verifier of your own).

    ``training(...)`` takes every field of :class:`~agents.config.LearningConfig` by name, and
    ``model_dir``, a causal LM directory; the tiny policy that ships is used when there is none.
    ``debugging(seed=...)`` seeds everything."""

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or SSP)
        self.model_dir = str(tiny_directory())
        for field in fields(LearningConfig):
            setattr(self, field.name, field.default)
        self.env_runner_cls = SSPEnvRunner
        self.num_env_runners = 0
        self.create_local_env_runner = True
        # Connectors work on env steps; our env runners bring rows.
        self.add_default_connectors_to_env_to_module_pipeline = False
        self.add_default_connectors_to_module_to_env_pipeline = False
        # Rollouts of an LLM take long; results that come late must not be dropped.
        self.sample_timeout_s = 24 * 3600.0
        self.policies = {MODULE_ID: (None, None, None, None)}
        self.policy_mapping_fn = _to_llm

    def training(self, *, model_dir: Any = NotProvided, **kwargs: Any) -> SSPConfig:
        """Sets fields of :class:`~agents.config.LearningConfig`, and the model directory.

        RLlib's own settings of training are refused: ``validate()`` says what to set instead.

        Raises:
            ConfigError: no such setting.
        """
        if model_dir is not NotProvided:
            self.model_dir = str(model_dir)

        theirs = inspect.signature(AlgorithmConfig.training).parameters
        for name in [name for name in kwargs if name not in theirs or name in LEARNING]:
            if name not in LEARNING:
                fix = suggestion(name, LearningConfig)
                raise ConfigError(f"training.{name}", kwargs[name], fix)
            setattr(self, name, kwargs.pop(name))

        super().training(**kwargs)
        return self

    def learning(self) -> LearningConfig:
        """The learning settings, validated."""
        values = {name: getattr(self, name) for name in LEARNING}
        return read(LearningConfig, values, "training")

    def game(self) -> GameConfig:
        """The game's settings, validated; fields that are not given are those that suit the
        world."""
        game, world = self.env_config.get("game", {}), self.env_config.get("world", "mini")
        if isinstance(game, GameConfig):
            return game

        default, _ = suited(world if isinstance(world, str) else "")
        return read(GameConfig, game, "env_config.game", default=default)

    def search(self) -> SearchConfig:
        """Where searches are answered, validated."""
        given = self.env_config.get("search")
        search: SearchConfig = read_value(SearchConfig, given, "env_config.search")
        return search

    def make_world(self) -> World:
        """Opens the world."""
        world = self.env_config.get("world", "mini")
        options = dict(self.env_config.get("world_options", {}))
        return world(**options) if callable(world) else open_world(world, **options)

    def check_world(self) -> None:
        """Checks the world's name and settings, and opens it where that takes no time.

        Raises:
            ConfigError: no such world, or a setting that it cannot have.
        """
        world = self.env_config.get("world", "mini")
        options = self.env_config.get("world_options", {})
        if not isinstance(options, Mapping):
            fix = "needs a mapping of the world's settings"
            raise ConfigError("world_options", options, fix)

        if isinstance(world, str):
            check_world(world, **options)
        elif not callable(world):
            fix = f"give the name of a world ({', '.join(WORLDS)}), or a function that makes one"
            raise ConfigError("world", world, fix)

    def make_rules(self, world: World, tokenizer: Tokenizer) -> Rules:
        """What games are played by."""
        make: Callable[..., Rules] | None = self.env_config.get("make_rules")
        if make is not None:
            return make(world, tokenizer, self.game())
        return Rules.build(world, tokenizer, self.game(), retriever=open_search(self.search()))

    def validate(self) -> None:
        """Checks our settings before RLlib checks its own, and before anything is built.

        Raises:
            ConfigError: a setting, or a pair of them, that cannot work, or one of RLlib's that
                nothing would read.
            ModelError: the model directory holds no tokenizer.
            TokenizerError: its tokenizer cannot spell a tag.
        """
        for key in self.env_config:
            if key not in ENV_KEYS:
                raise ConfigError(f"env_config.{key}", self.env_config[key], nearest(key, ENV_KEYS))
        # RLlib makes a second config for its evaluation, which it fills in and never uses here.
        if not self.in_evaluation:
            refuse_ignored(self, type(self)(), LEARNING)

        game, learning = self.game(), self.learning()
        with named("env_config"):
            self.check_world()
            check_groups(game, learning)
            if "search" in self.env_config and "make_rules" in self.env_config:
                fix = "make_rules chooses the retriever; leave one of them out"
                raise ConfigError("search", self.env_config["search"], fix)
            check_search(self.search())
        with named("training"):
            check_shares(game, learning, self.num_env_runners)
        check_tokenizer(HuggingFaceTokenizer.load(self.model_dir), game.tags)

        if self.num_env_runners and self.create_local_env_runner:
            # It would hold one more copy of the model in the main process, which may have no GPU
            # for it.
            self.create_local_env_runner = False
        super().validate()

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The causal LM of ``model_dir``."""
        observation, action = module_spaces(HuggingFaceTokenizer.load(self.model_dir).vocab_size)
        return RLModuleSpec(
            module_class=LLMModule,
            observation_space=observation,
            action_space=action,
            model_config={
                "model": self.model_dir,
                "attention": "sdpa" if self.num_gpus_per_learner else "eager",
            },
        )

    def get_default_learner_class(self) -> type[SSPLearner]:
        """Both losses in one learner."""
        return SSPLearner


def _to_llm(agent_id: Any, episode: Any, **_: Any) -> str:
    return MODULE_ID


class SSP(Algorithm):
    """Search self-play: play a round, learn from it, hand the new weights to the players.

    ``last_games`` holds the records of the latest step, for callers that want to keep them.
    """

    last_games: Sequence[GameRecord] = ()

    @classmethod
    def get_default_config(cls) -> SSPConfig:
        """An empty config."""
        return SSPConfig()

    def training_step(self) -> None:
        """One step of the paper's Algorithm 1; the figures go to RLlib's metrics under ``ssp``."""
        learning, game = self.config.learning(), self.config.game()
        began = time.perf_counter()
        samples = self._play()
        sampled = time.perf_counter()
        rows = [row for sample in samples for row in sample.rows]
        updates = [self._learn(part, size, game.attempts) for part, size in _deal(rows, learning)]
        self._hand_over_weights(self.iteration + 1)
        learnt = time.perf_counter()
        self.last_games = [record for sample in samples for record in sample.records]
        figures = step_metrics(
            self.last_games, learning.batch_size, [update for update in updates if update]
        )
        seconds = {
            "sample": sampled - began,
            "learn": learnt - sampled,
            "game": max((sample.seconds["game"] for sample in samples), default=0.0),
            "engine": max((sample.seconds["engine"] for sample in samples), default=0.0),
        }
        # RLlib would go on reporting last step's figures, as NaN, where this step has none.
        self.metrics.delete("ssp", key_error=False)
        self.metrics.log_dict({"figures": figures, "seconds": seconds}, key="ssp", window=1)

    def solve(
        self, questions: Sequence[Question], temperature: float = 0.0, seed: int = 0
    ) -> list[GameRecord]:
        """Lets the present policy answer questions; one record a question, in order.

        Raises:
            ServiceError: a runner died.
        """
        if self.env_runner is not None:
            local: SSPEnvRunner = self.env_runner
            return local.solve(questions, temperature, seed)
        runners = self.env_runner_group.healthy_worker_ids()
        shares = {runner: questions[i :: len(runners)] for i, runner in enumerate(runners)}
        results = self.env_runner_group.foreach_env_runner(
            [lambda r, share=share: r.solve(share, temperature, seed) for share in shares.values()],
            local_env_runner=False,
            remote_worker_ids=list(shares),
            timeout_seconds=self.config.sample_timeout_s,
        )
        if len(results) != len(runners):
            raise ServiceError("engine", "an env runner died while it was evaluating")
        answered: list[GameRecord | None] = [None] * len(questions)
        for i, records in enumerate(results):
            answered[i :: len(runners)] = records
        return [record for record in answered if record is not None]

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Refused: RLlib would count environment steps, of which there are none.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"RLlib's evaluation is not used by search self-play; {EVALUATION}")

    def policy_weights(self) -> dict[str, Any]:
        """The present weights, named as the model names them."""
        module = self.learner_group.get_weights()[MODULE_ID]
        return {name.removeprefix("lm."): value for name, value in module.items()}

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Hands the current weights to env runners that RLlib has restarted.

        Their pools of questions start empty."""
        restored: list[int] = env_runner_group.probe_unhealthy_env_runners()
        if restored:
            self._hand_over_weights(self.iteration, restored)
        return restored

    def _play(self) -> list[Sample]:
        step = self.iteration
        if self.config.num_env_runners == 0:
            return [self.env_runner.sample(step=step)]
        share = self.config.learning().batch_size // self.config.num_env_runners
        samples = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.sample(step=step, slots=share),
            local_env_runner=False,
            timeout_seconds=self.config.sample_timeout_s,
        )
        if not samples:
            # RLlib only logs why.
            raise ServiceError(
                "engine", "no env runner brought back a sample; Ray's log of the workers says why"
            )
        return _renumber(samples)

    def _learn(self, rows: Sequence[Row], games: int, attempts: int) -> dict[str, float]:
        """One optimizer update; empty when there is nothing to learn from."""
        if not rows:
            return {}
        weighted = with_loss_weights(rows, self.config.learning(), games, attempts)
        timesteps = {"training_step": self.iteration}
        if self.config.num_learners == 0:
            results = self.learner_group.update(batch=to_batch(weighted), timesteps=timesteps)
        else:
            batches = [to_batch(part) for part in shard(weighted, self.config.num_learners)]
            results = self.learner_group.update(batches=batches, timesteps=timesteps)
        return SSPLearner.merge([result[MODULE_ID] for result in results])

    def _hand_over_weights(self, version: int, runners: list[int] | None = None) -> None:
        """Synchronous, unlike RLlib's own: no runner may play the next step with old weights.

        Args:
            version: how many steps these weights have learnt from.
            runners: remote env runners, by number; all of them when not given.
        """
        weights = self.learner_group.get_weights()
        state = {COMPONENT_RL_MODULE: weights, WEIGHTS_SEQ_NO: version}
        if self.env_runner is not None:
            self.env_runner.set_state(state)
        if self.config.num_env_runners:
            shared = {**state, COMPONENT_RL_MODULE: ray.put(weights)}
            self.env_runner_group.foreach_env_runner(
                lambda runner: runner.set_state(shared),
                local_env_runner=False,
                remote_worker_ids=runners,
                timeout_seconds=self.config.sample_timeout_s,
            )

    # -- checkpoints ---------------------------------------------------------------------------

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and the batch strategy of every runner."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state[STRATEGIES] = self._strategies()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes all of it back.

        Raises:
            ConfigError: the checkpoint has batch strategies of env runners that this algorithm does
                not have.
        """
        strategies: dict[int, dict[str, Any]] = state.get(STRATEGIES, {})
        count = self.config.num_env_runners
        if set(strategies) - set(range(1, count + 1) if count else [0]):
            raise ConfigError(
                "num_env_runners",
                count,
                f"resume with {max(strategies)}, as the checkpoint was made",
            )
        super().set_state(state)
        for runner, strategy in strategies.items():
            self._restore_strategy(runner, strategy)
        self._hand_over_weights(self.iteration)

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As RLlib's, but the weights keep the step's number as their version."""
        super().restore_from_path(path, *args, **kwargs)
        self._hand_over_weights(self.iteration)

    def _strategies(self) -> dict[int, dict[str, Any]]:
        """State of each runner's batch strategy by the runner's number; 0 is the main process."""
        if self.env_runner is not None:
            return {0: self.env_runner.get_state(components=COMPONENT_STRATEGY)[COMPONENT_STRATEGY]}
        states = self.env_runner_group.foreach_env_runner(
            lambda runner: (
                runner.worker_index,
                runner.get_state(components=COMPONENT_STRATEGY)[COMPONENT_STRATEGY],
            ),
            local_env_runner=False,
        )
        return dict(states)

    def _restore_strategy(self, runner: int, strategy: dict[str, Any]) -> None:
        part = {COMPONENT_STRATEGY: strategy}
        if runner == 0:
            self.env_runner.set_state(part)
            return
        self.env_runner_group.foreach_env_runner(
            lambda remote: remote.set_state(part),
            local_env_runner=False,
            remote_worker_ids=[runner],
        )


def _deal(rows: Sequence[Row], learning: LearningConfig) -> list[tuple[list[Row], int]]:
    """Rows of each optimizer update, and how many slots it stands for.

    Games are dealt whole, and in turn, so that every update gets its share of those that give rows
    at all."""
    parts = learning.minibatches
    sizes = [len(range(i, learning.batch_size, parts)) for i in range(parts)]
    turn = {game: i % parts for i, game in enumerate(sorted({row.game for row in rows}))}
    return [([row for row in rows if turn[row.game] == i], size) for i, size in enumerate(sizes)]


def _renumber(samples: Sequence[Sample]) -> list[Sample]:
    """Gives each game of all runners its own number."""
    numbered, base = [], 0
    for sample in samples:
        rows = [replace(row, game=row.game + base) for row in sample.rows]
        records = [replace(r, first_slot=base) for r in sample.records]
        numbered.append(replace(sample, rows=rows, records=records))
        base += len(sample.records)
    return numbered
