"""What a result depends on besides the policy: two results compare only if these agree."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ssp_env.game.rules import Rules
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
    """A judge or verifier: its class, and the model, prompt or threshold that it goes by."""
    settings = []
    for setting in ("model", "threshold"):
        if isinstance(value := getattr(part, setting, None), str | float):
            settings.append(str(value))
    if isinstance(prompt := getattr(part, "prompt", None), str):
        settings.append(f"prompt {_digest(prompt)[:12]}")

    name = type(part).__name__
    return f"{name} ({', '.join(settings)})" if settings else name


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
