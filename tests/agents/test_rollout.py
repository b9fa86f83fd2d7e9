"""Whole game batches against an engine: who waits for whom, and that nothing of it changes a
game."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from playful import LengthJudge, make_rules, new_batch, play_watched

from ssp_agents.config import LearningConfig
from ssp_agents.engines.base import Engine, Generation, Request
from ssp_agents.engines.gap import compared_rows
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.rollout import play
from ssp_agents.rows import rows_of
from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.protocol import Tags
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules, waits_for_others
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.players import MiniPlayer
from ssp_env.search.base import Retriever
from ssp_env.tokenizers import WordTokenizer
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


@pytest.fixture(scope="module")
def local(played: GameBatch) -> list[GameRecord]:
    """Games with services of this process."""
    return records(played)


def records(batch: GameBatch) -> list[GameRecord]:
    return [record_game(game, batch.rules) for game in batch.games]


def test_whatever_finishes_first_the_games_are_the_same(
    rules: Rules, engine: TransformersEngine, local: list[GameRecord]
) -> None:
    assert not waits_for_others(rules)
    assert records(play_watched(rules, engine)) == local, "to the last bit"

    slow, judge = Slow(rules.retriever), SlowJudge()
    elsewhere = replace(rules, retrievers={"search": slow}, judge=judge)
    assert waits_for_others(elsewhere)
    games = records(play_watched(elsewhere, engine))

    assert slow.calls > 4
    assert threading.get_ident() not in slow.threads
    assert judge.calls > 1, "attempts are judged while others are written"
    for game, other in zip(games, local, strict=True):
        assert (game.outcome, game.solve_rate) == (other.outcome, other.solve_rate)
        for one, two in zip(game.trajectories, other.trajectories, strict=True):
            assert one.ids == two.ids
            np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-4)


class ScriptEngine:
    """Writes what a player would, one request a step."""

    def __init__(self, batch: GameBatch) -> None:
        self._batch, self._player = batch, MiniPlayer(batch.rules.tags, hops=2)
        self._asked: list[int] = []

    @property
    def running(self) -> int:
        return len(self._asked)

    def submit(self, requests: Sequence[Request]) -> None:
        self._asked += [request.key for request in requests]

    def step(self) -> list[tuple[int, Generation]]:
        key = self._asked.pop(0)
        (written,) = (t for t in self._batch.pending() if t.key == key)
        ids = self._batch.rules.tokenizer.encode(self._player.write(written))
        return [(key, Generation(ids, [-0.5] * len(ids)))]

    def release(self, keys: Iterable[int]) -> None:
        self._asked = [key for key in self._asked if key not in keys]


def test_tools_are_asked_apart_and_an_outage_of_one_is_its_own() -> None:
    """Each in this process, or beside the engine, as it says of itself."""
    world, tags = MiniWorld(seed=3, entities=60), Tags(tools=("open",))
    tokenizer = WordTokenizer(world.vocabulary, tags.all())
    game = MINI_GAME.replace(tools=("search", "open"), attempts=2)
    rules = Rules.build(world, tokenizer, game)

    def played(opens: Retriever) -> list[GameRecord]:
        own = replace(rules, retrievers={**rules.retrievers, "open": opens})
        batch = GameBatch(own, answers_of(world), 4, [5])
        play(batch, cast(Engine, ScriptEngine(batch)), temperature=1.0)
        return records(batch)

    class SlowPages(Slow):
        reads_on = True

    pages = rules.retrievers["open"]
    here, slow = played(pages), SlowPages(pages)
    assert {game.outcome for game in here} == {"valid"}
    assert "open" in {s.tool for game in here for t in game.trajectories for s in t.searches}
    assert played(slow) == here
    assert threading.get_ident() not in slow.threads

    title = here[1].trajectories[0].searches[1].query
    games = played(SlowPages(pages, fails=title))
    hit = [
        ("open", title) in {(s.tool, s.query) for t in game.trajectories for s in t.searches}
        for game in here
    ]
    assert [game.outcome == "void" for game in games] == hit
    assert hit.count(True) == 1


def test_verification_has_its_own_temperature_and_is_not_learnt_from(
    rules: Rules, engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it compared with the learner, which scores at the temperature of play."""
    asked, submit = set[tuple[str, float]](), engine.submit

    def noted(requests: Sequence[Request]) -> None:
        asked.update((request.role, request.temperature) for request in requests)
        submit(requests)

    monkeypatch.setattr(engine, "submit", noted)
    rules = make_rules(rules.world, rules.tokenizer, rules.config.replace(verifier="policy"))
    batch = play(new_batch(rules), engine, temperature=0.8)
    assert asked == {("proposer", 0.8), ("verifier", 0.5), ("solver", 0.8)}
    assert GameConfig(verifications=(1, 1)).verification_temperature == 1.0

    rows = rows_of(batch.games, LearningConfig())
    assert {row.role for row in rows} == {"proposer", "solver"}
    read = {tuple(a.trajectory.ids) for game in batch.games for a in game.verification_attempts}
    learnt = {tuple(row.ids.tolist()) for row in (*rows, *compared_rows(records(batch)))}
    assert read
    assert not read & learnt


def test_an_outage_meanwhile_voids_what_it_hit_and_no_more(
    rules: Rules, engine: TransformersEngine, local: list[GameRecord]
) -> None:
    asked = [
        (i, search.query)
        for i, game in enumerate(local)
        for trajectory in game.trajectories
        if trajectory.role == "proposer"
        for search in trajectory.searches
    ]
    query = asked[len(asked) // 2][1]
    failing = replace(rules, retrievers={"search": Slow(rules.retriever, fails=query)})
    games = records(play_watched(failing, engine))

    void = {i for i, game in enumerate(games) if game.outcome == "void"}
    assert {i for i, text in asked if text == query} <= void
    assert len(void) < len(games)
    assert {games[i].reason for i in void} == {"search"}
    assert engine.running == 0
