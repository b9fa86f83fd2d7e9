"""What an agent sees: its present trajectory as arrays, and which tokens it may write."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ssp_env.doors.setup import ResolvedSetup
from ssp_env.errors import ConfigError
from ssp_env.game.config import UNMASKED, suited
from ssp_env.game.legal import LegalMoves
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Immutable

Observation = dict[str, NDArray[Any]]


class Observer(Immutable):
    """Spaces and observations behind every token-level door.

    An observation is a dict. ``observation`` is int32 (``rules.longest_trajectory``,), the
    trajectory padded on the right; with ``view.window`` int32 (window,), its end, padded on the
    left; with ``view.one_hot`` float32 (window * vocabulary,).
    ``action_mask`` is int8 (vocabulary,): 1 on what may be written next."""

    def __init__(self, resolved: ResolvedSetup) -> None:
        """
        Args:
            resolved: rules and view.

        Raises:
            ConfigError: legal moves with a tokenizer that needs several tokens for a tag.
        """
        tokenizer, self._view = resolved.rules.tokenizer, resolved.view

        self._resolved = resolved
        self._size, self.pad_id = tokenizer.vocab_size, tokenizer.pad_id
        self._empty_token = tokenizer.pad_id if tokenizer.eos_id is None else tokenizer.eos_id

        self.whole = self._view.window is None
        self.length = self._view.window or resolved.rules.longest_trajectory
        self.padding = _padding(self.length, self.pad_id)

        self._mask = np.ones(self._size, dtype=np.int8)
        if tokenizer.pad_id != tokenizer.eos_id:
            self._mask[tokenizer.pad_id] = 0

        self._legal = _legal_moves(resolved.rules) if self._view.legal_moves else None

    def __reduce__(self) -> tuple[object, ...]:
        # Padding and masks would be most of a pickled game.
        return type(self), (self._resolved,)

    def observation_space(self) -> gym.spaces.Dict:
        """A new space object."""
        if self._view.one_hot:
            observation = _FromZero(1, self.length * self._size, np.float32)
        else:
            observation = _FromZero(self._size - 1, self.length, np.int32)

        mask = _FromZero(1, self._size, np.int8)
        return gym.spaces.Dict({"observation": observation, "action_mask": mask})

    def action_space(self) -> gym.spaces.Discrete[np.int64]:
        """A new space object: one token."""
        return gym.spaces.Discrete(self._size)

    def watch(self, trajectory: Trajectory) -> Watcher:
        """Starts to watch a trajectory."""
        return Watcher(self, trajectory)

    def empty(self) -> Observation:
        """What an agent sees before its first turn: a single end (or padding) token."""
        return {"observation": self.encode([self._empty_token]), "action_mask": self._mask.copy()}

    def mask(self, trajectory: Trajectory, written: Sequence[int] = ()) -> NDArray[np.int8]:
        """1 on every token that may be written next; ``written`` goes on what has been fed."""
        return self._mask.copy() if self._legal is None else self._legal.mask(trajectory, written)

    def encode(self, ids: Sequence[int]) -> NDArray[Any]:
        """Tokens in the form of the space."""
        row = np.full(self.length, self.pad_id, dtype=np.int32)
        if self.whole:
            row[: len(ids)] = ids
            return row

        tail = ids[-self.length :]
        row[self.length - len(tail) :] = tail

        if not self._view.one_hot:
            return row

        flat = np.zeros((self.length, self._size), dtype=np.float32)
        flat[np.arange(self.length), row] = 1
        return flat.reshape(-1)


class Watcher:
    """Observes one trajectory; copies only new tokens, so that long transcripts cost no more."""

    __slots__ = ("_filled", "_observer", "_tokens", "trajectory")

    def __init__(self, observer: Observer, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self._observer, self._filled = observer, 0
        self._tokens = np.empty(0, dtype=np.int32)

    def __deepcopy__(self, memo: dict[int, Any]) -> Watcher:
        """A watcher of the trajectory's copy, which reads its tokens anew when it looks."""
        return Watcher(self._observer, copy.deepcopy(self.trajectory, memo))

    def look(self) -> Observation:
        """The observation as it is now, in arrays of its own."""
        observer, ids = self._observer, self.trajectory.ids
        if not observer.whole:
            return {
                "observation": observer.encode(ids),
                "action_mask": observer.mask(self.trajectory),
            }

        self._copy_new_tokens(ids)
        observation = np.concatenate(
            (self._tokens[: self._filled], observer.padding[self._filled :])
        )
        return {"observation": observation, "action_mask": observer.mask(self.trajectory)}

    def _copy_new_tokens(self, ids: list[int]) -> None:
        if self._filled == len(ids):
            return

        # Doubled, so that the cost per token stays constant as the transcript grows.
        if len(ids) > len(self._tokens):
            grown = np.empty(min(2 * len(ids), self._observer.length), dtype=np.int32)
            grown[: self._filled] = self._tokens[: self._filled]
            self._tokens = grown

        self._tokens[self._filled : len(ids)] = ids[self._filled :]
        self._filled = len(ids)


def _legal_moves(rules: Rules) -> LegalMoves:
    try:
        return LegalMoves(rules)
    except ConfigError as error:
        world = rules.world.name
        if not suited(world)[1].legal_moves:
            raise
        fix = f"{error.fix}, or disable the default view of the world {world!r}: {UNMASKED}"
        raise ConfigError(error.field, error.value, fix) from None


@lru_cache
def _padding(length: int, pad_id: int) -> NDArray[np.int32]:
    """Shared by all envs, since it would be a good part of a game's memory."""
    padding = np.full(length, pad_id, dtype=np.int32)
    padding.flags.writeable = False
    return padding


class _FromZero(gym.spaces.Box):
    """A vector space from 0 to ``high``; its bounds take no memory, nor do those of its copies."""

    def __init__(self, high: int, length: int, dtype: Any) -> None:
        super().__init__(0, high, (length,), dtype)
        self._made_of = (high, length, dtype)

        bounds = (np.broadcast_to(np.array(bound, dtype), (length,)) for bound in (0, high))
        self.low, self.high = bounds
        self.bounded_below = self.bounded_above = np.broadcast_to(np.array(True), (length,))

    def __reduce__(self) -> tuple[object, ...]:
        # What samples are drawn from; all else follows from the arguments.
        return type(self), self._made_of, {"_np_random": self._np_random}

    def __deepcopy__(self, memo: dict[int, Any]) -> _FromZero:
        twin = copy.copy(self)
        twin._np_random = copy.deepcopy(self._np_random, memo)
        return twin

    def __copy__(self) -> _FromZero:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin
