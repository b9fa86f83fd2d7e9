"""What the tests of the agents share: a small policy, its rules and a batch of games that it has
played."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playful import GAME, LEARNING, WORLD, make_rules, new_batch, quicken_connectors, save_playful

from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rollout import play
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.mini import MiniWorld

torch.set_num_threads(1)
quicken_connectors()


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of random weights that plays games of all outcomes."""
    return save_playful(tmp_path_factory.mktemp("playful") / "model")


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> HuggingFaceTokenizer:
    """The tiny policy's tokenizer."""
    return HuggingFaceTokenizer.load(model_dir)


@pytest.fixture
def algorithm_config(model_dir: Path) -> SSPConfig:
    """Small games with that policy; everything in one process."""
    env = {"world": "mini", "world_options": WORLD, "game": GAME, "make_rules": make_rules}
    config = SSPConfig().environment(env_config=env).training(model_dir=model_dir, **LEARNING)
    config.debugging(seed=5, log_level="ERROR")
    return config


@pytest.fixture(scope="session")
def rules(tokenizer: HuggingFaceTokenizer) -> Rules:
    return make_rules(MiniWorld(**WORLD), tokenizer, GameConfig(**GAME))


@pytest.fixture(scope="session")
def stop(rules: Rules) -> StopRule:
    return StopRule.of(rules.config, rules.tokenizer)


@pytest.fixture(scope="session")
def engine(model_dir: Path, rules: Rules, stop: StopRule) -> TransformersEngine:
    """That policy, whose weights nobody changes."""
    return TransformersEngine(load_model(model_dir), rules.tokenizer, stop)


@pytest.fixture(scope="session")
def played(rules: Rules, engine: TransformersEngine) -> GameBatch:
    """A batch of 16 games, played by that policy at temperature 0.8."""
    return play(new_batch(rules), engine, temperature=0.8)
