"""Observations and infos: an agent's trajectory as arrays, its legal tokens, and the game's state.

Infos are the same behind every interface and follow from seed and tokens. Their keys and lengths
are the same at every step and no value is ``None``: clients keep infos in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ssp_env.envs.setup import ResolvedSetup
from ssp_env.game.batch import GameBatch
from ssp_env.game.legal import LegalMoves
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Immutable

Observation = dict[str, NDArray[Any]]
Info = dict[str, Any]


class Observer(Immutable):
    """Spaces and observations behind every token-level interface; copies of a game share them.

    An observation is a dict. ``observation`` is int32 (``rules.longest_trajectory``,), the
    trajectory padded on the right; with ``view.window`` int32 (window,), its end, padded on the
    left; with ``view.one_hot`` float32 (window * vocabulary,).
    ``action_mask`` is int8 (vocabulary,): 1 on what may be written next."""

    def __init__(self, resolved: ResolvedSetup) -> None:
        rules, self.view = self._resolved = resolved
        tokenizer = rules.tokenizer
        size, pad, eos = tokenizer.vocab_size, tokenizer.pad_id, tokenizer.eos_id

        length = self.view.window or rules.longest_trajectory
        self.padding = np.full(length, pad, dtype=np.int32)
        # An agent that has had no turn sees something all the same: spaces have no empty array.
        self.nothing = [pad if eos is None else eos]
        self._mask = np.ones(size, dtype=np.int8)
        # Padding is never written, unless the token that pads also ends a turn.
        if pad != eos:
            self._mask[pad] = 0

        self._legal = LegalMoves(rules) if self.view.legal_moves else None

        box: gym.spaces.Box = gym.spaces.Box(0, size - 1, (length,), np.int32)
        if self.view.one_hot:
            box = gym.spaces.Box(0, 1, (length * size,), np.float32)
        mask = gym.spaces.Box(0, 1, (size,), np.int8)
        self.observation_space = gym.spaces.Dict({"observation": box, "action_mask": mask})
        self.action_space: gym.spaces.Discrete[np.int64] = gym.spaces.Discrete(size)

    def __reduce__(self) -> tuple[object, ...]:
        # Padding, masks and bounds would be most of a pickled game.
        return type(self), (self._resolved,)

    def mask(self, trajectory: Trajectory | None, written: Sequence[int] = ()) -> NDArray[np.int8]:
        """1 on every token that may be written next; ``written`` goes on what has been fed."""
        if trajectory is None or self._legal is None:
            return self._mask.copy()
        return self._legal.mask(trajectory, written)

    def window(self, ids: Sequence[int]) -> NDArray[Any]:
        """The last tokens in the form of the space."""
        length, row = len(self.padding), self.padding.copy()
        tail = ids[-length:]
        # The newest token comes last; what is missing is padding on the left.
        row[length - len(tail) :] = tail
        if not self.view.one_hot:
            return row

        # One row per place, with a 1 at its token: (length, vocabulary), flattened.
        flat = np.zeros((length, len(self._mask)), dtype=np.float32)
        flat[np.arange(length), row] = 1
        return flat.reshape(-1)


class Watcher:
    """Shows an agent its trajectory; copies only new tokens, so that long ones cost no more."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._trajectory: Trajectory | None = None
        self._row, self._filled = observer.padding, 0

    def __reduce__(self) -> tuple[object, ...]:
        # A copy reads its trajectory anew when it looks.
        return type(self), (self._observer,)

    def look(self, trajectory: Trajectory | None) -> Observation:
        """The observation as it is now, in arrays of its own; before a first trajectory, a single
        end (or padding) token."""
        observer = self._observer
        mask = observer.mask(trajectory)
        ids = observer.nothing if trajectory is None else trajectory.ids
        if observer.view.window is not None:
            return {"observation": observer.window(ids), "action_mask": mask}

        if trajectory is None or trajectory is not self._trajectory:
            self._trajectory, self._row, self._filled = trajectory, observer.padding.copy(), 0
        self._row[self._filled : len(ids)] = ids[self._filled :]
        self._filled = len(ids)
        return {"observation": self._row.copy(), "action_mask": mask}


def info_of(batch: GameBatch) -> Info:
    """Infos of a batch of one game, at the beginning of a turn or when it is over;
    ``docs/environment.md`` says what each is."""
    game, attempts = batch.games[0], batch.rules.config.attempts
    turn = next(iter(batch.pending()), None)

    # As long as the game's attempts could be, whether or not they were made.
    rewards = [attempt.reward for attempt in game.attempts]
    rewards += [None] * (attempts - len(rewards))
    return {
        "phase": batch.phase.value,
        "role": turn.role.value if turn else "",
        "tokens_left": turn.tokens_left if turn else 0,
        "searches_left": turn.limits.max_searches - len(turn.searches) if turn else 0,
        "attempt": game.number_of(turn) if turn else -1,
        "attempts": attempts,
        "attempt_rewards": tuple(reward or 0.0 for reward in rewards),
        "attempt_counts": tuple(reward is not None for reward in rewards),
        "outcome": game.outcome.value,
        "reason": "" if turn else game.reason or "",
        "question": "" if turn else game.question or "",
        "answer": "" if turn else game.truth.answer,
        "solve_rate": 0.0 if turn else game.solve_rate or 0.0,
    }
