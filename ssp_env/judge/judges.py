"""Judges and verifiers without a model, by name, and how often a judge agrees with people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, Field

from ssp_env.config import load, own_code
from ssp_env.errors import ConfigError, ServiceError, check_part, nearest
from ssp_env.judge.base import Judge, JudgeTask, Verdict, VerifyTask
from ssp_env.judge.lenient import LenientJudge
from ssp_env.types import GroundTruth, World
from ssp_env.wording.normal import exact_match, f1


class ExactMatchJudge:
    """Right when the prediction has the normal form of the answer or of an alias."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        return [Verdict(exact_match(task.prediction, task.truth.wordings)) for task in tasks]


class F1Judge:
    """Right when the token F1 with the answer or an alias reaches a threshold, at most 1."""

    def __init__(self, threshold: float = 0.8) -> None:
        self.threshold = threshold

    def describe(self) -> dict[str, Any]:
        return {"threshold": self.threshold}

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """The F1 is a verdict's detail."""
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
            supported = f"{len(answers)} answers: {'; '.join(sorted(answers))}"
            return Verdict(False, f"the documents support {supported if answers else 'no answer'}")

        (answer,) = answers
        return Verdict(exact_match(answer, task.truth.wordings), f"the documents support: {answer}")


class NoVerifier:
    """Accepts every question: the paper's ablation without RAG verification."""

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        return [Verdict(True, "there is no verifier") for _ in tasks]


BY_RULES: Mapping[str, Callable[[], Judge]] = {
    "lenient": LenientJudge,
    "exact": ExactMatchJudge,
    "f1": F1Judge,
}


def open_judge(name: str) -> Judge:
    """A judge by rules, or one of your own as ``module:name``: a judge, or what makes one."""
    if ":" not in name:
        if name not in BY_RULES:
            fix = f"{nearest(name, BY_RULES)}; a judge of your own is MODULE:NAME"
            raise ConfigError("judge", name, fix)
        return BY_RULES[name]()
    made = load("judge", name)
    if not hasattr(made, "judge") or isinstance(made, type):
        with own_code("judge", name):
            made = made()
    check_part("judge", made, "judge")
    return cast(Judge, made)


def name_of(judge: Judge) -> str:
    """The name of a judge by rules; the class of any other."""
    names = {made: name for name, made in BY_RULES.items()}
    return names.get(type(judge), type(judge).__name__)


class Pair(BaseModel, strict=True, frozen=True):
    """A prediction, and whether people call it right."""

    question: str
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
    details: list[str]
    """Of each pair, the verdict's reason, or the outage."""
    failed: list[ServiceError]


def measure(judge: Judge, pairs: Sequence[Pair]) -> Measured:
    def share(flags: Sequence[bool]) -> float | None:
        return sum(flags) / len(flags) if flags else None

    truths = [GroundTruth("", pair.answers[0], tuple(pair.answers[1:])) for pair in pairs]
    tasks = [JudgeTask(p.question, p.prediction, t) for p, t in zip(pairs, truths, strict=True)]
    results = judge.judge(tasks)
    judged = [
        (place, pair.right, result.correct)
        for place, (pair, result) in enumerate(zip(pairs, results, strict=True))
        if not isinstance(result, ServiceError)
    ]
    return Measured(
        precision=share([label for _, label, said in judged if said]),
        recall=share([said for _, label, said in judged if label]),
        accuracy=share([said is label for _, label, said in judged]),
        errors=[place for place, label, said in judged if said is not label],
        details=[r.what if isinstance(r, ServiceError) else r.detail for r in results],
        failed=[result for result in results if isinstance(result, ServiceError)],
    )
