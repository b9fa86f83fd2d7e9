"""Rows of a step: which games are learnt from, their advantages and baselines, and weights that add
up to equations 4 and 5. Rows as columns: micro-batches, shards for several learners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_ranks import columns as tensors

from ssp_agents.batches import MAX_PADDING, deduplicated, microbatches
from ssp_agents.config import LearningConfig
from ssp_agents.rllib.env_runner import Sample, renumber
from ssp_agents.rows import (
    Row,
    rows_of,
    shard_rows,
    split_updates,
    with_advantages,
    with_loss_weights,
)
from ssp_env.errors import ConfigError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Attempt, Game, InitialState, Origin
from ssp_env.game.outcome import Outage, Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.record import record_game
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
    index: int,
    outcome: Outcome,
    *,
    rewards: Sequence[float] = (),
    paid: float | None = None,
    origin: Origin = Origin.PROPOSED,
    group: int | None = None,
) -> Game:
    """A finished game with trajectories of random lengths."""
    shared = index if group is None else group
    made = Game(InitialState((0,), index, shared, GroundTruth("a", "A"), origin))
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
    advantages = [row.advantage for row in with_advantages([*sampled, example], config)]
    assert advantages == pytest.approx([-1.0, -1.0, 2.0])

    only_proposer = LearningConfig(learning_roles=("proposer",))
    assert rows_of([played], only_proposer) == []
    played.example_proposal = Attempt(trajectory(Role.PROPOSER, 4), reward=0.5)
    (row,) = rows_of([played], only_proposer)
    assert (row.role, row.reward) == ("proposer", 0.5)
    assert np.isnan(row.logprobs).all()
    assert rows_of([played], only_proposer.replace(proposer_algorithm="grpo")) == []
    played.outcome = Outcome.VOID
    assert rows_of([played], config) == []


def by_searches(game: Game, trajectory: Trajectory, turns: int) -> list[float]:
    """Nothing for the turn that ends a trajectory, and equal shares for the others."""
    return [*[1 / turns] * (turns - 1), 0.0]


def test_credit_is_dealt_to_the_tokens_of_turns(played: GameBatch) -> None:
    for credit in (by_searches, f"{__name__}:by_searches"):
        rows = rows_of(played.games, LearningConfig(credit=credit))
        assert {len(np.unique(row.credit[row.mask == 1])) for row in rows} >= {1, 2}
        by_text = {(row.role, row.ids.tobytes()): row for row in rows}
        for game in played.games:
            for trajectory in (attempt.trajectory for attempt in game.counted):
                row = by_text["solver", np.asarray(trajectory.ids, dtype=np.int32).tobytes()]
                turns = [row.credit[a:b] for a, b, own in trajectory.runs() if own]
                assert [len({*turn}) for turn in turns] == [1] * len(turns)
                shares = [turn[0] for turn in turns]
                assert shares == pytest.approx(by_searches(game, trajectory, len(turns)))
    assert all(row.credit is None for row in rows_of(played.games, LearningConfig()))
    with pytest.raises(ConfigError, match=r"learning\.credit.*\d finite numbers are wanted"):
        rows_of(played.games, LearningConfig(credit=lambda *_: [1.0] * 9))
    with pytest.raises(ConfigError, match=r"learning\.credit.*is of type int, not a function"):
        rows_of(played.games, LearningConfig(credit=f"{__name__}:SLOTS"))


def step() -> list[Game]:
    """Eight slots: one stays empty, two fail, one is void, two are filled up again; a judge fails
    at one attempt; two were asked at the closed-book gate."""
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
    for played in (games[2], games[0]):
        played.closed_book = trajectory(Role.CLOSED_BOOK, 3)
    return games


def config(**changes: object) -> LearningConfig:
    return LearningConfig(batch_size=SLOTS, minibatches=1).replace(**changes)


def learnable(games: Sequence[Game], settings: LearningConfig) -> list[Row]:
    """The rows of a step that something is learnt from."""
    return with_advantages(rows_of(games, settings), settings)


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
    parts = split_updates(rows, settings)
    assert [size for _, size in parts] == [3, 3, 2]
    dealt = [{row.game for row in part} for part, _ in parts]
    assert sum(map(len, dealt)) == len(set.union(*dealt)), "a game was torn apart"
    assert sorted(id(row) for part, _ in parts for row in part) == sorted(map(id, rows))


# -- as columns ----------------------------------------------------------------------------------


def row(length: int, game: int) -> Row:
    """A prompt of one token; rows of equal length are equal, but for the second token of every
    other game, which may not be the policy's. The weight is ``game`` + 1."""
    ids = np.arange(length, dtype=np.int32) + 1000 * length
    mask = np.ones(length, dtype=np.uint8)
    mask[:2] = 0, game % 2
    return Row(ids, mask, mask * np.float32(-game), "solver", game, 0.5, game + 1.0)


def text_of(row: Row) -> tuple[bytes, bytes]:
    return row.ids.tobytes(), row.mask.tobytes()


@given(
    st.lists(st.integers(2, 400) | st.integers(30, 34), min_size=1, max_size=60),
    st.sampled_from([1, 50, 1000, 10**9]),
)
def test_every_row_is_in_one_group_within_its_bounds_and_equal_ones_are_read_once(
    lengths: list[int], max_tokens: int
) -> None:
    rows = [row(length, game) for game, length in enumerate(lengths)]
    parts = list(microbatches(tensors(rows), max_tokens))
    games = [int(weight) - 1 for part in parts for weight in part["weights"]]
    assert sorted(games) == list(range(len(lengths)))

    for part in parts:
        read, places = deduplicated(part)
        texts, width = read["ids"].shape
        true = int(read["lengths"].sum())
        assert texts == 1 or texts * width <= min(max_tokens, MAX_PADDING * true)
        held = [rows[int(weight) - 1] for weight in part["weights"]]
        assert len({text_of(row) for row in held}) == texts

        # What is computed of the policy's tokens finds its way to each row that has them.
        expected = [token for row in held for token in row.ids[row.mask > 0].tolist()]
        computed = read["ids"][:, 1:][read["loss_mask"][:, 1:] > 0]
        assert (computed if places is None else computed[places]).tolist() == expected
        assert part["ids"][part["loss_mask"] > 0].tolist() == expected


@given(st.lists(st.integers(2, 200), min_size=1, max_size=40), st.integers(1, 5))
def test_shards_hold_every_row_once_are_balanced_and_never_empty(
    lengths: list[int], shards: int
) -> None:
    rows = [row(length, game) for game, length in enumerate(lengths)]
    parts = shard_rows(rows, shards)
    assert all(parts)
    assert sorted(r.game for part in parts for r in part if r.weight) == list(range(len(rows)))
    fillers = {len(r.ids) for part in parts for r in part if not r.weight}
    assert fillers <= {min(lengths)}, "the shortest row costs least"

    # The rows of a text are read once.
    held = [{text_of(r): len(r.ids) for r in part if r.weight} for part in parts]
    loads = [sum(texts.values()) for texts in held]
    assert max(loads) - min(loads) <= max(lengths)


def test_games_are_numbered_over_all_batches(played: GameBatch) -> None:
    rows = rows_of(played.games, LearningConfig())
    records = [record_game(game, played.rules) for game in played.games]
    first, second = renumber([Sample(rows, records, [], {})] * 2)
    count = len(records)
    assert [record.index for record in (*first.records, *second.records)] == list(range(2 * count))
    assert [row.game for row in first.rows] == [row.game for row in rows]
    assert [row.game for row in second.rows] == [row.game + count for row in rows]
