"""The algorithm on one page, and that RLlib's learner makes the same update of the same games."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

from agents.credit import credited
from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from agents.rllib.algorithm import SSPConfig
from agents.rllib.batch import MODULE_ID, to_batch
from agents.rllib.learner import SSPLearner
from agents.rows import rows_of, with_loss_weights
from ssp_env import MINI_GAME, Rules, open_world
from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.tokenizers import HuggingFaceTokenizer

PAGE = Path(__file__).parents[2] / "examples" / "self_play.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """The example, imported."""
    spec = importlib.util.spec_from_file_location("self_play_example", PAGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def games(page: ModuleType) -> list[Game]:
    """One round of the tiny policy's, played by the page."""
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    rules = Rules.build(open_world("mini"), tokenizer, replace(MINI_GAME, attempts=page.N))
    engine = TransformersEngine(
        load_model(tiny_directory()), tokenizer, StopRule.of(rules.config, tokenizer)
    )
    answers = rules.world.answers

    def draw(rng: np.random.Generator, count: int) -> list[object]:
        return [answers[i] for i in rng.choice(len(answers), count, replace=False)]

    return page.play(Round(rules, draw, page.B, [3]), engine, page.TEMPERATURE, 3)


def learner_of(page: ModuleType) -> SSPLearner:
    """RLlib's learner, in this process, with the page's settings."""
    config = SSPConfig().training(
        model_dir=tiny_directory(),
        batch_size=page.B,
        minibatches=1,
        temperature=page.TEMPERATURE,
        kl_coeff=page.BETA,
        clip_low=page.CLIP_LOW,
        clip_high=page.CLIP_HIGH,
        proposer_weight=page.PROPOSER_WEIGHT,
        lr=page.LEARNING_RATE,
        beta2=page.BETA2,
        max_grad_norm=page.MAX_GRAD_NORM,
        warmup_steps=0,
        drop_uniform_groups=True,
        importance_cap=None,  # the page has equation 5 as it stands
        precision="float32",
    )
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: config.get_default_rl_module_spec()})
    learner = SSPLearner(config=config, module_spec=spec)
    learner.build()
    return learner


def test_rllib_makes_the_same_update_of_the_same_games(page: ModuleType, games: list[Game]) -> None:
    model, reference = load_model(tiny_directory()), load_model(tiny_directory())
    optimizer = torch.optim.Adam(model.parameters(), lr=page.LEARNING_RATE, betas=(0.9, page.BETA2))
    learner = learner_of(page)
    learning, theirs = learner.learning, learner.module[MODULE_ID].lm
    rows = credited(rows_of(games, learning), learning, {})
    rows = with_loss_weights(rows, learning, page.B, page.N)
    assert {row.role for row in rows} == {"proposer", "solver"}

    compared = 0
    # The second update is off-policy: ratios differ from 1, and there is a KL to the reference.
    for step in range(2):
        ours = page.update(model, reference, optimizer, games)
        result = learner.update(batch=to_batch(rows), timesteps={"training_step": step})
        figures = SSPLearner.merge([result[MODULE_ID]])
        assert figures["loss"] == pytest.approx(ours["loss"], abs=1e-6)
        assert figures["grad_norm"] == pytest.approx(ours["grad_norm"], abs=1e-6)
        for mine, other in zip(model.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(mine.grad, other.grad, rtol=0, atol=1e-6)
            # Adam divides by the gradient's size, which blows up the rounding of what is near 0: by
            # the learning rate, 3e-4, over that size.
            clear = mine.grad.abs() > 1e-4
            assert torch.allclose(mine[clear], other[clear], rtol=0, atol=1e-6)
            compared += int(clear.sum())

    assert compared > 10_000
    assert figures["kl"] > 0
    assert figures["logprob_gap"] > 1e-3


def test_the_page_trains_the_tiny_policy() -> None:
    command = [sys.executable, str(PAGE), "--steps", "2", "--questions", "5"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["step", "1"], ["step", "2"]]
    assert lines[0].startswith("accuracy before:")
    assert lines[-1].startswith("accuracy after:")
