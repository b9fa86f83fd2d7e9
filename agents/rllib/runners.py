"""Remote env runners that work through calls together; what a dead one had begun, another does."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from ssp_env.errors import ServiceError

T = TypeVar("T")
Restore = Callable[[float], list[int]]
"""Looks for runners that are back, for so many seconds, and brings them up to date; their
numbers."""

MOST_DEATHS = 3
"""Runners that one call may end. A call that goes on ending them has a cause of its own."""
PROBE_EVERY, PROBE_FOR = 2.0, 1.0
"""Seconds between two looks for runners that are back, and how long one waits for an answer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Begun:
    runner: int
    call: int
    deadline: float


class RunnerPool:
    """Deals calls to whichever remote env runner is free, until all are done."""

    def __init__(self, group: EnvRunnerGroup, restore: Restore, config: Any) -> None:
        """
        Args:
            group: whose remote env runners work.
            restore: brings those back that Ray has restarted.
            config: RLlib's config; its settings of fault tolerance are honoured.
        """
        self._manager, self._restore, self._config = group._worker_manager, restore, config
        self._last_probe = 0.0

    def map(self, calls: Sequence[Callable[[Any], T]]) -> list[T]:
        """The results of all calls, in their order, whoever made them and whatever died meanwhile.

        Args:
            calls: functions of an env runner. They may be made more than once, so they must not
                change it.

        Raises:
            ServiceError: all runners are gone for good, or one call has ended several of them.
            Exception: what a call raised.
        """
        waiting, deaths = deque(range(len(calls))), Counter[int]()
        begun: dict[ray.ObjectRef, _Begun] = {}
        results: dict[int, T] = {}

        while len(results) < len(calls):
            if waiting and not self._manager.healthy_actor_ids():
                self._await_one()
            self._hand_out(calls, waiting, begun)

            for ref in self._finished(begun, looking=bool(waiting)):
                job = begun.pop(ref)
                try:
                    result, raised = ray.get(ref)
                except RayTaskError as error:
                    raise error.as_instanceof_cause() from error
                except RayError as error:
                    self._bury(job, error, deaths)
                    waiting.appendleft(job.call)
                else:
                    if raised is not None:
                        raise raised
                    results[job.call] = result

        return [results[i] for i in range(len(calls))]

    def _hand_out(
        self,
        calls: Sequence[Callable[[Any], T]],
        waiting: deque[int],
        begun: dict[ray.ObjectRef, _Begun],
    ) -> None:
        """Gives each free runner a call."""
        busy = {job.runner for job in begun.values()}
        actors = self._manager.actors()
        timeout = self._config.sample_timeout_s
        for runner in self._manager.healthy_actor_ids():
            if waiting and runner not in busy:
                call = waiting.popleft()
                ref = actors[runner].apply.remote(_careful(calls[call]))
                begun[ref] = _Begun(runner, call, time.monotonic() + timeout)

    def _finished(self, begun: dict[ray.ObjectRef, _Begun], looking: bool) -> list[ray.ObjectRef]:
        """Waits for calls to end; meanwhile, looks for runners that could take waiting ones."""
        if not begun:
            return []

        now = time.monotonic()
        patience = max(0.0, min(job.deadline for job in begun.values()) - now)
        dead = len(self._manager.healthy_actor_ids()) < self._manager.num_actors()
        if looking and dead:
            patience = min(patience, PROBE_EVERY)
        ready, _ = ray.wait([*begun], num_returns=1, timeout=patience)
        if ready:
            return list(ready)

        # Nobody was done in time: a runner that hangs is killed, and counts as dead at once.
        for ref, job in begun.items():
            if job.deadline <= time.monotonic():
                ray.kill(self._manager.actors()[job.runner], no_restart=False)
                return [ref]
        self._restore(PROBE_FOR)
        return []

    def _bury(self, job: _Begun, error: Exception, deaths: Counter[int]) -> None:
        """Takes a runner out of service.

        Raises:
            ServiceError: this call has ended several.
        """
        self._manager.set_actor_state(job.runner, healthy=False)
        deaths[job.call] += 1
        _log.warning("env runner %d died; what it had begun is done again: %s", job.runner, error)
        if deaths[job.call] >= MOST_DEATHS:
            raise ServiceError(
                "engine",
                f"{MOST_DEATHS} env runners died of the same work, the last one because: "
                f"{_first_line(error)}; Ray's log of the workers says more",
            ) from error

    def _await_one(self) -> None:
        """Waits for a first runner to be back.

        Raises:
            ServiceError: none is, for as long as the config allows.
        """
        config = self._config
        patience = config.env_runner_restore_timeout_s if config.restart_failed_env_runners else 0.0
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if self._restore(PROBE_FOR):
                return
            time.sleep(PROBE_FOR / 4)  # the answer may be that it is being restarted, at once
        raise ServiceError(
            "engine", "all env runners died, and none came back; Ray's log of the workers says why"
        )


def _careful(call: Callable[[Any], T]) -> Callable[[Any], tuple[T | None, Exception | None]]:
    """Brings an error back beside the result: raised in RLlib's actor, it would end the actor, and
    then the one that tries the same next."""

    def made(runner: Any) -> tuple[T | None, Exception | None]:
        try:
            return call(runner), None
        except Exception as error:
            return None, error

    return made


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
