"""Calls of a game's exchangeable parts: retriever, judge, verifier, filters, noise, rewards.

What a part returns is checked before it is used, so that neither the state machine nor the referee
has to doubt what it gets. A ``ServiceError`` is an outage; any other exception of a part is a
mistake of its code and propagates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from ssp_env.checks import describe
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.filters import Proposal
from ssp_env.game.game import Attempt, Game
from ssp_env.game.noise import NearNoise, NoiseDocument, NoiseRequest
from ssp_env.game.rules import Rules
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.search.base import search_each
from ssp_env.types import Document


def search(
    rules: Rules, queries: Sequence[str], k: int | None = None
) -> list[list[Document] | ServiceError]:
    """One ranking per query, or the error that failed it.

    Args:
        rules: whose retriever is asked.
        queries: the searches.
        k: documents per query, at most; ``top_k`` when not given.

    Raises:
        UsageError: the retriever returned something else.
    """
    k = rules.config.top_k if k is None else k
    results = search_each(rules.retriever, queries, k)

    for query, ranking in zip(queries, results, strict=True):
        if isinstance(ranking, ServiceError):
            continue
        if not isinstance(ranking, list | tuple) or len(ranking) > k:
            what = f"{describe(ranking)} for {describe(query)}"
            raise UsageError(f"the retriever gave {what}: at most {k} Documents are wanted")
        for document in ranking:
            if not isinstance(document, Document) or not isinstance(document.id, str):
                what = f"{describe(document)} for {describe(query)}"
                raise UsageError(f"the retriever gave {what}: a Document is wanted")
    return results


def judge(rules: Rules, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
    """One verdict per task, or the outage that hit it; no tasks, no call.

    What the judge will not deal with is wrong: no player can void a game.

    Raises:
        UsageError: the judge returned something else.
    """
    return refusals_as_verdicts(_verdicts("judge", rules.judge.judge, tasks))


def verify(rules: Rules, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
    """One verdict per task, or the error that failed it; no tasks, no call.

    Raises:
        UsageError: the verifier returned something else.
    """
    verifier = rules.verifier
    assert verifier is not None, "the policy itself verifies"
    return refusals_as_verdicts(_verdicts("verifier", verifier.verify, tasks))


def failed_filter(rules: Rules, proposal: Proposal) -> str | None:
    """The reason code of the first filter that the proposal fails; ``None`` if it passes all.

    Raises:
        UsageError: a filter that returned no bool.
    """
    for name, fails in rules.filters.items():
        failed: object = fails(proposal)
        if not isinstance(failed, bool):
            wanted = "True (the question fails) or False is wanted; use bool(...)"
            raise UsageError(f"the filter {name!r} gave {describe(failed)}: {wanted}")
        if failed:
            return name
    return None


def noise(
    rules: Rules, requests: Sequence[NoiseRequest]
) -> list[tuple[NoiseDocument, ...] | ServiceError]:
    """At most ``noise_documents`` documents per game, or the error that hit it.

    Raises:
        UsageError: the noise source returned something else.
    """
    count = rules.config.noise_documents
    if isinstance(rules.noise, NearNoise):
        return rules.noise.draw(requests, count, partial(search, rules), rules.corpus)

    drawn: list[tuple[NoiseDocument, ...] | ServiceError] = []
    for request in requests:
        try:
            noise: Any = rules.noise(request.rng, count, request.own, request.others, rules.corpus)
        except ServiceError as error:
            drawn.append(error)
            continue

        # A document of its own would be evidence, not noise.
        own = {document.id for document in request.own}
        if (
            not isinstance(noise, list | tuple)
            or len(noise) > count
            or not all(isinstance(n, NoiseDocument) and n.document.id not in own for n in noise)
        ):
            wanted = f"at most {count} NoiseDocuments are wanted, none of them in own"
            raise UsageError(f"the noise source gave {describe(noise)}: {wanted}")
        drawn.append(tuple(noise))
    return drawn


def proposer_reward(rules: Rules, game: Game) -> float:
    """The reward of a valid game's proposer.

    Raises:
        UsageError: not a finite number.
    """
    return _finite("proposer", rules.proposer_reward(game))


def solver_reward(rules: Rules, game: Game, attempt: Attempt) -> float:
    """The reward of an attempt of a valid game.

    Raises:
        UsageError: not a finite number.
    """
    return _finite("solver", rules.solver_reward(game, attempt))


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


def _verdicts(who: str, ask: Any, tasks: Sequence[Any]) -> list[Verdict | ServiceError]:
    """One result per task. An outage of the whole call hits every task."""
    if not tasks:
        return []
    try:
        results: list[Verdict | ServiceError] = ask(tasks)
    except ServiceError as error:
        return [error] * len(tasks)

    if not isinstance(results, list | tuple) or len(results) != len(tasks):
        what = f"{describe(results)} for {len(tasks)} tasks"
        raise UsageError(f"the {who} gave {what}: a list of {len(tasks)} results is wanted")
    for result in results:
        if not isinstance(result, Verdict | ServiceError):
            wanted = "a Verdict or a ServiceError is wanted"
            raise UsageError(f"the {who} gave {describe(result)} for a task: {wanted}")
    return results


def _finite(role: str, reward: Any) -> float:
    try:
        finite = math.isfinite(reward)
    except TypeError:
        finite = False
    if not finite:
        what = f"the {role}'s reward function gave {describe(reward)}"
        raise UsageError(f"{what}: a finite number is wanted")
    return float(reward)
