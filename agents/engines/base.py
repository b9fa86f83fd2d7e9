"""What an inference engine is: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ssp_env.game.config import GameConfig
from ssp_env.game.scanner import ScannerTags
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Action


@dataclass(frozen=True, slots=True)
class Request:
    """A sequence to be continued."""

    key: int
    """Which trajectory. An engine may reuse what it computed under the same key before."""
    ids: Sequence[int]
    """All tokens so far; a later request of the same key continues an earlier one's tokens."""
    max_new_tokens: int
    """At most this many tokens are sampled, at least one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What was sampled for a request: equally many ids and behaviour log-probabilities (nats)."""

    ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class StopRule:
    """Where a turn may end; the stopping token is part of the generation."""

    token_ids: frozenset[int]
    """Tokens that stop by themselves."""
    strings: tuple[bytes, ...]
    """Texts that stop however they are spelled, for tags that can be written in several tokens."""

    @classmethod
    def of(cls, config: GameConfig, tokenizer: Tokenizer) -> StopRule:
        """Stops at every tag that can end a turn of any role, and at the end token."""
        tokens: set[int] = set() if tokenizer.eos_id is None else {tokenizer.eos_id}
        strings: list[bytes] = []
        for tag in sorted(ScannerTags(config.tags, tuple(Action)).stops()):
            ids = tokenizer.encode(tag)
            if len(ids) == 1:
                tokens.add(ids[0])
            # A policy may also spell out a tag that has its own token.
            if len(ids) > 1 or _can_be_spelled(tag.encode(), tokenizer, ids[0]):
                strings.append(tag.encode())

        return cls(frozenset(tokens), tuple(sorted(strings)))


def _can_be_spelled(tag: bytes, tokenizer: Tokenizer, own: int) -> bool:
    """Whether a tag can be written without its own token.

    It can if another token contains the tag, or ends with the beginning of it.
    """
    beginnings = tuple(tag[:length] for length in range(1, len(tag) + 1))
    return any(
        tag in piece or piece.endswith(beginnings)
        for token, piece in enumerate(tokenizer.pieces)
        if tag[:1] in piece and token != own
    )


class Engine(Protocol):
    """Samples continuations. ``weights_version`` counts the updates that its weights have seen."""

    weights_version: int

    def generate(
        self, requests: Sequence[Request], *, temperature: float, generator: torch.Generator
    ) -> list[Generation]:
        """One generation a request, in order.

        Args:
            requests: sequences to continue, one a key.
            temperature: 0 takes the likeliest token; log-probabilities are those of the
                distribution sampled from (at 0: of the unscaled one).
            generator: source of all randomness.

        Raises:
            ServiceError: the engine failed (service ``engine``).
        """
        ...

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Takes new weights in place and forgets everything computed with the old ones."""
        ...
