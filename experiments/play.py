"""A person against the policy: one of them writes a turn, then the game goes on.

Reading and printing is the command's (``experiments/commands/play.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from agents.engines.base import Engine
from agents.rollout import play
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game, Origin, Start
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Action, Document, GroundTruth

WAVE = 8
"""Games of self-play that are played at a time, for their questions."""
MOST_BARREN = 12
"""Waves without any valid question after which there is nothing to solve."""
OUTAGES = 3
"""Outages in a row after which there is nothing to play: waves without a question, or games."""

_QUESTIONS, _PERSON = 0x9E57, 0x5EA7
"""First numbers of the seeds of the policy's questions and of the person's games."""


@dataclass(frozen=True)
class Asked:
    """A question that the policy wrote, that was verified, and that the policy tried to solve."""

    question: str
    truth: GroundTruth
    read: tuple[Document, ...]
    """Documents that its proposer found, in order."""
    solve_rate: float
    """Share of the policy's attempts that were right."""


class Part:
    """The person's part of a game; the policy plays all the rest."""

    def __init__(self, session: Session, round_: Round) -> None:
        self._session, self._round = session, round_
        self.trajectory: Trajectory = round_.pending()[0]

    @property
    def game(self) -> Game:
        """The game that is played."""
        return self._round.games[0]

    @property
    def over(self) -> bool:
        """True when the person's own part has ended."""
        return self.trajectory.done

    @property
    def searches_left(self) -> int:
        """Searches that the person may still make."""
        return self.trajectory.limits.max_searches - len(self.trajectory.searches)

    def unknown_words(self, text: str) -> list[str]:
        """Words that the tokenizer cannot spell: the policy would read a blank instead."""
        tokenizer = self.trajectory.limits.tokenizer
        unknown = getattr(tokenizer, "unknown_id", None)
        if unknown is None:
            return []

        return [word for word in text.split() if unknown in tokenizer.encode_data(word)]

    def write(self, action: Action, content: str) -> tuple[Document, ...]:
        """Takes the person's turn; returns what it found, if it was a search.

        Raises:
            ServiceError: the search, the verifier or the judge is out.
        """
        limits, before = self.trajectory.limits, len(self.trajectory.searches)
        tags = self._session.rules.config.tags
        turn = f"{tags.opening(action)} {content} {tags.closing(action)}"

        self.trajectory.feed_turn(limits.tokenizer.encode(turn))
        self._round.advance()

        _check_outage(self.game)
        searches = self.trajectory.searches
        return searches[-1].documents if len(searches) > before else ()

    def finish(self) -> Game:
        """Lets the policy play what remains; returns the finished game.

        Raises:
            ServiceError: an outage has voided it.
        """
        return _check_outage(play(self._round, self._session.engine, temperature=1.0).games[0])


class Session:
    """Deals games between a person and the policy; the seed decides every one of them."""

    def __init__(self, rules: Rules, engine: Engine, seed: int) -> None:
        self.rules, self.engine, self.seed = rules, engine, seed
        self._dealt = 0

    def questions(self) -> Iterator[Asked]:
        """Questions of the policy's own, easy and hard, as self-play makes them.

        Ends where the policy has not written any valid question for a long while.

        Raises:
            ServiceError: outages have left no question of several waves in a row.
        """
        barren = outages = wave = 0
        while barren < MOST_BARREN:
            games = self._self_play(wave)
            found = [_asked(game) for game in games if game.outcome is Outcome.VALID]
            hit = [game for game in games if game.outage is not None]
            wave += 1

            outages = outages + 1 if hit and not found else 0
            barren = 0 if hit or found else barren + 1
            if outages == OUTAGES:
                _check_outage(hit[0])
            yield from found

    def solver(self, asked: Asked) -> Part:
        """The person gets a question, once."""
        once = replace(self.rules, config=self.rules.config.replace(attempts=1))
        seed = (_PERSON, self.seed, self._dealt)
        start = Start(seed, 0, 0, asked.truth, Origin.GIVEN, question=asked.question)
        return self._part(Round.of_start(once, start))

    def proposer(self, truth: GroundTruth | None = None) -> Part:
        """The person gets an answer, a random one if none is given, and writes a question."""
        number = self._dealt
        if truth is None:
            (truth,) = self._answers(np.random.default_rng([_PERSON, self.seed, number]), 1)

        start = Start((_PERSON, self.seed, number), 0, 0, truth, Origin.PROPOSED, 1)
        return self._part(Round.of_start(self.rules, start))

    def rival(self, game: Game) -> Game:
        """The policy's own game about the same answer, begun in the same way.

        Raises:
            ServiceError: an outage has voided it.
        """
        round_ = Round.of_start(self.rules, Start.of(game))
        return _check_outage(play(round_, self.engine, temperature=1.0).games[0])

    def _part(self, round_: Round) -> Part:
        self._dealt += 1
        return Part(self, round_)

    def _self_play(self, wave: int) -> list[Game]:
        """The games of one wave of self-play."""
        round_ = Round(self.rules, self._answers, WAVE, [_QUESTIONS, self.seed, wave])
        return play(round_, self.engine, temperature=1.0).games

    def _answers(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        answers = self.rules.world.answers
        return [answers[i] for i in rng.choice(len(answers), count, replace=count > len(answers))]


def _check_outage(game: Game) -> Game:
    """The same game.

    Raises:
        ServiceError: an outage has voided it.
    """
    if game.outage is not None:
        raise ServiceError(game.outage.service, game.outage.what)
    return game


def _asked(game: Game) -> Asked:
    assert game.question is not None, "a valid game has a question"
    return Asked(game.question, game.truth, game.evidence, game.share_right)
