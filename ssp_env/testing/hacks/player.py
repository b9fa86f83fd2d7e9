"""Seats a cheater: it writes its own turns, and leaves the others to an honest partner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssp_env.checks import describe
from ssp_env.errors import UsageError
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.players.base import Player
from ssp_env.testing.hacks.cheat import Cheat
from ssp_env.testing.hacks.honest import HonestPlayer
from ssp_env.testing.hacks.seat import Seat
from ssp_env.types import Role


class CheatPlayer:
    """A :class:`~ssp_env.players.base.Player` that cheats where a cheat says so."""

    def __init__(
        self, rules: Rules, cheat: Cheat, seed: Sequence[int], partner: Player | None = None
    ) -> None:
        """
        Args:
            rules: what the games are played by.
            cheat: what is written in place of honest turns.
            seed: decides all its randomness.
            partner: writes the other turns; the scripted honest player when not given.
        """
        self._rules, self._cheat = rules, cheat
        self._honest = HonestPlayer(rules, np.random.default_rng([*seed, 0]))
        self._partner = self._honest if partner is None else partner
        self._rng = np.random.default_rng([*seed, 1])

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes one turn in each.

        Raises:
            UsageError: the cheat gave something else than a text or ``None``.
            ServiceError: a search in the cheater's head failed, or the partner could not play.
        """
        left = []
        for trajectory in trajectories:
            turn = self._turn(trajectory)
            if turn is None:
                left.append(trajectory)
            else:
                trajectory.feed_turn(trajectory.limits.tokenizer.encode(turn))

        if left:
            self._partner.play(left)

    def _turn(self, trajectory: Trajectory) -> str | None:
        seat = Seat(trajectory, self._rules, self._honest, self._rng)
        proposes = trajectory.role is Role.PROPOSER
        turn: object = self._cheat.propose(seat) if proposes else self._cheat.solve(seat)

        if turn is not None and not isinstance(turn, str):
            method = "propose" if proposes else "solve"
            what = f"{type(self._cheat).__name__}.{method}() gave {describe(turn)}"
            raise UsageError(f"{what}: give the turn's text, or None to play honestly")
        return turn
