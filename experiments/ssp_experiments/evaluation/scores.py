"""Scores of an evaluation, from the records of its games: by judge, by group, against another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from ssp_env.errors import UsageError
from ssp_env.game.outcome import Outage
from ssp_env.game.record import GameRecord
from ssp_env.judge.base import Judge, JudgeTask, Verdict
from ssp_env.judge.judges import ExactMatchJudge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.wording.answers import f1, normalise
from ssp_experiments.stats import compare, over_questions

JUDGES: Mapping[str, Judge] = {"lenient": LenientJudge(), "exact": ExactMatchJudge()}
"""Judges that need no service."""
ALL = "all"
"""Name of the row over all questions."""

FIGURES = ("avg", "pass", "majority", "f1", "searches")

Row = dict[str, Any]


def score(records: Sequence[GameRecord], own: str) -> pd.DataFrame:
    """A row per judge and question, with the columns

    - ``judge``, ``group``, ``question``
    - ``avg``: share of right attempts; not a number where no attempt counts, as the next three
    - ``pass``, ``majority``: see :func:`pass_at_k` and :func:`majority`; k is the number of
      attempts that every question has, ``k`` in ``attrs``
    - ``f1``, ``searches``: means per attempt
    - ``lost``: attempts that an outage has hit
    - ``why_void``: service or reason code that left no attempt

    Rows of the judge whose verdicts the records hold, ``own``, come first.
    """
    counted = [
        [] if record.outcome == "void" else [a for a in record.attempts if a.outage is None]
        for record in records
    ]
    k = min((len(attempts) for attempts in counted if attempts), default=0)

    rows = []
    for judge in dict.fromkeys([own, *JUDGES]):
        for record, attempts in zip(records, counted, strict=True):
            texts = [attempt.result for attempt in attempts]
            truth, question = record.start.truth, record.question or ""
            verdicts: Sequence[object] = [attempt.verdict for attempt in attempts]
            if judge in JUDGES:
                tasks = [JudgeTask(question, text or "", truth) for text in texts]
                verdicts = JUDGES[judge].judge(tasks)
            right = [isinstance(one, Verdict) and bool(one.correct) for one in verdicts]

            row: Row = {
                "judge": judge,
                "group": record.question_group or "",
                "question": question,
                **dict.fromkeys(FIGURES, math.nan),
                "lost": len(record.attempts) - len(attempts),
                "why_void": None,
            }
            if attempts:
                row["avg"] = fmean(right)
                row["pass"] = pass_at_k(sum(right), len(right), k)
                row["majority"] = float(majority(texts, right))
                row["f1"] = fmean(f1(text or "", truth.wordings) for text in texts)
                row["searches"] = fmean(len(attempt.searches) for attempt in attempts)
            else:
                outage = outage_of(record)
                row["why_void"] = outage.service if outage else record.reason or "unknown"
            rows.append(row)

    scores = pd.DataFrame(rows)
    scores.attrs["k"] = k
    return scores


def outage_of(record: GameRecord) -> Outage | None:
    """The outage that has left no attempt at a question; ``None`` if an attempt counts."""
    if record.outcome == "void":
        return record.outage
    outages = [attempt.outage for attempt in record.attempts]
    return outages[0] if outages and all(outages) else None


def pass_at_k(right: int, attempts: int, k: int) -> float:
    """Probability that at least one of ``k`` attempts is right, drawn from those that were made.

    The unbiased estimate of Chen et al. (2021), "Evaluating Large Language Models Trained on
    Code": one minus the share of draws of k without a right one.
    """
    # 1 - C(n - c, k) / C(n, k), with c of n attempts right.
    return 1.0 - comb(attempts - right, k) / comb(attempts, k)


def majority(answers: Sequence[str | None], right: Sequence[bool]) -> bool:
    """Verdict on the most frequent answer (self-consistency).

    Wordings with one normal form are one answer. Of equally frequent answers the one that was
    given first counts. Attempts without an answer have no vote; if none has an answer, it is wrong.
    """
    votes = [normalise(answer) if answer else "" for answer in answers]
    counted = Counter(vote for vote in votes if vote)
    # Counter keeps the order of first appearance, and most_common() is stable.
    return bool(counted) and right[votes.index(counted.most_common(1)[0][0])]


def table(scores: pd.DataFrame, seed: int) -> list[Row]:
    """A row per judge and group that has answers, and one over all if there are several groups.

    A row holds ``judge``, ``group`` and number of ``questions``; ``avg@K`` with its ``interval``,
    ``f1`` and, with several attempts, ``pass@K`` and ``majority@K``; the ``intervals`` of all of
    them; ``searches``; and what outages took: ``void`` questions, ``lost_attempts`` at others.
    """
    k, rows = scores.attrs["k"], list[Row]()
    names = {f"avg@{k}": "avg", "f1": "f1"}
    if k > 1:
        names |= {f"pass@{k}": "pass", f"majority@{k}": "majority"}
    for judge, ours in scores.groupby("judge", sort=False):
        for group, part in _groups(ours).items():
            counted = part.dropna(subset=["avg"])
            if counted.empty:
                continue
            found = {
                name: over_questions(list(counted[column]), _rng(seed, group))
                for name, column in names.items()
            }
            # What has no answer counts in no mean: an outage says nothing of a policy.
            row = {
                "judge": judge,
                "group": group,
                "questions": len(counted),
                **{name: estimate.mean for name, estimate in found.items()},
                "interval": found[f"avg@{k}"].interval,
                "intervals": {name: estimate.interval for name, estimate in found.items()},
                "searches": float(counted["searches"].mean()),
                "void": len(part) - len(counted),
                "lost_attempts": int(counted["lost"].sum()),
            }
            rows.append(row)
    return rows


def voids(scores: pd.DataFrame) -> Row:
    """Groups without any answer, with their numbers of questions (``void_groups``), and numbers of
    questions without an answer by the service or reason code that took it (``void_reasons``)."""
    once = scores[scores["judge"] == scores["judge"].iloc[0]]
    answered = once.groupby("group")["avg"].agg(["size", "count"])
    lost = answered["size"][answered["count"] == 0]
    reasons = once["why_void"].value_counts()
    return {
        "void_groups": {str(group): int(size) for group, size in lost.items()},
        "void_reasons": {str(why): int(count) for why, count in reasons.items()},
    }


def paired(first: pd.DataFrame, second: pd.DataFrame, judge: str, seed: int) -> list[Row]:
    """Two policies, question by question: a comparison per group, and one over all.

    Questions that an outage has taken from either are left out of both.
    """
    ours, theirs = (s[s["judge"] == judge].dropna(subset=["avg"]) for s in (first, second))
    keys = ["group", "question"]
    both = ours.merge(theirs.drop_duplicates(keys), on=keys, suffixes=("", "_of_second"))
    if both.empty:
        raise UsageError("the two evaluations have no question in common")

    return [
        {
            "group": group,
            "questions": len(part),
            **compare(list(part["avg"]), list(part["avg_of_second"]), _rng(seed, group)),
        }
        for group, part in _groups(both).items()
    ]


def _groups(scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by group, and all of them if there are several groups."""
    groups = {str(group): part for group, part in scores.groupby("group")}
    return {**groups, ALL: scores} if len(groups) > 1 else groups


def _rng(seed: int, group: str) -> np.random.Generator:
    return np.random.default_rng([seed, len(group)])
