"""One role in many games at once, as a Gymnasium ``VectorEnv``; searches are batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ssp_env.checks import check_positive_count
from ssp_env.doors.dealer import check_seed
from ssp_env.doors.observation import Observation
from ssp_env.doors.one_role import OneRoleEnv, solver_setup
from ssp_env.doors.seats import advance_seats
from ssp_env.doors.setup import ResolvedSetup, Setup, set_up
from ssp_env.errors import UsageError
from ssp_env.players import Player
from ssp_env.types import Question, Role

Step = tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class OneRoleVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """The same games as ``SyncVectorEnv`` over one-role envs, in fewer calls.

    Retriever and players are called once per batch. An env whose episode has ended begins a new one
    at the next step; its action is ignored then (``AutoresetMode.NEXT_STEP``). Observations have
    the shapes of the single env with ``num_envs``
    in front."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        role: Role,
        resolved: ResolvedSetup,
        other: Player | None,
        questions: Sequence[Question] | None,
    ) -> None:
        check_positive_count("num_envs", num_envs)
        self._envs = [OneRoleEnv(role, resolved, other, questions, None) for _ in range(num_envs)]

        self.rules, self._other = resolved.rules, self._envs[0].other
        self.num_envs, self.render_mode = num_envs, None

        self.single_observation_space = self._envs[0].observation_space
        self.single_action_space = self._envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._ended: NDArray[np.bool_] = np.ones(num_envs, dtype=np.bool_)
        self._started = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode in every env.

        Args:
            seed: env ``i`` is seeded with ``seed + i``, or with the ``i``-th of a list.
            options: what each game is about; see :meth:`~ssp_env.doors.dealer.Dealer.deal`.

        Raises:
            UsageError: a bad seed, or not one per env; an option that is unknown or does not fit,
                such as ``reset_mask``, since envs reset themselves.
        """
        seeds = self._seeds(seed)
        if options is not None and "reset_mask" in options:
            raise UsageError(
                "options['reset_mask']: an env begins anew by itself; reset all of them, or none"
            )

        for env, own in zip(self._envs, seeds, strict=True):
            env.begin(own, options)
        advance_seats([env.seat for env in self._envs], self._other)

        self._ended, self._started = np.zeros(self.num_envs, dtype=np.bool_), True
        return self._look()

    def step(self, actions: NDArray[np.int64] | Sequence[int]) -> Step:
        """Takes one token per env.

        Raises:
            UsageError: a step before the first reset, or an action outside the space.
        """
        if not self._started:
            raise UsageError("call reset() first")

        self._check(np.asarray(actions))  # nothing is taken then

        moved = []

        # An env whose game is over begins the next one; its action is ignored.
        for env, action, ended in zip(self._envs, actions, self._ended, strict=True):
            if ended:
                env.begin(None, None)
                moved.append(env.seat)
            elif env.feed(action):
                moved.append(env.seat)

        if moved:
            advance_seats(moved, self._other)

        observations, infos = self._look()
        rewards = np.array([env.seat.reward for env in self._envs], dtype=np.float64)
        flags = np.array([env.seat.flags for env in self._envs], dtype=np.bool_)
        self._ended = flags[:, 0] | flags[:, 1]
        return observations, rewards, flags[:, 0].copy(), flags[:, 1].copy(), infos

    def _seeds(self, seed: int | list[int | None] | None) -> Sequence[int | None]:
        if not isinstance(seed, list | tuple | np.ndarray):
            check_seed(seed)
            return [None if seed is None else int(seed) + i for i in range(self.num_envs)]

        if len(seed) != self.num_envs:
            raise UsageError(f"{len(seed)} seeds were given for {self.num_envs} envs")

        for own in seed:
            check_seed(own)
        return seed

    def _check(self, actions: NDArray[Any]) -> None:
        if actions.shape != (self.num_envs,):
            raise UsageError(
                f"actions = {actions.tolist()}: give one token for each of {self.num_envs} envs"
            )

        if actions.dtype.kind not in "iu":
            raise UsageError(
                f"actions = {actions.tolist()}: a token is a whole number, not {actions.dtype.name}"
            )

        if not self.action_space.contains(actions):
            last = self.rules.tokenizer.vocab_size - 1
            raise UsageError(
                f"actions = {actions.tolist()}: a token is outside the action space 0 .. {last}"
            )

    def _look(self) -> tuple[Observation, dict[str, Any]]:
        seen = [env.look() for env in self._envs]

        infos: dict[str, Any] = {}
        for i, (_, info) in enumerate(seen):
            infos = self._add_info(infos, info, i)
        return {name: np.stack([o[name] for o, _ in seen]) for name in seen[0][0]}, infos


class SolverVectorEnv(OneRoleVectorEnv):
    """:class:`~ssp_env.doors.one_role.SolverEnv`, many times over."""

    def __init__(
        self,
        num_envs: int = 1,
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        **setup: Unpack[Setup],
    ) -> None:
        """
        Args:
            num_envs: how many games are played side by side.
            other: as in the single env; asked for many turns at once.
            questions: as in the single env.
            setup: the game; see :class:`~ssp_env.doors.setup.Setup`.

        Raises:
            ConfigError: a setting that cannot work.
        """
        super().__init__(
            num_envs,
            Role.SOLVER,
            solver_setup(setup, "num_envs", "other", "questions"),
            other,
            questions,
        )


class ProposerVectorEnv(OneRoleVectorEnv):
    """:class:`~ssp_env.doors.one_role.ProposerEnv`, many times over."""

    def __init__(
        self, num_envs: int = 1, other: Player | None = None, **setup: Unpack[Setup]
    ) -> None:
        """
        Args:
            num_envs: how many games are played side by side.
            other: as in the single env; asked for many turns at once.
            setup: the game; see :class:`~ssp_env.doors.setup.Setup`.

        Raises:
            ConfigError: a setting that cannot work.
        """
        super().__init__(num_envs, Role.PROPOSER, set_up(setup, "num_envs", "other"), other, None)
