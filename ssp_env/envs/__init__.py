"""Interfaces to the game: PettingZoo's AEC, one role, turns of many games, text, RLlib."""

from __future__ import annotations

import gymnasium as gym
import pettingzoo


def register_all() -> None:
    """Registers the ids with PettingZoo and Gymnasium: ``gymnasium.make("ssp/Solver-v0")``."""
    pettingzoo.register("aec", "ssp/SearchSelfPlay-v0", "ssp_env.envs.aec:env")
    for role in ("Solver", "Proposer"):
        gym.register(f"ssp/{role}-v0", entry_point=f"ssp_env.envs.one_role:{role}Env")
