"""Who is praised for what: from the rewards of a step's trajectories to their advantages.

Rows of all env runners come together here, since a baseline is over the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from agents.config import ROLES, LearningConfig
from agents.losses import grpo_advantages
from agents.repetition import repetition
from agents.rows import Row


class Credit:
    """Gives the rows of each step their advantages, and keeps the moving baseline of each role.

    Its state belongs into checkpoints.
    """

    def __init__(self, config: LearningConfig) -> None:
        self._config = config
        self._averages: dict[str, _MovingAverage] = {role: _MovingAverage() for role in ROLES}

    @property
    def baselines(self) -> dict[str, float]:
        """What is taken off the returns of each role's next rows."""
        return {role: average.value for role, average in self._averages.items()}

    @property
    def figures(self) -> dict[str, float]:
        """The baselines that are in use, by the names of ``metrics.jsonl``."""
        if self._config.baseline_decay is None:
            return {}
        learning = [role for role in ROLES if role in self._config.learning_roles]
        used = [role for role in learning if self._config.algorithm(role) == "reinforce"]
        return {f"{role}_baseline": self._averages[role].value for role in used}

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        """The rows of a step that something is learnt from, with their advantages.

        The baselines are of earlier steps: one that held a trajectory's own return would be biased.

        Args:
            rows: all rows of the step, as :func:`agents.rows.rows_of` makes them.
        """
        rows = penalised(rows, self._config.repetition_penalty)
        result = credited(rows, self._config, self.baselines)

        if self._config.baseline_decay is not None:
            for role, average in self._averages.items():
                average.add([r.reward for r in rows if r.role == role], self._config.baseline_decay)

        return result

    def get_state(self) -> dict[str, Any]:
        """The moving averages, as plain data."""
        return {role: (average.total, average.weight) for role, average in self._averages.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes them back."""
        for role, (total, weight) in state.items():
            self._averages[role] = _MovingAverage(float(total), float(weight))


def credited(
    rows: Sequence[Row], config: LearningConfig, baselines: Mapping[str, float]
) -> list[Row]:
    """Rows with advantages, without those that nothing is learnt from.

    GRPO: the reward less the mean of its group. REINFORCE: the reward less the role's baseline.

    Left out are rows of uniform groups (``drop_uniform_groups``) and trajectories with a void turn
    (``mask_void_turns``), which do count in means and baselines, and rows of REINFORCE without
    any gradient, unless their tokens count in a denominator.

    Args:
        rows: all rows of the step.
        config: algorithms, and what they leave out.
        baselines: of each role that REINFORCE trains; 0 where there is none.
    """
    advantages, kept = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    for role in ROLES:
        own = np.array([row.role == role for row in rows], dtype=bool)
        rewards = np.array([row.reward for row in rows if row.role == role])
        if config.algorithm(role) == "reinforce":
            advantages[own] = rewards - baselines.get(role, 0.0)
            kept[own] = (advantages[own] != 0) | (config.aggregation(role) == "token")
            continue

        groups = _numbers([row.group for row in rows if row.role == role])
        relative = grpo_advantages(rewards, groups, std_normalise=config.std_normalise)
        advantages[own] = relative
        if config.drop_uniform_groups:
            kept[own] = np.isin(groups, groups[relative != 0])

    if config.mask_void_turns:
        kept &= np.array([not row.void_turn for row in rows], dtype=bool)

    return [
        replace(row, advantage=float(advantage))
        for row, advantage, keep in zip(rows, advantages, kept, strict=True)
        if keep
    ]


def penalised(rows: Sequence[Row], penalty: float) -> list[Row]:
    """Takes ``penalty`` times the share of near-identical questions off rewards of proposals.

    No reward falls below 0, so that a repeated question never earns less than an invalid one, and
    none rises. Proposals without a question of their own, or without a reward, stay as they are.

    Args:
        rows: all rows of the step.
        penalty: what a question loses that all others repeat.
    """
    if penalty == 0:
        return list(rows)

    asking = [i for i, row in enumerate(rows) if row.question is not None]
    shares = repetition([str(rows[i].question) for i in asking])
    result = list(rows)
    for i, share in zip(asking, shares, strict=True):
        reward = rows[i].reward
        result[i] = replace(rows[i], reward=min(reward, max(0.0, reward - penalty * float(share))))

    return result


class _MovingAverage:
    """An exponential average of the means of batches, without the pull to 0 of its beginning."""

    def __init__(self, total: float = 0.0, weight: float = 0.0) -> None:
        self.total, self.weight = total, weight

    @property
    def value(self) -> float:
        """0 before the first batch."""
        return self.total / self.weight if self.weight else 0.0

    def add(self, batch: Sequence[float], decay: float) -> None:
        """Counts a batch; an empty one changes nothing."""
        if not batch:
            return
        self.total = decay * self.total + (1 - decay) * float(np.mean(batch))
        self.weight = decay * self.weight + (1 - decay)


def _numbers(groups: Sequence[str]) -> np.ndarray:
    """One number per name."""
    numbers = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    return np.array([numbers[name] for name in groups], dtype=np.int64)
