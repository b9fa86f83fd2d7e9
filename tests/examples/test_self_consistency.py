"""A solver that is paid for agreeing with itself is paid so, whatever is right."""

from __future__ import annotations

import pytest
from examples import self_play

from benchmarks.self_consistency import make_rules
from ssp_env.game.round import Round
from ssp_env.tokenizers import HuggingFaceTokenizer


@pytest.mark.parametrize(
    ("answers", "paid"),
    [
        (["a", "b", "The B!", "c", "b"], [0, 1, 1, 0, 1]),
        (["a", "b", "b", "a", "c"], [1, 0, 0, 1, 0]),
        ([None, None, "c", None, None], [0, 0, 1, 0, 0]),
        ([None] * 5, [0] * 5),
    ],
)
def test_the_answer_of_most_is_paid(answers: list[str | None], paid: list[int]) -> None:
    tokenizer = HuggingFaceTokenizer.load(self_play.MODEL)
    world = self_play.make_rules(tokenizer).world
    rules = make_rules(world, tokenizer, self_play.make_rules(tokenizer).config)
    [game] = Round.of_questions(rules, world.questions(0, 1)[:1], [1]).games
    for attempt, answer in zip(game.attempts, answers, strict=True):
        attempt.trajectory.result = answer
    assert [rules.solver_reward(game, attempt) for attempt in game.attempts] == paid
