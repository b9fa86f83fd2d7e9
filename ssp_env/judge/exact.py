"""Judges that compare wordings: exact match and token F1."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.wording.answers import exact_match, f1


class ExactMatchJudge:
    """Right when the prediction has the normal form of the answer or of an alias."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order; never a ``ServiceError``."""
        return [Verdict(exact_match(task.prediction, task.truth.wordings)) for task in tasks]


class F1Judge:
    """Right when the token F1 with the answer or an alias reaches a threshold."""

    def __init__(self, threshold: float = 0.8) -> None:
        """
        Args:
            threshold: the least F1 that counts as right, above 0 and at most 1.

        Raises:
            ConfigError: a threshold outside that range.
        """
        if not 0.0 < threshold <= 1.0:
            raise ConfigError("judge.threshold", threshold, "choose a number above 0 and at most 1")
        self.threshold = threshold

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order, with the F1 as its detail; never a ``ServiceError``."""
        return [self._verdict(f1(task.prediction, task.truth.wordings)) for task in tasks]

    def _verdict(self, score: float) -> Verdict:
        return Verdict(score >= self.threshold, f"F1 {score:.3f}")
