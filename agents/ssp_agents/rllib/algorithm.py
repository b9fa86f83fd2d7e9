"""The algorithm, used as RLlib users expect:
``SSPConfig().environment(...).training(...).build_algo().train()``."""

from __future__ import annotations

import gc
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import chain
from math import nan
from operator import attrgetter, methodcaller
from pathlib import Path
from statistics import fmean
from typing import Any

import ray
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import (
    COMPONENT_ENV_RUNNER,
    COMPONENT_LEARNER,
    COMPONENT_LEARNER_GROUP,
    COMPONENT_RL_MODULE,
)
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EVALUATION_RESULTS
from ray.tune.execution.placement_groups import PlacementGroupFactory

from ssp_agents.checksums import check_weights, write_checksums
from ssp_agents.engines.gap import CHECK_EVERY, Gap, compared_rows, measure
from ssp_agents.metrics import join_figures, step_figures
from ssp_agents.models import load_state
from ssp_agents.rllib.compat import HookedAlgorithm
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
    naming_dead_learners,
)
from ssp_agents.rllib.module import (
    LEARNER_FOLDER,
    MODULE_ID,
    MODULES_FOLDER,
    describe,
    unpack,
)
from ssp_agents.rllib.policies import VERIFIER
from ssp_agents.rllib.results import evaluation_figures, log_learners, log_step
from ssp_agents.rllib.runners import Runners, check_cluster
from ssp_agents.sharding import weights_folder
from ssp_env.errors import ConfigError, RunError, UsageError, nearest
from ssp_env.game.config import GameConfig
from ssp_env.game.record import GameRecord
from ssp_env.game.schedule import at_step
from ssp_env.game.strategies import BatchStrategy, update_strategy
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question

STATE = "self_play"
"""Key of a checkpoint for the step, the batch strategy, and games that were played ahead."""


def _elsewhere(name: str, instead: str) -> Callable[..., Any]:
    """Method of RLlib's that there is no use for here; it says what to call instead."""

    def method(*_: Any, **__: Any) -> Any:
        raise UsageError(f"{name}() does not exist for self-play: {instead}")

    return method


class SSP(HookedAlgorithm):
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

    _steps, _frozen = 0, False
    _ahead: Sequence[Sample] = ()
    _evaluated: dict[str, Any] | None = None
    _averages: Mapping[str, float] = {}

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
            self._hand_over_weights(self.env_runner_group)
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
        self._hand_over_weights(self.env_runner_group, bool(every) and self._steps % every == 0)
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
            self._hand_over_weights(group)
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

    # -- players and learners ------------------------------------------------------------------

    def save_policy(self, directory: str | Path, module_id: str | None = None) -> None:
        """Writes a present policy as a model directory, which the first learner sees: the solver's,
        or the only one that learns, unless another is named."""
        name, trained = module_id or self._policies.playing("solver"), self._policies.trained
        if name not in trained:
            fix = f"it does not learn here, or is not there; {nearest(name, trained)}"
            raise ConfigError("module_id", name, fix)
        where = str(Path(directory).absolute())
        ask_learners(self.learner_group, methodcaller("save_policy", where, name))

    def get_module(self, module_id: str = MODULE_ID) -> RLModule | None:
        """A copy of a policy's RLModule with the present weights; ``None`` if there is none of this
        name."""
        if module_id not in self._policies:
            return None
        copy: RLModule = self.config.module_spec_of(module_id).build().eval()
        published = self._publish(half=False)
        weights = ray.get(published) if isinstance(published, ray.ObjectRef) else published
        if (frozen := self._runners.verifier) is not None:
            weights = {**weights, VERIFIER: {name: unpack(w) for name, w in frozen.items()}}
        if module_id in weights:
            load_state(copy, weights[module_id])
        return copy

    def set_weights(self, weights: dict[str, dict[str, Any]]) -> None:
        """Takes weights as RLlib's ``get_weights()`` gives them, by module id; learners and env
        runners have them at once, Adam keeps its moments."""
        if self.config.is_sharded:
            fix = "restore_from_path(), or training(model_dir=...)"
            raise UsageError(f"learners that share a policy take no weights from elsewhere: {fix}")
        for name in weights.keys() - self._policies.trained.keys():
            fix = f"no policy of this name learns; {nearest(name, self._policies.trained)}"
            raise ConfigError("weights", name, fix)
        self.set_state(
            {COMPONENT_LEARNER_GROUP: {COMPONENT_LEARNER: {COMPONENT_RL_MODULE: weights}}}
        )

    def _publish(self, half: bool) -> Any:
        """The present weights: tensors of a learner in this process, or a reference to arrays that
        the first remote learner put into Ray's object store. Readers get them from that node."""
        published = ask_learners(self.learner_group, methodcaller("publish", half))
        return next(weights for weights in published if weights is not None)

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        return self._runners.revive(env_runner_group)

    def _hand_over_weights(self, group: EnvRunnerGroup, refresh: bool = False) -> None:
        """Gives the players the present weights, with ``refresh`` also as a frozen verifier's."""
        published = self._publish(self._runners.in_half)
        if refresh:
            self._runners.keep_verifier(published, self._policies.playing("solver"))
        self._runners.hand_over(group, published, self._steps)

    # -- checkpoints ---------------------------------------------------------------------------

    def get_checkpointable_components(self) -> list[tuple[str, Checkpointable]]:
        """None of RLlib's: learners write weights and moments themselves, and env runners keep
        nothing, so a run may go on with any number of either."""
        return []

    def save_to_path(self, path: Any = None, *args: Any, **kwargs: Any) -> str:
        """As RLlib's, into a directory that all learners see; ``RLModule.from_checkpoint`` finds
        the module where RLlib has it."""
        state = self.get_state(not_components=COMPONENT_LEARNER_GROUP)
        saved: str = super().save_to_path(path, *args, state=state, **kwargs)
        folder = (Path(saved) / LEARNER_FOLDER).absolute()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        trained = self._policies.trained
        for name in trained if len(self._policies) > 1 else ():
            (folder / name).mkdir()
        ask_learners(self.learner_group, methodcaller("save", str(folder)))
        for name in trained:
            write_checksums(weights_folder(folder, name))
            describe(self.config.module_spec_of(name), Path(saved) / MODULES_FOLDER / name)
        write_checksums(saved, "*")
        return saved

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, the number of the step, the batch strategy with its questions, games that
        were played ahead, and the average of each role's rewards."""
        group = COMPONENT_LEARNER_GROUP, args[0] if args else kwargs.get("components")
        if self.config.is_sharded and self.includes(*group, kwargs.get("not_components")):
            raise UsageError("learners that share a policy have no common state: save_to_path()")
        with naming_dead_learners(self.learner_group):
            state: dict[str, Any] = super().get_state(*args, **kwargs)
        state.pop(COMPONENT_ENV_RUNNER, None)
        state[STATE] = {
            "steps": self._steps,
            "strategy": self._strategy.get_state(),
            "given": self._given.digest(),
            # The weights that played them are gone, so they could not be played again.
            "ahead": self._ahead,
            "verifier": self._runners.verifier,
            "averages": self._averages,
        }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes all of it back, whatever number of env runners and learners it comes from."""
        super().set_state(state)
        if STATE in state:
            self._given.check(state[STATE].get("given", ""))
            self._steps = state[STATE]["steps"]
            self._strategy.set_state(state[STATE]["strategy"])
            # A run without overlap plays them again, by its present weights.
            self._ahead = state[STATE]["ahead"] if self.config.overlap else []
            self._runners.verifier = state[STATE]["verifier"]
            self._averages = state[STATE]["averages"]
        if COMPONENT_LEARNER_GROUP in state:
            self._hand_over_weights(self.env_runner_group)

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As RLlib's, whatever number of learners has written it. The weights keep the step's
        number as their version."""
        if kwargs.get("component"):
            raise UsageError("a checkpoint of self-play is restored as a whole")
        folder = (Path(path) / LEARNER_FOLDER).absolute()
        weights = {weights_folder(folder, name) for name in self._policies.trained}
        if len(self._policies) > 1 and folder in weights:
            raise RunError(f"{path} was written by other policies than {', '.join(self._policies)}")
        for each in (Path(path), *sorted(weights)):
            check_weights(each)  # here, once for all learners
        super().restore_from_path(path, *args, **kwargs)
        ask_learners(self.learner_group, methodcaller("load", str(folder)))
        self._hand_over_weights(self.env_runner_group)
