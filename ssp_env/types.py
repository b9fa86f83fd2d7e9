"""Types that every part shares: documents, answers, questions, worlds, and the game's roles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self

from ssp_env.errors import ConfigError


class Immutable:
    """Never changes once made, so that copies of a game share it instead of copying it."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Role(StrEnum):
    PROPOSER = "proposer"
    SOLVER = "solver"
    VERIFIER = "verifier"
    """The solver reading documents without search (RAG verification with the policy itself)."""
    CLOSED_BOOK = "closed_book"
    """The solver answering from memory alone (the closed-book gate)."""


class Action(StrEnum):
    SEARCH = "search"
    QUESTION = "question"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Document(Immutable):
    """One passage, as retrieved. Two documents are equal when id, title and text are."""

    id: str
    """Identifier, unique within its corpus."""
    title: str
    """Title of the page that the passage comes from; may be empty."""
    text: str
    score: float | None = field(default=None, compare=False)
    """Retrieval score, in the retriever's own unit; ``None`` outside a ranking."""


class Passages(Sequence[Document]):
    """Passages with unique ids, in a fixed order: what is searched and noise is drawn from."""

    name: str

    @abstractmethod
    def digest(self) -> str:
        """SHA-256 over ids, titles and texts in order; an index is tied to it."""


def _check_strings(kind: str, **fields: Sequence[str] | None) -> None:
    """Refuses fields that are no strings, or one string in place of several."""
    for name, values in fields.items():
        # One string would be taken for many answers of one letter.
        several = values if isinstance(values, list | tuple) else [None]
        if not all(isinstance(value, str) for value in several):
            raise ConfigError(f"{kind}.{name}", values, "give strings; several as a tuple of them")


@dataclass(frozen=True, slots=True)
class GroundTruth(Immutable):
    """An answer that a proposer writes a question for (an element of the paper's answer set D)."""

    id: str
    """Identifier, unique within its answer set."""
    answer: str
    aliases: tuple[str, ...] = ()
    """Other wordings that mean the same."""

    def __post_init__(self) -> None:
        _check_strings("GroundTruth", id=(self.id,), answer=(self.answer,), aliases=self.aliases)
        # The way to set a field of a frozen dataclass; a list would not be hashable.
        object.__setattr__(self, "aliases", tuple(self.aliases))

    @property
    def wordings(self) -> tuple[str, ...]:
        return (self.answer, *self.aliases)


@dataclass(frozen=True, slots=True)
class Question(Immutable):
    """A question that comes with its answers: a policy is measured by it, or learns from it."""

    id: str
    text: str
    answers: tuple[str, ...]
    """Every accepted wording; the first is the canonical one."""
    group: str = "all"
    """Group that accuracies are reported by: a hop count such as ``"2"``, or a benchmark's name."""

    def __post_init__(self) -> None:
        # Without an answer, nothing could be right.
        _check_strings("Question", id=(self.id,), text=(self.text,), answers=self.answers or None)
        object.__setattr__(self, "answers", tuple(self.answers))

    @property
    def truth(self) -> GroundTruth:
        return GroundTruth(self.id, self.answers[0], self.answers[1:])


@dataclass(frozen=True, slots=True)
class Analysis:
    """A world's knowledge about a question."""

    hops: int
    """Number of facts that have to be chained, in the question's shortest form; 0 if it leads back
    to an entity that it names."""
    answers: frozenset[str]
    """*All* its right answers in the whole world; empty when a fact is missing."""


class World(Protocol):
    """A closed place to search in; everything in it follows from its settings."""

    @property
    def name(self) -> str:
        """Name in configs and records."""

    @property
    def can_read(self) -> bool:
        """True if :meth:`read` works, as the symbolic verifier needs it."""

    @property
    def corpus(self) -> Passages:
        """Every passage there is to find."""

    @property
    def answers(self) -> Sequence[GroundTruth]:
        """The answer set D of self-play; shares nothing with the evaluation questions."""

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """Evaluation questions, ``per_group`` of each group (``None``: as many as suit it)."""

    def analyse(self, question: str) -> Analysis | None:
        """Analysis of any question text; ``None`` when the world cannot tell."""

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """The answers that these documents alone support; ``None`` when the world cannot read."""
