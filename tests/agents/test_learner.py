"""Optimizer steps of a learner; tests/examples/test_self_play.py shows they are the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning import distance, exact_logprobs, learner_for, some_rows, update, weights_of
from playful import playful_model

from ssp_agents.batches import columns_of
from ssp_agents.rllib.learner import SSPLearner
from ssp_agents.rllib.module import MODULE_ID
from ssp_agents.rows import ROLE_IDS, Row
from ssp_agents.shipped.tiny.bootstrap import save_policy as save_tiny
from ssp_agents.shipped.tiny.bootstrap import tiny_tokenizer


@pytest.fixture(scope="module")
def rows(model_dir: Path) -> list[Row]:
    return some_rows(model_dir)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(
    model_dir: Path, rows: list[Row]
) -> None:
    learner, other = learner_for(model_dir, kl_coeff=0.1), learner_for(model_dir, kl_coeff=0.1)
    assert update(learner, rows)["skipped_updates"] == 0.0
    update(other, rows)
    before = weights_of(learner)
    figures = update(learner, [replace(rows[0], advantage=float("nan")), *rows[1:]])
    assert figures["skipped_updates"] == 1.0
    assert distance(weights_of(learner), before) == 0.0
    update(learner, rows)
    update(other, rows)
    # Adam's moments have not seen it.
    assert distance(weights_of(learner), weights_of(other)) == 0.0
    state = learner.get_state()["rl_module"][MODULE_ID]
    assert {name.removeprefix("lm.") for name in state} == set(before), "the reference is no part"


def test_the_learner_leaves_out_the_logits_that_are_never_sampled(tmp_path: Path) -> None:
    """A model with room for more tokens than the tokenizer has."""
    model = playful_model(0)
    model.resize_token_embeddings(model.config.vocab_size + 16, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[-16:] = model.lm_head.weight[:16] + 0.5
    save_tiny(model, tmp_path)
    tokens = len(tiny_tokenizer())
    learner = learner_for(tmp_path, kl_coeff=0.1)
    rows = [replace(row, ids=row.ids % tokens) for row in some_rows(tmp_path)]
    exact = []
    for row in rows:
        own = exact_logprobs(model, row.ids, tokens).detach().numpy()
        exact.append(replace(row, logprobs=np.insert(own, 0, 0.0) * row.mask))
    assert update(learner, exact)["logprob_gap"] < 1e-5
    columns = {k: torch.as_tensor(v) for k, v in columns_of(rows).items()}
    out = learner.module[MODULE_ID].forward_inference(columns)
    assert out["action_dist_inputs"].shape == (len(rows), tokens)


class Halved(SSPLearner):
    """Overrides RLlib's hook of losses: the solver's share alone, and half of it."""

    def compute_loss_for_module(self, *, batch: Any, **kwargs: Any) -> torch.Tensor:
        batch = {**batch, "weights": batch["weights"] * (batch["role"] == ROLE_IDS["solver"]) / 2}
        return super().compute_loss_for_module(batch=batch, **kwargs)


def test_a_learner_of_ones_own_has_its_loss_minimised(model_dir: Path, rows: list[Row]) -> None:
    halved, other = learner_for(model_dir, cls=Halved), learner_for(model_dir)
    start = weights_of(halved)
    figures = update(halved, rows)
    less = [replace(r, weight=r.weight / 2 if r.role == "solver" else 0.0) for r in rows]
    assert update(other, less)["loss"] == pytest.approx(figures["loss"])
    assert distance(weights_of(halved), weights_of(other)) < 1e-6
    assert distance(weights_of(halved), start) > 1e-4
