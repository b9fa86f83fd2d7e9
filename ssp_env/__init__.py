"""Search self-play: one LLM proposes search questions and solves them; neither torch nor ray is
needed to play."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ssp_env.doors.aec import SearchSelfPlayEnv, env, raw_env
from ssp_env.doors.batch import GameBatch
from ssp_env.doors.one_role import ProposerEnv, SolverEnv
from ssp_env.doors.registration import register_all
from ssp_env.doors.replay import ReplayEnv, replay_env
from ssp_env.doors.text import TextGame, TextRole
from ssp_env.doors.vector import ProposerVectorEnv, SolverVectorEnv
from ssp_env.game.config import MINI_GAME, SMALL_GAME, SMALL_VIEW, GameConfig, ViewConfig
from ssp_env.game.rules import Rules
from ssp_env.version import __version__
from ssp_env.worlds import open_world

__all__ = [
    "MINI_GAME",
    "SMALL_GAME",
    "SMALL_VIEW",
    "GameBatch",
    "GameConfig",
    "ProposerEnv",
    "ProposerVectorEnv",
    "ReplayEnv",
    "Rules",
    "SearchSelfPlayEnv",
    "SolverEnv",
    "SolverVectorEnv",
    "TextGame",
    "TextRole",
    "ViewConfig",
    "__version__",
    "env",
    "open_world",
    "raw_env",
    "replay_env",
]

register_all()


def __getattr__(name: str) -> Any:
    # Ray is loaded by whoever asks for ssp_env.doors.rllib, not by import ssp_env.
    if name == "rllib":
        return import_module("ssp_env.doors.rllib")
    raise AttributeError(f"module 'ssp_env' has no attribute {name!r}")
