"""EnvRunner: plays whole game batches; hands back rows to learn from and records to keep.

A game batch is numbered within its step, and its seed names seed, step and number, never a runner.
So it does not matter who plays it, how many runners there are, or in which order they finish.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import ray
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils import force_list
from ray.rllib.utils.framework import get_device
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from ssp_agents.config import LearningConfig, played_at_once
from ssp_agents.engines.base import Engine, StopRule
from ssp_agents.engines.opening import ByRole, open_engine
from ssp_agents.given import check_given
from ssp_agents.models import lm_weights
from ssp_agents.rllib.learner import freeze_collected
from ssp_agents.rllib.module import LLMModule, module_spaces, multi_spec, unpack
from ssp_agents.rllib.policies import VERIFIER, Policies
from ssp_agents.rollout import EVALUATION, answer, play, sampled
from ssp_agents.rows import Row, find_credit, rows_of
from ssp_env.errors import UsageError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Origin
from ssp_env.game.outcome import RESERVED, Ending
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.game.schedule import at_step
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question

_GAMES = 0x9A3E
"""First number of the seeds of training games: their random streams are no others'."""


@dataclass(frozen=True)
class Sample:
    """Result of a batch of games; plain data, cheap to ship."""

    rows: list[Row]
    records: list[GameRecord]
    verified: list[PooledQuestion]
    """Questions that the game batch adds to the pool."""
    seconds: dict[str, float]
    """Wall-clock seconds: ``game`` (everything but the engine) and ``engine``."""
    runner: int = 0
    """Env runner that played it; 0 is the main process."""
    logged: dict[str, Any] = field(default_factory=dict)
    """Entries of callbacks in the runner, as RLlib's loggers exchange them."""


class SSPEnvRunner(EnvRunner):
    """Plays game batches, with its own world and engine. Only weights stay from one to the next."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.game, self.learning = self.config.game(), self.config.learning()
        find_credit(self.learning)  # before games are played for it
        self.tokenizer = HuggingFaceTokenizer.load(self.config.model_dir)
        world = self.config.make_world()
        self.rules: Rules = self.config.make_rules(world, self.tokenizer)
        self._callbacks = [cls() for cls in force_list(self.config.callbacks_class)]
        self.make_module()
        if self.worker_index:  # this process is its own
            freeze_collected()

    def make_module(self) -> None:
        """Builds the RLModules, which may be the user's own, and an inference engine for the LM of
        each. vLLM has none: it loads the model directory, once for all adapters."""
        config, engine = self.config, self.config.engine_config()
        self._policies: Policies = config.resolved_policies()
        device = get_device(config, config.num_gpus_per_env_runner)
        shared = config.gpus == "shared"
        stop = StopRule.of(self.game, self.tokenizer)
        opened = partial(
            open_engine,
            engine,
            tokenizer=self.tokenizer,
            stop=stop,
            device=device,
            longest=self.rules.longest_trajectory,
            shares=shared,
            tensor_parallel=max(1, int(config.num_gpus_per_env_runner)),
            lora_rank=self.learning.lora_rank,
        )
        self.module: LLMModule | MultiRLModule | None = None
        several = len(self._policies) > 1
        if engine.kind == "vllm":
            policy_of = self._policies.playing if several else None
            self.engine: Engine = opened(config.model_dir, policy_of=policy_of)
        else:
            specs = {name: config.module_spec_of(name) for name in self._policies}
            modules = multi_spec(specs).build()
            engines = {
                name: opened(policy.model_dir, model=modules[name].eval().lm)
                for name, policy in self._policies.items()
            }
            # Engines have moved the LMs; what else a module has goes there, too.
            for name in engines:
                modules[name].to(device)
            (alone, *_) = self._policies
            self.module = modules if several else modules[alone]
            self.engine = ByRole(engines, self._policies.playing) if several else engines[alone]
        if shared and self.worker_index:
            self.sleep()  # until it is sent weights: the learner may be at work already
        self._players: Engine = self.engine
        if self.learning.partner:
            partner = open_engine(
                engine, self.learning.partner, self.tokenizer, stop, device=device
            )
            # The partner plays what the policy does not, but for a frozen verifier's turns.
            both, plays = {"policy": self.engine, "partner": partner}, self.learning.plays
            frozen = {VERIFIER} & self._policies.keys()
            self._players = ByRole(
                both, lambda role: "policy" if plays(role) or role in frozen else "partner"
            )

    def sample(
        self,
        *,
        step: int = -1,
        number: int = 0,
        num_games: int = 0,
        given: Sequence[Question] = (),
        strategy: Any = None,
        **_: Any,
    ) -> Sample:
        """Plays a game batch of so many proposals and these given questions, the ``number``-th of a
        training step, from 0; with the weights and the config, its arguments decide every game.
        ``strategy`` is the state that the batch strategy had when the step began, or Ray's
        reference to it."""
        if step < 0:
            what = "an env runner plays game batches of a training step, not single episodes"
            raise UsageError(f"{what}: call train(), or solve(questions) of the algorithm")
        seed, engine = [_GAMES, self.config.seed or 0, step, number], self._players
        began, worked = time.perf_counter(), sampled.seconds
        # All game batches of a step begin with one state, whoever plays them and when.
        copy = self.config.batch_strategy()
        copy.set_state(ray.get(strategy) if isinstance(strategy, ray.ObjectRef) else strategy)

        engine.wake()
        now = at_step(self.rules.config, self.learning.schedules, step + 1)
        rules = self.rules.with_config(now)
        batch = GameBatch(rules, answers_of(rules.world), num_games, seed, copy, given=given)
        play(batch, engine, temperature=self.learning.temperature)
        # Given questions keep their order among the games.
        groups, version = iter([question.group for question in given]), engine.weights_version
        records = [
            record_game(game, rules, version, next(groups) if game.origin is Origin.GIVEN else None)
            for game in batch.games
        ]
        rows = rows_of(batch.games, self.learning)

        # ``sampled`` adds up over the life of the process; the difference is this game batch's.
        worked = sampled.seconds - worked
        seconds = {"game": time.perf_counter() - began - worked, "engine": worked}
        sample = Sample(rows, records, batch.verified, seconds, self.worker_index or 0)
        # What a callback logs goes along with the sample.
        make_callback(
            "on_sample_end",
            self._callbacks,
            self.config.callbacks_on_sample_end,
            kwargs={"env_runner": self, "metrics_logger": self.metrics, "samples": sample},
        )
        return replace(sample, logged=self.metrics.reduce())

    def sleep(self) -> None:
        """Leaves a GPU to the learner until new weights come."""
        self.engine.sleep()

    def check_given(self, questions: Sequence[Question]) -> None:
        """Refuses given questions that the policy could not read."""
        if questions:
            check_given(self.rules, questions)

    def reasons(self) -> list[str]:
        """Every reason code that a game played here can end with."""
        never = {Ending.ACTION.value, Ending.OUTAGE.value}
        return sorted((RESERVED - never).union(self.rules.filters, self.rules.attempt_filters))

    def solve(
        self, questions: Sequence[tuple[int, Question]], temperature: float, seed: int
    ) -> list[GameRecord]:
        """Lets the solver answer numbered questions, once each; nothing is learnt from it."""
        self.engine.wake()
        # A GPU's memory is planned for a batch of games, and there may be many more questions.
        on_gpu = self.config.num_gpus_per_env_runner > 0
        at_once = played_at_once(self.game, self.learning) if on_gpu else max(1, len(questions))
        once = replace(self.rules, config=self.rules.config.replace(attempts=1))
        sample = partial(play, engine=self.engine, temperature=temperature)
        version, records = self.engine.weights_version, list[GameRecord]()
        for first in range(0, len(questions), at_once):
            portion = questions[first : first + at_once]
            records += answer(once, portion, sample, (EVALUATION, seed), version)
        return records

    # -- RLlib ---------------------------------------------------------------------------------

    def get_spaces(self) -> dict[str, Any]:
        """Observations are token sequences, actions single tokens."""
        spaces = module_spaces(self.tokenizer.vocab_size)
        names = (INPUT_ENV_SPACES, INPUT_ENV_SINGLE_SPACES, *self._policies)
        return dict.fromkeys(names, spaces)

    def assert_healthy(self) -> None:
        """Asserts nothing: an engine that is not built raises."""

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Version of the weights; the weights themselves are the learner's."""
        return {WEIGHTS_SEQ_NO: self.engine.weights_version}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes weights, or a reference to them, if any are there."""
        weights = state.get(COMPONENT_RL_MODULE, {})
        weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
        # In RLlib's own state, one of several learners has no weights.
        if not weights:
            return
        if (copy := state.get(VERIFIER)) is not None:
            copy = ray.get(copy) if isinstance(copy, ray.ObjectRef) else copy
            weights = {**weights, VERIFIER: copy}

        version = int(state.get(WEIGHTS_SEQ_NO, self.engine.weights_version + 1))
        playing = {
            name: lm_weights({n: unpack(w) for n, w in tensors.items()})
            for name, tensors in weights.items()
        }
        several = len(self._policies) > 1
        self.engine.update_weights(playing if several else playing.popitem()[1], version)


# -- game batches of a step ---------------------------------------------------------------------


def game_batches_of(
    step: int, learning: LearningConfig, game: GameConfig, given: Sequence[Question]
) -> list[dict[str, Any]]:
    """Game batches of a step, as :meth:`SSPEnvRunner.sample` takes them; all but the last have
    ``round_size`` questions. Proposals, in groups about one answer, and ``given`` questions are
    spread evenly over them.

    >>> five = LearningConfig(batch_size=5, round_size=2)
    >>> [batch["num_games"] for batch in game_batches_of(0, five, GameConfig(), given=())]
    [2, 2, 1]
    """
    batch, size = learning.batch_size, learning.round_size
    groups, left = (batch - len(given)) // game.proposals, iter(given)
    game_batches = []
    for number, first in enumerate(range(0, batch, size)):
        stop = min(first + size, batch)
        # Of all groups, the share that lies between the game batch's first game and its last.
        # Where one game batch stops the next one begins, so rounded shares add up to all groups.
        num_games = (stop * groups // batch - first * groups // batch) * game.proposals
        of_batch = [*islice(left, stop - first - num_games)]
        game_batches.append(
            {"step": step, "number": number, "num_games": num_games, "given": of_batch}
        )
    return game_batches


def renumber(samples: Sequence[Sample]) -> list[Sample]:
    """Gives each game of a step its own number; samples are in the order of their game batches."""
    numbered, base = [], 0
    for sample in samples:
        rows = [replace(row, game=row.game + base) for row in sample.rows]
        records = [replace(record, first_index=base) for record in sample.records]
        numbered.append(replace(sample, rows=rows, records=records))
        base += len(sample.records)
    return numbered


def records_of(samples: Iterable[Sample]) -> list[GameRecord]:
    """Games of a step, in their order."""
    return [record for sample in samples for record in sample.records]


def slowest_runner_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """Wall-clock seconds of a step's games, by part, of the runner that took longest for it."""
    totals: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        for part, seconds in sample.seconds.items():
            totals[part][sample.runner] += seconds
    return {part: max(runners.values()) for part, runners in totals.items()}
