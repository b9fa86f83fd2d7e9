"""The token-by-token door: PettingZoo's own suites, spaces, rewards, errors, and the same game as
through rounds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import api_test, seed_test
from scripted import MINI, Script, by_role, play, propose, read, records, say, solve

import ssp_env
from ssp_env.doors.aec import PROPOSER, SOLVER, SearchSelfPlayEnv
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.config import GameConfig
from ssp_env.game.outcome import Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.record import record_game
from ssp_env.game.round import Round
from ssp_env.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, GroundTruth, Role, World
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld

SMALL = MINI.replace(max_response_tokens=60)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """PettingZoo warns about dict observations and agents' names, which are as they should be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pettingzoo")
        yield


@pytest.fixture(scope="session")
def wiki() -> World:
    return open_world("wiki-mini")


def make(mini: World, tokenizer: Tokenizer | None = None, **changes: Any) -> SearchSelfPlayEnv:
    parts = {name: changes.pop(name) for name in ("retriever", "render_mode") if name in changes}
    return ssp_env.raw_env(world=mini, tokenizer=tokenizer, game=MINI.replace(**changes), **parts)


def drive(env: SearchSelfPlayEnv, script: Script) -> None:
    """Plays a game to the last dead step."""
    while env.agents:
        if env.terminations[env.agent_selection] or env.truncations[env.agent_selection]:
            env.step(None)
            continue
        trajectory = next(t for t in env.game.trajectories() if not t.done)
        written = script(trajectory)
        for token in env.rules.tokenizer.encode(written) if isinstance(written, str) else written:
            env.step(token)


def test_api_and_seeds_with_the_policy_as_verifier(mini: MiniWorld) -> None:
    game = SMALL.replace(verifier="policy", max_prompt_tokens=1000)
    api_test(ssp_env.env(world=mini, game=game), num_cycles=100)
    seed_test(lambda: ssp_env.env(world=mini, game=game), num_cycles=100)


# -- spaces and observations -------------------------------------------------------------------


def test_spaces(mini: MiniWorld) -> None:
    env = make(mini)
    for agent in env.possible_agents:
        assert env.observation_space(agent) is env.observation_space(agent)
        assert env.action_space(agent) is env.action_space(agent)
        assert env.action_space(agent).n == env.rules.tokenizer.vocab_size
        assert env.observation_space(agent)["observation"].shape == (
            MINI.max_prompt_tokens + MINI.max_response_tokens,
        )


def test_observations_are_the_agents_trajectory(mini: MiniWorld) -> None:
    env = make(mini, attempts=2)
    env.reset(seed=1)
    checked = 0

    def checking(trajectory: Any) -> Any:
        nonlocal checked
        observation = env.observe(env.agent_selection)
        assert env.observation_space(PROPOSER).contains(observation)
        tokens = observation["observation"]
        assert tokens[: len(trajectory.ids)].tolist() == trajectory.ids
        assert set(tokens[len(trajectory.ids) :].tolist()) == {env.rules.tokenizer.pad_id}
        tokens[:] = 9  # an observation is a copy: writing into it does no harm
        checked += 1
        return by_role(propose(2))(trajectory)

    drive(env, checking)
    assert checked >= 6
    assert env.observe(SOLVER)["observation"].tolist()[
        : len(env.game.attempts[1].trajectory.ids)
    ] == (env.game.attempts[1].trajectory.ids)


def test_an_observation_follows_every_single_token(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset(seed=1)
    for token in (20, 21, 22):
        env.step(token)
        proposer = env.game.proposer
        assert proposer is not None
        assert env.observe(PROPOSER)["observation"][: len(proposer.ids) + 1].tolist() == [
            *proposer.ids,
            0,
        ]


def test_an_agent_that_has_not_played_yet(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset(seed=1)
    tokens = env.observe(SOLVER)["observation"]
    assert tokens[0] == env.rules.tokenizer.eos_id
    assert not tokens[1:].any()


def test_only_padding_is_masked(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset(seed=1)
    mask = env.observe(PROPOSER)["action_mask"]
    assert np.flatnonzero(mask == 0).tolist() == [env.rules.tokenizer.pad_id]
    mask[:] = 0
    assert env.observe(PROPOSER)["action_mask"].sum() == env.rules.tokenizer.vocab_size - 1


# -- games -------------------------------------------------------------------------------------


def test_a_valid_game(mini: MiniWorld) -> None:
    env = make(mini, attempts=4)
    env.reset(seed=1)

    def solver(trajectory: Any) -> Any:
        return (
            solve(trajectory)
            if trajectory is env.game.attempts[0].trajectory
            else "<answer> what </answer>"
        )

    paid: dict[str, float] = {}
    infos: dict[str, Any] = {}
    for agent in env.agent_iter():
        _, reward, terminated, truncated, info = env.last()
        if terminated:
            paid[agent], infos[agent] = reward, info
            env.step(None)
            continue
        assert (reward, truncated) == (0.0, False)
        trajectory = next(t for t in env.game.trajectories() if not t.done)
        assert agent == (PROPOSER if trajectory.role is Role.PROPOSER else SOLVER)
        assert info["phase"] == ("propose" if agent == PROPOSER else "solve")
        assert info["role"] == trajectory.role.value
        assert info["searches_left"] == 4 - len(trajectory.searches)
        for token in env.rules.tokenizer.encode(str(by_role(propose(), solver)(trajectory))):
            assert env.step(token) is None
    assert paid == {PROPOSER: 0.75, SOLVER: 0.25}
    assert env.agents == []
    for info in infos.values():
        assert info["outcome"] == "valid"
        assert info["question"] == env.game.question
        assert (info["answer"], info["solve_rate"], info["reason"]) == (
            env.game.truth.answer,
            0.25,
            "",
        )


def test_an_invalid_game(mini: MiniWorld) -> None:
    env = make(mini, invalid_reward=-0.5)
    env.reset(seed=1)
    env.step(env.rules.tokenizer.eos_id)
    assert env.terminations == {PROPOSER: True, SOLVER: True}, "both end together"
    assert env.rewards == {PROPOSER: -0.5, SOLVER: 0.0}
    assert env.last()[1] == -0.5
    assert (env.infos[SOLVER]["outcome"], env.infos[SOLVER]["reason"]) == ("invalid", "format")


class Dead:
    """A retriever that is down."""

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        raise ServiceError("search", "down")


def test_a_void_game(mini: MiniWorld) -> None:
    env = make(mini, retriever=Dead(), invalid_reward=-0.5)
    env.reset(seed=1)
    drive(env, by_role(propose()))
    assert env.game.outcome is Outcome.VOID
    env.reset(seed=1)
    for token in env.rules.tokenizer.encode("<search> what </search>"):
        env.step(token)
    assert env.rewards == {PROPOSER: 0.0, SOLVER: 0.0}
    assert (env.infos[PROPOSER]["outcome"], env.infos[PROPOSER]["reason"]) == ("void", "search")


def test_a_game_that_is_over_at_once(mini: MiniWorld) -> None:
    """The answer does not fit into the proposer's prompt."""
    env = make(mini, max_prompt_tokens=2, invalid_reward=-0.5)
    for _ in range(2):
        env.reset(seed=1)
        assert env.terminations == {PROPOSER: True, SOLVER: True}
        assert env.last()[1:4] == (-0.5, True, False)
        seen = []
        for agent in env.agent_iter():
            seen.append((agent, env.last()[1]))
            env.step(None)
        assert seen == [(PROPOSER, -0.5), (SOLVER, 0.0)]


def test_the_policy_verifies_as_the_solver(mini: MiniWorld) -> None:
    env = make(mini, verifier="policy", max_prompt_tokens=1000)
    env.reset(seed=1)
    played = []

    def watching(trajectory: Any) -> Any:
        played.append((env.agent_selection, env.infos[PROPOSER]["phase"], trajectory.role.value))
        return by_role(propose(), solve, read(mini))(trajectory)

    drive(env, watching)
    assert (SOLVER, "verify", "verifier") in played
    assert env.game.outcome is Outcome.VALID


def test_custom_tags(mini: MiniWorld) -> None:
    env = make(mini, tags=Tags(search="find", information="observation"))
    env.reset(seed=1)
    for token in env.rules.tokenizer.encode("<find> mentor </find>"):
        env.step(token)
    assert env.game.proposer is not None
    text = env.rules.tokenizer.decode(env.game.proposer.ids)
    assert "<observation>" in text
    assert "<information>" not in text


# -- seeds and options -------------------------------------------------------------------------


def test_a_seed_decides_this_and_the_following_games(mini: MiniWorld) -> None:
    def answers(seed: int) -> list[str]:
        env = make(mini)
        drawn = []
        for i in range(6):
            env.reset(seed=seed if i == 0 else None)
            drawn.append(env.game.truth.answer)
        return drawn

    assert answers(1) == answers(1) != answers(2)
    assert len(set(answers(1))) > 1


def test_an_unseeded_env_still_plays(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset()
    assert env.game.truth in mini.answers


def test_options(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset(seed=1, options={"answer": "mentor"})
    assert env.game.truth == GroundTruth("given", "mentor")
    truth = GroundTruth("own", "mentor", ("rival",))
    env.reset(options={"answer": truth})
    assert env.game.truth is truth
    env.reset(options={"answer": None})
    assert env.game.truth in mini.answers
    for wrong in (5, ["mentor"], {"answer": "mentor"}):
        with pytest.raises(UsageError, match=f"not {type(wrong).__name__}"):
            env.reset(options={"answer": wrong})


# -- calls that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize("action", [-1, 10**6, 5.0, "5", None, [5]])
def test_actions_outside_the_space(mini: MiniWorld, action: Any) -> None:
    env = make(mini)
    env.reset(seed=1)
    before = env.observe(PROPOSER)["observation"]
    with pytest.raises(UsageError):
        env.step(action)
    assert (env.observe(PROPOSER)["observation"] == before).all()
    env.step(5)


@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint16, np.array])
def test_any_whole_number_is_an_action(mini: MiniWorld, kind: Any) -> None:
    env = make(mini)
    env.reset(seed=1)
    env.step(kind(20))
    assert env.game.proposer is not None
    assert env.game.proposer.ids[-1] == 20
    assert type(env.game.proposer.ids[-1]) is int


def test_after_the_end(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset(seed=1)
    env.step(1)
    env.step(None)
    env.step(None)
    assert env.agents == []
    with pytest.raises(UsageError, match="over"):
        env.step(5)
    env.reset()
    env.step(5)


def test_verifiers_of_a_world_that_cannot_read(wiki: World) -> None:
    env = ssp_env.raw_env(world=wiki, game=GameConfig(verifier="auto"), retriever=Dead())
    assert env.rules.verifier is None
    with pytest.raises(ConfigError, match="cannot read"):
        ssp_env.raw_env(world=wiki, game=GameConfig(verifier="world"), retriever=Dead())


def test_defaults() -> None:
    env = ssp_env.raw_env()
    assert isinstance(env.rules.tokenizer, WordTokenizer)
    assert env.rules.config == ssp_env.MINI_GAME
    assert env.rules.world.name == "mini"


def test_render(mini: MiniWorld, capsys: pytest.CaptureFixture[str]) -> None:
    env = make(mini, render_mode="ansi")
    env.reset(seed=1)
    drive(env, by_role(propose()))
    text = env.render()
    assert isinstance(text, str)
    assert str(env.game.question) in text
    assert capsys.readouterr().out == ""
    env = make(mini, render_mode="human")
    env.reset(seed=1)
    env.step(20)
    assert capsys.readouterr().out == "", "only whole turns are shown"
    env.step(1)
    assert "outcome: invalid (format)" in capsys.readouterr().out


# -- the same game through every door ----------------------------------------------------------


def same_round(env: SearchSelfPlayEnv, seed: int) -> Round:
    """The round that an env plays after ``reset(seed)``."""
    answers = env.rules.world.answers
    drawn = int(np.random.default_rng(seed).integers(1 << 62))
    return Round(
        env.rules, lambda rng, count: [answers[int(rng.integers(len(answers)))]], 1, [drawn]
    )


def own_tokens(trajectory: Any) -> list[int]:
    return [token for token, mine in zip(trajectory.ids, trajectory.mask, strict=True) if mine]


def compare(env: SearchSelfPlayEnv, played: Round) -> None:
    (game,) = played.games
    assert record_game(env.game, env.rules) == record_game(game, env.rules)
    for t, u in zip(env.game.trajectories(), game.trajectories(), strict=True):
        assert (t.role, t.ids, bytes(t.mask), t.logprobs) == (
            u.role,
            u.ids,
            bytes(u.mask),
            u.logprobs,
        )
        assert (t.ending, t.result, t.searches) == (u.ending, u.result, u.searches)
    assert env.infos[PROPOSER]["outcome"] == game.outcome.value
    assert env.rewards[PROPOSER] == (game.proposer_reward or 0.0)
    assert env.rewards[SOLVER] == (game.solve_rate or 0.0)


@pytest.mark.parametrize("kind", ["words", "bytes"])
@pytest.mark.parametrize("verifier", ["world", "policy"])
@pytest.mark.parametrize("hops", [1, 2])
def test_parity_of_scripted_games(mini: MiniWorld, kind: str, verifier: str, hops: int) -> None:
    roomy = {
        "max_prompt_tokens": 3000,
        "max_response_tokens": 3000,
        "max_query_tokens": 40,
        "max_document_tokens": 500,
    }
    env = make(
        mini, ByteTokenizer() if kind == "bytes" else None, verifier=verifier, attempts=3, **roomy
    )
    script = by_role(propose(hops), solve, read(mini))
    played = same_round(env, seed=9)
    while pending := played.pending():
        for trajectory in pending:
            written = str(script(trajectory))
            assert trajectory.feed(env.rules.tokenizer.encode(written))
        played.advance()
    assert played.games[0].outcome is Outcome.VALID
    env.reset(seed=9)
    tokens = [
        token for trajectory in played.games[0].trajectories() for token in own_tokens(trajectory)
    ]
    for i, token in enumerate(tokens):
        assert not env.terminations[env.agent_selection], (
            f"it ended after {i} of {len(tokens)} tokens"
        )
        env.step(token)
    compare(env, played)
    assert played.games[0].solve_rate == 1.0


@pytest.mark.parametrize("kind", ["words", "bytes"])
def test_parity_of_random_games(mini: MiniWorld, kind: str) -> None:
    """Games of random tokens, tags often among them: token by token, then the same tokens turn by
    turn."""
    changes = {
        "verifier": "none",
        "filters": ("no_search",),
        "max_response_tokens": 120,
        "max_searches": 2,
    }
    sizes = {"max_query_tokens": 40, "max_prompt_tokens": 600, "attempts": 2}
    env = make(mini, ByteTokenizer() if kind == "bytes" else None, **changes, **sizes)
    tokenizer = env.rules.tokenizer
    assert tokenizer.eos_id is not None
    tags = ["<search>", "</search>", "<question>", "</question>", "<answer>", "</answer>"]
    common = [tokenizer.encode(text) for text in (*tags, "mentor ", "what ", "<", "</")]
    outcomes = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        while not env.terminations[PROPOSER]:
            ids = common[int(rng.integers(len(common)))]
            if rng.random() < 0.03:
                ids = [
                    tokenizer.eos_id
                    if rng.random() < 0.5
                    else int(rng.integers(tokenizer.vocab_size))
                ]
            for token in ids:
                if not env.terminations[PROPOSER]:
                    env.step(token)
        played = same_round(env, seed)
        kept = iter([own_turns(t) for t in env.game.trajectories()])
        turns: dict[int, Iterator[list[int]]] = {}
        while pending := played.pending():
            for trajectory in pending:
                if trajectory.key not in turns:
                    turns[trajectory.key] = iter(next(kept))
                assert trajectory.feed(next(turns[trajectory.key]))
            played.advance()
        assert next(kept, None) is None
        compare(env, played)
        outcomes.add((env.game.outcome, env.game.reason))
    assert len(outcomes) > 3, "the games are no test if they all end alike"


def own_turns(trajectory: Any) -> list[list[int]]:
    """The policy's tokens, turn by turn."""
    turns: list[list[int]] = []
    before = 0
    for token, mine in zip(trajectory.ids, trajectory.mask, strict=True):
        if mine and not before:
            turns.append([])
        if mine:
            turns[-1].append(token)
        before = mine
    return turns


def test_parity_of_batches(mini: MiniWorld) -> None:
    """A game's tokens do not depend on whether attempts are played together or one after the
    other."""
    env = make(mini, attempts=3)
    env.reset(seed=4)
    drive(env, by_role(propose()))
    together = play(same_round(env, 4), by_role(propose()))
    (record,), alone = records(together), record_game(env.game, env.rules)
    assert [t.ids for t in record.trajectories] == [t.ids for t in alone.trajectories]
    assert record.without_tokens() == alone.without_tokens(), "only one was given log-probabilities"


def test_say_is_played_through_the_env_too(mini: MiniWorld) -> None:
    env = make(mini)
    env.reset(seed=4)
    drive(env, by_role(say("<search> mentor </search>", "<question> ? </question>")))
    assert env.game.reason == "empty_question"


def test_the_trajectory_that_is_due(mini: MiniWorld) -> None:
    env = make(mini, attempts=2)
    env.reset(seed=1)
    while (due := env.trajectory) is not None:
        assert env.agent_selection == (PROPOSER if due.role is Role.PROPOSER else SOLVER)
        for token in env.rules.tokenizer.encode(str(by_role(propose(), solve)(due))):
            env.step(token)
    assert env.game.outcome is Outcome.VALID
