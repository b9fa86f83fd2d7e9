"""The paper's printed games, played to their end through every door, by the paper's limits."""

from __future__ import annotations

import all_doors as doors
import pytest
from showcase import GAMES, PrintedRetriever, PrintedWorld, Showcase, script_of

import ssp_env


@pytest.mark.parametrize("showcase", GAMES, ids=[game.answer for game in GAMES])
def test_the_printed_games(showcase: Showcase, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the defaults of a world of text: its tokenizer, the lenient judge, the policy as
    verifier."""
    monkeypatch.setattr(doors, "SEEDS", range(5, 6))
    setup = {"world": PrintedWorld(showcase), "retriever": PrintedRetriever()}
    (told,) = doors.through_all_doors(
        script_of(showcase), True, game=ssp_env.GameConfig(attempts=1), **setup
    )

    assert (told.record.outcome, told.record.reason) == ("valid", None)
    assert told.record.question == showcase.question
    assert told.rewards == {"proposer": 0.0, "solver": 1.0}

    trajectories = told.record.named()
    proposer, solver = trajectories["proposer"], trajectories["solver 1"]
    assert tuple(search.query for search in proposer.searches) == showcase.proposer
    assert tuple(search.query for search in solver.searches) == showcase.solver
    assert solver.result == showcase.reply
    assert solver.verdict is not None
    assert solver.verdict.correct


def test_bytes_are_too_many_tokens_for_it() -> None:
    """Why the default is not bytes: the paper counts its budgets in words and parts of words."""
    longest = GAMES[2]
    setup = {"world": PrintedWorld(longest), "retriever": PrintedRetriever(), "tokenizer": "bytes"}
    told = doors.text(0, script_of(longest), game=ssp_env.GameConfig(attempts=1), **setup)
    assert told.record.reason == "budget_tokens"
