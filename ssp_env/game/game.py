"""One game: an answer, a question about it, its verification, and the attempts to solve it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from ssp_env.errors import ServiceError
from ssp_env.game.filters import FILTERS, Proposal
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.rewards import PROPOSER_REWARDS, solver_reward
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.search.base import Document
from ssp_env.worlds.base import GroundTruth

_log = logging.getLogger(__name__)


class Origin(StrEnum):
    """Where a game's question comes from."""

    PROPOSED = "proposed"
    """This game's proposer writes it."""
    REUSED = "reused"
    """An earlier step's verified question, put into a failed slot by the batch strategy."""
    GIVEN = "given"
    """A fixed question, as in evaluation."""


@dataclass
class Attempt:
    """One solver trajectory and what the judge made of it."""

    trajectory: Trajectory
    verdict: Verdict | None = None
    reward: float | None = None


@dataclass
class Game:
    """State and record of one game; :class:`~ssp_env.game.round.Round` moves it along."""

    slot: int
    """Its place in the round; with the round's seed it decides all randomness of the game."""
    group: int
    """Games of one answer share a group (GRPO for the proposer)."""
    truth: GroundTruth
    origin: Origin
    rng: np.random.Generator
    proposer: Trajectory | None = None
    question: str | None = None
    outcome: Outcome = Outcome.PENDING
    reason: str | None = None
    """Reason code of an invalid game; the failed service of a void one."""
    evidence: tuple[Document, ...] = ()
    """What the proposer retrieved, each passage once, in order."""
    noise: tuple[NoiseDocument, ...] = ()
    verifier: Trajectory | None = None
    verification: Verdict | None = None
    attempts: list[Attempt] = field(default_factory=list)
    proposer_reward: float | None = None
    asked_searches: int = 0
    """The number of searches that the proposer's prompt names."""

    @property
    def accepted(self) -> bool:
        """Whether its question may be solved: not failed so far, and verified if it had to be."""
        return self.outcome is Outcome.PENDING and self.question is not None

    @property
    def solve_rate(self) -> float | None:
        """Mean solver reward of a valid game."""
        if self.outcome is not Outcome.VALID:
            return None
        rewards = [attempt.reward for attempt in self.attempts if attempt.reward is not None]
        return sum(rewards) / len(rewards)

    def trajectories(self) -> list[Trajectory]:
        """All of them, in the order of play."""
        first = [t for t in (self.proposer, self.verifier) if t is not None]
        return first + [attempt.trajectory for attempt in self.attempts]

    def fail(self, reason: str, rules: Rules) -> None:
        """The proposer failed."""
        self.outcome, self.reason = Outcome.INVALID, str(reason)
        if self.origin is Origin.PROPOSED:
            self.proposer_reward = rules.config.invalid_reward

    def void(self, error: ServiceError) -> None:
        """A service failed: nobody is rewarded, live trajectories end."""
        _log.warning("game %d is void: %s", self.slot, error)
        self.outcome, self.reason = Outcome.VOID, error.service
        self.proposer_reward = None
        for attempt in self.attempts:
            attempt.verdict, attempt.reward = None, None
        for trajectory in self.trajectories():
            if not trajectory.done:
                trajectory.end(Ending.OUTAGE)

    def take_proposal(self, rules: Rules) -> None:
        """Reads the ended proposer trajectory: a question that passes all filters, or a failed game."""
        proposer = self.proposer
        assert proposer is not None, "only proposed games have a proposal"
        assert proposer.ending is not None, "the proposer has to have ended"
        documents = (document for search in proposer.searches for document in search.documents)
        self.evidence = tuple({document.id: document for document in documents}.values())
        if proposer.ending is not Ending.ACTION or proposer.result is None:
            self.fail(proposer.ending, rules)
            return
        proposal = Proposal(proposer.result, self.truth, proposer, rules.config)
        self.question = proposer.result
        for name in rules.config.filters:
            if FILTERS[name](proposal):
                self.fail(name, rules)
                return

    def materials(self) -> tuple[Document, ...]:
        """What verification reads: evidence and noise, shuffled by the game's own randomness."""
        documents = [*self.evidence, *(item.document for item in self.noise)]
        return tuple(documents[i] for i in self.rng.permutation(len(documents)))

    def finish(self, rules: Rules) -> None:
        """All attempts are judged: pays both roles."""
        self.outcome = Outcome.VALID
        for attempt in self.attempts:
            attempt.reward = solver_reward(attempt.verdict is not None and attempt.verdict.correct)
        if self.origin is Origin.PROPOSED:
            rate = self.solve_rate
            assert rate is not None, "a finished game has attempts"
            self.proposer_reward = PROPOSER_REWARDS[rules.config.proposer_reward](rate)
