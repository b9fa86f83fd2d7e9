"""The random legal player: the baseline that every learner has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssp_env.game.legal import LegalMoves
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting


class RandomLegalPlayer:
    """Draws every token evenly among the legal ones."""

    def __init__(self, rules: Rules, rng: np.random.Generator) -> None:
        """
        Args:
            rules: what the games are played by.
            rng: the source of all randomness.

        Raises:
            ConfigError: a tokenizer without a token for each tag.
        """
        self._legal, self._rng = LegalMoves(rules), rng

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes a turn in each."""
        for trajectory in trajectories:
            while trajectory.waiting is Waiting.POLICY:
                legal = np.flatnonzero(self._legal.mask(trajectory))
                trajectory.feed([int(self._rng.choice(legal))])
