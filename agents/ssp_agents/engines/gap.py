"""Holds the log-probabilities that an engine sampled with against the learner's.

An engine that computes another distribution (by its kernels, its cache, or weights that did not
arrive) still plays; every ratio of the losses is wrong then, and nothing says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ssp_agents.rows import Row, recorded_row
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Role

CHECK_EVERY = 50
"""Steps between two comparisons; the first step of a run has one too."""
MOST_NATS = 0.05
"""Mean distance beyond which a run ends."""
MOST_ROWS = 32
"""Trajectories that are compared: some thousand tokens, and far less work than an update."""
# Tokens that an error names, and tokens before each of them that it quotes.
_NAMED = 5
_BEFORE = 8


@dataclass(frozen=True)
class Gap:
    """Mean and largest distance of the log-probabilities of so many tokens, in nats."""

    tokens: int
    mean: float
    largest: float
    worst: tuple[str, ...]
    """The tokens that are furthest apart, in words."""

    def check(self) -> None:
        """Raises a ServiceError that names the worst tokens where the mean is beyond the bound."""
        if not self.mean <= MOST_NATS:
            raise ServiceError(
                "engine",
                f"it samples from another policy than the one that learns: {self.mean:.3g} nats "
                f"apart in {self.tokens} tokens' mean, at most {self.largest:.3g} "
                f"(a run ends beyond {MOST_NATS:g}); furthest apart: {'; '.join(self.worst)}",
            )


def compared_rows(
    games: Sequence[GameRecord], plays: Callable[[str], bool] = lambda role: True
) -> list[Row]:
    """Up to ``MOST_ROWS`` trajectories of a step's games, from all over it, of the roles that the
    policy that learns plays. Verification is left out: it has a temperature of its own."""
    every = [trajectory for game in games for trajectory in game.trajectories]
    played = [t for t in every if t.role is not Role.VERIFIER and plays(t.role)]
    written = [t for t in played if t.policy_tokens]
    # Places at even distances, of which there are none where nothing was written.
    chosen = np.linspace(0, len(written) - 1, min(MOST_ROWS, len(written))).round().astype(int)
    played = [written[i] for i in chosen]
    return [recorded_row(t, "proposer" if t.role is Role.PROPOSER else "solver") for t in played]


def measure(
    rows: Sequence[Row], score: Callable[[Sequence[Row]], np.ndarray], tokenizer: Tokenizer
) -> Gap:
    """Compares rows, which have the engine's log-probabilities, with the learner's: ``score`` gives
    those of the tokens that the policy wrote, (tokens,), row by row."""
    # Row and position of each token that the policy wrote, in the order of ``score``.
    places = [(row, int(i)) for row in rows for i in np.flatnonzero(row.mask)]
    behaviour = np.array([row.logprobs[i] for row, i in places], dtype=np.float64)
    learner = np.asarray(score(rows), dtype=np.float64)

    # |log mu(y_t) - log pi(y_t)|: (tokens,), all 0 where engine and learner agree. What is not a
    # number is as far apart as can be.
    apart = np.nan_to_num(np.abs(behaviour - learner), nan=np.inf)
    worst = np.argsort(-apart, kind="stable")[:_NAMED]
    named = []
    for n in worst:
        row, i = places[n]
        ids = row.ids.tolist()
        before = tokenizer.decode(ids[max(0, i - _BEFORE) : i])
        token = f"token {ids[i]} {tokenizer.decode([ids[i]])!r} at {i} after {before!r}"
        named.append(f"{token}: engine {behaviour[n]:.3f}, learner {learner[n]:.3f}")
    return Gap(len(apart), float(apart.mean()), float(apart.max()), tuple(named))
