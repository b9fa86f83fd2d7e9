"""Interfaces of judges and verifiers, their tasks and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ssp_env.errors import ServiceError, UsageError
from ssp_env.types import Document, GroundTruth, Immutable


@dataclass(frozen=True, slots=True)
class Verdict(Immutable):
    """A judgment that was reached; one that could not be is a ``ServiceError`` instead."""

    correct: bool
    detail: str = ""
    """Reason, for the record: the reader's answer, the judge's words."""

    def __post_init__(self) -> None:
        if type(self.correct) is not bool or not isinstance(self.detail, str):
            given = f"{self.correct!r:.99} and {self.detail!r:.99}"
            raise UsageError(f"Verdict takes a bool and a string, not {given}: use bool(...)")


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A solver's ``prediction``, to be compared with the ground truth."""

    question: str
    prediction: str
    truth: GroundTruth


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A question that ``documents`` alone should answer with the ground truth (Section 3.3)."""

    question: str
    truth: GroundTruth
    documents: tuple[Document, ...]
    """The proposer's documents and the noise, already shuffled."""
    shown: tuple[Document, ...] | None = None
    """The same as a policy would be shown them: cut like search results, and without the noise that
    does not fit; ``None`` where nobody cut them."""
    search: Callable[[str], tuple[Document, ...]] | None = field(
        default=None, repr=False, compare=False
    )
    """Search as a solver would see it if there were these documents alone, for verifiers that
    write queries. Raises ``ServiceError``: an outage. ``None`` where nobody can search."""


@runtime_checkable
class Judge(Protocol):
    """Decides whether a solver's answer is right: the paper's r(A(rho), a*).

    One result per task, in order: a verdict, or a ``ServiceError``, which voids the attempt of
    that task alone. Optional: ``describe()``, the settings that results depend on, as plain data;
    and an attribute ``remote``, true for one that waits for another machine."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]: ...


@runtime_checkable
class Verifier(Protocol):
    """Decides whether a proposed question is answerable from documents, without search.

    Results are a :class:`Judge`'s; ``describe()`` and ``remote`` are optional here, too."""

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]: ...
