"""Spaces of the module: what a policy sees and does."""

from __future__ import annotations

import gymnasium as gym


def module_spaces(vocab_size: int) -> tuple[gym.Space, gym.Space]:
    """Observations are token sequences, actions single tokens."""
    return gym.spaces.Sequence(gym.spaces.Discrete(vocab_size)), gym.spaces.Discrete(vocab_size)
