"""One game: an answer, a question about it, its verification, the attempts to solve it, and what
both roles are paid."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field

from ssp_env.errors import ServiceError
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import CLOSED_BOOK, Ending, Outage, Outcome
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.types import Document, GroundTruth, Immutable
from ssp_env.wording.mention import mentions

_log = logging.getLogger(__name__)


class Origin(StrEnum):
    PROPOSED = "proposed"
    """The proposer writes it in this game."""
    REUSED = "reused"
    """An earlier step's verified question, which the batch strategy plays in place of a failed
    proposal."""
    COMPOSED = "composed"
    """The batch strategy has put it together from several of these."""
    GIVEN = "given"
    """It came with its answer from outside: in an evaluation, or to be learnt from."""


class RandomStream(IntEnum):
    """Streams of random numbers that come of one seed, apart from each other."""

    BATCH = 0
    """Answers, and what the batch strategy draws."""
    GAME = 1
    """Number of searches that a prompt asks for, and noise."""
    DOCUMENT_ORDER = 2


@dataclass
class Attempt:
    """One trajectory that gives an answer, in solving or verification, and what the judge made of
    it."""

    trajectory: Trajectory
    verdict: Verdict | None = None
    reward: float | None = None
    outage: Outage | None = None
    """Failure that made the attempt void, so that it does not count; ``None`` for all others."""

    @property
    def right(self) -> bool:
        return self.verdict is not None and self.verdict.correct


@dataclass(frozen=True)
class InitialState(Immutable):
    """Beginning of a game; with tokens and replies of services, it decides everything."""

    seed: tuple[int, ...]
    index: Annotated[int, Field(alias="slot")]
    """The game's place in the batch; with the seed it decides all randomness of the game."""
    group: int
    """Games of one answer share a group (GRPO for the proposer)."""
    truth: GroundTruth
    origin: Origin
    asked_searches: int = 0
    """Number of searches that the proposer's prompt names; 0 where nothing is proposed."""
    question: str | None = None
    least_searches: int = 0
    """Number of different searches that an attempt needs to be right: with fewer it has taken a
    short cut. For a composed question as many as the proposers of its parts made."""
    solution: tuple[str, ...] = ()
    proposal: tuple[str, ...] = ()
    """Turns that are shown to the solver and the proposer, as a pooled question holds them."""
    asked_before: tuple[str, ...] = ()
    """Questions about this answer that earlier steps asked, where they are remembered."""
    topic: str = ""
    """What the proposer is told where it chooses the answer, which is the ``truth`` as soon as it
    has; empty where it is told that."""


@dataclass
class Game:
    """State and record of one game; :class:`~ssp_env.game.batch.GameBatch` moves it along."""

    initial_state: InitialState
    proposer: Trajectory | None = None
    question: str | None = field(init=False)
    """``None`` until the proposer has written it."""
    outcome: Outcome = Outcome.PENDING
    reason: str | None = None
    """Reason code of an invalid game; the failed service of a void one."""
    outage: Outage | None = None
    evidence: tuple[Document, ...] = ()
    """Passages that the proposer retrieved, each once, in order."""
    noise: tuple[NoiseDocument, ...] = ()
    verification_attempts: list[Attempt] = field(default_factory=list)
    """Attempts of the policy to answer from the documents, where it verifies."""
    verification: Verdict | None = None
    closed_book: Trajectory | None = None
    """The solver answering from memory, where that gate is on."""
    closed_book_verdict: Verdict | None = None
    attempts: list[Attempt] = field(default_factory=list)
    proposer_reward: float | None = None
    example: Attempt | None = None
    """A right attempt that nobody sampled, to learn from; it counts in nothing else."""
    example_proposal: Attempt | None = None
    """The same of a proposal, where the question was put together."""

    def __post_init__(self) -> None:
        self.question = self.initial_state.question

    @property
    def index(self) -> int:
        return self.initial_state.index

    @property
    def truth(self) -> GroundTruth:
        return self.initial_state.truth

    @property
    def origin(self) -> Origin:
        return self.initial_state.origin

    @cached_property
    def rng(self) -> np.random.Generator:
        """Decides what its prompt asks for and which documents are noise."""
        return np.random.default_rng([*self.initial_state.seed, RandomStream.GAME, self.index])

    @cached_property
    def materials(self) -> tuple[Document, ...]:
        """Documents of verification: evidence and noise, in an order that the seed decides, apart
        from :attr:`rng`, so that a replay need not draw the noise again."""
        return self.shuffled([*self.evidence, *(item.document for item in self.noise)])

    def shuffled(self, documents: Sequence[Document], *place: int) -> tuple[Document, ...]:
        """Documents in an order that the game's seed decides, another one for each attempt."""
        # As a spawn key, so that place 0 after a short seed is not padding.
        entropy = [*self.initial_state.seed, RandomStream.DOCUMENT_ORDER, self.index]
        rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=place))
        return tuple(documents[i] for i in rng.permutation(len(documents)).tolist())

    @property
    def accepted(self) -> bool:
        """True if its question may be solved: not failed so far, and verified if it had to be."""
        return self.outcome is Outcome.PENDING and self.question is not None

    @property
    def solve_rate(self) -> float | None:
        return self.share_right if self.outcome is Outcome.VALID else None

    @property
    def counted(self) -> list[Attempt]:
        """The attempts that no outage has hit: rewards and advantages are over these."""
        return [attempt for attempt in self.attempts if attempt.outage is None]

    @property
    def share_right(self) -> float:
        """Share of right answers among the attempts that count, 0 if there are none."""
        return sum(attempt.right for attempt in self.counted) / max(1, len(self.counted))

    @property
    def solver_reward(self) -> float | None:
        """Mean reward of a valid game's attempts that count; 0 in a game that was rejected because
        the solver knew the answer."""
        if self.outcome is Outcome.INVALID and self.reason == CLOSED_BOOK:
            return 0.0
        if self.outcome is not Outcome.VALID:
            return None
        # A game of which fewer than ``fewest_attempts`` count is void, so one counts at least.
        return sum(attempt.reward or 0.0 for attempt in self.counted) / len(self.counted)

    def verdict_on(self, attempt: Attempt, verdict: Verdict) -> Verdict:
        """The verdict on an attempt; one that took a short cut is wrong, whatever it answers."""
        # The same query twice is one look-up.
        searches = len(attempt.trajectory.queries)
        if not verdict.correct or searches >= self.initial_state.least_searches:
            return verdict
        least = self.initial_state.least_searches
        return Verdict(False, f"a short cut: fewer than {least} different searches")

    def has_read(self, attempt: Attempt) -> bool:
        """True if an attempt was shown its answer by a search that did not name it: it did not
        answer from memory, nor from the question alone."""
        said = *self.truth.wordings, attempt.trajectory.result or ""
        return any(
            shows(document, said)
            for search in attempt.trajectory.searches
            # Whoever names the answer in its query knew it: what that finds is no reading.
            if mentions(search.query, said) is None
            for document in search.documents
        )

    def trajectories(self) -> list[Trajectory]:
        # In the order of play, which names and records count on.
        first = [] if self.proposer is None else [self.proposer]
        memory = [] if self.closed_book is None else [self.closed_book]
        verifiers = [attempt.trajectory for attempt in self.verification_attempts]
        attempts = [attempt.trajectory for attempt in self.attempts]
        return [*first, *verifiers, *memory, *attempts]

    def number_of(self, trajectory: Trajectory) -> int:
        """Index of the attempt that a trajectory is, from 0 up; -1 if it is not an attempt."""
        played = (i for i, attempt in enumerate(self.attempts) if attempt.trajectory is trajectory)
        return next(played, -1)

    def record_outage(self, trajectory: Trajectory, error: ServiceError, fewest: int) -> None:
        """Notes an outage that hit one of its trajectories: an attempt is void then, as long as
        ``fewest`` can still count; anything else voids the game."""
        if self.outcome is Outcome.VOID:
            return

        number = self.number_of(trajectory)
        if number >= 0:
            attempt = self.attempts[number]
            attempt.outage = Outage(error.service, error.what, error.calls)
            attempt.verdict = attempt.reward = None
            if not trajectory.done:
                trajectory.end(Ending.OUTAGE)

        # The attempt that was hit is no longer among those that count.
        if number < 0 or len(self.counted) < fewest:
            self.void(error)
        else:
            _log.warning("an attempt of game %d is void: %s", self.index, error)

    def void(self, error: ServiceError) -> None:
        """Takes an outage of the whole game: nobody is rewarded, and live trajectories end."""
        _log.warning("game %d is void: %s", self.index, error)
        self.outcome, self.reason = Outcome.VOID, error.service
        self.outage = Outage(error.service, error.what, error.calls)

        # Verdicts of its attempts are dropped too: a void game is not trained on.
        self.proposer_reward = None
        for attempt in self.attempts:
            attempt.verdict = attempt.reward = None
        for trajectory in self.trajectories():
            if not trajectory.done:
                trajectory.end(Ending.OUTAGE)


def shows(document: Document, wordings: Sequence[str]) -> bool:
    """True if a passage shows an answer in any of its wordings."""
    text = f" {document.title} {document.text} "
    # The first test finds most of them, a hundred times as fast.
    return f" {wordings[0]} " in text or mentions(text, wordings) is not None


# -- rewards: any function of a game will do; those of the proposer that ship are in rewards.py ----

ProposerReward = Callable[[Game], float]
"""A valid game, all attempts judged -> the proposer's reward. Invalid games pay ``invalid_reward``
instead."""

SolverReward = Callable[[Game, Attempt], float]
"""A game and one of its attempts, judged -> the reward of this attempt. With the closed-book gate,
a right answer that was not read pays 0 at most, whatever this says."""


def right_answer(game: Game, attempt: Attempt) -> float:
    """1 for a right answer, 0 otherwise (the paper's r_solve)."""
    return 1.0 if attempt.right else 0.0
