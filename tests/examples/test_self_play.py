"""The algorithm on one page: its update is that of the learner behind ``ssp train``."""

from __future__ import annotations

import pytest
import torch
from examples import self_play as page
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

from ssp_agents.config import LearningConfig
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.metrics import merge_figures
from ssp_agents.models import load_model, tiny_directory
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rllib.learner import SSPLearner
from ssp_agents.rllib.module import MODULE_ID
from ssp_agents.rows import rows_of, with_advantages, with_loss_weights
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.tokenizers import HuggingFaceTokenizer


def test_the_pages_update_is_that_of_ssp_train(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    monkeypatch.setattr(page, "B", 8)  # enough games to compare
    policy, reference = load_model(tiny_directory()), load_model(tiny_directory())
    optimizer = torch.optim.Adam(policy.parameters(), lr=page.LR, betas=page.BETAS)

    rules = page.make_rules(tokenizer)
    engine = TransformersEngine(policy, tokenizer, StopRule.of(rules.config, tokenizer))
    games = page.play(GameBatch(rules, answers_of(rules.world), page.B, [3]), engine, 1.0, 3)
    taught = page.learnable(games)

    learning = LearningConfig(
        batch_size=page.B,
        minibatches=1,
        kl_coeff=page.BETA,
        clip=(page.CLIP_LOW, page.CLIP_HIGH),
        proposer_weight=page.PROPOSER_WEIGHT,
        lr=page.LR,
        beta2=page.BETAS[1],
        warmup_steps=0,
        drop_uniform_groups=True,
        importance_cap=None,
        kl_cap=None,
    )
    config = SSPConfig().training(model_dir=tiny_directory(), **dict(learning))
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: config.get_default_rl_module_spec()})
    learner = SSPLearner(config=config, module_spec=spec)
    learner.build()
    theirs = learner.module[MODULE_ID].lm
    rows = with_advantages(rows_of(games, learning), learning)
    rows = with_loss_weights(rows, learning, page.B, rules.config)
    assert len(rows) == len(taught)
    assert {row.role for row in rows} == {"proposer", "solver"}

    compared = 0
    # The second update is off-policy: ratios differ from 1, and there is a KL to the reference.
    for step in range(2):
        loss = page.update(policy, reference, optimizer, taught)
        result = learner.update(
            batch=learner.policies.batches(rows)[0], timesteps={"training_step": step}
        )
        figures = merge_figures([result[MODULE_ID]])
        assert figures["loss"] == pytest.approx(loss, abs=1e-6)

        for mine, other in zip(policy.parameters(), theirs.parameters(), strict=True):
            moments = optimizer.state[mine], learner.updates[MODULE_ID].optimizer.state[other]
            # A tenth of this step's gradient is new in the first moment.
            first, second = (moment["exp_avg"] for moment in moments)
            assert torch.allclose(first, second, rtol=0, atol=1e-7)
            # Adam divides by the gradient's size, which blows up the rounding of what is near 0: by
            # the learning rate, 3e-4, over that size.
            clear = mine.grad.abs() > 1e-4
            assert torch.allclose(mine[clear], other[clear], rtol=0, atol=1e-6)
            compared += int(clear.sum())

    assert compared > 10_000
    assert figures["kl"] > 0
    assert figures["logprob_gap"] > 1e-3
