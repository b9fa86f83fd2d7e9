"""Facts about the parts of some rules: the fingerprint that results are compared by, which parts
wait for other machines, and which settings have no effect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ssp_env.game.rules import Rules
from ssp_env.game.verification import NOISE
from ssp_env.judge.exact import NoVerifier, WorldVerifier
from ssp_env.search.base import identify


def fingerprint(rules: Rules) -> dict[str, Any]:
    """Everything about search, judging and prompts that decides what an accuracy means.

    Args:
        rules: what the games are played by.

    Returns:
        Plain data for JSON: ``world``, ``corpus`` (name, number and SHA-256 of the passages),
        ``retriever`` (see :func:`~ssp_env.search.base.identify`), ``top_k``, ``max_searches``,
        ``max_document_tokens``, ``judge``, ``verifier``, ``prompts`` (name and SHA-256), and
        ``hash``: the first 12 hexadecimal digits of the SHA-256 over all of these.
    """
    config = rules.config
    parts: dict[str, Any] = {
        "world": rules.world.name,
        "corpus": _corpus(rules),
        "retriever": identify(rules.retriever),
        "top_k": config.top_k,
        "max_searches": config.max_searches,
        "max_document_tokens": config.max_document_tokens,
        "judge": _part(rules.judge),
        "verifier": "policy" if rules.verifier is None else _part(rules.verifier),
        "prompts": {"name": config.prompts, "digest": _digest(dict(rules.prompts.texts))},
    }

    return {**parts, "hash": _digest(parts)[:12]}


def _corpus(rules: Rules) -> dict[str, Any]:
    corpus: Any = rules.corpus
    known = callable(getattr(corpus, "digest", None))

    return {
        "name": getattr(corpus, "name", type(corpus).__name__),
        "passages": len(corpus),
        "digest": corpus.digest() if known else None,
    }


def _part(part: object) -> str:
    """A judge or verifier: its class, and what it says of itself by its method ``describe``."""
    described = getattr(part, "describe", None)
    settings = [] if described is None else [str(value) for value in described().values()]
    name = type(part).__name__
    return f"{name} ({', '.join(settings)})" if settings else name


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def is_remote(part: object) -> bool:
    """True if a retriever, judge or verifier spends its time waiting for another machine.

    It is then called from several threads at once, while the policy generates. A part says so by
    an attribute ``remote`` that is true; a retriever that asks a server need not say it, and a
    wrapper (cache, reranker, fusion) is remote if any retriever it wraps is.
    """
    said = getattr(part, "remote", None)
    if isinstance(said, bool):
        return said
    inner = getattr(part, "retriever", None)
    several = getattr(part, "retrievers", None) or ([] if inner is None else [inner])
    return any(map(is_remote, several))


def idle_settings(rules: Rules) -> list[str]:
    """One line for each setting of these rules that changes nothing, with the reason."""
    return [*_idle_noise(rules), *_idle_prompt(rules)]


def _idle_noise(rules: Rules) -> Iterator[str]:
    config = rules.config
    count, kind = config.noise_documents, config.noise_kind

    # Noise is read by the verifier alone.
    if count and isinstance(rules.verifier, NoVerifier):
        yield f"game.noise_documents = {count} has no effect: nobody verifies (game.verifier: none)"
    elif (
        count
        and isinstance(rules.verifier, WorldVerifier)
        and not getattr(rules.world, "one_to_many", True)
    ):
        yield (
            f"game.noise_documents = {count} has no effect: every fact of this world has one "
            f"value, so no document misleads its reader (world_options.one_to_many: false)"
        )

    if kind != "batch" and not count:
        yield f"game.noise_kind = {kind} has no effect: game.noise_documents is 0"
    elif kind != "batch" and rules.noise is not NOISE[kind]:
        yield f"game.noise_kind = {kind} has no effect: noise comes from a source of your own"


def _idle_prompt(rules: Rules) -> Iterator[str]:
    asked = rules.config.asked_searches
    if asked != (1, 1) and "{searches}" not in rules.prompts.texts["proposer"]:
        yield (
            f"game.asked_searches = {asked} has no effect: the proposer's prompt "
            f"(game.prompts: {rules.config.prompts}) does not name a number of searches"
        )
