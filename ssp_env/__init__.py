"""Search self-play: one LLM proposes search questions and solves them. Needs neither torch nor ray.

Here are the interfaces to the game (environments, batches, text), its settings and rules, the
protocols of its exchangeable parts, and what these return. Beside it stand :mod:`ssp_env.search`
(retrievers, indexes, servers), :mod:`ssp_env.judge`, :mod:`ssp_env.tokenizers`,
:mod:`ssp_env.replay` (saved games), :mod:`ssp_env.errors` and :mod:`ssp_env.testing` (tests for
parts of your own)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ssp_env.envs import register_all
from ssp_env.envs.aec import SearchSelfPlayEnv, env, raw_env
from ssp_env.envs.one_role import ProposerEnv, SolverEnv
from ssp_env.envs.turns import TextGame, TextRole, TurnVectorEnv
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import MINI_GAME, SMALL_GAME, SMALL_VIEW, GameConfig, ViewConfig
from ssp_env.game.filters import Filter, Proposal
from ssp_env.game.game import Attempt, Game, ProposerReward, SolverReward
from ssp_env.game.noise import NoiseDocument, NoiseSource
from ssp_env.game.outcome import Outcome
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import BatchStrategy
from ssp_env.game.tools import Tool
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Judge, JudgeTask, Verdict, Verifier, VerifyTask
from ssp_env.players import Player, TextPlayer, scripted_player
from ssp_env.removed import NAMES
from ssp_env.search.base import Retriever
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Action, Analysis, Document, GroundTruth, Question, Role, World
from ssp_env.version import __version__
from ssp_env.worlds import open_world

__all__ = [
    "MINI_GAME",
    "SMALL_GAME",
    "SMALL_VIEW",
    "Action",
    "Analysis",
    "Attempt",
    "BatchStrategy",
    "ConfigError",
    "Document",
    "Filter",
    "Game",
    "GameBatch",
    "GameConfig",
    "GroundTruth",
    "Judge",
    "JudgeTask",
    "NoiseDocument",
    "NoiseSource",
    "Outcome",
    "Player",
    "PooledQuestion",
    "Proposal",
    "ProposerEnv",
    "ProposerReward",
    "Question",
    "Retriever",
    "Role",
    "Rules",
    "SearchSelfPlayEnv",
    "ServiceError",
    "SolverEnv",
    "SolverReward",
    "TextGame",
    "TextPlayer",
    "TextRole",
    "Tokenizer",
    "Tool",
    "Trajectory",
    "TurnVectorEnv",
    "UsageError",
    "Verdict",
    "Verifier",
    "VerifyTask",
    "ViewConfig",
    "World",
    "__version__",
    "env",
    "open_world",
    "raw_env",
    "scripted_player",
]

register_all()


def __getattr__(name: str) -> Any:
    # Imported on first use, since it brings Ray along.
    if name == "rllib":
        return import_module("ssp_env.envs.rllib")

    what = f"module 'ssp_env' has no attribute {name!r}"
    raise AttributeError(f"{what}: {NAMES[name]}" if name in NAMES else what)
