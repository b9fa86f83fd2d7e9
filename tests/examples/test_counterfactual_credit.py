"""Counterfactual credit pays the turns whose search changed a reward, and no other token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from examples import self_play

from benchmarks.counterfactual_credit import credits
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model
from ssp_agents.rollout import play
from ssp_env.game.round import Round
from ssp_env.tokenizers import HuggingFaceTokenizer

CREDIT = 0.5


def test_the_gradient_is_that_of_an_advantage_for_each_turn() -> None:
    tokenizer = HuggingFaceTokenizer.load(self_play.MODEL)
    policy = load_model(self_play.MODEL)
    rules = self_play.make_rules(tokenizer)
    rules = replace(rules, config=rules.config.replace(attempts=2))
    engine = TransformersEngine(policy, tokenizer, StopRule.of(rules.config, tokenizer))
    questions = rules.world.questions(0, 4)

    def played(withhold: int | None = None) -> list[self_play.Game]:
        round_ = Round.of_questions(rules, questions, [5])
        return play(round_, engine, temperature=1.0, withhold=withhold).games

    games, without = played(), [played(place) for place in range(rules.config.max_searches)]
    rows = credits(games, without, CREDIT)

    # -w c (r - r without search k) log pi of the tokens of turn k, one trajectory after the other.
    expected, paid = torch.zeros(()), 0
    for number, game in enumerate(games):
        for place, attempt in enumerate(game.attempts):
            trajectory = attempt.trajectory
            ids = torch.tensor([trajectory.ids])
            logprobs = policy(input_ids=ids).logits.log_softmax(-1)[0, :-1]
            chosen = logprobs.gather(1, ids[0, 1:, None])[:, 0]  # of each token but the first
            turns = [(start, stop) for start, stop, own in trajectory.runs() if own]
            for k in range(len(trajectory.searches)):
                worth = attempt.reward - without[k][number].attempts[place].reward
                weight = 1 / (self_play.B * self_play.N * sum(trajectory.mask))
                start, stop = turns[k]
                expected = expected - weight * CREDIT * worth * chosen[start - 1 : stop - 1].sum()
                paid += worth != 0
    assert len(rows) == paid > 5

    loss = self_play.loss_of(policy, policy, rows)
    wanted = torch.autograd.grad(expected, policy.parameters())
    found = torch.autograd.grad(loss, policy.parameters())
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)
