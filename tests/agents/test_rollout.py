"""Whole rounds against an engine: who waits for whom, and that nothing of it changes a game."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playful import GAME, WORLD, LengthJudge, new_round, play_watched

from ssp_agents.config import LearningConfig
from ssp_agents.engines.base import Request, StopRule
from ssp_agents.engines.gap import compared_rows
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model
from ssp_agents.rollout import play
from ssp_agents.rows import rows_of
from ssp_env.errors import ServiceError
from ssp_env.game.config import GameConfig
from ssp_env.game.record import GameRecord, TrajectoryRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules, waits_for_others
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.search.base import Retriever
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld


class Slow:
    """A retriever of another machine, whose answers come in an order of their own."""

    remote = True

    def __init__(self, retriever: Retriever, fails: str | None = None) -> None:
        self._retriever, self._fails = retriever, fails
        self._rng, self._lock = np.random.default_rng(0), threading.Lock()
        self.calls, self.threads = 0, set[int]()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        with self._lock:
            self.calls += 1
            self.threads.add(threading.get_ident())
            pause = float(self._rng.choice([0.0, 0.004, 0.02]))
        time.sleep(pause)
        if self._fails in queries:
            raise ServiceError("search", "gone")
        return self._retriever.search(queries, k)


class SlowJudge(LengthJudge):
    remote = True

    def __init__(self) -> None:
        self.calls = 0

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        time.sleep(0.003)
        self.calls += 1
        return super().judge(tasks)


class Table:
    """A world, and an engine for the games that are played in it."""

    def __init__(self, model_dir: Path, tokenizer: HuggingFaceTokenizer) -> None:
        self.world, self.tokenizer = MiniWorld(**WORLD), tokenizer
        stop = StopRule.of(GameConfig(**GAME), tokenizer)
        self.engine = TransformersEngine(load_model(model_dir), tokenizer, stop)
        self.retriever = self.rules().retriever
        self.local = self.played()

    def rules(self, **parts: Any) -> Rules:
        parts = {"judge": LengthJudge(), **parts}
        return Rules.build(self.world, self.tokenizer, GameConfig(**GAME), **parts)

    def played(self, **parts: Any) -> list[GameRecord]:
        """A round under rules with these parts."""
        return records(play_watched(self.rules(**parts), self.engine))


@pytest.fixture(scope="module")
def table(model_dir: Path, tokenizer: HuggingFaceTokenizer) -> Table:
    return Table(model_dir, tokenizer)


def records(round_: Round) -> list[GameRecord]:
    return [record_game(game, round_.rules) for game in round_.games]


def tokens(games: Sequence[GameRecord]) -> list[tuple[int, ...]]:
    return [trajectory.ids for game in games for trajectory in game.trajectories]


def test_whatever_finishes_first_the_games_are_the_same(table: Table) -> None:
    assert not waits_for_others(table.rules())
    assert table.played() == table.local, "services of this process: the same to the last bit"

    slow, judge = Slow(table.retriever), SlowJudge()
    assert waits_for_others(table.rules(retriever=slow, judge=judge))
    games = table.played(retriever=slow, judge=judge)

    assert slow.calls > 4
    assert threading.get_ident() not in slow.threads
    assert judge.calls > 1, "attempts are judged while others are written"
    assert tokens(games) == tokens(table.local)
    for game, other in zip(games, table.local, strict=True):
        assert (game.outcome, game.solve_rate) == (other.outcome, other.solve_rate)
        for one, two in zip(game.trajectories, other.trajectories, strict=True):
            np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-4)


class Noting:
    """The engine, and the temperatures that it was asked for."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine
        self.asked: dict[str, set[float]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.asked.setdefault(request.role, set()).add(request.temperature)
        self._engine.submit(requests)


def test_verification_has_its_own_temperature_and_is_not_learnt_from(table: Table) -> None:
    """Nor is it compared with the learner, which scores at the temperature of play."""
    config = GameConfig(**{**GAME, "verifier": "policy"})
    rules = Rules.build(table.world, table.tokenizer, config, judge=LengthJudge())
    engine: Any = Noting(table.engine)
    round_ = play(new_round(rules), engine, temperature=0.8)
    assert engine.asked == {"proposer": {0.8}, "verifier": {0.5}, "solver": {0.8}}
    assert GameConfig(verifications=(1, 1)).verification_temperature == 1.0

    rows = rows_of(round_.games, LearningConfig())
    assert {row.role for row in rows} == {"proposer", "solver"}
    read = {tuple(a.trajectory.ids) for game in round_.games for a in game.readings}
    learnt = {tuple(row.ids.tolist()) for row in (*rows, *compared_rows(records(round_)))}
    assert read
    assert not read & learnt


def test_an_outage_meanwhile_voids_what_it_hit_and_no_more(table: Table) -> None:
    asked = [
        (i, search.query)
        for i, game in enumerate(table.local)
        for trajectory in game.trajectories
        if trajectory.role == "proposer"
        for search in trajectory.searches
    ]
    query = asked[len(asked) // 2][1]
    games = table.played(retriever=Slow(table.retriever, fails=query))

    void = {i for i, game in enumerate(games) if game.outcome == "void"}
    assert {i for i, text in asked if text == query} <= void
    assert len(void) < len(games)
    assert {games[i].reason for i in void} == {"search"}
    assert table.engine.running == 0


def test_a_withheld_search_changes_what_comes_after_it_alone(table: Table) -> None:
    def attempts(withhold: int | None) -> list[TrajectoryRecord]:
        round_ = play(new_round(table.rules()), table.engine, temperature=0.8, withhold=withhold)
        played = [t for game in records(round_) for t in game.trajectories]
        proposals = [t for t in played if t.role != "solver"]
        assert proposals == [t for g in table.local for t in g.trajectories if t.role != "solver"]
        return [t for t in played if t.role == "solver"]

    factual = attempts(None)
    assert attempts(99) == factual, "to the bit"
    changed = 0
    for place in (0, 1):
        for was, now in zip(factual, attempts(place), strict=True):
            if len(was.searches) <= place:
                assert (now.ids, now.verdict) == (was.ids, was.verdict)
                continue
            assert now.searches[:place] == was.searches[:place]
            assert now.searches[place].query == was.searches[place].query
            assert not now.searches[place].documents
            changed += now.ids != was.ids
    assert changed
