"""Figures of a step, of its games and its optimizer updates, and of evaluations: every name in
``metrics.jsonl``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from ssp_env.game.outcome import Ending, Outage
from ssp_env.game.record import GameRecord, outages
from ssp_env.types import Question
from ssp_env.wording.normal import nearly_same


def step_figures(
    games: Sequence[GameRecord], num_games: int, updates: Sequence[dict[str, float]]
) -> dict[str, float | None]:
    """Figures of one training step. Shares and means over an empty set are ``None``; those of the
    learners, and of reasons, are there only if there was an update, or a game that ended so."""
    # Shares are of what was proposed in this step: a reused question was valid once already.
    proposed = [game for game in games if game.origin == "proposed" and game.outcome != "void"]
    accepted = [game for game in proposed if game.outcome == "valid"]
    solved = [game for game in games if game.outcome == "valid"]
    known = [game for game in accepted if game.truly_correct is not None]
    trajectories = [trajectory for game in games for trajectory in game.trajectories]
    verdicts = [game.verification for game in proposed if game.verification is not None]
    questions = [game.question for game in proposed if game.question is not None]
    reasons = Counter(game.reason for game in proposed if game.reason is not None)

    figures: dict[str, float | None] = {
        **given_figures(games),
        "games": float(len(games)),
        "void_games": float(sum(game.outcome == "void" for game in games)),
        "void_attempts": float(sum(t.outage is not None for t in trajectories)),
        "reused_games": float(sum(game.origin == "reused" for game in games)),
        "composed_games": float(sum(game.origin == "composed" for game in games)),
        "filled_slots": len(solved) / num_games,
        "learner_updates": float(len(updates)),
        "proposer_reward": _mean(game.proposer_reward for game in proposed),
        "solver_reward": _mean(game.solver_reward for game in solved),
        "solver_reward_fresh": _mean(game.solver_reward for game in accepted),
        "valid_rate": _mean(game.outcome == "valid" for game in proposed),
        "verified_rate": _mean(verdict.correct for verdict in verdicts),
        # Of the questions that were tried, whatever became of them afterwards.
        "unsolved_share": _mean(
            not any(attempt.right for attempt in game.attempts)
            for game in proposed
            if game.attempts
        ),
        "true_share": _mean(bool(game.truly_correct) for game in known),
        "ambiguous_share": _mean(len(game.right_answers or ()) > 1 for game in known),
        "question_hops": _mean(game.hops for game in accepted),
        **{f"share_{hops}hop": _mean(g.hops == hops for g in known) for hops in (1, 2, 3, 4)},
        "question_words": _mean(len((game.question or "").split()) for game in accepted),
        # The share of questions that another one nearly repeats.
        "repeated_share": _mean(sum(nearly_same(a, b) for b in questions) > 1 for a in questions),
    }
    for role in ("proposer", "solver"):
        plays = [trajectory for trajectory in trajectories if trajectory.role == role]
        figures |= {
            f"{role}_searches": _mean(len(t.searches) for t in plays),
            f"{role}_tokens": _mean(t.policy_tokens for t in plays),
            f"{role}_overlong": _mean(t.ending is Ending.BUDGET_TOKENS for t in plays),
        }
    return {
        **figures,
        **{f"invalid_{name}": count / len(proposed) for name, count in sorted(reasons.items())},
        "policy_tokens": float(sum(t.policy_tokens for t in trajectories)),
        "all_tokens": float(sum(t.tokens for t in trajectories)),
        # Before the first update of a step, the learner's weights are the engine's.
        "engine_gap": _mean(update.get("logprob_gap") for update in updates[:1]),
        **{
            f"learner_{name}": _mean(update.get(name) for update in updates)
            for name in sorted({name for update in updates for name in update})
        },
    }


def given_figures(games: Sequence[GameRecord]) -> dict[str, float | None]:
    """Figures of given questions alone; none in a step that was not given any."""
    given = [game for game in games if game.origin == "given"]
    if not given:
        return {}
    solved = [game for game in given if game.outcome == "valid"]
    counted = [[a for a in game.attempts if a.outage is None] for game in solved]
    return {
        "given_games": float(len(given)),
        "given_share": _mean(game.origin == "given" for game in games if game.outcome == "valid"),
        "given_reward": _mean(game.solver_reward for game in solved),
        "given_accuracy": _mean(game.solve_rate for game in solved),
        "given_searches": _mean(len(a.searches) for attempts in counted for a in attempts),
        # Where all attempts are paid alike, there is nothing to compare, and GRPO learns nothing.
        "given_uniform": _mean(len({a.reward for a in attempts}) == 1 for attempts in counted),
    }


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers in a group of questions."""

    right: int
    asked: int
    void: int = 0
    """Questions that an outage hit; they are not among those asked."""
    outage: Outage | None = None
    """The first of these outages."""

    def __str__(self) -> str:
        """The share, and how many questions an outage hit."""
        why = f": {self.outage.what}" if self.outage and not self.asked else ""
        void = f" ({self.void} void{why})" if self.void else ""
        return f"{self.right / self.asked:.3f}{void}" if self.asked else f"-{void}"


def accuracies(games: Iterable[GameRecord], questions: Iterable[Question]) -> dict[str, Accuracy]:
    """Pass@1 of each group of the questions, those without a game included: a game counts by its
    first attempt."""
    by_group: dict[str, list[GameRecord]] = {question.group: [] for question in questions}
    for game in games:
        by_group[game.question_group or ""].append(game)

    figures = {}
    for group, played in sorted(by_group.items()):
        judged = [game for game in played if game.outcome != "void"]
        right = sum(any(attempt.right for attempt in game.attempts[:1]) for game in judged)
        first = next(iter(outages(played)), None)
        figures[group] = Accuracy(right, len(judged), len(played) - len(judged), first)
    return figures


def _mean(values: Iterable[float | None]) -> float | None:
    present = [float(value) for value in values if value is not None]
    return fmean(present) if present else None


# -- updates -----------------------------------------------------------------------------------

SUMS = (
    *("loss", "policy_loss", "kl"),
    *("trained_tokens", "example_tokens", "vetoed_rows"),
)
"""Figures of an update that add up over micro-batches and learners."""
MEANS = {
    "logprob_gap": ("logprob_gap_sum", "sampled_tokens"),
    "ratio": ("ratio_sum", "sampled_tokens"),
    "truncated_share": ("truncated_tokens", "sampled_tokens"),
    "clipped_share": ("clipped_tokens", "clippable_tokens"),
    "proposer_entropy": ("proposer_entropy_sum", "proposer_tokens"),
    "solver_entropy": ("solver_entropy_sum", "solver_tokens"),
}
"""Those that are a sum over all learners, divided by another."""
ROLE_NORMS = ("proposer_grad_norm", "solver_grad_norm")
"""Norms of the gradient of each role alone."""
SAME = ("grad_norm", "skipped_updates", "bfloat16", *ROLE_NORMS)
"""Those that all learners agree on; ``bfloat16`` is 1 where passes were computed in it."""
FIGURES = (*SUMS, *MEANS, *SAME)
"""Figures that :func:`merge_figures` may give of an update."""


def merge_figures(learners: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Figures of one update from those of all its learners.

    Sums add up, and means are made of them; norms are the same everywhere. Empty means and
    unmeasured norms are left out.
    """

    def total(name: str) -> float:
        return sum(float(figures.get(name, 0.0)) for figures in learners)

    # Weights of rows have their denominators in them, so losses of learners add up.
    merged = {name: total(name) for name in SUMS}
    for name, (above, below) in MEANS.items():
        # A ratio of sums: a mean of the learners' means would weigh their shards alike.
        if total(below):
            merged[name] = total(above) / total(below)
    for name in SAME:
        # NaN stands for a norm that was not measured. For the whole gradient's norm it is a result.
        same = float(learners[0].get(name, math.nan))
        if not math.isnan(same) or name == "grad_norm":
            merged[name] = same
    return merged


def join_figures(
    policies: Mapping[str, Sequence[dict[str, Any]]], roles: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Figures of one update of all policies from those of each one's learners.

    Sums and means are over all of them, as if one policy had learnt from all rows; the norm is that
    of all gradients. The gradient of a policy of one role is that of the role. ``roles`` are those
    that each policy plays.
    """
    joined = merge_figures([*chain.from_iterable(policies.values())])
    norms = {name: float(learners[0]["grad_norm"]) for name, learners in policies.items()}
    if len(roles) > 1:
        # |g|^2 = sum of |g_policy|^2, as no two policies have a trained parameter in common.
        joined["grad_norm"] = math.hypot(*norms.values())
        # The update counts as skipped if one of the policies has skipped it.
        skipped = [float(learners[0]["skipped_updates"]) for learners in policies.values()]
        joined["skipped_updates"] = max(skipped)
        joined |= {f"{roles[name][0]}_grad_norm": norm for name, norm in norms.items()}
    return joined
