"""A solver without the answer: an attempt is paid if it agrees with most, as in TTRL (2504.16084).

    ssp sweep benchmarks/data/self_consistency.yaml --steps 80 --out runs/sweeps/self_consistency

The gate and the proposer still know the answer: what 2605.22217 finds to collapse the fastest.
"""

from __future__ import annotations

from collections import Counter

from ssp_env.game.config import GameConfig
from ssp_env.game.game import Attempt, Game
from ssp_env.game.rules import Rules
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import World
from ssp_env.wording.answers import normalise


def agreement(game: Game, attempt: Attempt) -> float:
    """1 for the answer that most attempts give, the first such one on a tie, 0 otherwise."""
    results = [each.trajectory.result for each in game.counted]
    votes = Counter(normalise(result) for result in results if result)
    given = attempt.trajectory.result
    return float(bool(given) and normalise(given) == votes.most_common(1)[0][0])


def make_rules(world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    """The rules of a run, but for the solver's reward."""
    return Rules.build(world, tokenizer, game, solver_reward=agreement)
