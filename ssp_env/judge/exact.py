"""Judges and verifiers that compare wordings, by themselves or as a world knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.types import World
from ssp_env.wording.answers import exact_match, f1


class ExactMatchJudge:
    """Right when the prediction has the normal form of the answer or of an alias."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        return [Verdict(exact_match(task.prediction, task.truth.wordings)) for task in tasks]


class F1Judge:
    """Right when the token F1 with the answer or an alias reaches a threshold, at most 1."""

    def __init__(self, threshold: float = 0.8) -> None:
        if not 0.0 < threshold <= 1.0:
            raise ConfigError("judge.threshold", threshold, "choose a number above 0 and at most 1")
        self.threshold = threshold

    def describe(self) -> dict[str, Any]:
        return {"threshold": self.threshold}

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order, with the F1 as its detail; never a ``ServiceError``."""
        scores = [f1(task.prediction, task.truth.wordings) for task in tasks]
        return [Verdict(score >= self.threshold, f"F1 {score:.3f}") for score in scores]


class WorldVerifier:
    """Verifies by parsing: the documents must support one answer only, the ground truth."""

    def __init__(self, world: World) -> None:
        if not getattr(world, "can_read", False):
            fix = f"the world {world.name!r} cannot read documents; choose policy, openai or none"
            raise ConfigError("verifier", "world", fix)
        self._world = world

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        return [self._verdict(task) for task in tasks]

    def _verdict(self, task: VerifyTask) -> Verdict:
        answers = self._world.read(task.question, task.documents)
        if answers is None:
            return Verdict(False, "the question cannot be read")

        if len(answers) != 1:
            found = f"{len(answers)} answers: {'; '.join(sorted(answers))}"
            return Verdict(False, f"the documents support {found if answers else 'no answer'}")

        (answer,) = answers
        return Verdict(exact_match(answer, task.truth.wordings), f"the documents support: {answer}")


class NoVerifier:
    """Accepts every question: the paper's ablation without RAG verification."""

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        return [Verdict(True, "there is no verifier") for _ in tasks]
