"""The update in plain PyTorch: where gradients may come from, and what its figures say.

`examples/self_play.py` spells the same update out; its test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learning import some_rows
from two_ranks import columns as tensors

from ssp_agents.batches import Columns
from ssp_agents.config import ALGORITHMS, Aggregation, LearningConfig
from ssp_agents.losses import Algorithm, grpo_advantages, grpo_loss
from ssp_agents.metrics import merge_figures
from ssp_agents.models import adapt, load_model
from ssp_agents.rows import Row, rows_of, with_advantages, with_loss_weights
from ssp_agents.scoring import Scores, checkpoint_layers, token_scores
from ssp_agents.update import Update
from ssp_env.errors import ConfigError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig

PLAIN = LearningConfig(lr=1e-3, warmup_steps=0, importance_cap=None)


class Bench:
    """A model, its update, and what the output layer was given."""

    def __init__(
        self,
        model_dir: Path,
        learning: LearningConfig,
        tokens_per_chunk: int = 10**6,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.model = load_model(model_dir)
        reference = load_model(model_dir)
        vocab = self.model.config.vocab_size
        self.hidden: list[torch.Tensor] = []
        self.masks: list[torch.Tensor] = []
        if learning.lora_rank:
            adapt(self.model, learning.lora_rank, seed=0)
        if learning.gradient_checkpointing:
            checkpoint_layers(self.model)

        def keep(module: Any, inputs: Any, output: Any) -> None:
            if output.last_hidden_state.requires_grad:
                output.last_hidden_state.retain_grad()
                self.hidden.append(output.last_hidden_state)

        self.model.base_model.register_forward_hook(keep)

        def score(part: Columns) -> Scores:
            self.masks.append(part["loss_mask"])
            chunk = tokens_per_chunk * vocab
            return token_scores(self.model, part["ids"], part["loss_mask"], 1.0, vocab, chunk)

        def score_reference(part: Columns) -> Scores:
            return token_scores(reference, part["ids"], part["loss_mask"], 1.0, vocab)

        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=learning.lr)
        self.update = Update(
            score, optimizer, learning, reference=score_reference, autocast=autocast
        )

    def __call__(self, rows: Sequence[Row], step: int = 0) -> dict[str, float]:
        self.hidden.clear(), self.masks.clear()
        return merge_figures([self.update(tensors(rows), step)])

    @property
    def gradients(self) -> list[torch.Tensor]:
        """Those of the first step: a tenth of them is Adam's first moment."""
        held = [self.update.optimizer.state[p] for p in self.model.parameters()]
        return [state["exp_avg"] * 10 for state in held]


@pytest.fixture(scope="module")
def rows(model_dir: Path) -> list[Row]:
    return some_rows(model_dir, 6, noise=0.4)


def test_equal_rows_are_read_once_and_count_as_often_as_they_are(
    model_dir: Path, rows: list[Row]
) -> None:
    """Compared with rows that have another token at their ends, which nothing is learnt from."""
    learning = PLAIN.replace(kl_coeff=0.1, importance_cap=2.0, microbatch_tokens=10**6)
    twice = [replace(r, advantage=0.5, weight=0.3, logprobs=r.logprobs - 0.1) for r in rows[:3]]

    def longer(row: Row) -> Row:
        columns = {name: np.append(getattr(row, name), 0) for name in ("ids", "mask", "logprobs")}
        return replace(row, **columns)

    once, apart = Bench(model_dir, learning), Bench(model_dir, learning)
    figures, other = once([*rows[:3], *twice], 1), apart([*rows[:3], *map(longer, twice)], 1)
    assert [sum(map(len, bench.masks)) for bench in (once, apart)] == [3, 6]
    assert figures == pytest.approx(other, rel=1e-3)
    for one, two in zip(once.gradients, apart.gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_gradient_comes_from_a_token_that_the_policy_did_not_write(
    data: st.DataObject, model_dir: Path, played: GameBatch
) -> None:
    """In a batch of games that an engine has played; under every algorithm, aggregation, cap, size
    of passes and chunks, checkpointing, precision, and with adapters."""
    learning = PLAIN.replace(
        proposer_algorithm=data.draw(st.sampled_from(ALGORITHMS)),
        solver_algorithm=data.draw(st.sampled_from(ALGORITHMS)),
        proposer_aggregation=data.draw(st.sampled_from(get_args(Aggregation))),
        solver_aggregation=data.draw(st.sampled_from(get_args(Aggregation))),
        importance_cap=data.draw(st.sampled_from([None, 1.0, 2.0])),
        kl_coeff=data.draw(st.sampled_from([0.0, 0.1])),
        microbatch_tokens=data.draw(st.sampled_from([1, 60, 10**6])),
        gradient_checkpointing=data.draw(st.booleans()),
        lora_rank=data.draw(st.sampled_from([0, 2])),
    )
    rows = [replace(row, group=row.role) for row in rows_of(played.games[:6], learning)]
    weighted = with_loss_weights(
        with_advantages(rows, learning), learning, 6, GameConfig(attempts=4)
    )
    autocast = data.draw(st.sampled_from([None, torch.bfloat16]))
    bench = Bench(model_dir, learning, data.draw(st.sampled_from([20, 10**6])), autocast)
    bench(weighted, step=1)

    assert len(bench.hidden) == len(bench.masks)
    for hidden, mask in zip(bench.hidden, bench.masks, strict=True):
        assert hidden.grad is not None
        reached = (hidden.grad != 0).any(dim=-1)
        assert not (reached & (mask[:, 1:] == 0)).any(), "a token that was only read"
        # Clipping and a lone row of a group may stop gradients, though not all of them.
    assert any(bool((hidden.grad != 0).any()) for hidden in bench.hidden)


def test_an_example_counts_as_if_the_policy_had_sampled_it(
    model_dir: Path, rows: list[Row]
) -> None:
    def taught(logprobs: np.ndarray) -> tuple[dict[str, float], Any]:
        bench = Bench(model_dir, PLAIN)
        figures = bench([*rows, replace(sampled, logprobs=logprobs)])
        return figures, bench.model.state_dict()

    (sampled,) = some_rows(model_dir, 2, seed=5)[1:]
    unknown, known = taught(np.full_like(sampled.logprobs, np.nan)), taught(sampled.logprobs)
    for name, weight in unknown[1].items():
        torch.testing.assert_close(weight, known[1][name], rtol=0, atol=2e-5)

    # Loss and tokens are those of both; what compares engine and learner leaves it out.
    without = Bench(model_dir, PLAIN)(rows)
    compared = ("logprob_gap", "ratio", "truncated_share", "clipped_share")
    expected = {**known[0], **{name: without[name] for name in compared}}
    assert unknown[0] == pytest.approx({**expected, "example_tokens": sampled.tokens}, rel=1e-4)
    assert known[0]["logprob_gap"] != pytest.approx(without["logprob_gap"], rel=1e-2)


def test_figures_are_what_numpy_makes_of_the_logits(model_dir: Path, rows: list[Row]) -> None:
    learning = PLAIN.replace(importance_cap=1.3, microbatch_tokens=60)
    figures = Bench(model_dir, learning, tokens_per_chunk=5)(rows)

    model = load_model(model_dir)
    ratios, clipped, entropies = [], [], {"proposer": [], "solver": []}
    for row in rows:
        ids = torch.as_tensor(row.ids, dtype=torch.int64)
        with torch.no_grad():
            p = model(input_ids=ids[None]).logits[0].double().softmax(dim=-1).numpy()
        for t in np.flatnonzero(row.mask):
            ratio = p[t - 1, row.ids[t]] / np.exp(float(row.logprobs[t]))
            ratios.append(ratio)
            entropies[row.role].append(-(p[t - 1] * np.log(p[t - 1])).sum())
            if row.role == "solver":
                far = ratio > 1.28 if row.advantage > 0 else ratio < 0.8
                clipped.append(far)

    assert figures["trained_tokens"] == len(ratios)
    assert figures["ratio"] == pytest.approx(np.mean(ratios), rel=1e-5)
    assert figures["logprob_gap"] == pytest.approx(np.abs(np.log(ratios)).mean(), rel=1e-4)
    assert figures["truncated_share"] == pytest.approx(np.mean(np.array(ratios) > 1.3))
    assert figures["clipped_share"] == pytest.approx(np.mean(clipped))
    assert 0 < figures["truncated_share"] < 1
    assert 0 < figures["clipped_share"] < 1
    for role, values in entropies.items():
        assert figures[f"{role}_entropy"] == pytest.approx(np.mean(values), rel=1e-5)


def test_a_turn_is_learnt_from_by_its_credit(model_dir: Path, rows: list[Row]) -> None:
    """Each row has two turns: as much as two rows of one turn each, with shares of its advantage.
    A row without credit, and passes that only fill up, are left alone."""
    learning = PLAIN.replace(solver_algorithm="reinforce", microbatch_tokens=60)
    credited, apart = [], list[Row]()
    for row in rows[:-1]:
        first = np.arange(len(row.mask)) < 8  # a turn ends at token 7, the next begins at 9
        share = np.where(first, 0.25, 1.5).astype(np.float32)
        credited.append(replace(row, credit=share))
        for turn, factor in ((first, 0.25), (~first, 1.5)):
            apart.append(replace(row, mask=row.mask * turn, advantage=factor * row.advantage))
    one, two = Bench(model_dir, learning), Bench(model_dir, learning)
    one.update._max_over_learners = lambda passes: passes + 1
    one([*credited, rows[-1]], 1), two([*apart, rows[-1]], 1)
    for ours, theirs in zip(one.gradients, two.gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


HOW: Any = {"grouped": True, "kl": False, "aggregation": "sum"}
SCALAR = Algorithm(grpo_advantages, lambda tokens, _: tokens.logprobs.sum(), **HOW)
SHORT = Algorithm(lambda rewards, *_: rewards[1:], grpo_loss, **HOW)


def test_an_algorithm_that_does_not_fit_is_named(model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="aggregation = 'mean': choose one of sequence, "):
        replace(SCALAR, aggregation="mean")  # type: ignore[arg-type]
    rows = some_rows(model_dir, 4)
    learning = PLAIN.replace(solver_algorithm=f"{__name__}:SCALAR")
    with pytest.raises(ConfigError, match=r"solver_algorithm.*its loss has to return \(\d+,\)"):
        Bench(model_dir, learning).update(tensors(rows), 0)
    learning = PLAIN.replace(solver_algorithm=f"{__name__}:SHORT")
    with pytest.raises(ConfigError, match=r"learning.solver_algorithm.*one per reward"):
        with_advantages(rows, learning)
