"""The referee: decides whether a question stands, which answers are right, and what a game pays.

A :class:`~ssp_env.game.batch.GameBatch` moves games along and asks the referee whenever something
has to be found or decided. A ``ServiceError`` of a part of the rules is an outage; any other
exception is a mistake of its code and propagates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

from ssp_env.errors import ServiceError, SSPError, UsageError, expect
from ssp_env.game.filters import Proposal
from ssp_env.game.game import Attempt, Game, Origin
from ssp_env.game.noise import NoiseDocument, Retrieved
from ssp_env.game.outcome import BUDGET_PROMPT, CLOSED_BOOK, UNVERIFIED, Ending, Outcome
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.game.verification import find_among, fit_documents, says_yes
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.search.base import Results, all_found, search_each
from ssp_env.search.pages import LONGEST
from ssp_env.types import Action, Document, GroundTruth

Verdicts = list[Verdict | ServiceError]
"""Per task its verdict, or the outage that hit it."""


class Referee:
    """Applies the rules to games; it keeps no state of its own, so one can serve any number.

    >>> from ssp_env.envs.setup import set_up
    >>> from ssp_env.game.game import InitialState
    >>> from ssp_env.types import Role
    >>> rules = set_up({"world": "small"}).rules
    >>> start = InitialState((0,), 0, 0, rules.world.answers[0], Origin.PROPOSED, question="who ?")
    >>> game, limits = Game(start), rules.limits[Role.SOLVER]
    >>> game.attempts = [Attempt(Trajectory(limits, []), Verdict(r)) for r in (True, False)]
    >>> Referee(rules).finish(game)
    >>> [attempt.reward for attempt in game.attempts], game.proposer_reward
    ([1.0, 0.0], 0.5)
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    # -- services ------------------------------------------------------------------------------

    def search(self, due: Sequence[tuple[Game, Trajectory]]) -> Results:
        """Results of the searches that these trajectories wait for: documents or an error each."""
        rules, shown = self.rules, dict[int, list[Document] | ServiceError]()
        for tool in dict.fromkeys(trajectory.tool for _, trajectory in due):
            asked = [trajectory for _, trajectory in due if trajectory.tool == tool]
            retriever, queries = rules.retrievers[tool], [t.query or "" for t in asked]
            reads_on = bool(getattr(retriever, "reads_on", False))
            with blaming("retriever" if tool == Action.SEARCH else f"tool {tool}"):
                # Of a page, what comes first may have been read.
                k = LONGEST if reads_on else rules.config.top_k
                results = search_each(retriever, queries, k)
            for trajectory, found in zip(asked, results, strict=True):
                narrows = trajectory.library is not None or reads_on
                if narrows and not isinstance(found, ServiceError):
                    found = self._narrowed(trajectory, found, reads_on)
                shown[trajectory.key] = found
        return [shown[trajectory.key] for _, trajectory in due]

    def _narrowed(
        self, trajectory: Trajectory, found: list[Document], reads_on: bool
    ) -> list[Document]:
        """Of what was found, what a trajectory can find, and has not read where it reads on."""
        library = trajectory.library
        if library is not None and trajectory.tool == Action.SEARCH:
            return find_among(library, trajectory.query or "", found)
        if library is not None:
            known = {document.id for document in library}
            found = [document for document in found if document.id in known]
        if reads_on:
            read = {each.id for search in trajectory.searches for each in search.documents}
            # At its end, a page begins anew.
            found = [document for document in found if document.id not in read] or found
        return found[: self.rules.config.top_k]

    def judge(self, pairs: Sequence[tuple[Game, Trajectory]]) -> Verdicts:
        """Verdicts on trajectories that ended with an answer, in one call."""
        tasks = [JudgeTask(game.question or "", t.result or "", game.truth) for game, t in pairs]
        return ask_each("judge", self.rules.judge.judge, tasks)

    def verify(self, shown: Sequence[tuple[Game, tuple[Document, ...]]]) -> Verdicts:
        """Verdicts of the rules' own verifier on questions, given the documents that fit."""
        prompts, limit = self.rules.prompts, self.rules.config.max_document_tokens
        # A verifier of another kind than the policy, such as a world, need not heed its budget.
        tasks = [
            VerifyTask(
                game.question or "",
                game.truth,
                game.materials,
                tuple(prompts.as_shown(document, limit) for document in documents),
                partial(self._look_up, game),
            )
            for game, documents in shown
        ]
        assert self.rules.verifier is not None, "the policy itself verifies"
        return ask_each("verifier", self.rules.verifier.verify, tasks)

    def _look_up(self, game: Game, query: str) -> tuple[Document, ...]:
        """Result of a search among the documents of a verification, as it is shown."""
        rules = self.rules
        with blaming("retriever"):
            (found,) = all_found(search_each(rules.retriever, [query], rules.config.top_k))
        among = find_among(game.materials, query, found)
        limit = rules.config.max_document_tokens
        return tuple(rules.prompts.as_shown(document, limit) for document in among)

    def noise(self, game: Game, others: Retrieved) -> tuple[NoiseDocument, ...]:
        """Noise for a game whose question has passed the filters; ``ServiceError`` is an outage."""
        rules, count = self.rules, self.rules.config.noise_documents
        with blaming("noise"):
            noise = rules.noise(game.rng, count, game.evidence, others, rules.corpus)
        fix = "your noise has to return a tuple of NoiseDocuments"
        expect("noise", noise, list | tuple, fix)
        for each in noise:
            expect("noise", each, NoiseDocument, fix)
        return tuple(noise)

    # -- before the solver's attempts ----------------------------------------------------------

    def fail(self, game: Game, reason: str) -> None:
        """Makes a game invalid, for a reason code; its proposer earns ``invalid_reward``."""
        game.outcome, game.reason = Outcome.INVALID, str(reason)

        # Nobody is paid for a question that was given or reused.
        if game.origin is Origin.PROPOSED:
            game.proposer_reward = self.rules.config.invalid_reward

    def filter_proposal(self, game: Game) -> None:
        """Reads the ended proposer trajectory: a question that passes all filters, or a failure."""
        proposer = game.proposer
        assert proposer is not None, "only proposed games have a proposal"
        assert proposer.ending is not None, "the proposer has to have ended"

        documents = (document for search in proposer.searches for document in search.documents)
        game.evidence = tuple({document.id: document for document in documents}.values())

        if proposer.ending is not Ending.ACTION or proposer.result is None:
            # No question: the code is how the trajectory ended.
            self.fail(game, proposer.ending)
            return

        question, state = proposer.result, game.initial_state
        if self.rules.config.proposer_chooses:
            question, answer = chosen(question)
            state = replace(state, truth=GroundTruth(state.truth.id, answer))
            game.initial_state = state
        game.question, past = question, state.asked_before
        proposal = Proposal(question, game.truth, proposer, self.rules.config, past)
        # The first that fails gives the reason.
        for name, fails in self.rules.filters.items():
            try:
                with blaming(f"filter {name}"):
                    failed = fails(proposal)
            except ServiceError as error:
                game.void(error)
                return
            if failed not in (True, False):
                raise UsageError(f"the filter {name} has to return a bool, not {failed!r:.200}")
            if failed:
                self.fail(game, name)
                return

        # The solver's prompt must have room for it.
        config = self.rules.config
        prompt = self.rules.prompts.solver(question, config.max_searches)
        if len(prompt) > config.max_prompt_tokens:
            self.fail(game, BUDGET_PROMPT)

    def draw_documents(
        self, games: Sequence[Game], retrieved: Retrieved
    ) -> list[tuple[Game, tuple[Document, ...]]]:
        """Draws the noise of games; returns with each the documents that its verification shows.

        A game whose noise an outage hit is void, and not among the results."""
        rules, count, shown = self.rules, self.rules.config.noise_documents, []
        found: Results = [[] for _ in games]
        near = getattr(rules.noise, "searches", False)
        if near and count and games:
            # Deep enough that ``count`` are left without those of the proposer.
            depth = count + max(len(game.evidence) for game in games)
            with blaming("retriever"):
                found = search_each(rules.retriever, [g.question or "" for g in games], depth)

        for game, result in zip(games, found, strict=True):
            # What its own proposer retrieved is evidence, not noise.
            others = [(index, document) for index, document in retrieved if index != game.index]
            try:
                if near and isinstance(result, ServiceError) and result.fault == "text":
                    others = []  # no outage: the question cannot be searched for
                elif near:
                    others = [(game.index, document) for document in all_found([result])[0]]
                game.noise = self.noise(game, others)
            except ServiceError as error:
                game.void(error)
                continue

            orders = partial(self._orders, game)
            shown.append((game, fit_documents(rules.prompts, rules.config, game, orders)))
        return shown

    def _orders(self, game: Game, documents: Sequence[Document]) -> list[Sequence[Document]]:
        """The orders in which these documents are read by those who verify."""
        if self.rules.verifier is not None:
            return [documents]
        return [game.shuffled(documents, i) for i in range(self.rules.config.verifications[1])]

    def apply_verification(self, game: Game, result: Verdict | ServiceError) -> None:
        """Takes the verdict of a verification; an outage voids the game."""
        if isinstance(result, ServiceError):
            game.void(result)
            return

        game.verification = result
        if not result.correct:
            self.fail(game, UNVERIFIED)

    def judge_verifications(self, games: Iterable[Game]) -> None:
        """Judges what the policy answered as the verifier, like any answer (Algorithm 1); one that
        is shown the answer decides itself."""
        read = [
            g for g in games if g.accepted and g.verification_attempts and g.verification is None
        ]
        pairs = [(game, attempt) for game in read for attempt in game.verification_attempts]
        verdicts: Verdicts
        if decides := self.rules.config.sees_candidate:
            verdicts = [says_yes(attempt.trajectory.result) for _, attempt in pairs]
        else:
            verdicts = self.verdicts([(game, attempt.trajectory) for game, attempt in pairs])
        for (game, attempt), result in zip(pairs, verdicts, strict=True):
            if isinstance(result, ServiceError):
                game.void(result)
            else:
                attempt.verdict = result

        # k of n attempts (the paper: 1 of 1); an outage above has voided the whole game.
        least, _ = self.rules.config.verifications
        for game in read:
            if game.accepted:
                right = sum(attempt.right for attempt in game.verification_attempts)
                what = "say yes" if decides else "give the answer"
                detail = f"{right} of {len(game.verification_attempts)} readings {what}"
                self.apply_verification(game, Verdict(right >= least, detail))

    def judge_closed_book(self, games: Iterable[Game]) -> None:
        """Rejects questions that the solver answered from memory: they need no search.

        Nothing is paid here, and :meth:`finish` pays nothing for such an answer afterwards: neither
        a code in the question nor playing dumb at this gate earns anything."""
        pairs = [
            (game, game.closed_book)
            for game in games
            if game.accepted and game.closed_book is not None and game.closed_book_verdict is None
        ]
        for (game, _), result in zip(pairs, self.verdicts(pairs), strict=True):
            if isinstance(result, ServiceError):
                game.void(result)
                continue

            game.closed_book_verdict = result
            if result.correct:
                self.fail(game, CLOSED_BOOK)

    # -- after them ----------------------------------------------------------------------------

    def judge_attempts(self, games: Sequence[Game]) -> None:
        """Judges what is not judged yet in one call, and pays games that no outage has voided."""
        pairs = [
            (game, attempt)
            for game in games
            if game.accepted
            for attempt in game.counted
            if attempt.verdict is None
        ]
        self.record_verdicts(pairs, self.verdicts([(game, a.trajectory) for game, a in pairs]))

        for game in games:
            if game.accepted:
                try:
                    self.finish(game)
                except ServiceError as error:  # of a filter or a reward
                    game.void(error)

    def verdicts(self, pairs: Sequence[tuple[Game, Trajectory]]) -> Verdicts:
        """Verdicts on ended trajectories, in one call; one without an answer is wrong unasked."""
        judged = iter(self.judge([(game, t) for game, t in pairs if t.result is not None]))
        return [
            next(judged) if t.result is not None else Verdict(False, f"no answer: {t.ending}")
            for _, t in pairs
        ]

    def record_verdicts(
        self, attempts: Sequence[tuple[Game, Attempt]], verdicts: Sequence[Verdict | ServiceError]
    ) -> None:
        """Hands attempts their verdicts; an outage voids those that it hits."""
        fewest = self.rules.config.fewest_attempts

        for (game, attempt), verdict in zip(attempts, verdicts, strict=True):
            if isinstance(verdict, ServiceError):
                game.record_outage(attempt.trajectory, verdict, fewest)
            elif game.outcome is not Outcome.VOID:  # another attempt may have voided it
                attempt.verdict = game.verdict_on(attempt, verdict)

    def finish(self, game: Game) -> None:
        """Pays both roles of a game whose attempts are judged, and makes it valid, unless these
        attempts refuse its question. Void ones are not paid, and do not vote."""
        # Attempts are not paid then, and the proposal is paid as an invalid one.
        for code, fails in self.rules.attempt_filters.items():
            if game.origin is Origin.PROPOSED and fails(game):
                self.fail(game, code)
                return

        # The rewards are functions of a valid game.
        game.outcome = Outcome.VALID

        # An example is learnt from with the others, but is no vote in the solve rate.
        shown = [] if game.example is None else [game.example]
        for attempt in [*game.counted, *shown]:
            attempt.reward = _paid("solver", self.rules.solver_reward, game, attempt)
        # Given questions came from outside: no code of the proposer's is in them.
        if self.rules.config.closed_book and game.origin is not Origin.GIVEN:
            for attempt in game.counted:
                if attempt.right and attempt.reward and not game.has_read(attempt):
                    attempt.reward = min(attempt.reward, 0.0)
        if game.example_proposal is not None:
            # As a proposal, these attempts may have refused it.
            if any(fails(game) for fails in self.rules.attempt_filters.values()):
                game.example_proposal = None
            else:
                reward = _paid("proposer", self.rules.proposer_reward, game)
                game.example_proposal.reward = reward
        if game.origin is Origin.PROPOSED:
            game.proposer_reward = _paid("proposer", self.rules.proposer_reward, game)


def chosen(proposed: str) -> tuple[str, str]:
    """A question, and the answer that its proposer chose, which is its last line; empty if there is
    no other line.

    >>> chosen("Which river flows through Vienna?\\nDanube")
    ('Which river flows through Vienna?', 'Danube')
    """
    question, _, answer = proposed.rpartition("\n")
    return (question.strip(), answer.strip()) if question else (proposed, "")


def ask_each(part: str, ask: Callable[[Any], Verdicts], tasks: Sequence[Any]) -> Verdicts:
    """One verdict of a judge or verifier per task, or the outage that hit it; no tasks, no call.

    A text that it refuses gets a verdict against it: no player can void a game by what it writes.
    """
    if not tasks:
        return []
    try:
        with blaming(part):
            results = ask(tasks)
    except ServiceError as error:
        if error.fault == "text" and len(tasks) > 1:  # whose text?
            return [result for task in tasks for result in ask_each(part, ask, [task])]
        results = [error] * len(tasks)  # it hits every task
    what = f"the {part} has to return a list of one Verdict, or ServiceError, per task"
    if not isinstance(results, list | tuple) or len(results) != len(tasks):
        raise UsageError(f"{what}: {len(tasks)}, not {results!r:.200}")
    for result in results:
        if not isinstance(result, Verdict | ServiceError):
            raise UsageError(f"{what}, not {result!r:.200}")

    return [
        Verdict(False, f"refused: {result.what}")
        if isinstance(result, ServiceError) and result.fault == "text"
        else result
        for result in results
    ]


@contextmanager
def blaming(part: str) -> Iterator[None]:
    """Notes on a foreign exception which part of the rules raised it."""
    try:
        yield
    except SSPError:
        raise
    except Exception as error:
        error.add_note(f"It arose in the {part} of your rules: fix it there, not in the game.")
        raise


def _paid(role: str, reward: Callable[..., float], *of: Game | Attempt) -> float:
    with blaming(f"{role}_reward"):
        paid = reward(*of)
    if not isinstance(paid, Real) or not math.isfinite(paid):
        what = f"the {role}'s reward is {paid!r:.200}: a finite number is wanted"
        raise UsageError(f"{what}; mend {role}_reward")
    return float(paid)
