"""One optimizer step, against the same step written out plainly; and what each setting does to
it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from learning import distance, learner_for, some_rows, update, weights_of
from playful import playful_model

from agents.models import load_model
from agents.rllib.module import MODULE_ID, to_batch
from agents.rows import Row, credited
from agents.tiny.bootstrap import save_policy
from agents.tiny.model import tiny_tokenizer
from ssp_env.errors import ConfigError


def plain_updates(
    model_dir: Path, batches: list[list[Row]], temperature: float = 1.0
) -> dict[str, torch.Tensor]:
    """The updates by the book: whole rows one after the other, full logits, no masks, no
    micro-batches.

    Proposer by REINFORCE, solver by GRPO with clip 0.2 / 0.28, both with ratios up to 2, KL 0.1,
    Adam (0.9, 0.999) with lr 1e-3, norm 1."""
    model, reference = load_model(model_dir), load_model(model_dir)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999))

    def logprobs(lm: torch.nn.Module, row: Row, t: int) -> torch.Tensor:
        logits = lm(input_ids=torch.tensor(row.ids[None, :t], dtype=torch.long)).logits[0, -1]
        return torch.log_softmax(logits / temperature, dim=-1)[int(row.ids[t])]

    for rows in batches:
        loss = torch.zeros(())
        for row in rows:
            for t in np.flatnonzero(row.mask).tolist():
                logp = logprobs(model, row, t)
                ratio = torch.exp(logp - float(row.logprobs[t]))
                ratio = ratio * min(1.0, 2.0 / ratio.item())
                if row.role == "proposer":
                    loss = loss - row.weight * row.advantage * ratio.item() * logp
                    continue
                surrogate = torch.minimum(
                    ratio * row.advantage, ratio.clamp(0.8, 1.28) * row.advantage
                )
                with torch.no_grad():
                    ref = logprobs(reference, row, t)
                kl = torch.exp(ref - logp) - (ref - logp) - 1
                loss = loss + row.weight * (0.1 * kl - surrogate)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@pytest.fixture(scope="module")
def rows(model_dir: Path) -> list[Row]:
    return some_rows(model_dir)


def test_updates_equal_the_losses_written_out(model_dir: Path) -> None:
    batches = [some_rows(model_dir, 5, noise=0.4, seed=seed) for seed in (1, 2)]
    learner = learner_for(model_dir, kl_coeff=0.1)
    start = weights_of(learner)
    for batch in batches:
        update(learner, batch)
    expected = plain_updates(model_dir, batches)
    assert distance(weights_of(learner), start) > 1e-4
    # Adam divides rounding by rounding where a gradient is all but 0.
    assert distance(weights_of(learner), expected) < 3e-5


def test_microbatches_do_not_change_the_update(model_dir: Path) -> None:
    results = []
    for tokens in (10**9, 60):
        learner = learner_for(model_dir, microbatch_tokens=tokens, lr=1e-4)
        figures = [update(learner, some_rows(model_dir, 7, seed=seed)) for seed in (3, 4)]
        results.append((weights_of(learner), figures))
    (whole, one), (parts, other) = results
    assert distance(whole, parts) < 1e-5
    for a, b in zip(one, other, strict=True):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-6)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(
    model_dir: Path, rows: list[Row]
) -> None:
    learner, other = learner_for(model_dir), learner_for(model_dir)
    assert update(learner, rows)["skipped_updates"] == 0.0
    update(other, rows)
    before = weights_of(learner)
    figures = update(learner, [replace(rows[0], advantage=float("nan")), *rows[1:]])
    assert figures["skipped_updates"] == 1.0
    assert distance(weights_of(learner), before) == 0.0
    update(learner, rows)
    update(other, rows)
    assert distance(weights_of(learner), weights_of(other)) == 0.0, (
        "Adam's moments must not have seen it"
    )


# -- KL ----------------------------------------------------------------------------------------


def test_the_kl_pulls_back_to_the_reference(model_dir: Path, rows: list[Row]) -> None:
    learner = learner_for(model_dir, kl_coeff=1.0)
    assert update(learner, rows)["kl"] == pytest.approx(0.0, abs=1e-7)
    for _ in range(4):
        pushed = update(learner, rows)["kl"]
    still = [replace(row, advantage=0.0) for row in rows if row.role == "solver"]
    pulled = [update(learner, still)["kl"] for _ in range(15)]
    assert pushed > 1e-4
    assert pulled[-1] < 0.2 * pulled[0]


def test_the_reference_is_frozen_and_stays_out_of_the_state(
    model_dir: Path, rows: list[Row]
) -> None:
    learner = learner_for(model_dir, kl_coeff=0.1)
    for _ in range(2):
        update(learner, rows)
    base = load_model(model_dir).state_dict()
    assert distance(learner._reference.lm.state_dict(), base) == 0.0
    module = learner.get_state()["rl_module"][MODULE_ID]
    assert {name.removeprefix("lm.") for name in module} == set(base)


# -- the rest ----------------------------------------------------------------------------------


def test_the_learner_leaves_out_the_logits_that_are_never_sampled(tmp_path: Path) -> None:
    """A model with room for more tokens than the tokenizer has."""
    model = playful_model(0)
    model.resize_token_embeddings(model.config.vocab_size + 16, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[-16:] = model.lm_head.weight[:16] + 0.5
    save_policy(model, tmp_path)
    tokens = len(tiny_tokenizer())
    learner = learner_for(tmp_path, kl_coeff=0.1)
    rows = [replace(row, ids=row.ids % tokens) for row in some_rows(tmp_path)]
    logits = [
        model(input_ids=torch.tensor(r.ids[None], dtype=torch.long)).logits[0, :-1, :tokens]
        for r in rows
    ]
    logprobs = [
        torch.log_softmax(x, dim=-1)[range(len(x)), r.ids[1:]]
        for x, r in zip(logits, rows, strict=True)
    ]
    exact = [
        replace(r, logprobs=np.concatenate([[0], x.detach().numpy()]).astype(np.float32) * r.mask)
        for r, x in zip(rows, logprobs, strict=True)
    ]
    assert update(learner, exact)["logprob_gap"] < 1e-5
    columns = {k: torch.as_tensor(v) for k, v in to_batch(rows).policy_batches[MODULE_ID].items()}
    assert learner.module[MODULE_ID].forward_inference(columns)["action_dist_inputs"].shape == (
        len(rows),
        tokens,
    )


def test_an_algorithm_of_ones_own_is_named_by_its_module(model_dir: Path, rows: list[Row]) -> None:
    own = learner_for(model_dir, solver_algorithm="learning:RLOO", kl_coeff=0.1)
    learning = own.learning
    attempts = [
        replace(row, role="solver", group="one", reward=reward)
        for row, reward in zip(rows, (1.0, 0.0, 0.0), strict=False)
    ]
    credited_rows = credited(attempts, learning)
    assert [row.advantage for row in credited_rows] == [1.0, -0.5, -0.5]
    start = weights_of(own)
    assert update(own, credited_rows)["kl"] == pytest.approx(0.0, abs=1e-7)
    assert distance(weights_of(own), start) > 0.0
    with pytest.raises(ConfigError, match="cannot be imported"):
        learner_for(model_dir, solver_algorithm="learning:PPO")
