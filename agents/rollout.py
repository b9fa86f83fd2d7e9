"""Plays whole rounds against an inference engine: the batched door to the game."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agents.engines.base import Engine, Request
from agents.errands import Errands
from ssp_env.errors import ServiceError
from ssp_env.game import checked
from ssp_env.game.game import Attempt, Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.parts import is_remote
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round, take_found
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.judge.base import Verdict
from ssp_env.types import Document, Question

T = TypeVar("T")
_Found = list[Document] | ServiceError

_EVALUATION = 0xE7A1
"""Sets the random numbers of evaluation apart from those of self-play."""
_SERVE_FROM = 0.5
"""Due searches per running request, from which on services of this process are asked: in batches,
because each of their calls holds up the engine."""


@dataclass
class Sampled:
    """Turns and tokens that engines of this process have finished, for a sign of life."""

    turns: int = 0
    tokens: int = 0


sampled = Sampled()


def play(round_: Round, engine: Engine, *, temperature: float) -> Round:
    """Lets the engine play all trajectories of a round to its end.

    Args:
        round_: a round; it is moved to :attr:`~ssp_env.game.round.Phase.DONE` in place.
        engine: plays both roles.
        temperature: of sampling; 0 is greedy.
    """
    play_all([round_], engine, temperature=temperature)
    return round_


def play_all(rounds: Sequence[Round], engine: Engine, *, temperature: float) -> None:
    """Lets the engine play rounds side by side, each to its end; see :func:`play`.

    No trajectory waits for another one of its phase: its search goes out while others write, and it
    writes on when the documents are there. Searches, judges and verifiers that wait for another
    machine (see :mod:`ssp_env.game.parts`) run in threads beside the engine.

    What is sampled follows from the round's seed, the trajectory's place in it and the tokens so
    far. So whatever finishes first, games are the same, up to the last digits of the arithmetic of
    batches; where all services are of this process, they are the same to the last bit.

    Args:
        rounds: all by the same rules; with remote services, each with a batch strategy of its own.
        engine: plays both roles.
        temperature: of sampling; 0 is greedy.
    """
    if not rounds:
        return

    with Errands() as errands:
        table = _Table(rounds, engine, temperature, errands)
        try:
            table.play()
        except BaseException:
            # The engine may be used again, by whoever deals with the error.
            table.leave()
            raise


def answer(
    rules: Rules,
    questions: Sequence[Question],
    engine: Engine,
    *,
    temperature: float,
    seed: int,
    at_once: int | None = None,
) -> list[GameRecord]:
    """Lets the solver answer fixed questions, once each; nothing is learnt from it.

    Args:
        rules: what is played by.
        questions: what is asked.
        engine: plays the solver.
        temperature: of sampling; 0 is greedy.
        seed: decides all randomness.
        at_once: how many are answered side by side, for an engine without memory for more; all of
            them when not given.

    Returns:
        One record per question, in order.
    """
    once = replace(rules, config=rules.config.replace(attempts=1))
    records: list[GameRecord] = []

    for first in range(0, len(questions), at_once or len(questions) or 1):
        asked = questions[first : first + at_once] if at_once else questions
        part = [first] if first else []
        round_ = play(
            Round.of_questions(once, asked, [_EVALUATION, seed, *part]),
            engine,
            temperature=temperature,
        )
        for game, question in zip(round_.games, asked, strict=True):
            record = record_game(game, rules, engine.weights_version, question.group)
            records.append(replace(record, first_slot=first))
    return records


def waits_for_others(rules: Rules) -> bool:
    """Whether a service of these rules waits for another machine, so that the order in which turns
    are batched hangs on who answers first."""
    return any(map(is_remote, (rules.retriever, rules.judge, rules.verifier)))


@dataclass(frozen=True, slots=True)
class _Seat:
    """A trajectory in play."""

    round_: Round
    game: Game
    number: int
    """Its place in the game."""
    trajectory: Trajectory
    attempt: Attempt | None

    def request(self, temperature: float) -> Request:
        """What the engine is asked for next."""
        written = self.trajectory
        name = (*self.game.seed, self.game.slot, self.number, written.role, len(written.ids))
        digest = hashlib.blake2b(" ".join(map(str, name)).encode(), digest_size=8).digest()
        seed = int.from_bytes(digest) >> 1

        return Request(
            written.key, written.ids, written.tokens_left, temperature, seed, written.role
        )


class _Table:
    """The rounds that are in play, and who waits for what."""

    def __init__(
        self, rounds: Sequence[Round], engine: Engine, temperature: float, errands: Errands
    ) -> None:
        self._rounds, self._engine, self._temperature = rounds, engine, temperature
        self._errands = errands
        self._rules = rounds[0].rules
        self._writing: dict[int, _Seat] = {}
        self._due: list[_Seat] = []
        self._awaited = {id(round_): 0 for round_ in rounds}
        """By a round's identity, how many trajectories and calls of its phase are not over."""

    def play(self) -> None:
        """Plays all rounds to their end."""
        for round_ in self._rounds:
            self._seat(round_)

        while self._writing or self._due or self._errands:
            if self._writing:
                self._write()
            self._search()
            self._errands.collect(patience=not self._writing)

    def leave(self) -> None:
        """Ends what the engine does for these rounds."""
        self._engine.release(self._writing)

    # -- phases --------------------------------------------------------------------------------

    def _seat(self, round_: Round) -> None:
        """Asks for the turns of a phase that begins; moves on where it has none."""
        seats = []
        for game in round_.games:
            if game.outcome is not Outcome.PENDING:
                continue
            attempts = {id(attempt.trajectory): attempt for attempt in game.attempts}
            for number, trajectory in enumerate(game.trajectories()):
                if trajectory.waiting is Waiting.POLICY:
                    attempt = attempts.get(id(trajectory))
                    seats.append(_Seat(round_, game, number, trajectory, attempt))

        self._awaited[id(round_)] += len(seats)
        self._submit(seats)

    def _over(self, seats: Sequence[_Seat]) -> None:
        """Takes leave of trajectories that have ended."""
        self._engine.release([seat.trajectory.key for seat in seats])
        self._judge(seats)
        for seat in seats:
            self._tick(seat.round_)

    def _tick(self, round_: Round) -> None:
        """Something that a round waited for is over; after the last, its next phase begins."""
        self._awaited[id(round_)] -= 1
        if self._awaited[id(round_)] or round_.done:
            return

        if waits_for_others(self._rules):
            self._send([round_], round_.advance, lambda _: self._seat(round_))
        else:
            round_.advance()
            self._seat(round_)

    def _send(
        self, rounds: Sequence[Round], call: Callable[[], T], then: Callable[[T], None]
    ) -> None:
        """Makes a call beside the engine, for which these rounds wait."""
        for round_ in rounds:
            self._awaited[id(round_)] += 1

        def done(result: T) -> None:
            then(result)
            for round_ in rounds:
                self._tick(round_)

        self._errands.send(call, done)

    # -- turns ---------------------------------------------------------------------------------

    def _submit(self, seats: Sequence[_Seat]) -> None:
        self._writing.update({seat.trajectory.key: seat for seat in seats})
        self._engine.submit([seat.request(self._temperature) for seat in seats])

    def _write(self) -> None:
        """One step of the engine; if it fails, what it was asked for is void."""
        try:
            finished = self._engine.step()
        except ServiceError as error:
            self._void(error)
            return

        again, over = [], []
        for key, generation in finished:
            seat = self._writing.pop(key)
            seat.trajectory.feed(generation.ids, generation.logprobs)
            sampled.turns += 1
            sampled.tokens += len(generation.ids)

            match seat.trajectory.waiting:
                case Waiting.POLICY:
                    again.append(seat)  # the engine stopped inside a thought
                case Waiting.SEARCH:
                    self._due.append(seat)
                case Waiting.NOTHING:
                    over.append(seat)

        self._submit(again)
        self._over(over)

    def _void(self, error: ServiceError) -> None:
        seats = list(self._writing.values())
        self._writing.clear()
        for round_ in self._rounds:
            round_.void([seat.trajectory for seat in seats if seat.round_ is round_], error)
        self._over(seats)

    # -- services ------------------------------------------------------------------------------

    def _search(self) -> None:
        """Sends the searches that are due, unless it is better to wait for more of them."""
        remote = is_remote(self._rules.retriever)
        if not self._due or not (remote or len(self._due) >= _SERVE_FROM * self._engine.running):
            return

        # An outage may have ended some of them.
        seats = [seat for seat in self._due if not seat.trajectory.done]
        self._over([seat for seat in self._due if seat.trajectory.done])
        self._due = []

        queries = [seat.trajectory.query or "" for seat in seats]
        if remote:
            self._send(
                [],
                lambda: checked.search(self._rules, queries),
                lambda found: self._found(seats, found),
            )
        else:
            self._found(seats, checked.search(self._rules, queries))

    def _found(self, seats: Sequence[_Seat], found: Sequence[_Found]) -> None:
        for seat, documents in zip(seats, found, strict=True):
            take_found(self._rules, seat.game, seat.trajectory, documents)

        self._submit([seat for seat in seats if not seat.trajectory.done])
        self._over([seat for seat in seats if seat.trajectory.done])
        self._sweep(found)

    def _sweep(self, results: Sequence[object]) -> None:
        """Ends what others were writing in games that an outage among these results has voided."""
        if not any(isinstance(result, ServiceError) for result in results):
            return

        over = [seat for seat in self._writing.values() if seat.trajectory.done]
        for seat in over:
            del self._writing[seat.trajectory.key]
        self._over(over)

    def _judge(self, seats: Sequence[_Seat]) -> None:
        """Has attempts that are over judged while others write, if the judge is remote."""
        if not is_remote(self._rules.judge):
            return

        asked = [
            (seat.game, seat.attempt)
            for seat in seats
            if seat.attempt is not None and seat.attempt.outage is None and seat.game.accepted
        ]
        if not asked:
            return

        referee = seats[0].round_.referee

        def then(verdicts: list[Verdict | ServiceError]) -> None:
            referee.take_verdicts(asked, verdicts)
            self._sweep(verdicts)

        rounds = {id(seat.round_): seat.round_ for seat in seats}
        self._send([*rounds.values()], lambda: referee.ask_verdicts(asked), then)
