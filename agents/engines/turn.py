"""A turn that is being sampled: its tokens so far, its random numbers, and where it stops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from agents.engines.base import Generation, Request, StopRule
from ssp_env.tokenizers.base import Tokenizer

_BLOCK = 32
"""Random numbers that are drawn at a time: most turns need no second draw."""


class Turn:
    """One request's sampled tokens, and whether they have come to an end."""

    __slots__ = (
        "_numbers",
        "_reach",
        "_room",
        "_stop",
        "_tail",
        "_tokenizer",
        "ids",
        "key",
        "logprobs",
        "prompt",
        "stopped",
        "temperature",
    )

    def __init__(self, request: Request, stop: StopRule, tokenizer: Tokenizer) -> None:
        self.key, self.prompt = request.key, list(request.ids)
        self.temperature = request.temperature
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.stopped = False
        self._room, self._stop, self._tokenizer = request.max_new_tokens, stop, tokenizer
        self._numbers = _uniform(request.seed)

        # A tag may have begun in an earlier generation of the same turn.
        self._reach = max(map(len, stop.strings), default=1) - 1
        before = self.prompt[-self._reach :] if self._reach else []
        self._tail = b"".join(tokenizer.pieces[i] for i in before)[-self._reach :]

    @property
    def generation(self) -> Generation:
        """Tokens sampled so far."""
        return Generation(self.ids, self.logprobs)

    @property
    def read(self) -> list[int]:
        """The tokens that the model has to have read before the next one is sampled."""
        return [*self.prompt, *self.ids]

    def draw(self) -> float:
        """The random number of the next token, from 0 up to, not including, 1."""
        return next(self._numbers)

    def take(self, token: int, logprob: float) -> bool:
        """Notes a token; true while the turn goes on."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.stopped = (
            len(self.ids) >= self._room or token in self._stop.token_ids or self._spelled(token)
        )

        return not self.stopped

    def _spelled(self, token: int) -> bool:
        if not self._stop.strings:
            return False

        before, text = len(self._tail), self._tail + self._tokenizer.pieces[token]
        self._tail = text[-self._reach :] if self._reach else b""

        # Only what this token completes counts.
        return any(
            text.find(string, max(0, before - len(string) + 1)) >= 0
            for string in self._stop.strings
        )


class _Key(ISeedSequence):
    """A seed that is its generator's key as it is.

    ``Philox(key=seed)`` is the same generator, but asks the system for entropy first, and uses
    nothing of it: it takes three times as long to make, for every turn.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """The key: Philox asks for two words of 64 bits."""
        return np.array([self._seed, *[0] * (n_words - 1)], dtype=dtype)


def _uniform(seed: int) -> Iterator[float]:
    # Philox is keyed by the seed itself: streams of different seeds never meet. It takes any
    # ISeedSequence; its type hints know one of them.
    generator = np.random.Generator(np.random.Philox(_Key(seed)))  # type: ignore[arg-type]
    while True:
        yield from generator.random(_BLOCK).tolist()
