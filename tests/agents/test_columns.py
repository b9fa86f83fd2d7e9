"""Rows as columns: micro-batches, shards for several learners, numbers over all rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from learning import tensors

from ssp_agents.columns import MAX_PADDING, informed, microbatches, one_of_each
from ssp_agents.config import LearningConfig
from ssp_agents.rllib.env_runner import Sample, renumber
from ssp_agents.rows import Row, deal_to_learners, rows_of
from ssp_env.game.record import record_game
from ssp_env.game.round import Round


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
        read, places = one_of_each(part)
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


@given(
    st.lists(st.tuples(st.integers(2, 200), st.integers(0, 300)), min_size=1, max_size=30),
    st.sampled_from([1, 1000, 10**9]),
)
def test_what_a_teacher_reads_is_within_the_same_bounds(
    sizes: list[tuple[int, int]], max_tokens: int
) -> None:
    rows = [replace(row(n, game), path=[7] * path) for game, (n, path) in enumerate(sizes)]
    for part in microbatches(tensors(rows), max_tokens):
        once, _ = one_of_each(part)
        read = informed(once)
        texts, width = read["ids"].shape
        assert texts == 1 or texts * width <= max_tokens
        assert int(read["lengths"].max()) == width
        own, own_read = once["loss_mask"] > 0, read["loss_mask"] > 0
        assert read["ids"][own_read].tolist() == once["ids"][own].tolist()


@given(st.lists(st.integers(2, 200), min_size=1, max_size=40), st.integers(1, 5))
def test_shards_hold_every_row_once_are_balanced_and_never_empty(
    lengths: list[int], shards: int
) -> None:
    rows = [row(length, game) for game, length in enumerate(lengths)]
    parts = deal_to_learners(rows, shards)
    assert all(parts)
    assert sorted(r.game for part in parts for r in part if r.weight) == list(range(len(rows)))
    fillers = {len(r.ids) for part in parts for r in part if not r.weight}
    assert fillers <= {min(lengths)}, "the shortest row costs least"

    # The rows of a text are read once.
    held = [{text_of(r): len(r.ids) for r in part if r.weight} for part in parts]
    loads = [sum(texts.values()) for texts in held]
    assert max(loads) - min(loads) <= max(lengths)


def test_games_are_numbered_over_all_rounds(played: Round) -> None:
    rows = rows_of(played.games, LearningConfig())
    records = [record_game(game, played.rules) for game in played.games]
    first, second = renumber([Sample(rows, records, [], {})] * 2)
    count = len(records)
    assert [record.slot for record in (*first.records, *second.records)] == list(range(2 * count))
    assert [row.game for row in first.rows] == [row.game for row in rows]
    assert [row.game for row in second.rows] == [row.game + count for row in rows]


def test_a_path_is_what_the_proposer_read_before_it_asked(played: Round) -> None:
    rows = rows_of(played.games, LearningConfig(privileged=0.1))
    proposers = {game.slot: game.proposer for game in played.games}
    for row in rows:
        proposer = proposers[row.game]
        if row.role == "solver" and proposer is not None and proposer.searches:
            stop = proposer.prompt_length + len(row.path)
            assert row.path == proposer.ids[proposer.prompt_length : stop]
            assert [proposer.mask[stop - 1], *{*proposer.mask[stop:]}] == [0, 1]
        else:
            assert not row.path
    assert any(row.path for row in rows)
    assert not any(row.path for row in rows_of(played.games, LearningConfig()))


def test_an_answer_is_what_the_solver_would_have_to_write(played: Round) -> None:
    rows = rows_of(played.games, LearningConfig(turn_credit=0.1))
    games = {game.slot: game for game in played.games}
    attempts = [row for row in rows if row.role == "solver"]
    assert attempts
    for row in attempts:
        written = played.rules.tokenizer.decode([i for part in row.answer for i in part])
        assert written.split() == ["<answer>", *games[row.game].truth.answer.split()]
    assert not any(row.answer[1] for row in rows if row.role == "proposer")
