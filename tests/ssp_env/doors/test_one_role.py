"""One role at a time: episodes, players that fail, games that end before one's turn."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from all_doors import ScriptPlayer
from scripted import MINI, by_role, propose, say, solve

import ssp_env
from ssp_env.doors.one_role import OneRoleEnv
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Origin, Start
from ssp_env.game.outcome import Outcome
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import MiniPlayer
from ssp_env.types import Document, GroundTruth, Question
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
    while not env.seat.over:
        assert env.seat.trajectory is not None
        step = write(env, str(script(env.seat.trajectory)))
    assert step[1:4] == (0.0, True, False), "the scripted solver finds every answer"
    assert len(env.game.attempts) == 3
    env.reset(seed=1)
    assert env.step(env.rules.tokenizer.eos_id)[2] is True
    assert env.seat.info["reason"] == "format"


def test_given_questions(mini: MiniWorld) -> None:
    questions = mini.questions(0, 5)
    env = ssp_env.SolverEnv(questions=questions, world=mini)
    asked = set()
    for i in range(60):
        env.reset(seed=0 if i == 0 else None)
        assert env.game.origin is Origin.GIVEN
        asked.add(env.game.question)
    assert asked == {question.text for question in questions}
    with pytest.raises(ConfigError, match="questions"):
        ssp_env.SolverEnv(questions=[], world=mini)


# -- seeds and options -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ssp_env.SolverEnv, ssp_env.ProposerEnv])
def test_seeds(mini: MiniWorld, kind: Any) -> None:
    def seen(env: Any, seed: int | None) -> Any:
        observation, info = env.reset(seed=seed)
        return (
            observation["observation"].tolist(),
            info["tokens_left"],
            env.game.truth,
            env.game.question,
        )

    env, other = kind(world=mini), kind(world=mini)
    first = [seen(env, 3), seen(env, None), seen(env, None)]
    assert len({str(f) for f in first}) == 3
    assert [seen(other, 3), seen(other, None), seen(other, None)] == first
    assert [seen(env, 3), seen(env, None), seen(env, None)] == first
    assert seen(kind(world=mini), None), "without any seed it plays, too"


def test_options(mini: MiniWorld) -> None:
    env = ssp_env.SolverEnv(world=mini)
    truth = mini.answers[5]
    env.reset(seed=1, options={"answer": truth.answer})
    assert env.game.truth.answer == truth.answer
    env.reset(options={"answer": truth})
    assert env.game.truth is truth
    question = Question("q", "what is the mentor of X ?", ("Y",), "1")
    env.reset(options={"question": question})
    assert (env.game.question, env.game.truth) == (question.text, question.truth)
    start = Start.of(env.game)
    env.reset(options={"start": start})
    assert Start.of(env.game) == start
    with pytest.raises(
        UsageError, match="one of answer, question, start, not about answer and question"
    ):
        env.reset(options={"answer": "x", "question": question})
    for name in ("question", "start"):
        with pytest.raises(UsageError, match=rf"options\['{name}'\] is a .*not str"):
            env.reset(options={name: "x"})


def test_a_proposer_is_given_no_question(mini: MiniWorld) -> None:
    question = Question("q", "what is the mentor of X ?", ("Y",), "1")
    proposer = ssp_env.ProposerEnv(world=mini)
    with pytest.raises(UsageError, match="nothing to propose"):
        proposer.reset(seed=1, options={"question": question})
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        proposer.step(5)
    env = ssp_env.SolverEnv(world=mini)
    env.reset(seed=1, options={"question": question})
    with pytest.raises(UsageError, match="nothing to propose"):
        ssp_env.ProposerEnv(world=mini).reset(seed=1, options={"start": Start.of(env.game)})


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
        super().__init__(MINI.tags)
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
    while not proposer.seat.over:
        assert proposer.seat.trajectory is not None
        written = str(script(proposer.seat.trajectory))
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


def test_the_policy_as_verifier_is_played_by_the_other(mini: MiniWorld) -> None:
    env = ssp_env.SolverEnv(world=mini, game={"verifier": "policy", "max_prompt_tokens": 1000})
    env.reset(seed=1)
    assert env.game.verifier is not None
    assert env.game.verifier.done
    assert env.seat.info["role"] == "solver"


# -- calls that do not fit, rendering, copies --------------------------------------------------


def test_calls_that_do_not_fit(mini: MiniWorld) -> None:
    env = ssp_env.SolverEnv(world=mini, render_mode="ansi")
    for call in (lambda: env.step(5), env.render, lambda: env.game):
        with pytest.raises(UsageError, match=r"call reset\(\) first"):
            call()
    env.reset(seed=1)
    for action in (-1, 10**6, 5.0, "5", None, [5]):
        before = list(env.seat.trajectory.ids) if env.seat.trajectory else []
        with pytest.raises(UsageError):
            env.step(action)  # type: ignore[arg-type]
        assert env.seat.trajectory is not None
        assert env.seat.trajectory.ids == before
    env.step(env.rules.tokenizer.eos_id or 0)
    with pytest.raises(UsageError, match="the game is over"):
        env.step(5)
    assert env.observation_space.contains(env.look()[0])
    env.reset()
    env.step(5)


def test_rendering(mini: MiniWorld, capsys: pytest.CaptureFixture[str]) -> None:
    env = ssp_env.SolverEnv(world=mini, render_mode="ansi")
    env.reset(seed=1)
    assert str(env.game.question) in str(env.render())
    env = ssp_env.SolverEnv(world=mini, render_mode="human")
    env.reset(seed=1)
    env.step(20)
    assert capsys.readouterr().out == "", "only whole turns are shown"
    env.step(env.rules.tokenizer.eos_id or 0)
    assert "outcome: valid" in capsys.readouterr().out


@pytest.mark.parametrize(
    "duplicate",
    [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy],
    ids=["pickle", "deepcopy"],
)
@pytest.mark.parametrize(
    "kind", [ssp_env.SolverEnv, ssp_env.ProposerEnv, ssp_env.SolverVectorEnv, ssp_env.env]
)
def test_a_copy_of_an_env_plays_the_same(mini: MiniWorld, kind: Any, duplicate: Any) -> None:
    env = kind(world=mini)
    twin = duplicate(env)
    seen = []
    for each in (env, twin):
        each.reset(seed=4)
        each.reset()
        observed = (
            each.last()[0]
            if kind is ssp_env.env
            else each.step([20] if "Vector" in kind.__name__ else 20)[0]
        )
        seen.append(observed["observation"])
    assert np.array_equal(*seen)


def test_a_copy_in_the_middle_of_a_game_goes_its_own_way(mini: MiniWorld) -> None:
    """As tree search needs it."""
    env = ssp_env.SolverEnv(world=mini)
    env.reset(seed=4)
    env.step(20)
    twin = copy.deepcopy(env)
    right = twin.game.truth.answer
    assert write(twin, f"<answer> {right} </answer>")[1] == 1.0
    assert env.seat.trajectory is not None
    assert not env.seat.over
    assert write(env, "<answer> nothing </answer>")[1] == 0.0
    assert twin.game.solver_reward == 1.0
    assert twin.rules is env.rules, "neither corpus nor index is copied"


def test_infos_are_plain_and_the_same_for_the_same_play(mini: MiniWorld) -> None:
    def told() -> list[Any]:
        env = ssp_env.SolverEnv(world=mini)
        infos = [env.reset(seed=2)[1]]
        script = by_role(propose(1), solve)
        while not env.seat.over:
            assert env.seat.trajectory is not None
            for token in env.rules.tokenizer.encode(str(script(env.seat.trajectory))):
                infos.append(env.step(token)[4])
        return infos

    first, second = told(), told()
    for info, again in zip(first, second, strict=True):
        assert info.keys() == again.keys()
        for name, value in info.items():
            assert isinstance(value, str | int | float | tuple | np.ndarray), name
            assert np.array_equal(value, again[name])


def test_a_document_search_error_of_ones_own_turn_truncates(mini: MiniWorld) -> None:
    class Dead:
        def search(self, queries: Any, k: int) -> list[list[Document]]:
            raise ServiceError("search", "down")

    env = ssp_env.SolverEnv(questions=mini.questions(0, 2), world=mini, retriever=Dead())
    env.reset(seed=1)
    assert write(env, "<search> mentor </search>")[1:4] == (0.0, False, True)
    assert env.seat.info["outcome"] == "void"
    truth = GroundTruth("x", "Nobody")
    env.reset(options={"question": Question("q", "who ?", (truth.answer,), "1")})
    assert env.seat.info["outcome"] == "pending"
