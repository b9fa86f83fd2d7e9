"""The algorithm, used as RLlib users expect:
``SSPConfig().environment(...).training(...).build_algo().train()``."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import chain
from math import nan
from operator import attrgetter, methodcaller
from statistics import fmean
from typing import Any

import ray
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EVALUATION_RESULTS
from ray.tune.execution.placement_groups import PlacementGroupFactory

from ssp_agents.engines.gap import CHECK_EVERY, Gap, compared_rows, measure
from ssp_agents.metrics import join_figures, step_figures
from ssp_agents.rllib.checkpoints import SavedAlgorithm
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rllib.env_runner import (
    Sample,
    game_batches_of,
    records_of,
    renumber,
    slowest_runner_seconds,
)
from ssp_agents.rllib.learner import (
    UpdateFigures,
    ask_learners,
    freeze_collected,
    learn_from,
)
from ssp_agents.rllib.policies import VERIFIER
from ssp_agents.rllib.results import evaluation_figures, log_learners, log_step
from ssp_agents.rllib.runners import Runners, check_cluster
from ssp_env.errors import UsageError
from ssp_env.game.config import GameConfig
from ssp_env.game.record import GameRecord
from ssp_env.game.schedule import at_step
from ssp_env.game.strategies import BatchStrategy, update_strategy
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question


def _elsewhere(name: str, instead: str) -> Callable[..., Any]:
    """Method of RLlib's that there is no use for here; it says what to call instead."""

    def method(*_: Any, **__: Any) -> Any:
        raise UsageError(f"{name}() does not exist for self-play: {instead}")

    return method


class SSP(SavedAlgorithm):
    """Search self-play: play a step's game batches, learn from them, hand the new weights to the
    players.

    The batch strategy, with its pool of verified questions, lives here; each of them is sent a
    copy. ``last_games`` and ``last_figures`` hold records and figures of the latest step.
    """

    last_games: Sequence[GameRecord] = ()
    last_figures: Mapping[str, float] = {}
    last_gap: Gap | None = None
    """Latest comparison of engine and learner."""

    _answers = "solve(questions) lets the policy answer, get_module() is its RLModule"
    _one = "policies are named in multi_agent() or training(policies=...), before it is built"
    get_policy = _elsewhere("get_policy", _answers)
    compute_single_action = _elsewhere("compute_single_action", _answers)
    compute_actions = _elsewhere("compute_actions", _answers)
    add_module = _elsewhere("add_module", _one)
    remove_module = _elsewhere("remove_module", _one)
    add_policy = _elsewhere("add_policy", _one)

    _frozen = False
    _evaluated: dict[str, Any] | None = None

    @cached_property
    def _questions(self) -> list[Question]:
        return list(self.config.evaluation_questions())

    @classmethod
    def get_default_config(cls) -> SSPConfig:
        return SSPConfig()

    def setup(self, config: Any) -> None:
        """Builds everything; RLlib calls it."""
        check_cluster(self.config)
        self._given = self.config.given()
        self._policies = self.config.resolved_policies()
        played = self._policies.items()
        self._roles = {name: policy.roles for name, policy in played if name != VERIFIER}
        self._runners = Runners(self.config)
        super().setup(config)

        self._strategy = self.config.batch_strategy()
        if self.config.num_env_runners or self.config.is_sharded:
            # A runner that dies in the first step comes back with the learner's weights as well: a
            # module of the user's may draw its own at random.
            self.hand_over_weights(self.env_runner_group)
        # One runner is asked, since all play by the same rules.
        (self._reasons,) = self._runners.map(self.env_runner_group, [methodcaller("reasons")])
        check = methodcaller("check_given", self._given.questions)
        self._runners.map(self.env_runner_group, [check])
        self._frozen = freeze_collected()

    @classmethod
    def default_resource_request(cls, config: Any) -> Any:
        """As RLlib's, for Tune; where GPUs are shared, each of them is whole."""
        request = super().default_resource_request(config)
        made = SSPConfig().update_from_dict(config)
        if made.gpus != "shared":
            return request

        (main, *actors), count = request.bundles, made.num_env_runners
        if not count:
            return PlacementGroupFactory([{**main, "GPU": 1}])
        both = zip(actors[:count], actors[count:], strict=True)
        # An env runner's part of a GPU and a learner's are a whole one, in one bundle.
        pairs = [Counter(runner) + Counter(learner) for runner, learner in both]
        return PlacementGroupFactory([main, *pairs], strategy="STRICT_PACK")  # on one machine

    def cleanup(self) -> None:
        if self._frozen:
            gc.unfreeze()
        super().cleanup()

    # -- a step --------------------------------------------------------------------------------

    def training_step(self) -> None:
        """One step of the paper's Algorithm 1; the figures go to RLlib's metrics.

        With ``overlap``, the next step is played while this one is learnt from, by the weights
        with which this one began. So all steps but the first learn from games that are one update
        old, wherever and in whatever order things are done. A ServiceError means that all env
        runners are gone, or a learner is: go on from a checkpoint.
        """
        began = time.perf_counter()
        samples = self._ahead or self._play(self._steps, self._strategy)
        strategy: BatchStrategy = self.config.batch_strategy()  # the next step's
        strategy.set_state(self._strategy.get_state())
        update_strategy(strategy, [sample.verified for sample in samples])
        sampled = time.perf_counter()

        games_ahead = self._play_ahead(strategy)
        # Before the update, while the learners have the weights that played.
        if self.last_gap is None or self._steps % CHECK_EVERY == 0:
            self._compare(samples, games_ahead)
        rows = [row for sample in samples for row in sample.rows]
        averages = dict(self._averages)
        updates = learn_from(
            rows,
            self.learner_group,
            self.config,
            self._policies,
            self._game_at(self._steps),
            self._steps,
            averages,
        )
        learnt = time.perf_counter()
        ahead = games_ahead()
        played = time.perf_counter()

        # Before this, nothing has changed but the learners.
        self._steps += 1
        self._strategy, self._ahead, self._averages = strategy, ahead, averages
        every = self.config.verifier_refresh
        self.hand_over_weights(self.env_runner_group, bool(every) and self._steps % every == 0)
        # Waiting for games that are played ahead is sampling, handing weights over is learning.
        seconds = {
            "sample": sampled - began + played - learnt,
            "learn": learnt - sampled + time.perf_counter() - played,
            **slowest_runner_seconds(samples),
        }
        self._report(samples, updates, seconds)

    def _play(self, step: int, strategy: BatchStrategy) -> list[Sample]:
        """Game batches of a step (from 0), in their order, by the batch strategy as it was
        before."""
        config, state = self.config, strategy.get_state()
        given = self._given.of_step(step)
        tasks = game_batches_of(step, config.learning(), self._game_at(step), given)
        # The pool may be large: it is stored once, and read by all runners of a machine.
        shared = state if self.env_runner is not None else ray.put(state)
        calls = [methodcaller("sample", **task, strategy=shared) for task in tasks]
        samples = self._runners.map(self.env_runner_group, calls)
        if self.env_runner is not None or self.config.gpus == "shared":
            # The learner's turn.
            self.env_runner_group.foreach_env_runner(methodcaller("sleep"))
        return renumber(samples)

    def _game_at(self, step: int) -> GameConfig:
        """The rules of a step (from 0)."""
        return at_step(self.config.game(), self.config.learning().schedules, step + 1)

    def _play_ahead(self, strategy: BatchStrategy) -> Callable[[], list[Sample]]:
        """Plays the next step meanwhile; returns a function that waits for its games, of which
        there are none without ``overlap``."""
        if not self.config.overlap:
            return list
        play = partial(self._play, self._steps + 1, strategy)
        if self.env_runner is not None:
            # By this process, before it learns: in another order, with the same result.
            played = play()
            return lambda: played

        thread = ThreadPoolExecutor(1, thread_name_prefix="playing-ahead")
        playing = thread.submit(play)
        thread.shutdown(wait=False)  # it ends with these games; after an error, nobody waits for it
        return playing.result

    def _compare(self, samples: Sequence[Sample], games_ahead: Callable[[], list[Sample]]) -> None:
        """Compares the engine's log-probabilities with the learner's, in games of the present
        weights. With overlap these are the next step's, so the learner waits for them: one step in
        ``CHECK_EVERY`` does not overlap."""
        games = records_of(samples)
        if any(game.weights_version != self._steps for game in games):
            games = records_of(games_ahead())
        rows = compared_rows(games, self._policies.learns)
        if not rows:
            self.last_gap = None
            return

        tokenizer = HuggingFaceTokenizer.load(self.config.model_dir)
        # All learners are asked, since they may share the policy; each says the same.
        ask = partial(ask_learners, self.learner_group)
        self.last_gap = measure(rows, lambda part: ask(methodcaller("score", part))[0], tokenizer)
        self.last_gap.check()

    def _report(
        self,
        samples: Sequence[Sample],
        updates: Sequence[UpdateFigures],
        seconds: dict[str, float],
    ) -> None:
        self.last_games = records_of(samples)
        joined = [join_figures(update, self._roles) for update in updates]
        figures = step_figures(self.last_games, self.config.learning().batch_size, joined)
        figures |= self._given.figures(self._steps)
        # Versions of weights are numbers of steps: 0 on-policy, 1 with overlap.
        # ``_steps`` counts this step already.
        figures["staleness"] = fmean(self._steps - 1 - g.weights_version for g in self.last_games)
        self.last_figures = {n: value for n, value in figures.items() if value is not None}

        log_step(self.metrics, figures, self.last_games, self._roles, self._reasons)
        log_learners(self.metrics, updates, [*self._policies.trained])
        self.metrics.log_dict(seconds, key=("ssp", "seconds"), reduce="item")
        logged = [sample.logged for sample in samples if sample.logged]
        if logged:
            self.metrics.aggregate(logged, key=ENV_RUNNER_RESULTS)

    # -- evaluation ----------------------------------------------------------------------------

    def solve(
        self, questions: Sequence[Question], temperature: float = 0.0, seed: int = 0
    ) -> list[GameRecord]:
        """Lets the present policy answer questions; one record a question, in order."""
        group = self.eval_env_runner_group or self.env_runner_group
        count = 1 if group.local_env_runner is not None else group.num_remote_env_runners()
        numbered = list(enumerate(questions))
        if group is not self.env_runner_group:
            self.hand_over_weights(group)
        # Dealt out in turn; their numbers bring the records in order again.
        shares = [numbered[i::count] for i in range(count)]
        calls = [methodcaller("solve", share, temperature, seed) for share in shares]
        records = chain.from_iterable(self._runners.map(group, calls))
        return sorted(records, key=attrgetter("index"))

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Measures the policy on ``evaluation_duration`` questions that it never trains on: always
        the same, of all groups (hop counts) in turn, answered greedily, once each.

        Of the figures under ``env_runners``, ``episode_return_mean`` is the solver's mean reward,
        and ``accuracy`` the share of right answers of each group.
        """
        self._call_back("on_evaluate_start")
        figures = evaluation_figures(self.solve(self._questions), self._questions, self._roles)
        self._evaluated = {ENV_RUNNER_RESULTS: {**figures, "training_step": self._steps}}
        self._call_back("on_evaluate_end", evaluation_metrics=self._evaluated)
        return self._evaluated

    @classmethod
    def evaluates_apart(cls, eval_config: Any) -> bool:
        # RLlib would also make one that holds a third copy of the model in the main process.
        return bool(eval_config.evaluation_num_env_runners)

    def evaluation_to_show(self, results: Any) -> Any:
        # Tune wants to see a metric at every step; RLlib leaves it out where nothing was evaluated.
        if self.config.evaluation_interval and not results:
            nothing = evaluation_figures([], self._questions, self._roles)
            before = {ENV_RUNNER_RESULTS: {**nothing, "training_step": nan}}
            return {EVALUATION_RESULTS: self._evaluated or before}
        return results

    def _call_back(self, name: str, **about: Any) -> None:
        functions = getattr(self.config, f"callbacks_{name}")
        kwargs = {"algorithm": self, "metrics_logger": self.metrics, **about}
        make_callback(name, self.callbacks, functions, kwargs=kwargs)
