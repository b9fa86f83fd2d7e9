"""Random games, each decided by (seed, number)."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from benchmarks.fuzz import hostile
from benchmarks.fuzz.hostile import TOKENIZERS, HostileServices, HostileWorld
from benchmarks.fuzz.invariants import Watch
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import STRATEGIES, make_strategy
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import GroundTruth, Question

CONFIGS = 12
"""Random settings a tokenizer."""
HOW = ("tokens", "chunks", "turns")
"""Tokens are handed over one by one, as many at once as are written at once, or as whole turns."""


def play(seed: int, number: int, replayed: bool) -> list[Game]:
    """Plays a batch of up to four random games and checks them; if ``replayed``, the same tokens
    are given a second time, one by one, and both are compared."""
    games, records = _play(seed, number, one_by_one=False)
    if replayed:
        _, again = _play(seed, number, one_by_one=True)
        assert again == records, "the same seed and tokens give other games"
    return games


def _play(seed: int, number: int, one_by_one: bool) -> tuple[list[Game], list[GameRecord]]:
    rng = np.random.default_rng([seed, number])
    rules, services = _table(int(rng.integers(len(TOKENIZERS))), int(rng.integers(CONFIGS)))
    services.seed = int(rng.integers(1 << 31))
    watch = Watch(rules, thorough=number % 10 == 0)
    batch = _begin(rng, rules)
    how = hostile.any_of(rng, HOW)
    while pending := batch.pending():
        for trajectory in pending:
            if trajectory.done:
                continue  # another one of its game was voided just now
            if rng.random() < 0.005:
                batch.void([trajectory], ServiceError("engine", "down"))
                continue

            ids = hostile.write(rng, trajectory)
            logprobs = (-rng.random(len(ids))).tolist()
            before = len(trajectory.ids)
            taken = _give(trajectory, ids, logprobs, how, one_by_one)
            watch.given(trajectory, before, ids[:taken], logprobs[:taken])

        batch.advance()
        watch.look(batch.games)

    assert batch.done, "nothing waits for tokens, yet the batch is not over"
    watch.check(batch.games)
    return batch.games, [record_game(game, rules) for game in batch.games]


@cache
def _world() -> HostileWorld:
    return HostileWorld()


@cache
def _table(kind: int, index: int) -> tuple[Rules, HostileServices]:
    """What many games are played by."""
    services = HostileServices(_world().corpus)
    config = _config(np.random.default_rng([kind, index]))
    verifier = services if config.verifier == "openai" else None
    parts: dict[str, Any] = {"retriever": services, "judge": services, "verifier": verifier}
    return Rules.build(_world(), TOKENIZERS[kind](), config, **parts), services


def _config(rng: np.random.Generator) -> GameConfig:
    def any_of(*values: Any) -> Any:
        return hostile.any_of(rng, values)

    searches = any_of(1, 2, 3)
    config = GameConfig(
        attempts=any_of(1, 2, 3, 5),
        proposals=any_of(1, 1, 2),
        max_searches=searches,
        retries=any_of(0, 0, 1, 2),
        top_k=any_of(1, 2, 4),
        max_prompt_tokens=any_of(60, 500, 4000),
        max_response_tokens=any_of(1, 20, 150, 300, 600),
        max_document_tokens=any_of(1, 12, 60),
        max_query_tokens=any_of(1, 8, 40),
        question_chars=(any_of(0, 5), any_of(10, 120)),
        asked_searches=(1, searches),
        filters=any_of(None, (), (), ("spoiler", "repeated_query", "outvoted")),
        verifier=any_of("policy", "none", "openai"),
        verification_prompt=any_of("solver", "attempt", "documents"),
        verifications=any_of((1, 1), (1, 2), (2, 3)),
        closed_book=any_of(False, False, True),
        noise_documents=any_of(0, 1, 3),
        proposer_reward=any_of("1-p", "4p(1-p)"),
        invalid_reward=any_of(0.0, -0.5),
        prompts=any_of("mini", "mini", "mini", "plain"),
        tools=any_of(("search",), ("search", "open")),
    )

    # The plain prompts alone are longer than the lesser budgets, which is refused at set-up.
    if config.prompts == "plain":
        return config.replace(max_prompt_tokens=4000)
    return config


def _begin(rng: np.random.Generator, rules: Rules) -> GameBatch:
    seed, num_games = int(rng.integers(1 << 31)), int(rng.integers(1, 5))
    if rng.random() < 0.15:
        asked = [hostile.text(rng) for _ in range(num_games)]
        questions = [Question(text, text, ("mentor",), "all") for text in asked]
        return GameBatch.of_questions(rules, questions, [seed])

    def answers(drawn: np.random.Generator, count: int) -> list[GroundTruth]:
        return [hostile.any_of(drawn, _world().answers) for _ in range(count)]

    strategy = make_strategy(hostile.any_of(rng, STRATEGIES))
    return GameBatch(rules, answers, num_games, [seed], strategy)


def _give(
    trajectory: Trajectory, ids: list[int], logprobs: list[float], how: str, one_by_one: bool
) -> int:
    """Gives tokens, and returns how many of them belonged to the turn."""
    if how == "turns" and not one_by_one:
        return trajectory.feed_turn(ids, logprobs)
    if how == "chunks" and not one_by_one:
        with suppress(UsageError):  # it is surplus that was refused, and nothing was taken
            trajectory.feed(ids, logprobs)
            return len(ids)

    for n, (token, logprob) in enumerate(zip(ids, logprobs, strict=True), start=1):
        if trajectory.feed([token], [logprob]):
            return n
    if how == "turns":
        trajectory.feed_turn(())  # what an unclosed thought held back counts at the end
    return len(ids)
