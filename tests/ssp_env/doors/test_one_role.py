"""One role at a time: episodes, players that fail, games that end before one's turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from all_doors import ScriptPlayer
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import propose, say

import ssp_env
from ssp_env.doors.one_role import OneRoleEnv
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.outcome import Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import MiniPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld


def write(env: OneRoleEnv, text: str) -> tuple[Any, ...]:
    """A whole turn; the last step's result."""
    step: tuple[Any, ...] = ()
    for token in env.rules.tokenizer.encode(text):
        step = env.step(token)
    return step


def test_an_episode_of_a_solver(mini: MiniWorld) -> None:
    env = ssp_env.SolverEnv(world=mini)
    observation, info = env.reset(seed=1)
    assert info["role"] == "solver"
    assert env.game.question is not None
    assert env.rules.config.attempts == 1
    assert "solve" in env.rules.tokenizer.decode(observation["observation"][:3].tolist())
    _, reward, terminated, truncated, info = write(
        env, f"<answer> {env.game.truth.answer} </answer>"
    )
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["outcome"], info["answer"]) == ("valid", env.game.truth.answer)


def test_an_episode_of_a_proposer(mini: MiniWorld) -> None:
    env = ssp_env.ProposerEnv(world=mini, game={"attempts": 3})
    env.reset(seed=1)
    script = propose(1)
    step: tuple[Any, ...] = ()
    while not env.episode.over:
        assert env.episode.trajectory is not None
        step = write(env, str(script(env.episode.trajectory)))
    assert step[1:4] == (0.0, True, False), "the scripted solver finds every answer"
    assert len(env.game.attempts) == 3
    env.reset(seed=1)
    assert env.step(env.rules.tokenizer.eos_id)[2] is True
    assert env.episode.info["reason"] == "format"


# -- seeds and options -------------------------------------------------------------------------


def test_a_game_that_is_dealt_anew_is_about_the_same_answer(mini: MiniWorld) -> None:
    """A proposer that fails now and then must not change what was asked for."""
    played = []

    def sometimes(trajectory: Trajectory) -> str:
        played.append(trajectory.about)
        return "<question> bad </question>" if len(played) < 4 else str(propose(1)(trajectory))

    env = ssp_env.SolverEnv(ScriptPlayer(sometimes), world=mini)
    truth = mini.answers[7]
    env.reset(seed=1, options={"answer": truth})
    assert env.game.truth is truth
    assert set(played) == {truth.answer}
    assert len(played) == 5, "three failed proposals, a search, a question"


# -- players -----------------------------------------------------------------------------------


def test_a_player_that_leaves_a_turn_unfinished(mini: MiniWorld) -> None:
    class Lazy:
        def play(self, trajectories: Sequence[Trajectory]) -> None:
            for trajectory in trajectories:
                trajectory.feed([20])

    for env in (ssp_env.SolverEnv(Lazy(), world=mini), ssp_env.TextRole(other=Lazy(), world=mini)):
        with pytest.raises(
            UsageError, match=r"left a proposer's turn unfinished: write it with feed_turn\(\)"
        ):
            env.reset(seed=1)
        with pytest.raises(UsageError, match=r"call reset\(\) first"):
            env.step(5 if isinstance(env, ssp_env.SolverEnv) else "x")  # type: ignore[arg-type]


class Failing(MiniPlayer):
    """Cannot play games about certain answers."""

    def __init__(self, answers: set[str]) -> None:
        super().__init__(Tags())
        self.answers = answers

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        if any(trajectory.about in self.answers for trajectory in trajectories):
            raise ServiceError("engine", "out of memory")
        super().play(trajectories)


def test_a_player_that_fails_voids_the_games_it_was_asked_about(mini: MiniWorld) -> None:
    probe = ssp_env.SolverEnv(world=mini)
    answers = []
    for seed in (1, None, None):
        probe.reset(seed=seed)
        answers.append(probe.game.truth.answer)
    env = ssp_env.SolverEnv(Failing(set(answers[:2])), world=mini)
    env.reset(seed=1)
    assert env.game.truth.answer == answers[2], "the first two games are void, and dealt anew"
    proposer = ssp_env.ProposerEnv(Failing(set()), world=mini)
    proposer.reset(seed=1)
    script = propose(1)
    other = proposer.other
    assert isinstance(other, Failing)
    while not proposer.episode.over:
        assert proposer.episode.trajectory is not None
        written = str(script(proposer.episode.trajectory))
        if "<question>" in written:
            question = written.removeprefix("<question>").removesuffix("</question>").strip()
            other.answers.add(question)
        _, reward, terminated, truncated, info = write(proposer, written)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["reason"]) == ("void", "engine")
    assert proposer.game.outcome is Outcome.VOID


def test_a_seat_that_never_comes_to_its_turn(mini: MiniWorld) -> None:
    bad = ScriptPlayer(say("<question> </question>"))
    with pytest.raises(
        UsageError, match="100 games in a row ended before the solver's turn, the last one as empty"
    ):
        ssp_env.SolverEnv(bad, world=mini).reset(seed=1)
    with pytest.raises(
        UsageError, match="before the proposer's turn, the last one as budget_prompt"
    ):
        ssp_env.ProposerEnv(world=mini, game={"max_prompt_tokens": 2}).reset(seed=1)
    dead = Failing({truth.answer for truth in mini.answers})
    with pytest.raises(ServiceError, match="engine: 100 games in a row"):
        ssp_env.SolverEnv(dead, world=mini).reset(seed=1)
    with pytest.raises(UsageError, match="100 games"):
        ssp_env.SolverVectorEnv(2, other=bad, world=mini).reset(seed=1)
    with pytest.raises(UsageError, match="100 games"):
        ssp_env.TextRole(other=bad, world=mini).reset(seed=1)


# -- calls that do not fit, rendering, copies --------------------------------------------------


KINDS = {
    "Solver": (ssp_env.SolverEnv, ssp_env.SolverVectorEnv),
    "Proposer": (ssp_env.ProposerEnv, ssp_env.ProposerVectorEnv),
}
BYTES = {"max_prompt_tokens": 600, "max_response_tokens": 40}


def setups(mini: MiniWorld) -> dict[str, dict[str, Any]]:
    return {
        "small": {"world": open_world("small")},
        "words": {"world": mini, "game": {"max_response_tokens": 60}},
        "bytes": {"world": mini, "tokenizer": ByteTokenizer(), "game": BYTES},
    }


@pytest.mark.parametrize("kind", ["small", "words", "bytes"])
@pytest.mark.parametrize("role", KINDS)
def test_the_same_as_a_vector_of_single_views(mini: MiniWorld, role: str, kind: str) -> None:
    setup = setups(mini)[kind]
    if kind == "bytes":  # the scripted proposer has no room for its turns there
        setup["questions"] = mini.questions(0, 5)
        if role == "Proposer":
            del setup["questions"]
    setup["retriever"] = BM25Retriever(setup["world"].corpus)
    single, vector = KINDS[role]
    ours, theirs = vector(3, **setup), SyncVectorEnv([lambda: single(**setup)] * 3)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert (
        ours.metadata["autoreset_mode"]
        is theirs.metadata["autoreset_mode"]
        is AutoresetMode.NEXT_STEP
    )
    a, b = ours.reset(seed=[3, 1, 4]), theirs.reset(seed=[3, 1, 4])
    assert_same(a, b)
    ours.action_space.seed(5)
    ended = paid = 0.0
    for step in range(150):
        actions = ours.action_space.sample(tuple(a[0]["action_mask"]))
        if step % 10 == 0 and kind != "small":
            actions[step // 10 % 3] = 1 if kind == "words" else 256
        a, b = ours.step(actions), theirs.step(actions)
        assert_same(a, b)
        ended += (a[2] | a[3]).sum()
        paid += a[1].sum()
    assert ended > 5, "the games are no test if none of them ends"


def assert_same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert ours[0].keys() == theirs[0].keys()
    for name in ours[0]:
        assert ours[0][name].dtype == theirs[0][name].dtype
        assert np.array_equal(ours[0][name], theirs[0][name])
    for x, y in zip(ours[1:-1], theirs[1:-1], strict=True):
        assert x.dtype == y.dtype
        assert np.array_equal(x, y)
    assert data_equivalence(ours[-1], theirs[-1], exact=True)
