"""Plays whole game batches against an inference engine: the batched interface to the game."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ssp_agents.engines.base import Engine, Request
from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch, observe_results, observe_retry
from ssp_env.game.game import Attempt, Game, InitialState, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules, is_remote, waits_for_others
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.judge.base import Verdict
from ssp_env.types import Document, Question, Role

T = TypeVar("T")
_Found = list[Document] | ServiceError

EVALUATION = 0xE7A1
"""First number of evaluation's seeds, which sets its random numbers apart from self-play's."""
_CALLS_AT_ONCE = 32
"""Calls of remote services that wait side by side; each may hold many queries or tasks."""
_SERVE_FROM = 0.5
"""In-process searches are served once this many are due per running request; each call blocks the
engine."""


@dataclass
class Sampled:
    """Turns and tokens that engines of this process have finished, for a sign of life."""

    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Wall-clock seconds that the engines were at work."""


sampled = Sampled()


def play(batch: GameBatch, engine: Engine, *, temperature: float) -> GameBatch:
    """Lets the engine play a batch of games to its end, in place; temperature 0 is greedy.
    Verification has one of its own.

    No trajectory waits for another one of its phase, and searches, judges and verifiers of other
    machines are asked in threads beside the engine. What is sampled follows from the game batch's
    seed, the trajectory's place in it and the tokens so far. So whatever finishes first, games are
    the same, up to the last digits of the arithmetic of batches; where all services are of this
    process, they are the same to the last bit.
    """
    _Scheduler(batch, engine, temperature).play()
    return batch


def answer(
    rules: Rules,
    questions: Sequence[tuple[int, Question]],
    play: Callable[[GameBatch], GameBatch],
    seed: Sequence[int],
    weights_version: int = 0,
) -> list[GameRecord]:
    """Has numbered questions answered side by side, as often as ``attempts`` of the rules says; one
    record per question, in order.

    ``play`` plays a batch of games to its end. What is sampled for a question follows from the seed
    and its number: question n is game n of one batch, in whatever portions that is played."""
    states = [
        InitialState(tuple(seed), n, n, question.truth, Origin.GIVEN, question=question.text)
        for n, question in questions
    ]
    games = play(GameBatch.from_initial_states(rules, states)).games
    return [
        record_game(game, rules, weights_version, question.group)
        for game, (_, question) in zip(games, questions, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Play:
    """A trajectory in play, and its place in the game."""

    game: Game
    number: int
    trajectory: Trajectory
    attempt: Attempt | None


class _Scheduler:
    """Moves a batch of games through its phases; keeps what each trajectory waits for.

    A trajectory is with the engine (``_writing``), or waits for its search to be sent (``_due``) or
    for a remote service, called in a thread (``_calls``). Results are dealt with in this one alone.
    """

    def __init__(self, batch: GameBatch, engine: Engine, temperature: float) -> None:
        self._batch, self._engine, self._temperature = batch, engine, temperature
        self._rules = batch.rules
        self._writing: dict[int, _Play] = {}
        self._due: list[_Play] = []
        self._threads: ThreadPoolExecutor | None = None
        self._calls: dict[Future[Any], Callable[[Any], None]] = {}
        self._awaited = 0
        """Trajectories and calls of the present phase that are not over."""

    def play(self) -> None:
        """Plays the game batch to its end; after an error, engine and threads are free again."""
        try:
            self._begin_phase()

            # In each round, the engine takes a step, searches that are due leave, and what services
            # have answered meanwhile is dealt with.
            while self._writing or self._due or self._calls:
                if self._writing:
                    self._write()
                self._search()
                if self._calls:
                    # While the engine has something to do, nobody waits for services.
                    timeout = 0.0 if self._writing else None
                    done, _ = wait(self._calls, timeout, FIRST_COMPLETED)
                    # In the order of the calls, because ``done`` is a set.
                    for future in [future for future in self._calls if future in done]:
                        self._calls.pop(future)(future.result())
        finally:
            # After an error, nobody waits for what it is writing.
            self._engine.release(self._writing)
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)

    # -- phases --------------------------------------------------------------------------------

    def _begin_phase(self) -> None:
        """Asks for the turns of a phase."""
        plays = []
        for game in self._batch.games:
            if game.outcome is not Outcome.PENDING:
                continue
            # Verdicts are an attempt's; proposals and verifications have none of their own.
            attempts = {id(attempt.trajectory): attempt for attempt in game.attempts}
            for number, trajectory in enumerate(game.trajectories()):
                if trajectory.waiting is Waiting.POLICY:
                    plays.append(_Play(game, number, trajectory, attempts.get(id(trajectory))))

        self._awaited += len(plays)
        self._submit(plays)

    def _finish(self, plays: Sequence[_Play]) -> None:
        """Takes trajectories that have ended out of play."""
        self._engine.release([play.trajectory.key for play in plays])
        # Before anything is counted down: a phase whose verdicts are asked for now is not over.
        self._judge(plays)
        for _ in plays:
            self._count_down()

    def _count_down(self) -> None:
        """Counts something that the game batch waited for; after the last, its next phase
        begins."""
        self._awaited -= 1
        if self._awaited or self._batch.done:
            return

        # It verifies and judges what is left, which may wait for other machines.
        if waits_for_others(self._rules):
            self._call(self._batch.advance, lambda _: self._begin_phase())
        else:
            self._batch.advance()
            self._begin_phase()

    def _call(self, call: Callable[[], T], then: Callable[[T], None]) -> None:
        """Makes a call in a thread, for which the phase waits. Nothing else touches what it
        changes."""
        self._awaited += 1

        def done(result: T) -> None:
            # First, since it may ask for turns or make calls that the phase waits for, too.
            then(result)
            self._count_down()

        # Made for the first call: where all services are of this process, there are no threads.
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="ssp-service")
        self._calls[self._threads.submit(call)] = done

    # -- turns ---------------------------------------------------------------------------------

    def _submit(self, plays: Sequence[_Play]) -> None:
        requests = []
        for play in plays:
            written, game = play.trajectory, play.game
            self._writing[written.key] = play
            # The seed of a turn follows from its place in the game, not from the order of events.
            # The length so far tells the turns of a trajectory apart.
            name = (
                *game.initial_state.seed,
                game.index,
                play.number,
                written.role,
                len(written.ids),
            )
            digest = hashlib.blake2b(" ".join(map(str, name)).encode(), digest_size=8).digest()
            seed = int.from_bytes(digest) >> 1  # 63 bits, as PyTorch and vLLM take them
            reads = written.role is Role.VERIFIER
            at = self._rules.config.verification_temperature if reads else self._temperature
            room = written.tokens_left
            requests.append(Request(written.key, written.ids, room, at, seed, written.role))
        self._engine.submit(requests)

    def _write(self) -> None:
        """One step of the engine; if it fails, what it was asked for is void."""
        began = time.perf_counter()
        try:
            finished = self._engine.step()
        except ServiceError as error:
            # It does not say which requests it lost, so all of them are.
            plays = list(self._writing.values())
            self._writing.clear()
            self._batch.void([play.trajectory for play in plays], error)
            self._finish(plays)
            return
        finally:
            sampled.seconds += time.perf_counter() - began

        again, over = list[_Play](), list[_Play]()
        for key, generation in finished:
            play = self._writing.pop(key)
            play.trajectory.feed(generation.ids, generation.logprobs)
            sampled.turns += 1
            sampled.tokens += len(generation.ids)

            match play.trajectory.waiting:
                case Waiting.POLICY:
                    again.append(play)  # the engine stopped inside a thought, or a tool call
                case Waiting.RETRY:
                    observe_retry(self._rules, play.trajectory)
                    (over if play.trajectory.done else again).append(play)
                case Waiting.SEARCH:
                    self._due.append(play)
                case Waiting.NOTHING:
                    over.append(play)

        self._submit(again)
        self._finish(over)

    # -- services ------------------------------------------------------------------------------

    def _search(self) -> None:
        """Sends the searches that are due, unless it is better to wait for more of them."""
        # Where the engine has nothing to do, any number is enough.
        enough = len(self._due) >= _SERVE_FROM * self._engine.running
        for tool in dict.fromkeys(play.trajectory.tool for play in self._due):
            remote = is_remote(self._rules.retrievers[tool])
            if not (remote or enough):
                continue
            asked = [play for play in self._due if play.trajectory.tool == tool]
            self._due = [play for play in self._due if play.trajectory.tool != tool]

            # An outage may have ended some of them.
            plays = [play for play in asked if not play.trajectory.done]
            self._finish([play for play in asked if play.trajectory.done])
            due = [(play.game, play.trajectory) for play in plays]
            search = partial(self._batch.referee.search, due)
            if remote:
                self._call(search, partial(self._append_documents, plays))
            else:
                self._append_documents(plays, search())

    def _append_documents(self, plays: Sequence[_Play], results: Sequence[_Found]) -> None:
        for play, documents in zip(plays, results, strict=True):
            observe_results(self._rules, play.game, play.trajectory, documents)

        # Documents may end a trajectory (its budget), and an outage its whole game.
        self._submit([play for play in plays if not play.trajectory.done])
        self._finish([play for play in plays if play.trajectory.done])
        self._end_voided(results)

    def _judge(self, plays: Sequence[_Play]) -> None:
        """Has attempts that are over judged while others write, if the judge is remote."""
        if not is_remote(self._rules.judge):
            return

        # Attempts alone have verdicts, and none is needed in a game that is void already.
        ended = [
            (play.game, play.attempt)
            for play in plays
            if play.attempt is not None and play.attempt.outage is None and play.game.accepted
        ]
        if not ended:
            return

        referee = self._batch.referee
        pairs = [(game, attempt.trajectory) for game, attempt in ended]

        def then(verdicts: list[Verdict | ServiceError]) -> None:
            referee.record_verdicts(ended, verdicts)
            self._end_voided(verdicts)

        self._call(lambda: referee.verdicts(pairs), then)

    def _end_voided(self, results: Sequence[object]) -> None:
        """Ends what others were writing in games that an outage among these results has voided."""
        if not any(isinstance(result, ServiceError) for result in results):
            return

        over = [play for play in self._writing.values() if play.trajectory.done]
        for play in over:
            del self._writing[play.trajectory.key]
        self._finish(over)
