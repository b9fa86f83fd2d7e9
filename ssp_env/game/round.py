"""A round: the games of one step, played together through propose, filter, verify and solve.

This is the one state machine of the package. Every door (the AEC env, one-role views, batched
rollouts) asks it which trajectories wait for tokens, hands those tokens over, and reads the games
off at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

import numpy as np

from ssp_env.checks import check_call, describe
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Attempt, Game, Origin, Start
from ssp_env.game.noise import checked_noise
from ssp_env.game.outcome import BUDGET_PROMPT, CLOSED_BOOK, UNVERIFIED, Outcome
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import (
    MOST_WAVES,
    BatchStrategy,
    DummyPadding,
    PooledQuestion,
    check_strategy,
)
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.search.base import search_each
from ssp_env.types import Document, GroundTruth, Question, Role


class Phase(StrEnum):
    """What the round is doing. Filtering happens at the end of ``PROPOSE``."""

    PROPOSE = "propose"
    VERIFY = "verify"
    CLOSED_BOOK = "closed_book"
    SOLVE = "solve"
    DONE = "done"


Answers = Callable[[np.random.Generator, int], Sequence[GroundTruth]]
"""Draws that many ground truths."""

Task = TypeVar("Task", JudgeTask, VerifyTask)


class Round:
    """Plays ``slots`` games side by side.

    Loop: while :meth:`pending` is not empty, give each of these trajectories tokens with
    :meth:`Trajectory.feed`, then call :meth:`advance`. All searches that became due are sent to the
    retriever as one batch there.
    """

    def __init__(
        self,
        rules: Rules,
        answers: Answers,
        slots: int,
        seed: Sequence[int],
        strategy: BatchStrategy | None = None,
    ) -> None:
        """
        Args:
            rules: what is played by.
            answers: where ground truths come from.
            slots: how many questions the step is to have; 0 plays nothing.
            seed: non-negative numbers that decide, with the tokens that are fed, everything that
                happens.
            strategy: what to do with failed slots; they stay empty when not given. ``begin_step``
                is called here.

        Raises:
            ConfigError: an argument of another kind; names it.
            UsageError: ``answers`` drew too few. :meth:`advance` raises it as well, in case of
                another wave, and where a part of the rules (retriever, judge, noise, ...) gives
                something else than it has to, or the strategy asks for waves without end or fills
                in more than is empty.
        """
        _check_arguments(answers, slots, seed)
        if strategy is not None:
            check_strategy(strategy)
        self.rules, self.slots, self.phase = rules, slots, Phase.PROPOSE
        self.games: list[Game] = []
        self.waves = 0
        self._answers, self._seed = answers, tuple(seed)
        self._strategy = strategy if strategy is not None else DummyPadding()
        self._rng = np.random.default_rng([*self._seed, 0])
        self._retrieved: list[tuple[int, Document]] = []
        self._strategy.begin_step()
        self._propose(slots)
        self.advance()

    @classmethod
    def of_questions(
        cls, rules: Rules, questions: Sequence[Question], seed: Sequence[int]
    ) -> Round:
        """A round in which given questions are solved; nothing is proposed or verified."""
        round_ = cls(rules, _none, 0, seed)
        for slot, question in enumerate(questions):
            round_._add(slot, question.truth, Origin.GIVEN).question = question.text
        round_._start_solving()
        round_.advance()
        return round_

    @classmethod
    def of_start(cls, rules: Rules, start: Start) -> Round:
        """A round of one game that begins as another one did, whatever round that was played in."""
        round_ = cls(rules, _none, 0, start.seed)
        game = round_._add(start.slot, start.truth, start.origin, start.group)
        if start.question is None:
            round_.phase, round_.slots = Phase.PROPOSE, 1
            round_._ask(game, start.asked_searches)
        else:
            game.question = start.question
            round_._start_solving()
        round_.advance()
        return round_

    def pending(self) -> list[Trajectory]:
        """The trajectories that wait for the policy's tokens, in a fixed order."""
        return [t for t in self._live() if t.waiting is Waiting.POLICY]

    def advance(self) -> None:
        """Serves all pending searches, and moves on to the next phase as often as one is
        complete."""
        advance_all([self])

    def _move_on(self) -> None:
        while self.phase is not Phase.DONE and not self._live():
            match self.phase:
                case Phase.PROPOSE:
                    self._filter_and_verify()
                case Phase.VERIFY:
                    self._read_verifications()
                    self._ask_closed_book()
                case Phase.CLOSED_BOOK:
                    self._read_closed_book()
                    self._after_gates()
                case Phase.SOLVE:
                    self._judge()

    def void(self, trajectories: Sequence[Trajectory], error: ServiceError) -> None:
        """Voids the games of these trajectories, whose engine failed."""
        keys = {trajectory.key for trajectory in trajectories}
        for game in self.games:
            if any(trajectory.key in keys for trajectory in game.trajectories()):
                game.void(error)

    @property
    def done(self) -> bool:
        """Whether all games have an outcome."""
        return self.phase is Phase.DONE

    # -- propose -------------------------------------------------------------------------------

    def _propose(self, count: int) -> None:
        self.phase = Phase.PROPOSE
        self.waves += 1
        size = self.rules.config.proposals
        first, wanted = len({game.group for game in self.games}), -(-count // size)
        truths = self._answers(self._rng, wanted) if count else ()
        if len(truths) < wanted:
            raise UsageError(f"{wanted} answers were to be drawn, but only {len(truths)} came")
        low, high = self.rules.config.asked_searches
        asked = 0
        for index in range(count):
            truth = truths[index // size]
            game = self._add(len(self.games), truth, Origin.PROPOSED, first + index // size)
            if index % size == 0:  # a group is compared with itself: all of it has one prompt
                asked = int(game.rng.integers(low, high + 1))
            self._ask(game, asked)

    def _ask(self, game: Game, searches: int) -> None:
        game.asked_searches = searches
        prompt = self.rules.prompts.proposer(game.truth.answer, searches)
        game.proposer = self._trajectory(game, Role.PROPOSER, prompt)

    def _filter_and_verify(self) -> None:
        wave = [
            game for game in self.games if game.origin is Origin.PROPOSED and game.question is None
        ]
        wave = [game for game in wave if game.outcome is Outcome.PENDING]
        for game in wave:
            game.take_proposal(self.rules)
            self._retrieved.extend((game.slot, document) for document in game.evidence)
        tasks = [(game, self._verify_task(game)) for game in wave if game.accepted]
        self.phase = Phase.VERIFY
        if self.rules.verifier is None:
            for game, task in tasks:
                game.verifier = self._verifier_trajectory(game, task)
            return
        results = _results("verifier", self.rules.verifier.verify, [task for _, task in tasks])
        for (game, _), result in zip(tasks, results, strict=True):
            self._apply_verification(game, result)

    def _verify_task(self, game: Game) -> VerifyTask:
        assert game.question is not None
        others = [(slot, document) for slot, document in self._retrieved if slot != game.slot]
        config, corpus = self.rules.config, self.rules.corpus
        drawn = self.rules.noise(game.rng, config.noise_documents, game.evidence, others, corpus)
        game.noise = checked_noise(drawn, config.noise_documents, game.evidence)
        return VerifyTask(game.question, game.truth, game.materials())

    # -- verify --------------------------------------------------------------------------------

    def _verifier_trajectory(self, game: Game, task: VerifyTask) -> Trajectory | None:
        limit = self.rules.config.max_document_tokens
        prompt = self.rules.prompts.verifier(task.question, task.documents, limit)
        return self._trajectory(game, Role.VERIFIER, prompt, task.documents)

    def _read_verifications(self) -> None:
        """The policy's own readings, judged like any answer (Algorithm 1 of the paper)."""
        read = [
            g
            for g in self.games
            if g.accepted and g.verifier is not None and g.verification is None
        ]
        verdicts = self._verdicts(
            [(game, game.verifier) for game in read if game.verifier is not None]
        )
        for game, verdict in zip(read, verdicts, strict=True):
            self._apply_verification(game, verdict)

    def _apply_verification(self, game: Game, result: Verdict | ServiceError) -> None:
        if isinstance(result, ServiceError):
            game.void(result)
            return
        game.verification = result
        if not result.correct:
            game.fail(UNVERIFIED, self.rules)

    # -- closed book ---------------------------------------------------------------------------

    def _ask_closed_book(self) -> None:
        self.phase = Phase.CLOSED_BOOK
        if not self.rules.config.closed_book:
            return
        for game in self.games:
            if game.accepted and game.origin is Origin.PROPOSED and game.closed_book is None:
                prompt = self.rules.prompts.closed_book(game.question or "")
                game.closed_book = self._trajectory(game, Role.CLOSED_BOOK, prompt)

    def _read_closed_book(self) -> None:
        """Rejects what the solver knew by heart: no search is needed for it."""
        asked = [
            g
            for g in self.games
            if g.accepted and g.closed_book is not None and g.closed_book_verdict is None
        ]
        verdicts = self._verdicts(
            [(game, game.closed_book) for game in asked if game.closed_book is not None]
        )
        for game, verdict in zip(asked, verdicts, strict=True):
            if isinstance(verdict, ServiceError):
                game.void(verdict)
                continue
            game.closed_book_verdict = verdict
            if verdict.correct:
                game.fail(CLOSED_BOOK, self.rules)

    def _after_gates(self) -> None:
        fresh = [game for game in self.games if game.accepted]
        empty = max(0, self.slots - len(fresh))
        if self._strategy.wants_more(len(fresh), self.slots, self.waves):
            self._check_wave(empty)
            self._propose(empty)
            return
        pool = [
            PooledQuestion(game.question, game.truth) for game in fresh if game.question is not None
        ]
        for item in self._filled(pool, empty):
            self._add(len(self.games), item.truth, Origin.REUSED).question = item.question
        self._start_solving()

    def _check_wave(self, empty: int) -> None:
        """Refuses waves without end."""
        asks = f"wants_more of the strategy {type(self._strategy).__name__} asks for another wave"
        if not empty:
            raise UsageError(
                f"{asks} though all {self.slots} slots hold a valid question: let it return "
                f"False then"
            )
        if self.waves >= MOST_WAVES:
            fix = "bound the waves, or a policy that only fails keeps the step from ending"
            raise UsageError(
                f"{asks} after {self.waves} waves, and {empty} of {self.slots} slots are empty: "
                f"{fix}"
            )

    def _filled(self, pool: list[PooledQuestion], empty: int) -> Sequence[PooledQuestion]:
        items = self._strategy.fill(self._rng, pool, empty)
        gave = f"fill of the strategy {type(self._strategy).__name__} gave"
        if not isinstance(items, list | tuple):
            raise UsageError(f"{gave} {describe(items)}: a list of PooledQuestions is wanted")
        if len(items) > empty:
            raise UsageError(
                f"{gave} {len(items)} questions for {empty} empty slots: at most that many are "
                f"wanted"
            )
        for item in items:
            if not isinstance(item, PooledQuestion):
                raise UsageError(f"{gave} {describe(item)}: a list of PooledQuestions is wanted")
        return items

    # -- solve ---------------------------------------------------------------------------------

    def _start_solving(self) -> None:
        self.phase = Phase.SOLVE
        config = self.rules.config
        for game in self.games:
            if not game.accepted or game.question is None:
                continue
            prompt = self.rules.prompts.solver(game.question, config.max_searches)
            for _ in range(config.attempts):
                trajectory = self._trajectory(game, Role.SOLVER, list(prompt))
                if trajectory is None:
                    break
                game.attempts.append(Attempt(trajectory))

    def _judge(self) -> None:
        asked = [
            (game, attempt) for game in self.games if game.accepted for attempt in game.attempts
        ]
        verdicts = self._verdicts([(game, attempt.trajectory) for game, attempt in asked])
        for (game, attempt), verdict in zip(asked, verdicts, strict=True):
            if isinstance(verdict, ServiceError):
                game.void(verdict)
            elif game.accepted:  # an earlier attempt may have voided it
                attempt.verdict = verdict
        for game in self.games:
            if game.accepted:
                game.finish(self.rules)
        self.phase = Phase.DONE

    def _verdicts(self, pairs: Sequence[tuple[Game, Trajectory]]) -> list[Verdict | ServiceError]:
        """The judge's word on each trajectory; one that gave no answer is wrong without asking."""
        tasks = [
            JudgeTask(game.question or "", trajectory.result, game.truth)
            for game, trajectory in pairs
            if trajectory.result is not None
        ]
        judged = iter(_results("judge", self.rules.judge.judge, tasks))
        return [
            next(judged)
            if trajectory.result is not None
            else Verdict(False, f"no answer: {trajectory.ending}")
            for _, trajectory in pairs
        ]

    # -- shared --------------------------------------------------------------------------------

    def _add(self, slot: int, truth: GroundTruth, origin: Origin, group: int | None = None) -> Game:
        game = Game(self._seed, slot, slot if group is None else group, truth, origin)
        self.games.append(game)
        return game

    def _trajectory(
        self, game: Game, role: Role, prompt: list[int], documents: tuple[Document, ...] = ()
    ) -> Trajectory | None:
        if len(prompt) > self.rules.config.max_prompt_tokens:
            game.fail(BUDGET_PROMPT, self.rules)
            return None
        about = game.truth.answer if role is Role.PROPOSER else game.question
        return Trajectory(self.rules.limits[role], prompt, about or "", documents)

    def _live(self) -> list[Trajectory]:
        live = [g for g in self.games if g.outcome is Outcome.PENDING]
        return [t for game in live for t in game.trajectories() if not t.done]

    def _due(self) -> list[tuple[Game, Trajectory]]:
        return [(g, t) for g in self.games for t in g.trajectories() if t.waiting is Waiting.SEARCH]


def _none(rng: np.random.Generator, count: int) -> Sequence[GroundTruth]:
    """The answers of a round in which nothing is proposed; a function with a name, so that it can
    be pickled."""
    return ()


def _check_arguments(answers: object, slots: object, seed: object) -> None:
    """
    Raises:
        ConfigError: one of them is of another kind.
    """
    if not callable(answers):
        raise ConfigError(
            "answers", answers, "give a function of (rng, count) that draws that many GroundTruths"
        )
    check_call("answers", answers, ("rng", "count"))
    if isinstance(slots, bool) or not isinstance(slots, int | np.integer) or slots < 0:
        raise ConfigError("slots", slots, "give a whole number, at least 0")
    if not isinstance(seed, Iterable):
        raise ConfigError("seed", seed, "give a sequence of numbers, such as [0]")


def advance_all(rounds: Sequence[Round]) -> None:
    """:meth:`Round.advance` for many rounds that share a retriever: all their searches are one
    batch."""
    due = [pair for round_ in rounds for pair in round_._due()]
    if due:
        _search(rounds[0].rules, due)
    for round_ in rounds:
        round_._move_on()


def _search(rules: Rules, due: Sequence[tuple[Game, Trajectory]]) -> None:
    results = search_each(
        rules.retriever, [trajectory.query or "" for _, trajectory in due], rules.config.top_k
    )
    limit = rules.config.max_document_tokens
    for (game, trajectory), found in zip(due, results, strict=True):
        if isinstance(found, ServiceError):
            game.void(found)
        elif not trajectory.done:
            trajectory.observe(found, rules.prompts.information(found, limit))


def _results(
    who: str, ask: Callable[[Sequence[Task]], list[Verdict | ServiceError]], tasks: Sequence[Task]
) -> list[Verdict | ServiceError]:
    """One result a task. An outage of the whole call hits every task.

    Raises:
        UsageError: the results are something else than one verdict or error a task.
    """
    if not tasks:
        return []
    try:
        results = ask(tasks)
    except ServiceError as error:
        return [error] * len(tasks)
    wanted = "a list is wanted, with one Verdict or ServiceError a task"
    if not isinstance(results, list | tuple):
        raise UsageError(f"the {who} gave {describe(results)} for {len(tasks)} tasks: {wanted}")
    if len(results) != len(tasks):
        raise UsageError(f"the {who} gave {len(results)} results for {len(tasks)} tasks: {wanted}")
    for result in results:
        if not isinstance(result, Verdict | ServiceError):
            raise UsageError(f"the {who} gave {describe(result)} for a task: {wanted}")
    return results
