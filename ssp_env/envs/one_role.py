"""One role, one token per step, as Gymnasium environments: ``ssp/Solver-v0``, ``ssp/Proposer-v0``,
and many games of one at once as a ``VectorEnv``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ssp_env.envs.driver import RENDER_MODES, GameDriver, advance_drivers
from ssp_env.envs.observation import Info, Observation, Observer, Watcher
from ssp_env.envs.setup import Setup, set_up
from ssp_env.errors import ConfigError, UsageError, whole_number
from ssp_env.game.game import Game
from ssp_env.players import Player
from ssp_env.types import Question, Role

Step = tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class OneRoleEnv(gym.Env[Observation, np.int64]):
    """One token per step. An episode is one trajectory of the role; the reward comes at its end.

    ``info`` holds the AEC env's ``infos``, and ``action_mask``. A void game is truncated, with
    reward 0."""

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 4}  # noqa: RUF012
    role: ClassVar[Role]

    def __init__(
        self,
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        render_mode: str | None = None,
        **setup: Unpack[Setup],
    ) -> None:
        """
        Args:
            other: plays the other role (and the verifier, if that is the policy); scripted when not
                given.
            questions: for the solver: draw from these, with no proposer.
            render_mode: ``ansi``, ``human`` or ``None``.
            setup: the game; a solver makes one attempt, whatever ``game.attempts`` says.
        """
        resolved = set_up(setup)
        self.driver = GameDriver(resolved.rules, self.role, other, questions, render_mode)
        self.rules, self.render_mode = self.driver.rules, render_mode
        self._observer = Observer(resolved)
        self._watcher = Watcher(self._observer)

    # Not attributes: copies of the environment share them.
    @property
    def observation_space(self) -> gym.Space[Any]:  # type: ignore[override]
        return self._observer.observation_space

    @property
    def action_space(self) -> gym.Space[Any]:  # type: ignore[override]
        return self._observer.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Begins an episode at the role's first turn; games that end before it are begun anew.

        Arguments as of :meth:`~ssp_env.envs.driver.GameDriver.reset`."""
        super().reset(seed=seed)
        self.driver.reset(seed, options)
        return _look(self._watcher, self.driver)

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, Info]:
        if self.driver.turn.feed((action,)):  # type: ignore[arg-type]
            self.driver.advance()
        observation, info = _look(self._watcher, self.driver)
        return observation, *self.driver.result, info

    def action_masks(self) -> NDArray[np.bool_]:
        """The action mask as booleans, where sb3-contrib looks for it."""
        return self._observer.mask(self.driver.trajectory).astype(bool)

    def render(self) -> str | None:  # type: ignore[override]
        return self.driver.render()

    @property
    def game(self) -> Game:
        return self.driver.game


class SolverEnv(OneRoleEnv):
    """You solve. Questions come from a proposer who is played for you, or are given."""

    role = Role.SOLVER


class ProposerEnv(OneRoleEnv):
    """You propose. The verifier and the solver's attempts are played for you."""

    role = Role.PROPOSER


class OneRoleVectorEnv(VectorEnv[Observation, NDArray[np.int64], NDArray[Any]]):
    """The same games as ``SyncVectorEnv`` over one-role envs, in fewer calls.

    Retriever and players are called once per batch. Observations have the shapes of the single env
    with ``num_envs`` in front."""

    role: ClassVar[Role]

    def __init__(
        self,
        num_envs: int = 1,
        other: Player | None = None,
        questions: Sequence[Question] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **setup: Unpack[Setup],
    ) -> None:
        """
        Args:
            num_envs: number of games side by side.
            other: as of the single env, like ``questions`` and ``setup``; it is asked for many
                turns at once.
            autoreset_mode: when an env whose episode has ended begins the next one: at the next
                step, whose action is ignored; in the ``SAME_STEP``, which puts the last observation
                and info into ``infos["final_obs"]`` and ``["final_info"]``; or when you say so
                (``DISABLED``), by ``reset(options={"reset_mask": ...})``.
        """
        num_envs = whole_number("num_envs", num_envs, 1)
        try:
            self._mode = AutoresetMode(autoreset_mode)
        except ValueError as error:
            fix = f"choose one of Gymnasium's: {', '.join(mode.value for mode in AutoresetMode)}"
            raise ConfigError("autoreset_mode", autoreset_mode, fix) from error
        self.metadata = {"autoreset_mode": self._mode, "render_modes": []}
        resolved = set_up(setup)
        first = GameDriver(resolved.rules, self.role, other, questions)
        shared = first.rules, self.role, first.other, questions
        self.drivers = [first, *(GameDriver(*shared) for _ in range(num_envs - 1))]
        observer = Observer(resolved)
        self._watchers = [Watcher(observer) for _ in range(num_envs)]

        self.rules, self.num_envs, self.render_mode = first.rules, num_envs, None
        self.single_observation_space = observer.observation_space
        self.single_action_space = observer.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended: NDArray[np.bool_] | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode in every env: ``seed + i`` seeds env ``i``, or the ``i``-th of a list.

        ``options`` as of :meth:`~ssp_env.envs.driver.GameDriver.reset`; ``reset_mask`` among them,
        bool (num_envs,), says which envs begin anew."""
        if not isinstance(seed, list):
            first = None if seed is None else whole_number("seed", seed, 0)
            # As SyncVectorEnv seeds its envs.
            seed = [None if first is None else first + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError("seed", seed, f"give one number, or one for each of {self.num_envs}")
        options = dict(options or {})
        chosen = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_)))
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_ or not chosen.any():
            fix = f"give {self.num_envs} booleans, one of them true at least"
            raise UsageError(f"options['reset_mask'] = {chosen.tolist()}: {fix}")
        if self._ended is None and not chosen.all():
            raise UsageError("reset all envs first, without a reset_mask")

        begun = np.flatnonzero(chosen).tolist()
        for i in begun:
            self.drivers[i].begin(seed[i], options)
        advance_drivers([self.drivers[i] for i in begun])

        self._ended = ~chosen if self._ended is None else self._ended & ~chosen
        return self._look({}, chosen)

    def step(self, actions: NDArray[np.int64] | Sequence[int]) -> Step:
        if self._ended is None:
            raise UsageError("call reset() first")
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            fix = "reset(options={'reset_mask': ...}) begins new ones"
            raise UsageError(f"envs {np.flatnonzero(self._ended).tolist()} are over: {fix}")

        if np.ndim(actions) != 1 or len(actions) != self.num_envs:
            what = f"{self.num_envs} envs want one token id each"
            raise UsageError(f"{what}, not {actions!r:.200}")

        # An env whose game is over begins the next one; its action is ignored. All others are
        # checked before any is taken.
        open_ones = [one for one, over in zip(actions, self._ended, strict=True) if not over]
        self.rules.limits[self.role].checked(open_ones, None)
        moved = []
        for driver, action, is_over in zip(self.drivers, actions, self._ended, strict=True):
            if is_over:
                driver.begin()
                moved.append(driver)
            elif driver.turn.feed((action,)):
                moved.append(driver)
        if moved:
            advance_drivers(moved)

        results = zip(*(driver.result for driver in self.drivers), strict=True)
        rewards, terminated, truncated = map(np.array, results)
        ended: NDArray[np.bool_] = terminated | truncated

        # What was seen last, by env, where the next episode begins at once.
        final: dict[int, Info] = {}
        if self._mode is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(ended).tolist():
                observation, info = _look(self._watchers[i], self.drivers[i])
                final[i] = {"final_obs": observation, "final_info": info}
                self.drivers[i].begin()
        if final:
            advance_drivers([self.drivers[i] for i in final])

        self._ended = ended & (self._mode is not AutoresetMode.SAME_STEP)
        observations, infos = self._look(final, np.ones_like(ended))
        return observations, rewards, terminated, truncated, infos

    def _look(
        self, final: dict[int, Info], chosen: NDArray[np.bool_]
    ) -> tuple[Observation, dict[str, Any]]:
        """Observations of all envs, and the infos of those that are chosen."""
        seen = [_look(*pair) for pair in zip(self._watchers, self.drivers, strict=True)]
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(chosen).tolist():
            # Both are of the same step: how an episode ended, and how the next one begins.
            infos = self._add_info(infos, final[i], i) if i in final else infos
            infos = self._add_info(infos, seen[i][1], i)
        return {name: np.stack([o[name] for o, _ in seen]) for name in seen[0][0]}, infos


class SolverVectorEnv(OneRoleVectorEnv):
    role = Role.SOLVER


class ProposerVectorEnv(OneRoleVectorEnv):
    role = Role.PROPOSER


def _look(watcher: Watcher, driver: GameDriver) -> tuple[Observation, Info]:
    """Observation and info of an episode that waits for its role, or whose game is over."""
    observation = watcher.look(driver.trajectory)
    return observation, driver.info | {"action_mask": observation["action_mask"]}
