"""An outage is no end of play: behind every door it pays nothing, and truncates both agents
alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import all_doors as doors
import pytest
from scripted import Script, by_role, propose, say, solve

import ssp_env
from ssp_env.errors import ServiceError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.outcome import Outcome
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld

GAME = replace(MINI_GAME, attempts=1, invalid_reward=-0.5)


class NoMentors(BM25Retriever):
    """Fails on one query."""

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        if "mentor" in queries:
            raise ServiceError("search", "down")
        return super().search(queries, k)


class Dead:
    """A judge and a verifier that are down."""

    def __init__(self, service: str) -> None:
        self._service = service

    def judge(self, tasks: Any) -> Any:
        raise ServiceError(self._service, "down")

    verify = judge


LOST = say("<search> mentor </search>", "<answer> what </answer>")
CASES: dict[str, tuple[Script, dict[str, Any], str]] = {
    "the proposer's search": (by_role(LOST, solve), {}, "search"),
    "the solver's search": (by_role(propose(1), LOST), {}, "search"),
    "the judge": (by_role(propose(1), solve), {"judge": Dead("judge")}, "judge"),
    "the verifier": (by_role(propose(1), solve), {"verifier": Dead("verifier")}, "verifier"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_void_games_behind_every_door(
    mini: MiniWorld, case: tuple[Script, dict[str, Any], str]
) -> None:
    script, parts, service = case
    games = doors.through_all_doors(
        script, texts=True, world=mini, game=GAME, retriever=NoMentors(mini.corpus), **parts
    )
    for told in games:
        assert told.flags == (False, True)
        assert told.rewards == {"proposer": 0.0, "solver": 0.0}
        assert told.infos[-1]["outcome"] == "void"
        assert told.infos[-1]["reason"] == service
        assert (told.record.outcome, told.record.proposer_reward) == ("void", None)


@pytest.mark.parametrize("attempts", [2, 3])
def test_a_game_of_several_attempts_whose_last_one_is_hit(mini: MiniWorld, attempts: int) -> None:
    """Of two, one alone would remain; of three, the others are paid."""
    played = []

    def solver(trajectory: Any) -> Any:
        if not trajectory.searches:
            played.append(trajectory.key)
        return (
            LOST(trajectory) if played.index(trajectory.key) == attempts - 1 else solve(trajectory)
        )

    game = replace(GAME, attempts=attempts)
    setup = {"world": mini, "game": game, "retriever": NoMentors(mini.corpus)}
    for door in (doors.aec, doors.rllib, doors.text):
        played.clear()
        told = door(5, by_role(propose(1), solver), **setup)
        if attempts == 2:
            assert (told.flags, told.rewards) == ((False, True), {"proposer": 0.0, "solver": 0.0})
        else:
            assert (told.flags, told.rewards) == ((True, False), {"proposer": 0.0, "solver": 1.0})
            assert [a.outage is not None for a in told.record.attempts] == [False, False, True]


def test_invalid_games_are_terminated_and_pay(mini: MiniWorld) -> None:
    """The other way to fail, which is one's own fault."""
    games = doors.through_all_doors(
        by_role(say("<question> ? </question>"), solve),
        texts=True,
        world=mini,
        game=GAME,
        filters={},
    )
    for told in games:
        assert told.flags == (True, False)
        assert told.rewards == {"proposer": -0.5, "solver": 0.0}


def test_a_batch_voids_what_its_engine_could_not_play(mini: MiniWorld) -> None:
    batch = ssp_env.GameBatch(3, world=mini, game=GAME)
    turns = batch.reset(seed=1)
    turns = batch.void(turns[1:2], ServiceError("engine", "out of memory"))
    assert [turn.game for turn in turns] == [0, 2]
    while turns:
        turns = batch.step([[1]] * len(turns))
    assert [game.outcome for game in batch.games] == [
        Outcome.INVALID,
        Outcome.VOID,
        Outcome.INVALID,
    ]
    assert batch.infos[1]["reason"] == "engine"
    assert batch.games[1].proposer_reward is None
