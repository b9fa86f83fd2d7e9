"""Registers the doors with PettingZoo and Gymnasium; importing ``ssp_env`` does it."""

from __future__ import annotations

import gymnasium as gym
import pettingzoo

_GAME_ID, _SOLVER_ID, _PROPOSER_ID = "ssp/SearchSelfPlay-v0", "ssp/Solver-v0", "ssp/Proposer-v0"


def register_all() -> None:
    """Registers the ids with PettingZoo and Gymnasium: ``gymnasium.make("ssp/Solver-v0")``."""
    pettingzoo.register("aec", _GAME_ID, "ssp_env.doors.aec:env")
    for name, role in ((_SOLVER_ID, "Solver"), (_PROPOSER_ID, "Proposer")):
        gym.register(
            name,
            entry_point=f"ssp_env.doors.one_role:{role}Env",
            vector_entry_point=f"ssp_env.doors.vector:{role}VectorEnv",
        )
