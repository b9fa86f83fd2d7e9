"""Weights and checkpoints of the algorithm: from the learners to the players, to model directories,
and to checkpoints and back."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

import ray
from ray.rllib.core import (
    COMPONENT_ENV_RUNNER,
    COMPONENT_LEARNER,
    COMPONENT_LEARNER_GROUP,
    COMPONENT_RL_MODULE,
)
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.checkpoints import Checkpointable

from ssp_agents.checksums import check_weights, write_checksums
from ssp_agents.given import GivenQuestions
from ssp_agents.models import load_state
from ssp_agents.rllib.compat import HookedAlgorithm
from ssp_agents.rllib.env_runner import Sample
from ssp_agents.rllib.learner import ask_learners, naming_dead_learners
from ssp_agents.rllib.module import LEARNER_FOLDER, MODULE_ID, MODULES_FOLDER, describe, unpack
from ssp_agents.rllib.policies import VERIFIER, Policies
from ssp_agents.rllib.runners import Runners
from ssp_agents.sharding import weights_folder
from ssp_env.errors import ConfigError, RunError, UsageError, nearest
from ssp_env.game.strategies import BatchStrategy

STATE = "self_play"
"""Key of a checkpoint for the step, the batch strategy, and games that were played ahead."""


class SavedAlgorithm(HookedAlgorithm):
    """RLlib's algorithm, with policies that can be had and set, and checkpoints that a run with any
    number of env runners and learners goes on from."""

    _steps = 0
    """Training steps that are done."""
    _ahead: Sequence[Sample] = ()
    """Games of the next step that were played already, with ``overlap``."""
    _averages: Mapping[str, float] = {}
    """Average of each role's rewards."""
    _strategy: BatchStrategy
    _given: GivenQuestions
    _policies: Policies
    _runners: Runners

    # -- weights -------------------------------------------------------------------------------

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

    def hand_over_weights(self, group: EnvRunnerGroup, refresh: bool = False) -> None:
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
        # Learners add their shares to what RLlib has written; the checksums come last, over all.
        folder = (Path(saved) / LEARNER_FOLDER).absolute()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        trained = self._policies.trained
        # Several policies have a folder each; a single one has the learners' folder.
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
            self.hand_over_weights(self.env_runner_group)

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
        self.hand_over_weights(self.env_runner_group)
