"""Search self-play: one LLM proposes search questions and solves them; neither torch nor ray is needed to play."""

from __future__ import annotations

from ssp_env.config import MINI_GAME, GameConfig
from ssp_env.env import SearchSelfPlayEnv, env, raw_env
from ssp_env.game.rules import Rules
from ssp_env.worlds import open_world

__all__ = ["MINI_GAME", "GameConfig", "Rules", "SearchSelfPlayEnv", "env", "open_world", "raw_env"]
__version__ = "0.1.0"
