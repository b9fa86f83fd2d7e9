"""Precision and recall of a judge on pairs of answers that people have labelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssp_env.errors import ServiceError
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.types import GroundTruth


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction, and whether people call it right."""

    question: str
    """May be empty."""
    answers: tuple[str, ...]
    """Right wordings, at least one."""
    prediction: str
    right: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """Verdicts of a judge on labelled pairs."""

    judged: tuple[bool | ServiceError, ...]
    """Its verdict on each, or why there is none."""
    right: tuple[bool, ...]
    """The labels."""

    @property
    def errors(self) -> list[int]:
        """Places of the pairs that it got wrong."""
        return [
            at
            for at, (judged, right) in enumerate(zip(self.judged, self.right, strict=True))
            if isinstance(judged, bool) and judged is not right
        ]

    @property
    def failed(self) -> list[ServiceError]:
        """Outages; their pairs count in no figure."""
        return [judged for judged in self.judged if isinstance(judged, ServiceError)]

    @property
    def precision(self) -> float | None:
        """Of the pairs that it passes, the share that is right; ``None`` if it passes none."""
        return self._share(passed=True)

    @property
    def recall(self) -> float | None:
        """Of the pairs that are right, the share that it passes; ``None`` if none is right."""
        return self._share(right=True)

    @property
    def accuracy(self) -> float | None:
        """Of all pairs, the share that it judges as people do; ``None`` if it judged none."""
        judged = len(self.judged) - len(self.failed)
        return 1.0 - len(self.errors) / judged if judged else None

    def _share(self, passed: bool | None = None, right: bool | None = None) -> float | None:
        """The share of hits among the pairs that are passed, or that are right."""
        kept = [
            judged is label is True
            for judged, label in zip(self.judged, self.right, strict=True)
            if isinstance(judged, bool) and passed in (None, judged) and right in (None, label)
        ]
        return sum(kept) / len(kept) if kept else None


def measure(judge: Judge, pairs: Sequence[Pair]) -> Measured:
    """Lets a judge decide on labelled pairs."""
    tasks = [
        JudgeTask(
            pair.question, pair.prediction, GroundTruth(str(at), pair.answers[0], pair.answers[1:])
        )
        for at, pair in enumerate(pairs)
    ]
    verdicts = judge.judge(tasks)
    judged = tuple(
        verdict if isinstance(verdict, ServiceError) else verdict.correct for verdict in verdicts
    )
    return Measured(judged, tuple(pair.right for pair in pairs))
