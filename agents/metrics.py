"""Figures of a step, of its games and its optimizer updates: every name in ``metrics.jsonl``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from ssp_env.game.outcome import Ending
from ssp_env.game.record import GameRecord

NEAR = 0.8
"""Two questions are near-identical if they share this part of their words and pairs of neighbouring
words: about one word in ten may differ. Questions of one pattern about different things, as all of
a generated world are, stay below it."""


def step_figures(
    games: Sequence[GameRecord], slots: int, updates: Sequence[dict[str, float]]
) -> dict[str, float | None]:
    """Figures of one training step: of its games, and of each optimizer update.

    Shares and means over an empty set are ``None``. Those of the learners, and of reasons, are
    there only if there was an update, or a game that ended so.
    """
    proposed = [game for game in games if game.origin == "proposed" and game.outcome != "void"]
    accepted = [game for game in proposed if game.outcome == "valid"]
    solved = [game for game in games if game.outcome == "valid"]
    known = [game for game in accepted if game.truly_correct is not None]
    figures: dict[str, float | None] = {
        "games": float(len(games)),
        "void_games": float(sum(game.outcome == "void" for game in games)),
        "void_attempts": float(
            sum(t.outage is not None for game in games for t in game.trajectories)
        ),
        "reused_games": float(sum(game.origin == "reused" for game in games)),
        "composed_games": float(sum(game.origin == "composed" for game in games)),
        "filled_slots": len(solved) / slots,
        "learner_updates": float(len(updates)),
    }
    _mean(figures, "proposer_reward", [game.proposer_reward for game in proposed])
    _mean(figures, "solver_reward", [game.solver_reward for game in solved])
    _mean(figures, "solver_reward_fresh", [game.solver_reward for game in accepted])
    _mean(figures, "valid_rate", [float(game.outcome == "valid") for game in proposed])
    verdicts = [game.verification for game in proposed if game.verification is not None]
    _mean(figures, "verified_rate", [float(verdict.correct) for verdict in verdicts])
    tried = [
        float(any(t.verdict is not None and t.verdict.correct for t in game.attempts))
        for game in proposed
        if game.attempts
    ]
    _mean(figures, "unsolved_share", [1.0 - solved for solved in tried])
    _mean(figures, "true_share", [float(bool(game.truly_correct)) for game in known])
    _mean(figures, "ambiguous_share", [float(len(game.right_answers or ()) > 1) for game in known])
    _mean(figures, "question_hops", [game.hops for game in accepted])
    for hops in (1, 2, 3, 4):
        _mean(figures, f"share_{hops}hop", [float(game.hops == hops) for game in known])

    _mean(figures, "question_words", [len((game.question or "").split()) for game in accepted])
    asked = [game.question for game in proposed if game.question is not None]
    _mean(figures, "repeated_share", repeated(asked))
    for role in ("proposer", "solver"):
        plays = [t for game in games for t in game.trajectories if t.role == role]
        _mean(figures, f"{role}_searches", [len(t.searches) for t in plays])
        _mean(figures, f"{role}_tokens", [t.policy_tokens for t in plays])
        overlong = [float(t.ending is Ending.BUDGET_TOKENS) for t in plays]
        _mean(figures, f"{role}_overlong", overlong)

    reasons = Counter(game.reason for game in proposed if game.reason is not None)
    for reason, count in sorted(reasons.items()):
        figures[f"invalid_{reason}"] = count / len(proposed)
    trajectories = [trajectory for game in games for trajectory in game.trajectories]
    figures["policy_tokens"] = float(sum(t.policy_tokens for t in trajectories))
    figures["all_tokens"] = float(sum(t.tokens for t in trajectories))
    # Before the first update of a step, the learner's weights are the engine's.
    _mean(figures, "engine_gap", [update.get("logprob_gap") for update in updates[:1]])
    for name in sorted({name for update in updates for name in update}):
        _mean(figures, f"learner_{name}", [update.get(name) for update in updates])

    return figures


def _mean(figures: dict[str, float | None], name: str, values: Sequence[float | None]) -> None:
    present = [value for value in values if value is not None]
    figures[name] = fmean(present) if present else None


def repeated(questions: Sequence[str]) -> list[bool]:
    """True for each question that another one nearly repeats.

    Similarity is Jaccard's, of the sets of words and of pairs of neighbouring words, whatever their
    case and punctuation.
    """
    grams = []
    for question in questions:
        words = re.findall(r"\w+", question.casefold())
        grams.append({*words, *(" ".join(pair) for pair in pairwise(words))})

    # |A & B| >= NEAR |A | B|; questions without a single word are alike.
    return [sum(len(a & b) >= NEAR * len(a | b) for b in grams) > 1 for a in grams]


# -- updates -----------------------------------------------------------------------------------

SUMS = ("loss", "policy_loss", "kl", "trained_tokens", "vetoed_rows")
"""Figures of an update that add up over micro-batches and learners."""
MEANS = {
    "logprob_gap": ("logprob_gap_sum", "trained_tokens"),
    "ratio": ("ratio_sum", "trained_tokens"),
    "truncated_share": ("truncated_tokens", "trained_tokens"),
    "clipped_share": ("clipped_tokens", "kl_tokens"),
    "proposer_entropy": ("proposer_entropy_sum", "proposer_tokens"),
    "solver_entropy": ("solver_entropy_sum", "solver_tokens"),
}
"""Those that are a sum over all learners, divided by another."""
ROLE_NORMS = ("proposer_grad_norm", "solver_grad_norm")
"""Norms of the gradient of each role alone."""
FIGURES = (*SUMS, *MEANS, "grad_norm", "skipped_updates", *ROLE_NORMS)
"""Figures that :func:`merge_figures` may give of an update."""


def merge_figures(learners: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Figures of one update from those of all its learners.

    Sums add up, and means are made of them; norms are the same everywhere. Empty means and
    unmeasured norms are left out.
    """

    def total(name: str) -> float:
        return sum(float(figures.get(name, 0.0)) for figures in learners)

    merged = {name: total(name) for name in SUMS}
    for name, (above, below) in MEANS.items():
        if total(below):
            merged[name] = total(above) / total(below)
    for name in ("grad_norm", "skipped_updates", *ROLE_NORMS):
        same = float(learners[0].get(name, math.nan))
        if not math.isnan(same) or name not in ROLE_NORMS:
            merged[name] = same
    return merged
