"""Scores of an evaluation, from the records of its games: by judge, by group and by attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean
from typing import Any

import numpy as np

from experiments.stats import Comparison, Estimate, compare, over_questions
from ssp_env.errors import UsageError
from ssp_env.game.outcome import Outage
from ssp_env.game.record import GameRecord
from ssp_env.judge.base import Judge, JudgeTask, Verdict
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.wording.answers import f1, normalise

JUDGES: Mapping[str, Judge] = {"lenient": LenientJudge(), "exact": ExactMatchJudge()}
"""Judges that need no service."""
ALL = "all"
"""Name of the row over all questions."""


@dataclass(frozen=True)
class Answered:
    """Answers of a policy to one question."""

    group: str
    question: str
    answers: tuple[str | None, ...]
    """One per attempt that no outage has hit; ``None`` for an attempt that ended without one."""
    right: Mapping[str, tuple[bool, ...]]
    """By judge, the verdict on each."""
    f1: tuple[float, ...]
    """Token F1 of each."""
    searches: float
    """Mean per attempt."""
    lost: int
    """Attempts that an outage has hit."""
    why_void: str | None
    """Service or reason code that left no answer at all; ``None`` if there is one."""
    known: bool | None = None
    """Verdict on the answer without search; ``None``: not asked, or an outage."""

    def share(self, judge: str) -> float:
        """Share of right attempts."""
        return fmean(self.right[judge])


def answered(record: GameRecord, own: str, known: bool | None = None) -> Answered:
    """Scores of one game of an evaluation.

    Args:
        record: a game about a given question.
        own: name of the judge whose verdicts the record holds.
        known: verdict on the answer without search, where that was asked.
    """
    void = record.outcome == "void"
    attempts = [a for a in record.attempts if a.outage is None and not void]
    texts = tuple(attempt.result for attempt in attempts)
    truth, question = record.start.truth, record.question or ""
    right = {own: tuple(bool(a.verdict and a.verdict.correct) for a in attempts)}
    for name, judge in JUDGES.items():
        verdicts = judge.judge([JudgeTask(question, text or "", truth) for text in texts])
        right[name] = tuple(isinstance(v, Verdict) and bool(v.correct) for v in verdicts)

    outage = outage_of(record)
    why_void = outage.service if outage else record.reason or "unknown"
    return Answered(
        group=record.question_group or "",
        question=question,
        answers=texts,
        right=right,
        f1=tuple(f1(text or "", truth.wordings) for text in texts),
        searches=fmean(len(attempt.searches) for attempt in attempts) if attempts else 0.0,
        lost=len(record.attempts) - len(attempts),
        why_void=None if attempts else why_void,
        known=known,
    )


def outage_of(record: GameRecord) -> Outage | None:
    """The outage that has left no attempt at a question; ``None`` if an attempt counts."""
    if record.outcome == "void":
        return record.outage
    outages = [attempt.outage for attempt in record.attempts]
    return outages[0] if outages and all(outages) else None


def closed_book(results: Sequence[Answered]) -> dict[str, float]:
    """Share of questions answered right without search, by group and over all; empty if not asked.

    Questions that an outage has hit there do not count.
    """
    known = [result for result in results if result.known is not None]
    return {group: fmean(bool(one.known) for one in ones) for group, ones in _groups(known).items()}


def pass_at_k(right: int, attempts: int, k: int) -> float:
    """Probability that at least one of ``k`` attempts is right, drawn from those that were made.

    The unbiased estimate of Chen et al. (2021), "Evaluating Large Language Models Trained on
    Code": one minus the share of draws of k without a right one.

    Args:
        right: how many of the attempts were right.
        attempts: how many were made, at least ``k``.
        k: how many are drawn.
    """
    if not 0 < k <= attempts:
        raise ValueError(f"pass@{k} needs at least {k} attempts, not {attempts}")
    return 1.0 - comb(attempts - right, k) / comb(attempts, k)


def majority(answers: Sequence[str | None], right: Sequence[bool]) -> bool:
    """Verdict on the most frequent answer (self-consistency).

    Wordings with one normal form are one answer. Of equally frequent answers the one that was
    given first counts. Attempts without an answer have no vote; if none has an answer, it is wrong.

    Args:
        answers: one per attempt.
        right: the judge's verdict on each.
    """
    votes = [normalise(answer) if answer else "" for answer in answers]
    counted = Counter(vote for vote in votes if vote)
    # Counter keeps the order of first appearance, and most_common() is stable.
    return bool(counted) and right[votes.index(counted.most_common(1)[0][0])]


@dataclass(frozen=True)
class Row:
    """A group of questions under one judge."""

    group: str
    judge: str
    attempts: int
    """The k of what follows."""
    average: Estimate
    """avg@k: the mean share of right attempts; with one attempt, pass@1."""
    others: dict[str, Estimate]
    """F1 and, with several attempts, majority@k and pass@j for 1, 2, 4 and so on, and for k."""
    searches: float
    """Mean per attempt."""
    void: int
    """Questions without an answer: an outage took them, or they do not fit into a prompt."""
    lost: int
    """Attempts that an outage has taken from the other questions."""
    bounds: tuple[float, float]
    """The average if all void questions were wrong, and if all were right."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "group": self.group,
            "judge": self.judge,
            "questions": self.average.count,
            f"avg@{self.attempts}": self.average.mean,
            "interval": self.average.interval,
            **{name: figure.mean for name, figure in self.others.items()},
            "intervals": {name: figure.interval for name, figure in self.others.items()},
            "searches": self.searches,
            "void": self.void,
            "lost_attempts": self.lost,
            "bounds": list(self.bounds),
        }


def table(results: Sequence[Answered], judge: str, seed: int) -> list[Row]:
    """A row per group that has answers, and one over all if there are several groups.

    Args:
        results: one per question.
        judge: whose verdicts count.
        seed: of the intervals.
    """
    # An outage may have hit some attempts of a question: k is what every question has.
    k = min((len(result.answers) for result in results if result.answers), default=0)
    return [
        _row(group, members, judge, k, seed)
        for group, members in _groups(results).items()
        if any(result.answers for result in members)
    ]


def _row(group: str, results: Sequence[Answered], judge: str, k: int, seed: int) -> Row:
    counted = [result for result in results if result.answers]
    shares = [result.share(judge) for result in counted]
    scores = {"f1": [fmean(result.f1) for result in counted]}
    if k > 1:
        voted = [float(majority(result.answers, result.right[judge])) for result in counted]
        passed = {
            f"pass@{j}": [pass_at_k(sum(r.right[judge]), len(r.answers), j) for r in counted]
            for j in [*(2**power for power in range(k.bit_length()) if 2**power < k), k]
        }
        scores = {**passed, f"majority@{k}": voted, **scores}

    void, right = len(results) - len(counted), sum(shares)
    return Row(
        group=group,
        judge=judge,
        attempts=k,
        average=over_questions(shares, _rng(seed, group)),
        others={name: over_questions(one, _rng(seed, group)) for name, one in scores.items()},
        searches=fmean(result.searches for result in counted),
        void=void,
        lost=sum(result.lost for result in counted),
        bounds=(right / len(results), (right + void) / len(results)),
    )


def void_groups(results: Sequence[Answered]) -> dict[str, int]:
    """The groups without any answer, with their numbers of questions."""
    there = {result.group for result in results if result.answers}
    sizes = Counter(result.group for result in results if result.group not in there)
    return dict(sorted(sizes.items()))


def void_reasons(results: Sequence[Answered]) -> dict[str, int]:
    """Services and reason codes that left questions without an answer, and how many."""
    return dict(Counter(result.why_void for result in results if result.why_void))


def paired(
    first: Sequence[Answered], second: Sequence[Answered], judge: str, seed: int
) -> list[tuple[str, Comparison]]:
    """Two policies, question by question: a comparison per group, and one over all.

    Questions that an outage has taken from either are left out of both.

    Raises:
        UsageError: they have no question in common.
    """
    theirs = {(result.group, result.question): result for result in second if result.answers}
    ours = [r for r in first if r.answers and (r.group, r.question) in theirs]
    if not ours:
        raise UsageError("the two evaluations have no question in common")

    found = []
    for group, members in _groups(ours).items():
        others = [theirs[result.group, result.question] for result in members]
        ones, twos = ([one.share(judge) for one in each] for each in (members, others))
        found.append((group, compare(ones, twos, _rng(seed, group))))
    return found


def _groups(results: Sequence[Answered]) -> dict[str, list[Answered]]:
    """Results by group, and all of them if there are several groups."""
    groups: dict[str, list[Answered]] = {}
    for result in sorted(results, key=lambda result: result.group):
        groups.setdefault(result.group, []).append(result)
    return {**groups, ALL: list(results)} if len(groups) > 1 else groups


def _rng(seed: int, group: str) -> np.random.Generator:
    return np.random.default_rng([seed, len(group)])
