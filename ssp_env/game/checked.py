"""Checks of what user parts return: retriever, judge, verifier, filters, noise, rewards, strategy.

:class:`~ssp_env.game.rules.Rules` puts :class:`CheckedParts` around the parts that it was given, as
PettingZoo puts ``OrderEnforcingWrapper`` around an env, so that neither the state machine nor the
referee has to doubt what it gets. Every error is a ``UsageError`` that names the part, what it
returned, and what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from ssp_env.checks import describe
from ssp_env.errors import ServiceError, SSPError, UsageError
from ssp_env.game.filters import Filter, Proposal
from ssp_env.game.game import Attempt, Game
from ssp_env.game.noise import NearNoise, NoiseDocument, NoiseRequest, NoiseSource
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.rewards import ProposerReward, SolverReward
from ssp_env.game.strategies import MOST_WAVES, BatchStrategy
from ssp_env.judge.base import Judge, JudgeTask, Verdict, Verifier, VerifyTask
from ssp_env.search.base import Retriever, check_count, search_each
from ssp_env.types import Document, GroundTruth

_Task = TypeVar("_Task", JudgeTask, VerifyTask)

Answers = Callable[[np.random.Generator, int], Sequence[GroundTruth]]
"""Draws that many ground truths."""


class CheckedParts:
    """The exchangeable parts of a game; what each call returns is checked before it is used."""

    def __init__(
        self,
        retriever: Retriever,
        top_k: int,
        judge: Judge,
        verifier: Verifier | None,
        filters: Mapping[str, Filter],
        noise: NoiseSource | NearNoise,
        noise_documents: int,
        corpus: Sequence[Document],
        proposer_reward: ProposerReward,
        solver_reward: SolverReward,
    ) -> None:
        """
        Args:
            retriever: asked for ``top_k`` documents per query, and for more by noise that is near.
            top_k: documents per query, at most.
            judge: decides about answers.
            verifier: decides about questions; ``None`` if the policy itself does.
            filters: by reason code, in order.
            noise: asked for ``noise_documents`` documents per game.
            noise_documents: noise documents per game, at most.
            corpus: what noise may be drawn from.
            proposer_reward: pays the proposer of a valid game.
            solver_reward: pays an attempt of a valid game.
        """
        self._retriever, self._top_k = retriever, top_k
        self._judge, self._verifier = judge, verifier
        self._filters = filters
        self._noise, self._noise_documents, self._corpus = noise, noise_documents, corpus
        self._proposer_reward, self._solver_reward = proposer_reward, solver_reward

    def search(self, queries: Sequence[str]) -> list[list[Document] | ServiceError]:
        """One ranking per query, of at most ``top_k`` documents, or the error that failed it.

        Raises:
            UsageError: the retriever returned something else.
        """
        return self._search(queries, self._top_k)

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, or the outage that hit it; no tasks, no call.

        What the judge will not deal with is wrong: no player can void a game.

        Raises:
            UsageError: the judge returned something else.
        """
        return refusals_as_verdicts(_results("judge", self._judge.judge, tasks))

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, or the error that failed it; no tasks, no call.

        Raises:
            UsageError: the verifier returned something else.
        """
        assert self._verifier is not None, "the policy itself verifies"
        return refusals_as_verdicts(_results("verifier", self._verifier.verify, tasks))

    def failed_filter(self, proposal: Proposal) -> str | None:
        """The reason code of the first filter that the proposal fails; ``None`` if it passes all.

        Raises:
            UsageError: a filter that returned no bool.
        """
        for name, fails in self._filters.items():
            with _blamed(f"the filter {name!r}", fails):
                failed: object = fails(proposal)
            if failed is not True and failed is not False:
                wanted = "True (the question fails) or False is wanted; use bool(...)"
                raise UsageError(f"the filter {name!r} gave {describe(failed)}: {wanted}")
            if failed:
                return name

        return None

    def noise(
        self, requests: Sequence[NoiseRequest]
    ) -> list[tuple[NoiseDocument, ...] | ServiceError]:
        """At most ``noise_documents`` documents per game, or the error that hit it.

        Raises:
            UsageError: the noise source, or the retriever that it asks, returned something else.
        """
        if isinstance(self._noise, NearNoise):
            return self._near_noise(self._noise, requests)

        drawn: list[tuple[NoiseDocument, ...] | ServiceError] = []
        for request in requests:
            try:
                drawn.append(self._drawn_noise(self._noise, request))
            except ServiceError as error:
                drawn.append(error)
        return drawn

    def _drawn_noise(self, source: NoiseSource, request: NoiseRequest) -> tuple[NoiseDocument, ...]:
        """What a source draws for a game; none of it is the game's own."""
        count = self._noise_documents
        drawn: object = source(request.rng, count, request.own, request.others, self._corpus)

        if not isinstance(drawn, list | tuple):
            raise UsageError(
                f"the noise source gave {describe(drawn)}: a tuple of NoiseDocuments is wanted"
            )
        if len(drawn) > count:
            raise UsageError(
                f"the noise source gave {len(drawn)} documents: at most noise_documents = {count} "
                f"are wanted"
            )

        # A document of its own would be evidence, not noise.
        taken = {document.id for document in request.own}
        for item in drawn:
            if not isinstance(item, NoiseDocument) or not isinstance(item.document, Document):
                wanted = "a NoiseDocument is wanted, which holds a Document and where it comes from"
                raise UsageError(f"the noise source gave {describe(item)}: {wanted}")
            if item.document.id in taken:
                what = f"document {item.document.id!r}, which the game's own proposer retrieved"
                raise UsageError(f"the noise source gave {what}: leave out what is in own")

        return tuple(drawn)

    def _near_noise(
        self, near: NearNoise, requests: Sequence[NoiseRequest]
    ) -> list[tuple[NoiseDocument, ...] | ServiceError]:
        """One search for all questions."""
        count = self._noise_documents
        if not count or not requests:
            return [() for _ in requests]

        queries = [request.question for request in requests]
        results = self._search(queries, near.depth(requests, count))
        return [
            found
            if isinstance(found, ServiceError)
            else near.choose(request, count, found, self._corpus)
            for request, found in zip(requests, results, strict=True)
        ]

    def _search(self, queries: Sequence[str], k: int) -> list[list[Document] | ServiceError]:
        results = search_each(self._retriever, queries, k)
        check_count(results, queries)

        # An outage is a legitimate result of a query; only rankings are checked.
        for query, ranking in zip(queries, results, strict=True):
            if not isinstance(ranking, ServiceError):
                _check_ranking(ranking, query, len(queries), k)

        return results

    def proposer_reward(self, game: Game) -> float:
        """What a valid game pays its proposer.

        Raises:
            UsageError: not a finite number.
        """
        return _finite("proposer", self._proposer_reward(game))

    def solver_reward(self, game: Game, attempt: Attempt) -> float:
        """What an attempt of a valid game earns.

        Raises:
            UsageError: not a finite number.
        """
        return _finite("solver", self._solver_reward(game, attempt))


class CheckedStrategy:
    """A batch strategy; a round cannot be kept going forever by it, nor be given too much."""

    def __init__(self, strategy: BatchStrategy) -> None:
        self._strategy = strategy

    def begin_step(self) -> None:
        """As the strategy's own."""
        self._strategy.begin_step()

    def wants_more(self, valid: int, slots: int, waves: int) -> bool:
        """As the strategy's own.

        Raises:
            UsageError: it wants another wave though no slot is empty, or after so many waves that
                it would never stop.
        """
        if not self._strategy.wants_more(valid, slots, waves):
            return False

        asks = f"wants_more of the strategy {self._name} asks for another wave"

        if valid >= slots:
            raise UsageError(
                f"{asks} though all {slots} slots hold a valid question: let it return False then"
            )
        if waves >= MOST_WAVES:
            fix = "bound the waves, or a policy that only fails keeps the step from ending"
            raise UsageError(
                f"{asks} after {waves} waves, and {slots - valid} of {slots} slots are empty: {fix}"
            )

        return True

    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], empty: int
    ) -> Sequence[PooledQuestion]:
        """As the strategy's own.

        Raises:
            UsageError: it returned something else than at most ``empty`` questions.
        """
        items: object = self._strategy.fill(rng, fresh, empty)

        gave = f"fill of the strategy {self._name} gave"
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

    @property
    def _name(self) -> str:
        return type(self._strategy).__name__


def draw_answers(answers: Answers, rng: np.random.Generator, count: int) -> Sequence[GroundTruth]:
    """At least ``count`` ground truths.

    Raises:
        UsageError: fewer were drawn.
    """
    truths = answers(rng, count) if count else ()
    if len(truths) < count:
        raise UsageError(f"{count} answers were to be drawn, but only {len(truths)} came")

    return truths


def _check_ranking(ranking: object, query: str, queries: int, k: int) -> None:
    if not isinstance(ranking, list | tuple):
        raise UsageError(
            f"the retriever gave {describe(ranking)} for {describe(query)}: a list of Documents is "
            f"wanted"
        )
    if len(ranking) > k:
        what = f"{len(ranking)} documents for {describe(query)} (one of {queries} queries)"
        raise UsageError(f"the retriever gave {what}: at most k = {k} are wanted")

    for document in ranking:
        if not isinstance(document, Document):
            what = f"a ranking with {describe(document)} in it for {describe(query)}"
            raise UsageError(f"the retriever gave {what}: a list of Documents is wanted")


def _results(
    who: str, ask: Callable[[Sequence[_Task]], list[Verdict | ServiceError]], tasks: Sequence[_Task]
) -> list[Verdict | ServiceError]:
    """One result per task. An outage of the whole call hits every task."""
    if not tasks:
        return []

    try:
        with _blamed(f"the {who}", ask):
            results = ask(tasks)
    except ServiceError as error:
        return [error] * len(tasks)

    wanted = "a list is wanted, with one Verdict or ServiceError per task"
    if not isinstance(results, list | tuple):
        raise UsageError(f"the {who} gave {describe(results)} for {len(tasks)} tasks: {wanted}")
    if len(results) != len(tasks):
        raise UsageError(f"the {who} gave {len(results)} results for {len(tasks)} tasks: {wanted}")
    for result in results:
        if not isinstance(result, Verdict | ServiceError):
            raise UsageError(f"the {who} gave {describe(result)} for a task: {wanted}")

    return results


@contextmanager
def _blamed(who: str, function: object) -> Iterator[None]:
    """Notes on an exception which part it comes from: no player is to blame for it."""
    try:
        yield
    except SSPError:
        raise
    except Exception as error:
        named = getattr(function, "__qualname__", type(function).__qualname__)
        error.add_note(f"{who} ({named}) raised this: a mistake of its code, not of a player")
        raise


def refusals_as_verdicts(
    results: Sequence[Verdict | ServiceError],
) -> list[Verdict | ServiceError]:
    """Results of a judge or verifier, with its refusals of a text as verdicts against it."""
    return [
        Verdict(False, f"refused: {result.what}")
        if isinstance(result, ServiceError) and result.fault == "text"
        else result
        for result in results
    ]


def _finite(role: str, reward: object) -> float:
    try:
        finite = math.isfinite(reward)  # type: ignore[arg-type]
    except TypeError:
        finite = False

    if not finite:
        raise UsageError(
            f"the {role}'s reward function gave {describe(reward)}: a finite number is wanted"
        )
    return float(reward)  # type: ignore[arg-type]
