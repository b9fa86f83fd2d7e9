"""Interface of inference engines: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import tags_of
from ssp_env.game.protocol import ScannerTags
from ssp_env.tokenizers.base import Tokenizer, end_ids
from ssp_env.types import Action, Role

_AT_ONCE = 32
"""Random numbers that are drawn at a time: most turns need no second draw."""


@dataclass(frozen=True, slots=True)
class Request:
    """A sequence to be continued by one turn."""

    key: int
    """The trajectory. An engine may reuse what it computed under the same key before."""
    ids: Sequence[int]
    """All tokens so far; a later request of the same key continues an earlier one's tokens."""
    max_new_tokens: int
    """At most this many tokens are sampled, at least one."""
    temperature: float
    """0 takes the likeliest token; log-probabilities are those of the distribution sampled from (at
    0: of the unscaled one)."""
    seed: int
    """From 0 up to, not including, 2**63. What is sampled follows from it, the ids, the weights and
    the temperature. What else the engine is doing changes their rounding alone: in float32 hardly
    ever a token, in bfloat16 about one in fifty (docs/engines.md)."""
    role: str = Role.SOLVER
    """Role that writes. Engines of one policy need not know."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Result of a request: equally many ids and behaviour log-probabilities (nats)."""

    ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class StopRule:
    """End of a turn; the stopping token is part of the generation."""

    token_ids: frozenset[int]
    """Tokens that stop by themselves."""
    strings: tuple[bytes, ...]
    """Texts that stop however they are spelled, for tags that can be written in several tokens."""

    @classmethod
    def of(cls, config: GameConfig, tokenizer: Tokenizer) -> StopRule:
        """Stops at every tag that can end a turn of any role, and at every end token."""
        tokens = set(end_ids(tokenizer))
        strings: list[bytes] = []
        tags = tags_of(config.prompts, config.tools)
        actions = [*dict.fromkeys([*config.tools, *Action])]
        for tag in sorted(ScannerTags(tags, actions).stops()):
            ids = tokenizer.encode(tag)
            if len(ids) == 1:
                tokens.add(ids[0])
            # A policy may also spell out a tag that has its own token.
            if len(ids) > 1 or _can_be_spelled(tag.encode(), tokenizer, ids[0]):
                strings.append(tag.encode())

        return cls(frozenset(tokens), tuple(sorted(strings)))


def _can_be_spelled(tag: bytes, tokenizer: Tokenizer, tag_token: int) -> bool:
    """True if a tag can be written without its own token: another one contains it, or ends with the
    beginning of it."""
    beginnings = tuple(tag[:length] for length in range(1, len(tag) + 1))
    return any(
        tag in piece or piece.endswith(beginnings)
        for token, piece in enumerate(tokenizer.pieces)
        if tag[:1] in piece and token != tag_token
    )


class Engine(Protocol):
    """Samples turns: requests go in, finished turns come out as they finish."""

    @property
    def weights_version(self) -> int:
        """Training steps that its weights have learnt from."""

    @property
    def running(self) -> int:
        """Requests that were submitted and are not finished."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Takes requests in; they join those that are running, whose keys are others."""

    def step(self) -> list[tuple[int, Generation]]:
        """Goes on with all requests by about one token; returns those that it finished, by key.

        After a ServiceError (service ``engine``), nothing is running any more."""

    def release(self, keys: Iterable[int]) -> None:
        """Ends these requests, if they run, and forgets what was computed under their keys."""

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Takes new weights in place, when nothing runs, and forgets all that was computed before.

        ``state`` has tensors or arrays, named as the `transformers` model names them; ``version``
        is how many updates they have seen."""

    def sleep(self) -> None:
        """Gives memory back for as long as nothing is sampled; new weights are to follow."""

    def wake(self) -> None:
        """Ends the sleep, if there is one."""


def generate(engine: Engine, requests: Sequence[Request]) -> list[Generation]:
    """Submits requests to an engine that has no others, and waits for all of them; in order."""
    engine.submit(requests)
    finished: dict[int, Generation] = {}
    while len(finished) < len(requests):
        finished.update(engine.step())

    return [finished[request.key] for request in requests]


# -- turns that are being sampled ---------------------------------------------------------------


class Turn:
    """One request's sampled tokens, and whether they have come to an end."""

    def __init__(self, request: Request, stop: StopRule, tokenizer: Tokenizer) -> None:
        self.key, self.prompt = request.key, list(request.ids)
        self.temperature = request.temperature
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.stopped = False
        self._room, self._stop, self._tokenizer = request.max_new_tokens, stop, tokenizer
        self.numbers = RandomNumbers(request.seed)

        # A tag may have begun in an earlier generation of the same turn: of what is there, as many
        # bytes count as the longest text has, but for its last one.
        self._reach = max(map(len, stop.strings), default=1) - 1
        before = self.prompt[-self._reach :] if self._reach else []
        self._tail = b"".join(tokenizer.pieces[i] for i in before)[-self._reach :]

    @property
    def generation(self) -> Generation:
        return Generation(self.ids, self.logprobs)

    @property
    def read(self) -> list[int]:
        """The tokens that the model has to have read before the next one is sampled."""
        return [*self.prompt, *self.ids]

    def take(self, token: int, logprob: float) -> bool:
        """Notes a token; true while the turn goes on."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.numbers.advance()
        self.stopped = (
            len(self.ids) >= self._room or token in self._stop.token_ids or self._spelled(token)
        )
        return not self.stopped

    def _spelled(self, token: int) -> bool:
        """True if this token completes one of the stopping texts."""
        before, text = len(self._tail), self._tail + self._tokenizer.pieces[token]
        self._tail = text[-self._reach :] if self._reach else b""
        # A text that this token completes ends beyond what was there before, so it begins at
        # before - len(string) + 1 or later.
        return any(
            text.find(string, max(0, before - len(string) + 1)) >= 0
            for string in self._stop.strings
        )


class RandomNumbers:
    """A turn's random numbers, which follow from its seed alone. Those of a token are the same
    until :meth:`advance`, so that a token whose sampling failed is sampled again alike."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn: list[float] = []
        self._uniform: float | None = None
        self._gumbel: np.ndarray | None = None

    # Philox is keyed by the seed itself: streams of different seeds never meet, nor do the two of
    # one seed, whose counters begin 2**192 apart.
    @cached_property
    def _plain(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self._seed))

    @cached_property
    def _noise(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self._seed, counter=1 << 192))

    def uniform(self) -> float:
        """The token's number from [0, 1)."""
        if self._uniform is None:
            if not self._drawn:
                # Reversed, because ``pop`` takes the last one first.
                self._drawn = self._plain.random(_AT_ONCE).tolist()[::-1]
            self._uniform = self._drawn.pop()
        return self._uniform

    def gumbel(self, count: int) -> np.ndarray:
        """The token's standard Gumbel noises, float64 (count,)."""
        if self._gumbel is None:
            self._gumbel = self._noise.gumbel(size=count)
        return self._gumbel

    def advance(self) -> None:
        """Goes on to the numbers of the next token."""
        self._uniform = self._gumbel = None
