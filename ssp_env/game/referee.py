"""The referee: decides whether a question stands, which answers are right, and what a game pays.

A :class:`~ssp_env.game.round.Round` moves games along and asks the referee whenever something has
to be decided; :mod:`ssp_env.replay` asks it to pay saved games anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ssp_env.errors import ServiceError
from ssp_env.game import checked
from ssp_env.game.filters import Proposal
from ssp_env.game.game import Attempt, Game, Origin
from ssp_env.game.noise import NoiseRequest
from ssp_env.game.outcome import CLOSED_BOOK, UNVERIFIED, Ending, Outcome
from ssp_env.game.reading import Reading, find_among, fit_reading
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.types import Document


class Referee:
    """Applies the rules to games: filters, verification, the closed-book gate, verdicts, rewards.

    Every method changes games in place. It keeps no state of its own, so one referee can serve any
    number of games.
    """

    def __init__(self, rules: Rules) -> None:
        """
        Args:
            rules: what the games are played by.
        """
        self.rules = rules

    def fail(self, game: Game, reason: str) -> None:
        """Makes a game invalid, for a reason code; its proposer earns ``invalid_reward``."""
        game.outcome, game.reason = Outcome.INVALID, str(reason)

        # Nobody is paid for a question that was given or reused.
        if game.origin is Origin.PROPOSED:
            game.proposer_reward = self.rules.config.invalid_reward

    # -- before the solver's attempts ----------------------------------------------------------

    def take_proposal(self, game: Game) -> None:
        """Reads the ended proposer trajectory: a question that passes all filters, or a failure.

        Raises:
            UsageError: a filter that does not return a bool.
        """
        proposer = game.proposer
        assert proposer is not None, "only proposed games have a proposal"
        assert proposer.ending is not None, "the proposer has to have ended"

        documents = (document for search in proposer.searches for document in search.documents)
        game.evidence = tuple({document.id: document for document in documents}.values())

        if proposer.ending is not Ending.ACTION or proposer.result is None:
            self.fail(game, proposer.ending)
            return

        game.question = proposer.result
        proposal = Proposal(proposer.result, game.truth, proposer, self.rules.config)
        reason = checked.failed_filter(self.rules, proposal)
        if reason is not None:
            self.fail(game, reason)

    def draw_readings(
        self, games: Sequence[Game], retrieved: Sequence[tuple[int, Document]]
    ) -> list[tuple[Game, Reading]]:
        """Draws the noise of games and lays out what their verification reads.

        A game whose noise an outage hit is void, and not among the results.

        Args:
            games: their questions have passed the filters.
            retrieved: ``(slot, document)`` retrieved by all games' proposers, in slot order.

        Raises:
            UsageError: the noise source returned something else than noise.
        """
        requests = [
            NoiseRequest(
                game.rng,
                game.question or "",
                game.evidence,
                [(slot, document) for slot, document in retrieved if slot != game.slot],
            )
            for game in games
        ]

        readings = []
        for game, noise in zip(games, checked.noise(self.rules, requests), strict=True):
            if isinstance(noise, ServiceError):
                game.void(noise)
                continue

            game.noise = noise
            readings.append((game, self._reading(game)))
        return readings

    def _reading(self, game: Game) -> Reading:
        rules, noise = self.rules, [item.document for item in game.noise]
        question = game.question or ""
        return fit_reading(rules.prompts, rules.config, question, game.materials, noise)

    def verify(self, readings: Sequence[tuple[Game, Reading]]) -> None:
        """Asks the verifier of the rules about questions; an outage voids the game that it hit.

        Raises:
            UsageError: the verifier did not return one verdict or error per task.
        """
        # A verifier of another kind than the policy, such as a world, need not heed its budget.
        tasks = [
            VerifyTask(
                reading.question,
                game.truth,
                reading.materials,
                reading.shown(self.rules.prompts),
                partial(self._look_up, reading),
            )
            for game, reading in readings
        ]

        results = checked.verify(self.rules, tasks)
        for (game, _), result in zip(readings, results, strict=True):
            self._take_verification(game, result)

    def _look_up(self, reading: Reading, query: str) -> tuple[Document, ...]:
        """Result of a search among the documents of a verification, as it is shown.

        Raises:
            ServiceError: the search failed.
        """
        rules = self.rules
        (found,) = checked.search(rules, [query])
        if isinstance(found, ServiceError):
            raise found

        among = find_among(reading.materials, query, found)
        limit = rules.config.max_document_tokens
        return tuple(rules.prompts.as_shown(document, limit) for document in among)

    def judge_verifications(self, games: Iterable[Game]) -> None:
        """Judges what the policy answered as the verifier, like any answer (Algorithm 1).

        Raises:
            UsageError: the judge did not return one verdict or error per task.
        """
        read = [
            (game, game.verifier)
            for game in games
            if game.accepted and game.verifier is not None and game.verification is None
        ]
        for (game, _), result in zip(read, self._verdicts(read), strict=True):
            self._take_verification(game, result)

    def judge_closed_book(self, games: Iterable[Game]) -> None:
        """Rejects questions that the solver answered from memory: they need no search.

        A right answer pays the solver what it pays in an attempt. If it were worth nothing here,
        the solver would do best to play dumb, let the question pass, and answer it afterwards.

        Raises:
            UsageError: the judge did not return one verdict or error per task, or a reward is not
                a finite number.
        """
        asked = [
            (game, game.closed_book)
            for game in games
            if game.accepted and game.closed_book is not None and game.closed_book_verdict is None
        ]
        for (game, trajectory), result in zip(asked, self._verdicts(asked), strict=True):
            if isinstance(result, ServiceError):
                game.void(result)
                continue

            game.closed_book_verdict = result
            as_attempt = Attempt(trajectory, result)
            game.closed_book_reward = checked.solver_reward(self.rules, game, as_attempt)
            if result.correct:
                self.fail(game, CLOSED_BOOK)

    # -- after them ----------------------------------------------------------------------------

    def judge_attempts(self, games: Sequence[Game]) -> None:
        """Judges what is not judged yet in one call, and pays the games that no outage has voided.

        Raises:
            UsageError: the judge did not return one verdict or error per task, or a reward is not
                a finite number.
        """
        asked = [
            (game, attempt)
            for game in games
            if game.accepted
            for attempt in game.counted
            if attempt.verdict is None
        ]
        self.take_verdicts(asked, self.ask_verdicts(asked))

        for game in games:
            if game.accepted:
                self.finish(game)

    def ask_verdicts(self, asked: Sequence[tuple[Game, Attempt]]) -> list[Verdict | ServiceError]:
        """The judge's word on attempts that have ended, in one call; changes nothing.

        Raises:
            UsageError: the judge did not return one verdict or error per task.
        """
        return self._verdicts([(game, attempt.trajectory) for game, attempt in asked])

    def take_verdicts(
        self, asked: Sequence[tuple[Game, Attempt]], verdicts: Sequence[Verdict | ServiceError]
    ) -> None:
        """Hands attempts the judge's word on them; an outage voids those that it hits."""
        fewest = self.rules.config.fewest_attempts

        for (game, attempt), verdict in zip(asked, verdicts, strict=True):
            if isinstance(verdict, ServiceError):
                game.take_outage(attempt.trajectory, verdict, fewest)
            elif game.outcome is not Outcome.VOID:  # another attempt may have voided it
                attempt.verdict = game.verdict_on(attempt, verdict)

    def finish(self, game: Game) -> None:
        """Pays both roles of a game whose attempts are judged, and makes it valid.

        Void attempts are not paid.

        Raises:
            UsageError: a reward is not a finite number.
        """
        # The rewards are functions of a valid game.
        game.outcome = Outcome.VALID

        for attempt in game.counted:
            attempt.reward = checked.solver_reward(self.rules, game, attempt)
        if game.origin is Origin.PROPOSED:
            game.proposer_reward = checked.proposer_reward(self.rules, game)

    # -- shared --------------------------------------------------------------------------------

    def _take_verification(self, game: Game, result: Verdict | ServiceError) -> None:
        if isinstance(result, ServiceError):
            game.void(result)
            return

        game.verification = result
        if not result.correct:
            self.fail(game, UNVERIFIED)

    def _verdicts(self, pairs: Sequence[tuple[Game, Trajectory]]) -> list[Verdict | ServiceError]:
        """The judge's verdict on each trajectory; one without an answer is wrong without asking."""
        tasks = [
            JudgeTask(game.question or "", trajectory.result, game.truth)
            for game, trajectory in pairs
            if trajectory.result is not None
        ]
        judged = iter(checked.judge(self.rules, tasks))

        return [
            next(judged)
            if trajectory.result is not None
            else Verdict(False, f"no answer: {trajectory.ending}")
            for _, trajectory in pairs
        ]
