"""A player that makes legal moves at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssp_env.game.legal import LegalMoves
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting


class RandomLegalPlayer:
    """Draws every token evenly among the legal ones."""

    def __init__(self, rules: Rules, rng: np.random.Generator) -> None:
        self._legal, self._rng = LegalMoves(rules), rng

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            while trajectory.waiting is Waiting.POLICY:
                legal = np.flatnonzero(self._legal.mask(trajectory))
                trajectory.feed([int(self._rng.choice(legal))])
