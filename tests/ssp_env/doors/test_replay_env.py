"""The AEC env over a saved game says what the online one said, step by step, without search or
judge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scripted import MINI, Script, by_role, propose, read, say, solve

import ssp_env
from ssp_env.doors.aec import SearchSelfPlayEnv
from ssp_env.doors.replay import replay_env
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.config import SMALL_VIEW, ViewConfig
from ssp_env.game.outcome import Outcome
from ssp_env.players import RandomLegalPlayer
from ssp_env.replay import SavedGame, replay, save_game
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import Document
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld

Step = tuple[str, bytes, bytes, float, bool, bool, dict[str, Any], int | None]


class FlakySearch(BM25Retriever):
    """Fails from the second attempt's search on, or in that one alone."""

    calls = 0
    failing: tuple[int, ...] = (3, 4)

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        self.calls += 1
        if self.calls in self.failing:
            raise ServiceError("search", "down")
        return super().search(queries, k)


def told(env: SearchSelfPlayEnv, action: int | None) -> Step:
    observation, reward, terminated, truncated, info = env.last()
    assert observation is not None
    seen, mask = observation["observation"], observation["action_mask"]
    return (
        env.agent_selection,
        seen.tobytes(),
        mask.tobytes(),
        reward,
        terminated,
        truncated,
        dict(info),
        action,
    )


def online(env: SearchSelfPlayEnv, script: Script) -> list[Step]:
    """Plays a game to its last dead step; everything that ``last`` told, and what was written."""
    steps = []
    while env.agents:
        over = env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        turn: list[int | None] = [None]
        if not over:
            written = script(next(t for t in env.game.trajectories() if not t.done))
            turn = list(
                env.rules.tokenizer.encode(written) if isinstance(written, str) else written
            )
        for token in turn:
            steps.append(told(env, token))
            env.step(token)
    return steps


def offline(env: SearchSelfPlayEnv, steps: list[Step]) -> None:
    """Writes the same tokens and finds everything told the same way."""
    env.reset(seed=99)
    for i, step in enumerate(steps):
        assert told(env, step[-1]) == step, f"at step {i}"
        env.step(step[-1])
    assert env.agents == []


SCRIPTS: dict[str, tuple[Script | None, dict[str, Any]]] = {
    "valid": (by_role(propose(2)), {}),
    "valid with the policy as verifier": (None, {"verifier": "policy", "max_prompt_tokens": 1500}),
    "invalid": (
        say("<search> mentor </search>", "<question> ? </question>"),
        {"invalid_reward": -0.5},
    ),
    "over at once": (say([1]), {}),
    "void": (by_role(propose()), {}),
    "valid with a void attempt": (by_role(propose()), {}),
}


NO_ANSWER_FITS = {"words": 2, "bytes": 10}
"""What the proposer's prompt takes without any answer in it."""


@pytest.mark.parametrize("kind", ["words", "bytes"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_step(mini: MiniWorld, name: str, kind: str) -> None:
    roomy = {"max_prompt_tokens": 3000, "max_response_tokens": 1500, "max_query_tokens": 40}
    script, changes = SCRIPTS[name]
    if name == "over at once":
        changes = {"max_prompt_tokens": NO_ANSWER_FITS[kind]}
    game = replace(MINI, **{"attempts": 3, **(roomy if kind == "bytes" else {}), **changes})
    parts: dict[str, Any] = {}
    if "void" in name:
        search = parts["retriever"] = FlakySearch(mini.corpus)
        search.failing = (3, 4) if name == "void" else (3,)
    env = ssp_env.raw_env(world=mini, tokenizer=kind, game=game, **parts)
    env.reset(seed=3)
    steps = online(env, script or by_role(propose(), solve, read(mini)))
    expected = {"valid": Outcome.VALID, "void": Outcome.VOID}.get(name.split()[0], Outcome.INVALID)
    assert env.game.outcome is expected
    outages = sum(attempt.outage is not None for attempt in env.game.attempts)
    assert outages == {"void": 2, "valid with a void attempt": 1}.get(name, 0)
    saved = SavedGame.from_text(save_game(env.game, env.rules).to_text())
    again = replay_env(saved, render_mode="ansi")
    offline(again, steps)
    offline(again, steps)
    assert again.render()


def test_views_and_masks_of_legal_moves() -> None:
    """A world with a grammar has to be there for them: it is not part of the document."""
    world = open_world("small")
    env = ssp_env.raw_env(world=world)
    player = RandomLegalPlayer(env.rules, np.random.default_rng(1))
    outcomes = set()
    for seed in range(12):
        env.reset(seed=seed)

        def random_turn(trajectory: Any) -> list[int]:
            played = env.rules.limits[trajectory.role]
            copy = type(trajectory)(
                played, list(trajectory.ids[: trajectory.prompt_length]), trajectory.about
            )
            copy.ids, copy.mask = list(trajectory.ids), bytearray(trajectory.mask)
            copy.searches = list(trajectory.searches)
            player.play([copy])
            return copy.ids[len(trajectory.ids) :]

        steps = online(env, random_turn)
        saved = save_game(env.game, env.rules)
        outcomes.add(env.game.outcome)
        offline(replay_env(saved, view=SMALL_VIEW, world=world), steps)
        with pytest.raises(ConfigError, match="pass world="):
            replay_env(saved, view=SMALL_VIEW)
    assert len(outcomes) == 2


def test_other_tokens_than_the_saved_ones(mini: MiniWorld) -> None:
    env = ssp_env.raw_env(world=mini, game=replace(MINI, attempts=2))
    env.reset(seed=3)
    online(env, by_role(propose()))
    again = replay_env(save_game(env.game, env.rules))
    for script in (
        say("<search> mentor </search>"),
        by_role(propose(), say("<search> mentor </search>")),
    ):
        again.reset()
        online(again, script)
        assert (again.game.outcome, again.game.reason) == (Outcome.VOID, "search"), (
            "never another query's documents"
        )
    again.reset()
    online(again, by_role(propose(), say("<answer> somebody </answer>")))
    assert (again.game.outcome, again.game.reason) == (Outcome.VOID, "judge"), (
        "never another answer's verdict"
    )
    again.reset()
    online(again, say("<question> ? </question>"))
    assert again.game.reason == "empty_question", "what is code is run"


def test_ready_rules_leave_no_room_for_others(mini: MiniWorld) -> None:
    rules = ssp_env.raw_env(world=mini).rules
    assert ssp_env.raw_env(rules=rules, view=ViewConfig(window=8)).rules is rules
    with pytest.raises(ConfigError, match="the rules are ready already"):
        ssp_env.raw_env(rules=rules, world=mini)


def test_own_code_cannot_be_asked_about_other_questions(mini: MiniWorld) -> None:
    env = ssp_env.raw_env(
        world=mini, filters={"even": lambda proposal: False}, game=replace(MINI, attempts=2)
    )
    env.reset(seed=3)
    steps = online(env, by_role(propose()))
    assert env.game.outcome is Outcome.VALID
    again = replay_env(save_game(env.game, env.rules))
    offline(again, steps)
    again.reset()
    query = env.game.truth.answer
    with pytest.raises(UsageError, match="the filter 'even' is code of your own"):
        online(
            again,
            say(f"<search> {query} </search>", "<question> what is the mentor of it ? </question>"),
        )


def test_games_of_the_other_doors(mini: MiniWorld) -> None:
    """One role, whole turns as text, many games at once: what they played can be saved by their
    rules."""
    end = 1
    solver, proposer = ssp_env.SolverEnv(world=mini), ssp_env.ProposerEnv(world=mini)
    for env in (solver, proposer):
        env.reset(seed=1)
        env.step(end)
    batch = ssp_env.GameBatch(2, world=mini)
    batch.reset(seed=1)
    while batch.turns:
        batch.step([[end] for _ in batch.turns])
    played = [(env.game, env.rules) for env in (solver, proposer)] + [
        (game, batch.rules) for game in batch.games
    ]
    for game, rules in played:
        saved = SavedGame.from_text(save_game(game, rules).to_text())
        assert replay(saved).identical
        assert replay(saved).game.trajectories()[0].ids == game.trajectories()[0].ids
