"""The judges by rules, by name, and how often a judge agrees with people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from ssp_env.errors import ServiceError
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.judge.exact import ExactMatchJudge, F1Judge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.types import GroundTruth

BY_RULES: Mapping[str, Callable[[], Judge]] = {
    "lenient": LenientJudge,
    "exact": ExactMatchJudge,
    "f1": F1Judge,
}
"""Judges that need no model."""


def name_of(judge: Judge) -> str:
    """The name of a judge by rules; the class of any other."""
    names = {made: name for name, made in BY_RULES.items()}
    return names.get(type(judge), type(judge).__name__)


class Pair(BaseModel, strict=True, frozen=True):
    """A prediction, and whether people call it right."""

    question: str
    """May be empty."""
    answers: list[str] = Field(min_length=1)
    prediction: str
    right: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """Verdicts of a judge on labelled pairs. A figure is ``None`` where there is nothing to count.

    Outages count in no figure."""

    precision: float | None
    """Of the pairs that it passes, the share that is right."""
    recall: float | None
    """Of the pairs that are right, the share that it passes."""
    accuracy: float | None
    """Of all pairs, the share that it judges as people do."""
    errors: list[int]
    """Places of the pairs that it got wrong."""
    failed: list[ServiceError]


def measure(judge: Judge, pairs: Sequence[Pair]) -> Measured:
    """Lets a judge decide on labelled pairs."""
    tasks = []
    for place, pair in enumerate(pairs):
        truth = GroundTruth(str(place), pair.answers[0], tuple(pair.answers[1:]))
        tasks.append(JudgeTask(pair.question, pair.prediction, truth))
    results = judge.judge(tasks)

    failed = [result for result in results if isinstance(result, ServiceError)]
    judged = [
        (place, pair.right, result.correct)
        for place, (pair, result) in enumerate(zip(pairs, results, strict=True))
        if not isinstance(result, ServiceError)
    ]
    return Measured(
        precision=_share([label for _, label, said in judged if said]),
        recall=_share([said for _, label, said in judged if label]),
        accuracy=_share([said is label for _, label, said in judged]),
        errors=[place for place, label, said in judged if said is not label],
        failed=failed,
    )


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
