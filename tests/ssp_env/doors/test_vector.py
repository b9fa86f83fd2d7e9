"""The vector views: the same, step by step, as Gymnasium's own vector of single views."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import MINI

import ssp_env
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.outcome import Outcome
from ssp_env.players import MiniPlayer
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import Document
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld

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


@pytest.mark.parametrize("seed", [7, [3, 1, 4]], ids=str)
@pytest.mark.parametrize("kind", ["small", "words", "bytes"])
@pytest.mark.parametrize("role", KINDS)
def test_the_same_as_a_vector_of_single_views(
    mini: MiniWorld, role: str, kind: str, seed: Any
) -> None:
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
    a, b = ours.reset(seed=seed), theirs.reset(seed=seed)
    assert_same(a, b)
    ours.action_space.seed(5)
    ended = paid = 0.0
    for step in range(250):
        actions = ours.action_space.sample(tuple(a[0]["action_mask"]))
        if step % 10 == 0 and kind != "small":
            actions[step // 10 % 3] = 1 if kind == "words" else 256
        a, b = ours.step(actions), theirs.step(actions)
        assert_same(a, b)
        ended += (a[2] | a[3]).sum()
        paid += a[1].sum()
    assert ended > 10, "the games are no test if none of them ends"


def assert_same(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert ours[0].keys() == theirs[0].keys()
    for name in ours[0]:
        assert ours[0][name].dtype == theirs[0][name].dtype
        assert np.array_equal(ours[0][name], theirs[0][name])
    for x, y in zip(ours[1:-1], theirs[1:-1], strict=True):
        assert x.dtype == y.dtype
        assert np.array_equal(x, y)
    assert data_equivalence(ours[-1], theirs[-1], exact=True)


class Counting(BM25Retriever):
    """Counts its calls."""

    calls = 0

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        self.calls += 1
        return super().search(queries, k)


def test_searches_of_all_games_are_one_batch(mini: MiniWorld) -> None:
    retriever = Counting(mini.corpus)
    envs = ssp_env.SolverVectorEnv(
        8, world=mini, retriever=retriever, questions=mini.questions(0, 10)
    )
    envs.reset(seed=1)
    tokenizer = envs._envs[0].rules.tokenizer
    for token in tokenizer.encode("<search> mentor </search>"):
        envs.step([token] * 8)
    assert retriever.calls == 1
    assert [len(env.game.attempts[0].trajectory.searches) for env in envs._envs] == [1] * 8


def test_the_other_player_is_asked_for_all_games_at_once(mini: MiniWorld) -> None:
    asked = []

    class Watching(MiniPlayer):
        def play(self, trajectories: Any) -> None:
            asked.append(len(trajectories))
            super().play(trajectories)

    ssp_env.SolverVectorEnv(6, other=Watching(MINI.tags), world=mini).reset(seed=1)
    assert asked == [6, 6], "a search and a question each"


def test_seeds(mini: MiniWorld) -> None:
    def answers(seed: Any, envs: Any = None) -> list[str]:
        envs = envs or ssp_env.SolverVectorEnv(3, world=mini)
        envs.reset(seed=seed)
        return [env.game.truth.answer for env in envs._envs]

    assert (
        answers(5)
        == answers([5, 6, 7])
        == answers(np.int64(5))
        == answers(np.array([5, 6, 7]))
        != answers(6)
    )
    envs = ssp_env.SolverVectorEnv(3, world=mini)
    first, second = answers(5, envs), answers(None, envs)
    assert first != second, "without a seed it goes on"
    assert (answers(5, envs), answers(None, envs)) == (first, second)
    some = [answers([5, None, None], envs)[0] for _ in range(3)]
    assert set(some) == {first[0]}, "only those that are given one begin anew"


def test_calls_that_do_not_fit(mini: MiniWorld) -> None:
    envs = ssp_env.SolverVectorEnv(2, world=mini)
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        envs.step([5, 5])
    with pytest.raises(UsageError, match="3 seeds were given for 2 envs"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(UsageError, match="not int"):
        envs.reset(options={"answer": 5})
    with pytest.raises(UsageError, match="begins anew by itself"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ConfigError, match="num_envs = 0"):
        ssp_env.SolverVectorEnv(0, world=mini)
    with pytest.raises(ConfigError, match="wurld"):
        gym.make_vec("ssp/Solver-v0", num_envs=2, wurld="mini")


@pytest.mark.parametrize(
    "actions", [[5], [5, 5, 5], [5, -1], [5, 10**6], [5.0, 6.0], ["a", "b"], [5, None]]
)
def test_actions_outside_the_space_change_nothing(mini: MiniWorld, actions: Any) -> None:
    envs = ssp_env.SolverVectorEnv(2, world=mini)
    envs.reset(seed=1)
    before = [list(env.seat.trajectory.ids) for env in envs._envs if env.seat.trajectory]
    with pytest.raises(UsageError):
        envs.step(actions)
    assert [env.seat.trajectory.ids for env in envs._envs if env.seat.trajectory] == before
    envs.step([5, 5])


def test_only_the_games_that_an_outage_hits_are_truncated(mini: MiniWorld) -> None:
    class Partly(BM25Retriever):
        def search(self, queries: Any, k: int) -> list[list[Document]]:
            if "rival" in queries:
                raise ServiceError("search", "down")
            return super().search(queries, k)

    retriever = Partly(mini.corpus)
    envs = ssp_env.SolverVectorEnv(
        2, world=mini, retriever=retriever, questions=mini.questions(0, 10)
    )
    envs.reset(seed=1)
    encode = envs._envs[0].rules.tokenizer.encode
    pairs = zip(
        encode("<search> mentor </search>"), encode("<search> rival </search>"), strict=True
    )
    for tokens in pairs:
        _, rewards, terminated, truncated, infos = envs.step(np.array(tokens))
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == (
        [0, 0],
        [False, False],
        [False, True],
    )
    assert (infos["outcome"].tolist(), infos["reason"].tolist()) == (
        ["pending", "void"],
        ["", "search"],
    )
    assert envs._envs[1].game.outcome is Outcome.VOID
    _, _, terminated, truncated, infos = envs.step(np.array([5, 5]))
    assert not (terminated | truncated).any()
    assert infos["outcome"].tolist() == ["pending", "pending"], "the game that fell begins anew"


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_gymnasiums_processes(context: str) -> None:
    made = {"world": "small"}
    envs = gym.make_vec(
        "ssp/Solver-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": context},
        **made,
    )
    same = gym.make_vec("ssp/Solver-v0", num_envs=2, **made)
    try:
        a, b = envs.reset(seed=3), same.reset(seed=3)
        assert_same(a, b)
        same.action_space.seed(5)
        for _ in range(30):
            actions = same.action_space.sample(tuple(b[0]["action_mask"]))
            a, b = envs.step(actions), same.step(actions)
            assert_same(a, b)
    finally:
        envs.close()
