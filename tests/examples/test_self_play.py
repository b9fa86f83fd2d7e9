"""The algorithm on one page: its update is that of the paper's equations, spelled out here, and
that of RLlib's learner."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from torch import Tensor

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
from ssp_env.game.trajectory import Trajectory
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
    rules = Rules.build(open_world("mini"), tokenizer, MINI_GAME.replace(attempts=page.N))
    engine = TransformersEngine(
        load_model(tiny_directory()), tokenizer, StopRule.of(rules.config, tokenizer)
    )
    answers = rules.world.answers

    def draw(rng: np.random.Generator, count: int) -> list[object]:
        return [answers[i] for i in rng.choice(len(answers), count, replace=False)]

    return page.play(Round(rules, draw, page.LEARNING.batch_size, [3]), engine, 1.0, 3)


def token_logprobs(model: Any, trajectory: Trajectory) -> Tensor:
    """Log-probabilities (tokens,) of what the policy wrote; other tokens are only read."""
    ids = torch.tensor(trajectory.ids)
    own = torch.tensor(list(trajectory.mask[1:]), dtype=torch.bool)

    # The logits at position t belong to the token at t + 1.
    logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0, own]
    return torch.log_softmax(logits, dim=-1).gather(1, ids[1:][own][:, None]).squeeze(1)


def equation_4(
    page: ModuleType, model: Any, reference: Any, trajectory: Trajectory, advantage: float
) -> Tensor:
    """One attempt's part: the mean over its tokens of clipped policy loss and KL (k3)."""
    settings = page.LEARNING
    logprobs = token_logprobs(model, trajectory)
    with torch.no_grad():
        reference_logprobs = token_logprobs(reference, trajectory)
    difference = reference_logprobs - logprobs

    behaviour = torch.tensor(trajectory.logprobs)[torch.tensor(list(trajectory.mask)) > 0]
    ratio = torch.exp(logprobs - behaviour)
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage)
    return (policy_loss + settings.kl_coeff * (torch.exp(difference) - difference - 1)).mean()


def spelled_out(page: ModuleType, model: Any, reference: Any, games: list[Game]) -> float:
    """Leaves the gradient of equations 4 and 5 in the model; returns the loss. B and n divide,
    however many games are valid, and a trajectory at a time is passed through."""
    batch, attempts, total = page.LEARNING.batch_size, page.N, 0.0
    model.zero_grad()
    for game in games:
        if game.outcome == "void":
            continue
        terms = []
        rewards = [float(attempt.right) for attempt in game.counted]
        if game.outcome == "valid" and len(set(rewards)) > 1:
            for attempt, reward in zip(game.counted, rewards, strict=True):
                advantage = reward - fmean(rewards)
                loss = equation_4(page, model, reference, attempt.trajectory, advantage)
                terms.append(loss / (batch * attempts))

        paid = 1 - fmean(rewards) if game.outcome == "valid" else 0.0
        if game.proposer is not None and paid:
            loss = -paid * token_logprobs(model, game.proposer).sum()
            terms.append(page.LEARNING.proposer_weight * loss / batch)

        for term in terms:
            term.backward()
            total += float(term.detach())

    return total


def learner_of(page: ModuleType) -> SSPLearner:
    """RLlib's learner, in this process, with the page's settings."""
    config = SSPConfig().training(
        model_dir=tiny_directory(), **vars(page.LEARNING.replace(precision="float32"))
    )
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: config.get_default_rl_module_spec()})
    learner = SSPLearner(config=config, module_spec=spec)
    learner.build()
    return learner


def test_the_pages_update_is_the_papers_and_rllibs(page: ModuleType, games: list[Game]) -> None:
    model, reference = load_model(tiny_directory()), load_model(tiny_directory())
    update = page.make_update(model, reference, model.config.vocab_size)
    twin = copy.deepcopy(model)
    learner = learner_of(page)
    theirs = learner.module[MODULE_ID].lm

    rows = credited(rows_of(games, page.LEARNING), page.LEARNING, {})
    rows = with_loss_weights(rows, page.LEARNING, page.LEARNING.batch_size, page.N)
    assert {row.role for row in rows} == {"proposer", "solver"}

    compared = 0
    # The second update is off-policy: ratios differ from 1, and there is a KL to the reference.
    for step in range(2):
        twin.load_state_dict(model.state_dict())
        loss = spelled_out(page, twin, reference, games)
        norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), page.LEARNING.max_grad_norm)

        ours = update(page.learnable(games), step)
        result = learner.update(batch=to_batch(rows), timesteps={"training_step": step})
        figures = SSPLearner.merge([result[MODULE_ID]])
        assert ours["loss"] == pytest.approx(loss, abs=1e-6)
        assert ours["grad_norm"] == pytest.approx(float(norm), abs=1e-6)
        assert figures["loss"] == pytest.approx(ours["loss"], abs=1e-6)
        assert figures["grad_norm"] == pytest.approx(ours["grad_norm"], abs=1e-6)

        for mine, other, third in zip(
            model.parameters(), theirs.parameters(), twin.parameters(), strict=True
        ):
            assert torch.allclose(mine.grad, other.grad, rtol=0, atol=1e-6)
            assert torch.allclose(mine.grad, third.grad, rtol=0, atol=1e-6)
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
