"""A batch of games, played together through propose, filter, verify and solve.

This is the one state machine of the package. Every interface asks it which trajectories wait for
tokens, hands those tokens over, and reads the games off at the end. What has to be decided on the
way, it asks the :class:`~ssp_env.game.referee.Referee`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, ServiceError, UsageError, expect
from ssp_env.game.examples import play_examples, with_turns
from ssp_env.game.game import Attempt, Game, InitialState, Origin, RandomStream
from ssp_env.game.outcome import BUDGET_PROMPT, Ending, Outcome
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.referee import Referee
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import MOST_SAMPLINGS, BatchStrategy
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.game.verification import verification_prompt
from ssp_env.types import Document, GroundTruth, Question, Role, World

Answers = Callable[[np.random.Generator, int], Sequence[GroundTruth]]
"""Draws that many ground truths."""


class Phase(StrEnum):
    """State of a batch of games. Filtering happens at the end of ``PROPOSE``."""

    PROPOSE = "propose"
    VERIFY = "verify"
    CLOSED_BOOK = "closed_book"
    SOLVE = "solve"
    DONE = "done"


class GameBatch:
    """Plays ``num_games`` games side by side.

    Loop: while :meth:`pending` is not empty, give each of these trajectories tokens with
    :meth:`Trajectory.feed`, then call :meth:`advance`. All searches that became due are sent to the
    retriever as one batch there.

    >>> from ssp_env.envs.setup import set_up
    >>> from ssp_env.players import scripted_player
    >>> rules = set_up({"world": "mini", "game": {"attempts": 2}}).rules
    >>> batch, player = GameBatch(rules, answers_of(rules.world), 1), scripted_player(rules)
    >>> while turns := batch.pending():
    ...     print(batch.phase, len(turns))
    ...     player.play(turns)
    ...     batch.advance()
    propose 1
    propose 1
    solve 2
    solve 2
    >>> batch.games[0].outcome, batch.games[0].solve_rate
    (<Outcome.VALID: 'valid'>, 1.0)
    """

    def __init__(
        self,
        rules: Rules,
        answers: Answers | None,
        num_games: int,
        seed: Sequence[int] = (),
        strategy: BatchStrategy | None = None,
        *,
        given: Sequence[Question] = (),
        initial_states: Sequence[InitialState] = (),
        referee: Referee | None = None,
    ) -> None:
        """
        Args:
            answers: draws as many ground truths as it is asked for.
            num_games: how many games begin with a proposal.
            seed: non-negative numbers that decide, with the tokens that are fed, everything that
                happens.
            strategy: what to do in place of failed proposals; nothing when not given.
                ``begin_step`` is called here.
            given: questions that are solved beside those. They come with their answers, so they
                are neither verified nor paid to a proposer, and are no part of ``num_games``.
            initial_states: games to play in place of ``num_games`` proposals; see
                :meth:`from_initial_states`.
        """
        self.rules, self.num_games, self.phase = rules, num_games, Phase.PROPOSE
        self.games: list[Game] = []
        self.samplings = 0
        self.verified: list[PooledQuestion] = []
        """This batch's verified questions; at the end, those of valid games, with their turns."""
        self._fresh: list[Game] = []
        self.referee = referee or Referee(rules)
        """Decides; public for rollouts that have attempts judged before all have ended."""
        self._answers, self._seed = answers, tuple(seed)
        self._strategy = strategy or BatchStrategy()
        fix = "give a BatchStrategy; make_strategy makes one by its name"
        expect("strategy", self._strategy, BatchStrategy, fix)
        self._rng = np.random.default_rng([*self._seed, RandomStream.BATCH])

        self._strategy.begin_step()
        if initial_states:
            self.games += [Game(state) for state in initial_states]
            self._ask_proposers(self.games)
        else:
            self._propose(num_games)
            self._give(given)
        self.advance()

    @classmethod
    def from_initial_states(
        cls, rules: Rules, initial_states: Sequence[InitialState], referee: Referee | None = None
    ) -> GameBatch:
        """A batch of games that begin as others did, whatever batches those were played in. One
        with a question is neither verified nor shown an example."""
        return cls(rules, None, len(initial_states), initial_states=initial_states, referee=referee)

    @classmethod
    def of_questions(
        cls, rules: Rules, questions: Sequence[Question], seed: Sequence[int]
    ) -> GameBatch:
        """A batch of games in which given questions are solved; nothing is proposed or verified."""
        return cls(rules, None, 0, seed, given=questions)

    def pending(self) -> list[Trajectory]:
        """The trajectories that wait for the policy's tokens, in a fixed order."""
        return [
            trajectory
            for game in self.games
            if game.outcome is Outcome.PENDING
            for trajectory in game.trajectories()
            if trajectory.waiting is Waiting.POLICY
        ]

    def advance(self) -> None:
        """Serves all pending searches, then enters the next phase as often as one is complete."""
        advance_all([self])

    def void(self, trajectories: Sequence[Trajectory], error: ServiceError) -> None:
        """Voids these trajectories, whose engine failed: attempts alone, others with their games.

        A game of which too few attempts remain is void as well."""
        expect("error", error, ServiceError, "give a ServiceError, which names service and cause")
        keys = {trajectory.key for trajectory in trajectories}
        for game in self.games:
            for trajectory in game.trajectories():
                if trajectory.key in keys:
                    game.record_outage(trajectory, error, self.rules.config.fewest_attempts)

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    def _move_on(self) -> None:
        # A phase is complete when none of its trajectories is live. Several may pass at once: a
        # phase has no trajectories where all games failed before it.
        while self.phase is not Phase.DONE:
            pending = [game for game in self.games if game.outcome is Outcome.PENDING]
            if any(t.ending is None for game in pending for t in game.trajectories()):
                return
            # Each case ends by setting the phase that comes next.
            match self.phase:
                case Phase.PROPOSE:
                    self._filter_and_verify()
                case Phase.VERIFY:
                    self.referee.judge_verifications(self.games)
                    self._ask_closed_book()
                case Phase.CLOSED_BOOK:
                    self.referee.judge_closed_book(self.games)
                    self._after_gates()
                case Phase.SOLVE:
                    self.referee.judge_attempts(self.games)
                    # The strategy keeps the questions that are left, with what led to them.
                    self.verified = [
                        with_turns(item, game, self.rules.tags)
                        for item, game in zip(self.verified, self._fresh, strict=True)
                        if game.outcome is Outcome.VALID
                    ]
                    self._strategy.keep(self.verified)
                    self.phase = Phase.DONE

    # -- propose -------------------------------------------------------------------------------

    def _propose(self, count: int) -> None:
        """Begins that many games, ``proposals`` of them per answer, with a proposal each."""
        self.phase = Phase.PROPOSE
        self.samplings += 1

        size = self.rules.config.proposals
        groups = -(-count // size)  # rounded up: the last group may be smaller
        truths = self._answers(self._rng, groups) if groups and self._answers else ()
        if len(truths) < groups or not all(isinstance(truth, GroundTruth) for truth in truths):
            what = f"{groups} answers were to be drawn, each a GroundTruth"
            raise UsageError(f"{what}, but {len(truths)} came: {truths!r:.200}")
        # Groups are numbered on when a step proposes again, and so are games.
        proposed = [game for game in self.games if game.origin is Origin.PROPOSED]
        first = len({game.initial_state.group for game in proposed})

        low, high = self.rules.config.asked_searches
        wanted: Mapping[str, int] = getattr(self.rules.world, "asked_searches", {})
        new: list[Game] = []
        searches = 0
        # Proposal ``index`` is number ``index % size`` of group ``index // size``.
        for index in range(count):
            place, group = len(self.games) + index, index // size
            game = Game(
                InitialState(self._seed, place, first + group, truths[group], Origin.PROPOSED)
            )
            # Part of the initial state: a replay has no strategy to ask for it.
            past = self._strategy.asked_before(truths[group].id)

            # A group is compared with itself, so all of it has one prompt.
            if index % size == 0:
                searches = int(game.rng.integers(low, high + 1))
                searches = wanted.get(truths[group].id, searches)
            game.initial_state = replace(
                game.initial_state, asked_searches=searches, asked_before=past
            )
            new.append(game)

        self.games += new
        self._ask_proposers(new)

    def _give(self, questions: Sequence[Question]) -> None:
        """Begins a game about each of these questions, which waits for the phase of solving."""
        for index, question in enumerate(questions, len(self.games)):
            truth, origin = question.truth, Origin.GIVEN
            state = InitialState(self._seed, index, index, truth, origin, question=question.text)
            self.games.append(Game(state))

    def _ask_proposers(self, games: Sequence[Game]) -> None:
        for game in [game for game in games if game.origin is Origin.PROPOSED]:
            if self.rules.config.proposer_chooses and not game.initial_state.topic:
                topic = game.truth.answer
                game.initial_state = replace(game.initial_state, topic=topic)
            state = game.initial_state
            subject = state.topic or state.truth.answer
            prompt = self.rules.prompts.proposer(subject, state.asked_searches)
            game.proposer = self._trajectory(game, Role.PROPOSER, prompt)

    def _filter_and_verify(self) -> None:
        # Games of earlier samplings have a question or an outcome already.
        new = [g for g in self.games if g.question is None and g.outcome is Outcome.PENDING]
        for game in new:
            self.referee.filter_proposal(game)

        self.phase = Phase.VERIFY
        # In the order of the games, whichever ended first, so that the draw is the same.
        retrieved = [(game.index, document) for game in self.games for document in game.evidence]
        shown = self.referee.draw_documents([g for g in new if g.accepted], retrieved)
        # A verifier of the rules decides at once: its games have no attempts to wait for.
        if self.rules.verifier is not None:
            for (game, _), verdict in zip(shown, self.referee.verify(shown), strict=True):
                self.referee.apply_verification(game, verdict)
            return

        # No verifier of its own: the policy reads the documents, in n trajectories per game.
        prompts, config = self.rules.prompts, self.rules.config
        as_what = "library" if config.verifies_by_attempt else "documents"
        for game, documents in shown:
            question = game.question or ""
            for number in range(config.verifications[1]):
                # Each in an order of its own: a verdict should not depend on what comes last.
                order = game.shuffled(documents, number)
                given: dict[str, Any] = {as_what: order}
                if config.sees_candidate:
                    given["candidate"] = game.truth.answer
                ids = verification_prompt(prompts, config, game, order)
                limits = self.rules.limits[Role.VERIFIER]
                game.verification_attempts.append(
                    Attempt(Trajectory(limits, ids, question, **given))
                )

    # -- closed book ---------------------------------------------------------------------------

    def _ask_closed_book(self) -> None:
        self.phase = Phase.CLOSED_BOOK
        if not self.rules.config.closed_book:
            return

        for game in self.games:
            # Given and reused questions do not pass this gate; earlier samplings have done so.
            if game.accepted and game.origin is Origin.PROPOSED and game.closed_book is None:
                prompt = self.rules.prompts.closed_book(game.question or "")
                game.closed_book = self._trajectory(game, Role.CLOSED_BOOK, prompt)

    def _after_gates(self) -> None:
        """Proposes again, or fills up the batch and begins the attempts to solve."""
        # Given questions stand in for no proposal, and none of them enters a pool.
        fresh = [game for game in self.games if game.accepted and game.proposer is not None]
        missing = max(0, self.num_games - len(fresh))
        if self._wants_more(len(fresh), missing):
            self._propose(missing)
            return

        self._fresh = fresh
        self.verified = [
            # Filters of one's own may let a question pass that nothing was searched for.
            PooledQuestion(game.question, game.truth, max(1, len(game.proposer.queries)))
            for game in fresh
            if game.question is not None and game.proposer is not None
        ]
        play_examples(self.rules, self._fill_up(missing))
        self._ask_solvers()

    def _wants_more(self, valid: int, missing: int) -> bool:
        """True if the strategy asks for another sampling of proposals."""
        if not self._strategy.wants_more(valid, self.num_games, self.samplings):
            return False
        # A policy that only fails must not keep the step from ending.
        if not missing or self.samplings >= MOST_SAMPLINGS:
            what = f"the strategy {type(self._strategy).__name__} asks for another sampling"
            what += f" after {self.samplings}, with {missing} of {self.num_games} games missing"
            raise UsageError(f"{what}: let wants_more return False")
        return True

    def _fill_up(self, missing: int) -> list[Game]:
        """Begins games about the strategy's questions, in place of failed proposals."""
        questions = self._strategy.fill(self._rng, self.verified, missing)
        if len(questions) > missing:
            what = f"fill of the strategy {type(self._strategy).__name__} gave {len(questions)}"
            raise UsageError(f"{what} questions where {missing} are missing")
        games = []
        for index, item in enumerate(questions, len(self.games)):
            # Reused or composed: neither verified again nor paid to a proposer.
            composed = item.parts > 1
            state = InitialState(
                self._seed,
                index,
                index,
                item.truth,
                Origin.COMPOSED if composed else Origin.REUSED,
                question=item.question,
                least_searches=item.searches if composed else 0,
                solution=item.solution,
                # Its own proposal has been learnt from, in the step that it was written in.
                proposal=item.proposal if composed else (),
                asked_before=self._strategy.asked_before(item.truth.id) if composed else (),
            )
            games.append(Game(state))
        self.games += games
        return games

    # -- solve ---------------------------------------------------------------------------------

    def _ask_solvers(self) -> None:
        self.phase, config = Phase.SOLVE, self.rules.config
        for game in [game for game in self.games if game.accepted]:
            prompt = self.rules.prompts.solver(game.question or "", config.max_searches)
            for _ in range(config.attempts):
                # n attempts at one prompt: the group that GRPO compares.
                trajectory = self._trajectory(game, Role.SOLVER, list(prompt))
                if trajectory is not None:
                    game.attempts.append(Attempt(trajectory))

    def _trajectory(self, game: Game, role: Role, prompt: list[int]) -> Trajectory | None:
        """A new trajectory; ``None``, and the game fails, if the prompt is too long."""
        if len(prompt) > self.rules.config.max_prompt_tokens:
            self.referee.fail(game, BUDGET_PROMPT)
            return None

        told = game.initial_state.topic or game.truth.answer
        about = told if role is Role.PROPOSER else game.question
        return Trajectory(self.rules.limits[role], prompt, about or "")


def check_questions(rules: Rules, questions: Sequence[Question]) -> None:
    """Refuses given questions that the policy could only read as unknown tokens."""
    strange = [q.text for q in questions if not rules.prompts.can_spell(q.text)]
    if strange:
        what = f"the tokenizer has no tokens for {len(strange)} of {len(questions)}"
        fix = f"{what}, such as {strange[0]!r:.100}; take other words, or a tokenizer for any text"
        raise ConfigError("questions", f"{len(questions)} questions", fix)


def answers_of(world: World) -> Answers:
    """Draws answers of a world: each once, unless there are fewer than are asked for."""
    known = world.answers

    def draw(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        if not known:
            fix = "nothing can be proposed without answers; give the world some"
            raise ConfigError("world.answers", [], fix)
        return [known[i] for i in rng.choice(len(known), count, replace=count > len(known))]

    return draw


def advance_all(game_batches: Sequence[GameBatch]) -> None:
    """:meth:`GameBatch.advance` for batches that share their rules: their searches are one
    batch."""
    due = list[tuple[Game, Trajectory]]()
    for batch in game_batches:
        for game in batch.games:
            for trajectory in game.trajectories():
                if (waiting := trajectory.waiting) is Waiting.SEARCH:
                    due.append((game, trajectory))
                elif waiting is Waiting.RETRY:
                    observe_retry(batch.rules, trajectory)
    if due:
        rules, results = game_batches[0].rules, game_batches[0].referee.search(due)
        for (game, trajectory), found in zip(due, results, strict=True):
            observe_results(rules, game, trajectory, found)

    for batch in game_batches:
        batch._move_on()


def observe_results(
    rules: Rules, game: Game, trajectory: Trajectory, found: list[Document] | ServiceError
) -> None:
    """Hands a trajectory the documents that were found for its query, or the error.

    Called apart only to search before :meth:`GameBatch.advance` does, while others still write."""
    if trajectory.ending is not None:
        return  # another search of the game has voided it

    # A query that the service refuses ends its trajectory; an outage is nobody's fault.
    if isinstance(found, ServiceError) and found.fault == "text":
        trajectory.end(Ending.REFUSED)
    elif isinstance(found, ServiceError):
        game.record_outage(trajectory, found, rules.config.fewest_attempts)
    else:
        limit = rules.config.max_document_tokens
        trajectory.observe(found, rules.prompts.information(found, limit, trajectory.about))


def observe_retry(rules: Rules, trajectory: Trajectory) -> None:
    """Hands a trajectory the message about its malformed action."""
    trajectory.observe(None, rules.prompts.retry(trajectory.limits.actions))
