"""Search self-play for Tinker's cookbook: token ids in, token ids out, both roles.

A group is a few games, and each of their trajectories an environment. Rewards are handed over
relative to their own kind (attempts at one question; proposals of the group), which the cookbook's
centring then leaves as they are. The tokenizer has to be the model's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tinker
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    InitialObservationOverflow,
    Metrics,
    StepResult,
    Trajectory,
)

import ssp_env
from ssp_env.envs.chat import reward_of
from ssp_env.envs.setup import set_up
from ssp_env.errors import require_version
from ssp_env.game.trajectory import Waiting
from ssp_env.types import Role

require_version("tinker-cookbook", "0.6.1")

Seat = tuple[int, Role, int]
"""Game, role, and number among its trajectories of that role."""


class Table:
    """The games of a group; their open turns are taken together, so that searches are batches."""

    def __init__(self, rules: ssp_env.Rules, games: int, seed: int) -> None:
        self.env = ssp_env.TurnVectorEnv(games, rules=rules)
        self._open = self.env.reset(seed)
        self._written: dict[int, list[int]] = {}
        self._changed = asyncio.Condition()

    def trajectory(self, seat: Seat) -> ssp_env.Trajectory | None:
        """That of a seat, once it has begun."""
        game, role, number = seat
        own = [t for t in self.env.games[game].trajectories() if t.role is role]
        return own[number] if number < len(own) else None

    def reward(self, seat: Seat) -> float | None:
        """What a seat earned; ``None`` if nothing is to be learnt from it."""
        own = self.trajectory(seat)
        return None if own is None else reward_of(self.env.games[seat[0]], own)

    async def ids(self, seat: Seat) -> list[int] | None:
        """Waits for the seat's next turn: all tokens so far; ``None`` if there is none."""

        def over() -> bool:
            own, game = self.trajectory(seat), self.env.games[seat[0]]
            return game.outcome != "pending" if own is None else own.done

        def its_turn() -> bool:
            own = self.trajectory(seat)
            waits = own is not None and own.waiting is Waiting.POLICY
            return waits and own is not None and own.key not in self._written

        async with self._changed:
            await self._changed.wait_for(lambda: over() or its_turn())
            own = self.trajectory(seat)
            return None if own is None or over() else own.ids

    async def write(self, seat: Seat, ids: Sequence[int]) -> None:
        """Takes a turn; the last one that is open moves the games on."""
        own = self.trajectory(seat)
        if own is None or own.waiting is not Waiting.POLICY:
            raise ssp_env.UsageError("it is not this seat's turn")
        whole, _ = own.limits.checked(ids, None)
        async with self._changed:
            self._written[own.key] = whole
            if len(self._written) == len(self._open):
                written = [self._written[turn.trajectory.key] for turn in self._open]
                self._written = {}
                self._open = await asyncio.to_thread(self.env.step, written)
                self._changed.notify_all()


class SspTokenEnv(Env):
    """One trajectory of one game. Its reward is paid by the group."""

    def __init__(self, table: Table, seat: Seat) -> None:
        self.table, self.seat = table, seat
        tags, role = table.env.rules.tags, seat[1]
        actions = table.env.rules.limits[role].actions
        calls = [] if tags.call is None else ["call"]
        self._stop = sorted(tags.closing(name) for name in [*calls, *map(str, actions)])

    async def initial_observation(
        self,
    ) -> tuple[tinker.ModelInput, list[str]] | InitialObservationOverflow:
        """The prompt; a seat that has no turn in this game is left out of training."""
        ids = await self.table.ids(self.seat)
        if ids is None:
            return InitialObservationOverflow(reward=0.0, metrics={"unused": 1.0})
        return tinker.ModelInput.from_ints(ids), self._stop

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Takes a turn, and waits for the next one."""
        await self.table.write(self.seat, action)
        ids = await self.table.ids(self.seat)
        return StepResult(0.0, ids is None, tinker.ModelInput.from_ints(ids or []), self._stop)


@dataclass(frozen=True)
class SspGroupBuilder(EnvGroupBuilder):
    """Games of consecutive seeds. Use the strategy ``FailFast``: the seats of a game need each
    other."""

    seed: int
    games: int = 4
    setup: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of every interface, as plain data or picklable parts."""

    async def make_envs(self) -> Sequence[Env]:
        """All seats that may have a turn."""
        rules = set_up({**self.setup}).rules  # type: ignore[typeddict-item]
        table = Table(rules, self.games, self.seed)
        counts = {Role.PROPOSER: 1, Role.SOLVER: rules.config.attempts}
        if rules.verifier is None:
            counts[Role.VERIFIER] = rules.config.verifications[1]
        if rules.config.closed_book:
            counts[Role.CLOSED_BOOK] = 1
        seats = [
            (game, role, number)
            for game in range(self.games)
            for role, count in counts.items()
            for number in range(count)
        ]
        return [SspTokenEnv(table, seat) for seat in seats]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Rewards relative to their kind, and as they are in ``reward/ROLE``."""
        seats = [env for env in env_group if isinstance(env, SspTokenEnv)]
        earned = [env.table.reward(env.seat) for env in seats]
        kinds = [(env.seat[1], env.seat[0] if env.seat[1] is Role.SOLVER else 0) for env in seats]
        paid = defaultdict[Any, list[float]](list)
        for kind, reward in zip(kinds, earned, strict=True):
            if reward is not None:
                paid[kind].append(reward)
        return [
            (0.0, {})
            if reward is None
            else (reward - sum(paid[kind]) / len(paid[kind]), {f"reward/{kind[0].value}": reward})
            for kind, reward in zip(kinds, earned, strict=True)
        ]
