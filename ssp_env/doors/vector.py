"""One role in many games at once, as a Gymnasium ``VectorEnv``; searches are batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ssp_env.doors.observation import Observation
from ssp_env.doors.one_role import ProposerEnv, SolverEnv, advance_episodes
from ssp_env.errors import ConfigError, UsageError

Step = tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class OneRoleVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """The same games as ``SyncVectorEnv`` over one-role envs, in fewer calls.

    Retriever and players are called once per batch. An env whose episode has ended begins a new one
    at the next step; its action is ignored then (``AutoresetMode.NEXT_STEP``). Observations have
    the shapes of the single env with ``num_envs`` in front."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012

    single: type[SolverEnv | ProposerEnv]
    """The single env."""

    def __init__(self, num_envs: int = 1, **arguments: Any) -> None:
        """
        Args:
            num_envs: number of games side by side.
            arguments: of the single env, but no ``render_mode``. The other player is asked for
                many turns at once.
        """
        if num_envs < 1:
            raise ConfigError("num_envs", num_envs, "must be at least 1")
        if "render_mode" in arguments:
            raise ConfigError("render_mode", arguments["render_mode"], "vectors are not rendered")

        # One world, one index and one player for all.
        first = self.single(**arguments)
        shared: dict[str, Any] = {
            "rules": first.rules,
            "view": first.episode.view,
            "other": first.other,
        }
        if "questions" in arguments:
            shared["questions"] = arguments["questions"]
        self._envs = [first, *(self.single(**shared) for _ in range(num_envs - 1))]

        self.rules, self.num_envs, self.render_mode = first.rules, num_envs, None

        self.single_observation_space = self._envs[0].observation_space
        self.single_action_space = self._envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._ended: NDArray[np.bool_] | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode in every env.

        Args:
            seed: env ``i`` is seeded with ``seed + i``, or with the ``i``-th of a list.
            options: the subject of each game; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.
        """
        if isinstance(seed, list | tuple | np.ndarray):
            seeds: Sequence[int | None] = seed
        else:
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise UsageError(f"{len(seeds)} seeds were given for {self.num_envs} envs")

        for env, own in zip(self._envs, seeds, strict=True):
            env.begin(own, options)
        advance_episodes([env.episode for env in self._envs])

        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        return self._look()

    def step(self, actions: NDArray[np.int64] | Sequence[int]) -> Step:
        """Takes one token per env."""
        if self._ended is None:
            raise UsageError("call reset() first")
        given = np.asarray(actions)
        if given.dtype.kind not in "iu" or not self.action_space.contains(given):
            last = self.rules.tokenizer.vocab_size - 1
            fix = f"give one token, 0 .. {last}, for each of {self.num_envs} envs"
            raise UsageError(f"actions = {given.tolist()}: {fix}")

        # An env whose game is over begins the next one; its action is ignored.
        moved = []
        for env, action, ended in zip(self._envs, actions, self._ended, strict=True):
            if ended:
                env.begin(None, None)
                moved.append(env.episode)
            elif env.feed(action):
                moved.append(env.episode)
        if moved:
            advance_episodes(moved)

        observations, infos = self._look()
        results = zip(*(env.episode.result for env in self._envs), strict=True)
        rewards, terminated, truncated = map(np.array, results)
        self._ended = terminated | truncated
        return observations, rewards, terminated, truncated, infos

    def _look(self) -> tuple[Observation, dict[str, Any]]:
        seen = [env.look() for env in self._envs]

        infos: dict[str, Any] = {}
        for i, (_, info) in enumerate(seen):
            infos = self._add_info(infos, info, i)
        return {name: np.stack([o[name] for o, _ in seen]) for name in seen[0][0]}, infos


class SolverVectorEnv(OneRoleVectorEnv):
    """:class:`~ssp_env.doors.one_role.SolverEnv`, many times over."""

    single = SolverEnv


class ProposerVectorEnv(OneRoleVectorEnv):
    """:class:`~ssp_env.doors.one_role.ProposerEnv`, many times over."""

    single = ProposerEnv
