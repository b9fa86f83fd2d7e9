"""From the games of an evaluation to what every judge and every count of attempts says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from experiments.evaluation.scores import (
    Comparison,
    Estimate,
    compare,
    estimate,
    majority,
    pass_at_k,
)
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.outcome import Outage
from ssp_env.game.record import GameRecord
from ssp_env.game.trajectory import SearchRecord
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.wording.answers import f1, normalise

RULES: Mapping[str, Judge] = {"lenient": LenientJudge(), "exact": ExactMatchJudge()}
"""Judges that need no service; token F1 stands beside them as a number, not as a verdict."""
ALL = "all"
"""The row over all questions."""


@dataclass(frozen=True)
class Answered:
    """What a policy made of one question."""

    group: str
    question: str
    answers: tuple[str | None, ...]
    """One per attempt that no outage has hit; ``None`` for an attempt that ended without one."""
    right: Mapping[str, tuple[bool, ...]]
    """By judge, the verdict on each."""
    f1: tuple[float, ...]
    found: tuple[bool, ...]
    """Whether what an attempt found contains an accepted answer: its words, in SQuAD's normal
    form, somewhere in a title or a text."""
    searches: float
    """Mean per attempt."""
    void: int
    """Attempts that an outage has hit."""
    known: bool | None = None
    """Whether it was answered without searching as well; ``None``: not asked, or an outage."""
    why_void: str | None = None
    """What kept it from being answered at all: a service, or a reason code; ``None`` if nothing."""


def answered(record: GameRecord, own: str, known: bool | None = None) -> Answered:
    """Reads a game of an evaluation, and judges it by rules.

    Args:
        record: a game about a given question.
        own: what the judge is called whose verdicts the record holds.
        known: whether the question was answered without searching as well, where that was asked.
    """
    attempts = [attempt for attempt in record.attempts if attempt.outage is None]
    if record.outcome == "void":
        attempts = []

    texts = tuple(attempt.result for attempt in attempts)
    truth, question = record.start.truth, record.question or ""
    tasks = [JudgeTask(question, text or "", truth) for text in texts]
    verdicts = {
        own: tuple(bool(attempt.verdict and attempt.verdict.correct) for attempt in attempts),
        **{name: tuple(map(_correct, judge.judge(tasks))) for name, judge in RULES.items()},
    }

    return Answered(
        record.question_group or "",
        question,
        texts,
        verdicts,
        tuple(f1(text or "", truth.wordings) for text in texts),
        tuple(_found(attempt.searches, truth.wordings) for attempt in attempts),
        fmean([len(attempt.searches) for attempt in attempts]) if attempts else 0.0,
        len(record.attempts) - len(attempts),
        known,
        None if attempts else _why_void(record),
    )


def outage_of(record: GameRecord) -> Outage | None:
    """What has taken a question altogether; ``None`` if an attempt at it counts."""
    if record.outcome == "void":
        return record.outage
    outages = [attempt.outage for attempt in record.attempts]
    return outages[0] if outages and all(outages) else None


def _why_void(record: GameRecord) -> str | None:
    outage = outage_of(record)
    return outage.service if outage else record.reason


def _found(searches: Sequence[SearchRecord], wordings: Sequence[str]) -> bool:
    words = [f" {normalise(wording)} " for wording in wordings]
    texts = [
        f" {normalise(text)} "
        for search in searches
        for document in search.documents
        for text in (document.title, document.text)
    ]
    return any(word in text for word in words for text in texts)


def memory(results: Sequence[Answered]) -> dict[str, float] | None:
    """The share of questions that were answered without searching, by group and over all.

    ``None`` if nothing was asked so. Questions that an outage has hit there do not count.
    """
    shares: dict[str, list[bool]] = {}
    for result in results:
        if result.known is not None:
            for group in (result.group, ALL):
                shares.setdefault(group, []).append(result.known)
    return {group: fmean(known) for group, known in shares.items()} or None


@dataclass(frozen=True)
class Row:
    """A group of questions under one judge."""

    group: str
    judge: str
    attempts: int
    """The k of the next three."""
    average: Estimate
    """avg@k: the mean share of right attempts; with one attempt, pass@1."""
    passed: dict[int, Estimate]
    """pass@j for 1, 2, 4 and so on attempts, and for k; empty with one attempt."""
    voted: Estimate | None
    """majority@k; ``None`` with one attempt."""
    f1: Estimate
    searches: float
    void: int
    """Questions that nobody answered: an outage took them, or they do not fit into a prompt."""
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
            "interval": [self.average.low, self.average.high],
            **{name: figure.mean for name, figure in self._others.items()},
            "intervals": {name: [fig.low, fig.high] for name, fig in self._others.items()},
            "searches": self.searches,
            "void": self.void,
            "lost_attempts": self.lost,
            "bounds": list(self.bounds),
        }

    @property
    def _others(self) -> dict[str, Estimate]:
        """The figures beside the average, by name."""
        voted = {} if self.voted is None else {f"majority@{self.attempts}": self.voted}
        return {**{f"pass@{j}": one for j, one in self.passed.items()}, **voted, "f1": self.f1}


def table(results: Sequence[Answered], judge: str, seed: int) -> list[Row]:
    """A row per group, and one over all if there are several; none where all questions are void.

    Args:
        results: one per question.
        judge: whose verdicts count.
        seed: of the intervals.
    """
    # An outage may have hit some attempts of a question: k is what every question has.
    k = min((len(result.answers) for result in results if result.answers), default=0)
    groups = {
        group: [result for result in results if result.group == group]
        for group in sorted({result.group for result in results})
    }
    if len(groups) > 1:
        groups[ALL] = list(results)

    rows = (_row(group, members, judge, k, seed) for group, members in groups.items())
    return [row for row in rows if row is not None]


def void_groups(results: Sequence[Answered]) -> dict[str, int]:
    """The groups of which no question was answered, with their numbers of questions."""
    sizes = Counter(result.group for result in results)
    there = {result.group for result in results if result.answers}
    return {group: size for group, size in sorted(sizes.items()) if group not in there}


def void_reasons(results: Sequence[Answered]) -> dict[str, int]:
    """What kept questions from being answered, and how many: services, and reason codes."""
    return dict(Counter(result.why_void or "unknown" for result in results if not result.answers))


def _row(group: str, results: Sequence[Answered], judge: str, k: int, seed: int) -> Row | None:
    counted = [result for result in results if result.answers]
    if not counted:
        return None

    def estimated(scores: Sequence[float]) -> Estimate:
        return estimate(scores, np.random.default_rng([seed, len(group)]))

    shares = _shares(counted, judge)
    voted = [float(majority(result.answers, result.right[judge])) for result in counted]
    passed = {
        j: estimated([pass_at_k(sum(r.right[judge]), len(r.answers), j) for r in counted])
        for j in (_numbers(k) if k > 1 else ())
    }

    void = len(results) - len(counted)
    return Row(
        group,
        judge,
        k,
        estimated(shares),
        passed,
        estimated(voted) if k > 1 else None,
        estimated([fmean(result.f1) for result in counted]),
        fmean(result.searches for result in counted),
        void,
        sum(result.void for result in counted),
        (sum(shares) / len(results), (sum(shares) + void) / len(results)),
    )


def _numbers(k: int) -> list[int]:
    """1, 2, 4 and so on below k, and k."""
    return [2**power for power in range(k.bit_length()) if 2**power < k] + [k]


def paired(
    first: Sequence[Answered], second: Sequence[Answered], judge: str, seed: int
) -> list[tuple[str, Comparison]]:
    """Two policies, question by question: a comparison per group, and one over all.

    Questions that an outage has taken from either are left out of both.

    Raises:
        UsageError: they have no question in common.
    """
    found = []
    for group, members in groups_of(pairs_of(first, second)):
        ours, others = zip(*members, strict=True)
        rng = np.random.default_rng([seed, len(group)])
        found.append((group, compare(_shares(ours, judge), _shares(others, judge), rng)))
    return found


def pairs_of(
    first: Sequence[Answered], second: Sequence[Answered]
) -> list[tuple[Answered, Answered]]:
    """What two policies made of the same questions, less those that an outage took from either.

    Raises:
        UsageError: they have no question in common.
    """
    theirs = {(result.group, result.question): result for result in second if result.answers}
    pairs = [
        (result, theirs[key])
        for result in first
        if result.answers and (key := (result.group, result.question)) in theirs
    ]
    if not pairs:
        raise UsageError("the two evaluations have no question in common")
    return pairs


def groups_of(
    pairs: Sequence[tuple[Answered, Answered]],
) -> Iterator[tuple[str, list[tuple[Answered, Answered]]]]:
    """The pairs of each group, and all of them if there are several groups."""
    groups = sorted({result.group for result, _ in pairs})
    for group in [*groups, ALL] if len(groups) > 1 else groups:
        yield group, [pair for pair in pairs if group in (ALL, pair[0].group)]


def _shares(results: Sequence[Answered], judge: str) -> list[float]:
    return [fmean(result.right[judge]) for result in results]


def _correct(verdict: Any) -> bool:
    assert not isinstance(verdict, ServiceError), "judges by rules have no outages"
    return bool(verdict.correct)
