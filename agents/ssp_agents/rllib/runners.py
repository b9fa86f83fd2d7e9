"""Env runners of an algorithm: the room that they need, who does which work, who has died."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from ray.util import get_current_placement_group

from ssp_agents.checks import check_processors
from ssp_agents.models import as_tensor
from ssp_agents.rllib.compat import workers_of
from ssp_agents.rllib.module import pack
from ssp_agents.rllib.policies import VERIFIER
from ssp_env.errors import ConfigError, ServiceError

T = TypeVar("T")

MOST_DEATHS = 3
"""Runners that one call may end. A call that goes on ending them has a cause of its own."""
PROBE_EVERY, PROBE_FOR = 2.0, 1.0
"""Seconds between two looks for runners that are back, and seconds that one waits for an answer."""

_log = logging.getLogger(__name__)


class _Begun(NamedTuple):
    runner: int
    call: int
    deadline: float


class Runners:
    """Env runners of training or of evaluation, in the main process or remote; honours RLlib's
    settings of fault tolerance."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._sent: dict[str, Any] = {}
        self.verifier = None
        self.in_half = config.engine_config().in_half(config.num_gpus_per_env_runner > 0)
        """True where weights travel in bfloat16, as engines compute in it."""

    # -- weights -------------------------------------------------------------------------------

    def keep_verifier(self, weights: Any, policy: str) -> None:
        """Copies what a policy has of these weights, for the frozen verifier."""
        weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
        # np.array copies: what is packed may lie in the learner's memory, which updates change.
        self.verifier = {
            name: np.array(pack(name, as_tensor(tensor), self.in_half))
            for name, tensor in weights[policy].items()
        }

    @property
    def verifier(self) -> dict[str, np.ndarray] | None:
        """Weights of a frozen verifier, packed; ``None`` while it is as it was loaded."""
        return self._verifier

    @verifier.setter
    def verifier(self, weights: dict[str, np.ndarray] | None) -> None:
        self._verifier, self._stored = weights, None

    def hand_over(self, group: EnvRunnerGroup, weights: Any, steps: int) -> None:
        """Gives all env runners weights that have seen so many steps, and the verifier's.

        Synchronous, unlike RLlib's own: no runner may play the next step with old weights.
        """
        state = {COMPONENT_RL_MODULE: weights, WEIGHTS_SEQ_NO: steps, VERIFIER: self._verifier}
        if group.local_env_runner is not None:
            group.local_env_runner.set_state(state)
            return
        if self._verifier is not None:
            # Stored once, however often it is sent.
            self._stored = self._stored or ray.put(self._verifier)
            state[VERIFIER] = self._stored
        if not isinstance(weights, ray.ObjectRef):
            packed = {
                policy: {n: pack(n, w, self.in_half) for n, w in tensors.items()}
                for policy, tensors in weights.items()
            }
            weights = ray.put(packed)
        self._sent = {**state, COMPONENT_RL_MODULE: weights}
        self._send(group)

    def revive(self, group: EnvRunnerGroup, seconds: float | None = None) -> list[int]:
        """Hands the weights to env runners that Ray has restarted; returns their numbers."""
        restored = sorted(set(group.probe_unhealthy_env_runners(seconds)))
        if restored:
            # Not the learner's weights of this moment: it may be in the middle of an update.
            self._send(group, restored)
        return restored

    def _send(self, group: EnvRunnerGroup, runners: list[int] | None = None) -> None:
        group.foreach_env_runner(
            methodcaller("set_state", self._sent),
            local_env_runner=False,
            remote_worker_ids=runners,
            timeout_seconds=self._config.sample_timeout_s,
        )

    # -- work ----------------------------------------------------------------------------------

    def map(self, group: EnvRunnerGroup, calls: Sequence[Callable[[Any], T]]) -> list[T]:
        """Results of all calls, in their order, whichever runner made them and whatever died.

        A call may be made more than once, so it must not change the env runner that it is given.
        """
        if group.local_env_runner is not None:
            return [call(group.local_env_runner) for call in calls]

        manager = workers_of(group)
        waiting, deaths = deque(range(len(calls))), Counter[int]()
        begun: dict[ray.ObjectRef, _Begun] = {}
        results: dict[int, T] = {}

        # Each round hands calls that wait to runners that are free, and takes one result.
        while len(results) < len(calls):
            while waiting and not manager.healthy_actor_ids():
                self._await_one(group)
            # One call at a time for each: it plays a batch of games, with a whole engine to itself.
            busy = {job.runner for job in begun.values()}
            deadline = time.monotonic() + self._config.sample_timeout_s
            for runner in manager.healthy_actor_ids():
                if waiting and runner not in busy:
                    call = waiting.popleft()
                    work = partial(_returning_errors, calls[call])
                    ref = manager.actors()[runner].apply.remote(work)
                    begun[ref] = _Begun(runner, call, deadline)

            ended = self._finished(group, begun, looking=bool(waiting))
            if ended is None:
                continue
            job = begun.pop(ended)
            try:
                # An error of the call comes with the result; Ray's other errors mean a dead runner.
                results[job.call], raised = ray.get(ended)
            except RayTaskError as error:
                raise error.as_instanceof_cause() from error
            except RayError as error:
                manager.set_actor_state(job.runner, healthy=False)
                cause = (str(error).strip() or type(error).__name__).splitlines()[0]
                _log.warning("env runner %d died, its work is redone: %s", job.runner, cause)
                deaths[job.call] += 1
                if deaths[job.call] >= MOST_DEATHS:
                    what = f"{MOST_DEATHS} env runners died of the same work, the last one "
                    what += f"because: {cause}; Ray's log of the workers says more"
                    raise ServiceError("engine", what) from error
                # First in line: a step ends with the last of its game batches.
                waiting.appendleft(job.call)
            else:
                if raised is not None:
                    raise raised

        return [results[i] for i in range(len(calls))]

    def _finished(
        self, group: EnvRunnerGroup, begun: dict[ray.ObjectRef, _Begun], looking: bool
    ) -> ray.ObjectRef | None:
        """Waits for a call to end; meanwhile, looks for runners that could take waiting ones."""
        manager, now = workers_of(group), time.monotonic()
        # A call that is neither waiting nor over has begun, so there is one at least.
        timeout = max(0.0, min(job.deadline for job in begun.values()) - now)
        if looking and len(manager.healthy_actor_ids()) < manager.num_actors():
            timeout = min(timeout, PROBE_EVERY)
        ready, _ = ray.wait([*begun], num_returns=1, timeout=timeout)
        if ready:
            return ready[0]

        # Nobody was done in time: a runner that hangs is killed, and counts as dead at once.
        for ref, job in begun.items():
            if job.deadline <= time.monotonic():
                ray.kill(manager.actors()[job.runner], no_restart=False)
                return ref
        self.revive(group, PROBE_FOR)
        return None

    def _await_one(self, group: EnvRunnerGroup) -> None:
        restarts = self._config.restart_failed_env_runners
        # Where Ray restarts nobody, there is nobody to wait for.
        deadline = time.monotonic() + restarts * self._config.env_runner_restore_timeout_s
        while time.monotonic() < deadline:
            if self.revive(group, PROBE_FOR):
                return
            time.sleep(PROBE_FOR / 4)  # the answer may be that it is being restarted, at once
        what = "all env runners died, and none came back; Ray's log of the workers says why"
        raise ServiceError("engine", what)


def _returning_errors(call: Callable[[Any], T], runner: Any) -> tuple[T | None, Exception | None]:
    """Brings an error back beside the result: raised in RLlib's actor, it would end the actor, and
    then the one that tries the same next."""
    try:
        return call(runner), None
    except Exception as error:
        return None, error


def check_cluster(config: Any) -> None:
    """Makes sure that Ray has the CPUs and GPUs of a run, and can place pairs on these; inside of
    Tune, which has reserved them, there is nothing to ask."""
    runners, learners = config.num_env_runners, config.num_learners
    if get_current_placement_group() is not None:
        return
    if not (runners or learners):
        if config.gpus != "none" and not torch.cuda.is_available():
            fix = "the main process sees no GPU: leave it at 0"
            raise ConfigError("num_gpus_per_learner", config.num_gpus_per_learner, fix)
        return

    compute, nodes = config.compute(), [n["Resources"] for n in ray.nodes() if n["Alive"]]
    if config.gpus == "none":
        cpus = int(sum(node.get("CPU", 0) for node in nodes))
        # On one machine, Ray may have been told of more CPUs than there are.
        check_processors(compute, os.cpu_count() or 1 if len(nodes) == 1 else cpus)
        return

    machines, what = [int(node["GPU"]) for node in nodes if node.get("GPU")], ""
    if compute.gpus_in_all > sum(machines):
        what = f"{runners} env runners and {learners} learners need {compute.gpus_in_all} GPUs, "
        what += f"and Ray has {sum(machines)}; start Ray on more machines, or ask for fewer"
    elif config.gpus == "shared" and len(machines) > 1:
        # Ray adds up what is left of a machine's GPUs, and waits for a whole share of one there.
        what = f"Ray has GPUs on {len(machines)} machines, and pairs could not be placed on them; "
        what += "give GPUs of their own, or start Ray on one machine alone"
    if what:
        raise ConfigError("num_env_runners, num_learners", (runners, learners), what)
