"""Many games at once, a whole turn a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted import by_role, propose, solve, turn

import ssp_env
from ssp_env.errors import UsageError
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.types import Document, Role
from ssp_env.worlds.mini import MiniWorld


class Counting(BM25Retriever):
    """Counts its calls."""

    calls = 0

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        self.calls += 1
        return super().search(queries, k)


def test_searches_and_attempts_of_all_games_are_played_together(mini: MiniWorld) -> None:
    retriever = Counting(mini.corpus)
    batch = ssp_env.GameBatch(6, world=mini, retriever=retriever, game={"attempts": 3})
    turns = batch.reset(seed=1)
    sizes = []
    while turns:
        sizes.append((len(turns), {t.role for t in turns}))
        turns = batch.step([turn(t.trajectory, by_role(propose(1), solve)) for t in turns])
    propose_turns, solve_turns = (6, {Role.PROPOSER}), (18, {Role.SOLVER})
    assert sizes == [propose_turns, propose_turns, solve_turns, solve_turns]
    assert retriever.calls == 2
    assert batch.done
    assert {game.solve_rate for game in batch.games} == {1.0}


def test_log_probabilities_are_kept(mini: MiniWorld) -> None:
    batch = ssp_env.GameBatch(2, world=mini)
    batch.reset(seed=1)
    batch.step(
        [[20, 1, 30], np.array([21, 22, 1])], [[-0.25, -0.5, -9.0], np.array([-1.0, -2.0, -3.0])]
    )
    for game, expected in zip(batch.games, ([-0.25, -0.5], [-1.0, -2.0, -3.0]), strict=True):
        assert game.proposer is not None
        assert list(game.proposer.logprobs[game.proposer.prompt_length :]) == expected
        assert all(type(token) is int for token in game.proposer.ids)


@pytest.mark.parametrize(
    ("written", "logprobs", "message"),
    [
        ([[5]], None, "2 turns are open, but 1 were written"),
        ([[5], [5, 10**6]], None, "turn 1 has a token outside the action space"),
        ([[5], ""], None, r"turn 1 is text: token ids are wanted; encode it"),
        ([None, [5]], None, "turn 0 is None: a list of token ids is wanted"),
        ([[5], [5]], [[0.0]], "1 came with log-probabilities"),
        ([[5], [5, 6]], [[0.0], [0.0]], "turn 1 has 2 tokens, but 1 log-probabilities"),
    ],
)
def test_turns_that_do_not_fit_change_nothing(
    mini: MiniWorld, written: Any, logprobs: Any, message: str
) -> None:
    batch = ssp_env.GameBatch(2, world=mini)
    turns = batch.reset(seed=1)
    before = [list(t.ids) for t in turns]
    with pytest.raises(UsageError, match=message):
        batch.step(written, logprobs)
    assert [t.ids for t in batch.turns] == before
    batch.step([[1], []])
    assert batch.done
    assert batch.step([]) == []


def test_before_the_first_reset(mini: MiniWorld) -> None:
    batch = ssp_env.GameBatch(2, world=mini)
    for call in (
        lambda: batch.turns,
        lambda: batch.done,
        lambda: batch.games,
        lambda: batch.step([]),
    ):
        with pytest.raises(UsageError, match=r"call reset\(\) first"):
            call()


def test_seeds(mini: MiniWorld) -> None:
    def answers(batch: ssp_env.GameBatch, seed: int | None) -> list[str]:
        batch.reset(seed=seed)
        return [game.truth.answer for game in batch.games]

    batch = ssp_env.GameBatch(3, world=mini)
    first = [answers(batch, 5), answers(batch, None)]
    assert first[0] != first[1]
    assert [answers(batch, 5), answers(batch, None)] == first
    assert answers(batch, 6)[:2] == first[0][1:], "game i is that of the seed plus i"


def test_infos_of_games_that_go_on_and_of_those_that_are_over(mini: MiniWorld) -> None:
    batch = ssp_env.GameBatch(2, world=mini)
    turns = batch.reset(seed=1)
    batch.step([[1], turn(turns[1].trajectory, propose(1))])
    over, going_on = batch.infos
    assert (over["phase"], over["outcome"], over["reason"]) == ("done", "invalid", "format")
    assert (going_on["phase"], going_on["outcome"], going_on["searches_left"]) == (
        "propose",
        "pending",
        3,
    )
