"""Holds the engine of the env runners against the learner, in an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.engines.gap import Gap, compared_rows, measure
from agents.rllib.weights import of_all
from agents.rows import Row
from ssp_env.game.record import GameRecord
from ssp_env.tokenizers import HuggingFaceTokenizer


def compare(algorithm: Any, games: Sequence[GameRecord]) -> Gap | None:
    """What the learner says of games that were sampled with the weights that it has now.

    Args:
        algorithm: an :class:`~agents.rllib.algorithm.SSP`.
        games: of the step, before anything is learnt from them.

    Returns:
        ``None`` where nothing was written.

    Raises:
        ServiceError: engine and learner are too far apart, or a learner is dead.
    """
    rows = compared_rows(games, algorithm.config.learning().plays)
    if not rows:
        return None

    def score(rows: Sequence[Row]) -> np.ndarray:
        # All of them are asked, since they may share the policy; each says the same.
        found: list[np.ndarray] = of_all(
            algorithm.learner_group, lambda learner: [learner.score(rows)]
        )
        return found[0]

    config = algorithm.config
    gap = measure(rows, score, HuggingFaceTokenizer.load(config.model_dir))
    gap.check(config.engine_config().max_gap)
    return gap
