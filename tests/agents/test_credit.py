"""From rewards to advantages: baselines, groups, and what is left out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import LearningConfig
from agents.metrics import NEAR, repetition
from agents.rows import Credit, Row, rows_of
from ssp_env import MINI_GAME
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.trajectory import Limits, Trajectory
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import GroundTruth, Role


def config(**changes: object) -> LearningConfig:
    return LearningConfig(batch_size=8, minibatches=1).replace(**changes)


def row(role: str, reward: float, group: str = "", question: str | None = None) -> Row:
    """A row that earned something."""
    mask = np.ones(3, dtype=np.uint8)
    ids = np.zeros(3, dtype=np.int32)
    return Row(ids, mask, -mask.astype(np.float32), role, 0, 0.0, 0.0, reward, group, question)


# -- moving baselines --------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=5), min_size=1, max_size=6),
    st.floats(0, 0.99),
)
def test_the_baseline_is_an_average_of_earlier_steps_by_age(
    steps: list[list[float]], decay: float
) -> None:
    """Against the definition: the mean of step k counts decay^age, all weights adding up to 1."""
    credit = Credit(config(baseline_decay=decay, proposer_aggregation="token"))
    for now, returns in enumerate(steps):
        weights = np.array([decay ** (now - 1 - k) for k in range(now)])
        means = np.array([np.mean(steps[k]) for k in range(now)])
        expected = float((weights * means).sum() / weights.sum()) if now else 0.0

        rows = credit([row("proposer", value) for value in returns])
        advantages = [r.advantage for r in rows]
        np.testing.assert_allclose(advantages, np.array(returns) - expected, atol=1e-9)


# -- groups of proposals -----------------------------------------------------------------------


def written(role: Role, text: str) -> Trajectory:
    """A trajectory of bytes that writes a text, one turn."""
    tokenizer = ByteTokenizer()
    made = Trajectory(Limits.of(role, MINI_GAME, tokenizer), [1, 2, 3])
    made.feed_turn(tokenizer.encode(text))
    return made


def proposal(slot: int, reward: float, *, group: int, asked: int, seed: int = 0) -> Game:
    """A finished game of one proposal."""
    game = Game((seed,), slot, group, GroundTruth("a", "A"), Origin.PROPOSED, asked_searches=asked)
    game.outcome, game.proposer_reward = Outcome.VALID, reward
    game.proposer = written(Role.PROPOSER, "<question>who?</question>")
    return game


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("answer", [0.25, -0.25, -0.125, 0.125, 0.0]),
        ("asked_searches", [0.25, -0.25, 0.0, 0.25, -0.25]),
    ],
)
def test_grpo_compares_proposals_of_one_answer_or_of_one_number_of_searches(
    groups: str, expected: list[float]
) -> None:
    # The last two games come from another env runner; numbers of groups are each runner's own.
    games = [
        proposal(0, 1.0, group=0, asked=1),
        proposal(1, 0.5, group=0, asked=1),
        proposal(2, 0.5, group=1, asked=2),
        proposal(3, 0.75, group=1, asked=2),
        proposal(0, 0.25, group=0, asked=2, seed=1),
    ]
    learning = config(
        proposer_algorithm="grpo", proposal_groups=groups, learning_roles=("proposer",)
    )
    rows = Credit(learning)(rows_of(games, learning))
    assert [r.advantage for r in rows] == pytest.approx(expected)


# -- repetition --------------------------------------------------------------------------------


def grams(text: str) -> set[str]:
    """Words and pairs of words, written out."""
    words = "".join(c if c.isalnum() else " " for c in text.casefold()).split()
    return set(words) | {f"{a} {b}" for a, b in pairwise(words)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text("ab ?", max_size=12), max_size=6))
def test_repetition_is_the_share_of_others_that_are_alike(questions: list[str]) -> None:
    sets = [grams(question) for question in questions]
    for one, share in zip(sets, repetition(questions), strict=True):
        alike = sum(
            (len(one & other) / len(one | other) if one | other else 1.0) >= NEAR for other in sets
        )
        assert share == pytest.approx((alike - 1) / max(1, len(sets) - 1))
