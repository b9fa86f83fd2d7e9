"""What a judge and a verifier are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ssp_env.checks import describe
from ssp_env.errors import ServiceError, UsageError
from ssp_env.types import Document, GroundTruth


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgment that was reached. A judgment that could not be reached is a ``ServiceError``
    instead."""

    correct: bool
    detail: str = ""
    """Why, for the record: the reader's answer, the judge's words."""

    def __post_init__(self) -> None:
        """
        Raises:
            UsageError: ``correct`` is no bool, or ``detail`` no string.
        """
        if type(self.correct) is not bool:
            raise UsageError(
                f"Verdict.correct is True or False, not {describe(self.correct)}: use bool(...)"
            )
        if not isinstance(self.detail, str):
            raise UsageError(
                f"Verdict.detail is a string, not {describe(self.detail)}: use str(...)"
            )


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """Is ``prediction`` a right answer to ``question``, given the ground truth?"""

    question: str
    prediction: str
    truth: GroundTruth


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Can ``question`` be answered with the ground truth from ``documents`` alone (the paper's
    Section 3.3)?"""

    question: str
    truth: GroundTruth
    documents: tuple[Document, ...]
    """The proposer's documents and the noise, already shuffled."""


@runtime_checkable
class Judge(Protocol):
    """Decides whether a solver's answer is right: the paper's r(A(rho), a*).

    One result a task, in order: a verdict, or the ``ServiceError`` that voids that task's game
    alone."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]: ...


@runtime_checkable
class Verifier(Protocol):
    """Decides whether a proposed question is answerable from documents, without search.

    One result a task, in order: a verdict, or the ``ServiceError`` that voids that task's game
    alone."""

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]: ...
