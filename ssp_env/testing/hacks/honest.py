"""The honest player that cheaters are compared with, and that plays what they leave alone."""

from __future__ import annotations

import numpy as np

from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import scripted_player
from ssp_env.players.base import TextPlayer
from ssp_env.types import Role

SKILL = 0.7
"""Share of attempts in which the honest solver finds the answer; it gives up in the others.

A solver that always succeeds would leave its proposer nothing, and could not be beaten by cheating.
"""

GIVES_UP = "nothing"
"""What it answers then: a word that every vocabulary has."""


class HonestPlayer(TextPlayer):
    """The scripted player that suits a world, with a solver that fails now and then.

    It fails as often where verification is an attempt, since it cannot tell. As a verifier that is
    given its documents, and at the closed-book gate, it does what it can."""

    def __init__(self, rules: Rules, rng: np.random.Generator) -> None:
        """
        Args:
            rules: what the games are played by.
            rng: decides which attempts fail.
        """
        player = scripted_player(rules)
        assert isinstance(player, TextPlayer), "the scripted players write text"
        self._player, self._rng = player, rng

        tags = rules.config.tags
        self._answers, self._closes = tags.opening("answer"), tags.closing("answer")
        self._sure: dict[int, bool] = {}

    def is_sure(self, trajectory: Trajectory) -> bool:
        """Whether it finds the answer in this trajectory."""
        if trajectory.role is not Role.SOLVER and trajectory.library is None:
            return True

        if trajectory.key not in self._sure:
            self._sure[trajectory.key] = bool(self._rng.random() < SKILL)
        return self._sure[trajectory.key]

    def write(self, trajectory: Trajectory) -> str:
        """The next turn."""
        turn = self._player.write(trajectory)
        if turn.startswith(self._answers) and not self.is_sure(trajectory):
            return f"{self._answers} {GIVES_UP} {self._closes}"
        return turn
