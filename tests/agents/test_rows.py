"""Rows of a step: which games are learnt from, their advantages and baselines, and weights that add
up to equations 4 and 5."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ssp_agents.config import LearningConfig
from ssp_agents.rows import Row, credited, deal, rows_of, with_loss_weights
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Attempt, Game, Origin, Start
from ssp_env.game.outcome import Outage, Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Limits, Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import GroundTruth, Role

SLOTS, ATTEMPTS = 8, 3
RULES = GameConfig(attempts=ATTEMPTS)
RNG = np.random.default_rng(3)


def trajectory(role: Role, tokens: int) -> Trajectory:
    """A prompt of three tokens and that many of the policy's."""
    made = Trajectory(Limits.of(role, GameConfig(), ByteTokenizer(), Tags()), [1, 2, 3])
    made.feed(
        RNG.integers(97, 120, size=tokens).tolist(), RNG.normal(-2, 0.3, size=tokens).tolist()
    )
    return made


def game(
    slot: int,
    outcome: Outcome,
    *,
    rewards: Sequence[float] = (),
    paid: float | None = None,
    origin: Origin = Origin.PROPOSED,
    group: int | None = None,
) -> Game:
    """A finished game with trajectories of random lengths."""
    shared = slot if group is None else group
    made = Game(Start((0,), slot, shared, GroundTruth("a", "A"), origin))
    made.outcome, made.proposer_reward = outcome, paid
    if origin is Origin.PROPOSED:
        made.proposer = trajectory(Role.PROPOSER, int(RNG.integers(2, 9)))
    made.attempts = [
        Attempt(trajectory(Role.SOLVER, int(RNG.integers(2, 9))), None, reward)
        for reward in rewards
    ]
    return made


def test_an_example_joins_the_attempts_at_its_question() -> None:
    played = game(0, Outcome.VALID, rewards=[0.0, 0.0], paid=1.0, origin=Origin.REUSED)
    played.example = Attempt(trajectory(Role.SOLVER, 4), Verdict(True), reward=3.0)
    config = LearningConfig()
    *sampled, example = rows_of([played], config)
    assert [row.group for row in sampled] == [example.group] * 2
    assert np.isnan(example.logprobs).all()
    assert not any(np.isnan(row.logprobs).any() for row in sampled)
    advantages = [row.advantage for row in credited([*sampled, example], config)]
    assert advantages == pytest.approx([-1.0, -1.0, 2.0])

    only_proposer = LearningConfig(learning_roles=("proposer",))
    assert rows_of([played], only_proposer) == []
    played.outcome = Outcome.VOID
    assert rows_of([played], config) == []


def step() -> list[Game]:
    """Eight slots: one stays empty, two fail, one is void, two are filled up again; a judge fails
    at one attempt; at the closed-book gate, one solver answers and one plays dumb."""
    games = [
        game(0, Outcome.VALID, rewards=[1, 0, 0], paid=2 / 3, group=0),
        game(1, Outcome.VALID, rewards=[1, 1, 1], paid=0.0, group=0),
        game(2, Outcome.INVALID, paid=0.0, group=1),
        game(3, Outcome.INVALID, paid=0.0, group=1),
        game(4, Outcome.VOID, rewards=[1, 0, 1], paid=None, group=2),
        game(5, Outcome.VALID, rewards=[0, 1, 1], paid=1 / 3, group=2),
        game(6, Outcome.VALID, rewards=[0, 0, 0], paid=1.0, group=3),
        game(8, Outcome.VALID, rewards=[1, 0, 1], origin=Origin.REUSED),
        game(9, Outcome.VALID, rewards=[1, 0, 1], origin=Origin.REUSED),
    ]
    void = games[-1].attempts[0]
    void.outage, void.reward, void.verdict = Outage("judge", "down"), None, None
    for played, reward in ((games[2], 1.0), (games[0], 0.0)):
        played.closed_book = trajectory(Role.CLOSED_BOOK, 3)
        played.closed_book_reward = reward
    return games


def config(**changes: object) -> LearningConfig:
    return LearningConfig(batch_size=SLOTS, minibatches=1).replace(**changes)


def learnable(games: Sequence[Game], settings: LearningConfig) -> list[Row]:
    """The rows of a step that something is learnt from."""
    return credited(rows_of(games, settings), settings)


def test_grpo_compares_proposals_about_one_answer() -> None:
    rows = learnable(step(), config(proposer_algorithm="grpo", learning_roles=("proposer",)))
    expected = [1 / 3, -1 / 3, 0.0, 0.0, 0.0, 0.0]
    assert [row.advantage for row in rows] == pytest.approx(expected)


def test_weighted_rows_add_up_to_equations_4_and_5_empty_slots_included() -> None:
    """Each token's gradient is weight times advantage. What is void counts in no mean, and in n all
    the same."""
    games = step()
    expected: dict[tuple[int, ...], float] = {}

    def expect(played: Trajectory | None, ascent: float) -> None:
        assert played is not None
        expected[tuple(played.ids)] = ascent

    for played in games:
        if played.closed_book is not None:
            gained = (played.closed_book_reward or 0.0) - 0.5
            expect(played.closed_book, gained / (SLOTS * ATTEMPTS * 3))
        if played.outcome is not Outcome.VALID:
            continue
        mean = np.mean([a.reward for a in played.attempts if a.reward is not None])
        for attempt in played.attempts:
            if attempt.reward is not None:
                size = len(attempt.trajectory.ids) - 3
                expect(attempt.trajectory, (attempt.reward - mean) / (SLOTS * ATTEMPTS * size))
        if played.origin is Origin.PROPOSED and mean < 1:
            expect(played.proposer, (1 - mean) / SLOTS)

    weighted = with_loss_weights(learnable(games, config()), config(), SLOTS, RULES)
    found = {tuple(row.ids.tolist()): row.weight * row.advantage for row in weighted}
    assert found == pytest.approx(expected)


def test_minibatches_keep_games_whole_and_cover_all_slots() -> None:
    settings = config(minibatches=3)
    rows = learnable(step(), settings)
    parts = deal(rows, settings)
    assert [size for _, size in parts] == [3, 3, 2]
    dealt = [{row.game for row in part} for part, _ in parts]
    assert sum(map(len, dealt)) == len(set.union(*dealt)), "a game was torn apart"
    assert sorted(id(row) for part, _ in parts for row in part) == sorted(map(id, rows))
