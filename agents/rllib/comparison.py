"""Holds the engine of the env runners against the learner, in an algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.engines.gap import Gap, compared_rows, measure
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
        ServiceError: engine and learner are too far apart.
    """
    rows = compared_rows(games)
    if not rows:
        return None

    def score(rows: Sequence[Row]) -> np.ndarray:
        results = algorithm.learner_group.foreach_learner(lambda learner: learner.score(rows))
        found: np.ndarray = next(iter(results)).get()
        return found

    config = algorithm.config
    gap = measure(rows, score, HuggingFaceTokenizer.load(config.model_dir))
    gap.check(config.engine_config().max_gap)
    return gap
