"""Random games, each decided by (seed, number), through the AEC environment or a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.fuzz import hostile
from benchmarks.fuzz.hostile import HostileServices, HostileWorld
from benchmarks.fuzz.invariants import Watch, check_env
from benchmarks.fuzz.tokenizers import NAMES, tokenizer
from ssp_env import raw_env
from ssp_env.doors.aec import SearchSelfPlayEnv
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game
from ssp_env.game.record import record_game
from ssp_env.game.round import Round
from ssp_env.game.strategies import STRATEGIES, make_strategy
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.types import GroundTruth, Question

CONFIGS = 12
"""Random settings a tokenizer."""


HOW = ("tokens", "chunks", "turns")
"""Tokens are handed over one by one, as many at once as are written at once, or as whole turns."""


@dataclass
class Table:
    """What many games are played by, and an environment of it."""

    name: str
    services: HostileServices
    env: SearchSelfPlayEnv


@dataclass(frozen=True)
class Given:
    """Tokens given to a trajectory, by its place in the round; ``None`` if its engine failed."""

    place: int
    ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] = ()


def play(seed: int, number: int, replayed: bool) -> list[Game]:
    """Plays one random game (or, in a round, up to four) and checks it; if ``replayed``, it is
    played a second time from its tokens and compared."""
    rng = np.random.default_rng([seed, number])
    table = _table(NAMES[int(rng.integers(len(NAMES)))], int(rng.integers(CONFIGS)))
    table.services.seed = int(rng.integers(1 << 31))
    thorough = number % 10 == 0
    if rng.random() < 0.4:
        return [_play_env(rng, table, replayed, thorough)]

    return _play_round(rng, table, replayed, thorough)


@cache
def _world() -> HostileWorld:
    return HostileWorld()


@cache
def _table(name: str, index: int) -> Table:
    services = HostileServices(_world().corpus)
    rng = np.random.default_rng([NAMES.index(name), index])
    config = _config(rng)
    own: dict[str, Any] = {"verifier": services} if config.verifier == "openai" else {}
    parts: dict[str, Any] = {"retriever": services, "judge": services, **own}
    env = raw_env(world=_world(), tokenizer=tokenizer(name), game=config, **parts)

    return Table(name, services, env)


def _config(rng: np.random.Generator) -> GameConfig:
    def any_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    searches = any_of(1, 2, 3)
    config = GameConfig(
        attempts=any_of(1, 2, 3, 5),
        proposals=any_of(1, 1, 2),
        max_searches=searches,
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
    )

    # The plain prompts alone are longer than the lesser budgets, which is refused at set-up.
    if config.prompts == "plain":
        return config.replace(max_prompt_tokens=4000)
    return config


# -- the AEC environment -----------------------------------------------------------------------


def _play_env(rng: np.random.Generator, table: Table, replayed: bool, thorough: bool) -> Game:
    env, seed = table.env, int(rng.integers(1 << 31))
    options: dict[str, Any] | None = None
    if rng.random() < 0.2:
        question = Question("q", hostile.text(rng), ("mentor",), "all")
        answer = hostile.ANSWERS[int(rng.integers(len(hostile.ANSWERS)))]
        # One that the tokenizer cannot spell is refused as an option.
        spelled = rng.random() < 0.5 and env.rules.prompts.can_spell(answer)
        options = {"answer": answer} if spelled else {"question": question}

    env.reset(seed=seed, options=options)
    watch = Watch(env.rules, table.name)
    tokens: list[int] = []

    while not any((*env.terminations.values(), *env.truncations.values())):
        trajectory = next(t for t in env.game.trajectories() if t.waiting is Waiting.POLICY)
        if len(tokens) % 3 == 0:
            check_env(env, trajectory)
        searches = len(trajectory.searches)

        for token in hostile.write(rng, trajectory):
            before = len(trajectory.ids)
            env.step(token)
            watch.given(trajectory, before, (token,), (0.0,))
            tokens.append(token)

            if trajectory.done or len(trajectory.searches) > searches:
                watch.look([env.game])
                break

    game = env.game
    check_env(env, None)
    watch.check([game], thorough)

    if replayed:
        seen = _everything(game, table)
        env.reset(seed=seed, options=options)
        for token in tokens:
            env.step(token)
        assert _everything(env.game, table) == seen, "the same seed and tokens give another game"

    return game


# -- a round -----------------------------------------------------------------------------------


def _play_round(
    rng: np.random.Generator, table: Table, replayed: bool, thorough: bool
) -> list[Game]:
    seed, slots = int(rng.integers(1 << 31)), int(rng.integers(1, 5))
    strategy = STRATEGIES[int(rng.integers(len(STRATEGIES)))]
    how = HOW[int(rng.integers(len(HOW)))]
    questions = [Question(str(i), hostile.text(rng), ("mentor",), "all") for i in range(slots)]
    given_questions = questions if rng.random() < 0.15 else None
    round_ = _begin(table, seed, slots, strategy, given_questions)
    watch = Watch(table.env.rules, table.name)
    script: list[list[Given]] = []

    while pending := round_.pending():
        script.append([])
        places = {t.key: i for i, t in enumerate(_trajectories(round_))}
        for trajectory in pending:
            if trajectory.done:
                continue  # another one of its game was voided just now
            if rng.random() < 0.002:
                script[-1].append(Given(places[trajectory.key], None))
                round_.void([trajectory], ServiceError("engine", "down"))
                continue

            ids = hostile.write(rng, trajectory)
            logprobs = (-rng.random(len(ids))).tolist()
            before = len(trajectory.ids)
            taken = _give(trajectory, ids, logprobs, how)
            ids, logprobs = ids[:taken], logprobs[:taken]
            watch.given(trajectory, before, ids, logprobs)
            script[-1].append(Given(places[trajectory.key], tuple(ids), tuple(logprobs)))

        round_.advance()
        watch.look(round_.games)

    assert round_.done, "nothing waits for tokens, yet the round is not over"
    watch.check(round_.games, thorough)
    if replayed:
        again = _begin(table, seed, slots, strategy, given_questions)
        _replay(again, script, whole_turns=how == "turns")
        assert again.done, "the same tokens do not end the round"
        seen, now = ([_everything(game, table) for game in r.games] for r in (round_, again))
        assert seen == now, "the same seed and tokens give other games"

    return round_.games


def _begin(
    table: Table, seed: int, slots: int, strategy: str, questions: Sequence[Question] | None
) -> Round:
    if questions is not None:
        return Round.of_questions(table.env.rules, questions, [seed])

    def answers(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        every = _world().answers
        return [every[i] for i in rng.integers(len(every), size=count).tolist()]

    return Round(table.env.rules, answers, slots, [seed], make_strategy(strategy))


def _give(trajectory: Trajectory, ids: list[int], logprobs: list[float], how: str) -> int:
    if how == "turns":
        return trajectory.feed_turn(ids, logprobs)
    if how == "chunks":
        try:
            trajectory.feed(ids, logprobs)
        except UsageError:
            pass  # it is surplus that was refused, and nothing was taken
        else:
            return len(ids)

    for n, (token, logprob) in enumerate(zip(ids, logprobs, strict=True), start=1):
        if trajectory.feed([token], [logprob]):
            return n

    return len(ids)


def _replay(round_: Round, script: list[list[Given]], whole_turns: bool) -> None:
    """Gives the same tokens again, one by one, however they were given at first."""
    for calls in script:
        trajectories = _trajectories(round_)
        for call in calls:
            trajectory = trajectories[call.place]
            if call.ids is None:
                round_.void([trajectory], ServiceError("engine", "down"))
                continue

            pairs = zip(call.ids, call.logprobs, strict=True)
            ended = [trajectory.feed([i], [p]) for i, p in pairs][-1]
            if whole_turns and not ended:
                trajectory.feed_turn(())  # what an unclosed thought held back counts at the end

        round_.advance()


def _trajectories(round_: Round) -> list[Trajectory]:
    return [trajectory for game in round_.games for trajectory in game.trajectories()]


def _everything(game: Game, table: Table) -> tuple[Any, ...]:
    record = record_game(game, table.env.rules)
    tokens = [(list(t.ids), bytes(t.mask), list(t.logprobs)) for t in game.trajectories()]
    return record, tokens
