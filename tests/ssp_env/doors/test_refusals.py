"""Bad input behind every door: an error that names field, value and fix, before any play.

One test per kind of error. Fields of the configs are in game/test_parts.py, files of a world in
worlds/test_files.py, servers in judge/test_openai.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ssp_env
from ssp_env.doors.rllib import SearchSelfPlayMultiAgentEnv
from ssp_env.errors import ConfigError, RenderModeError, UsageError
from ssp_env.judge.judges import F1Judge
from ssp_env.worlds.mini import SmallWorld

SMALL = SmallWorld()
QUESTION = SMALL.questions(0, 1)[0]

DOORS: dict[str, tuple[Callable[..., Any], Any]] = {
    "env": (ssp_env.env, 5),
    "raw_env": (ssp_env.raw_env, 5),
    "rllib": (SearchSelfPlayMultiAgentEnv, {"proposer": 5}),
    "SolverEnv": (ssp_env.SolverEnv, 5),
    "ProposerEnv": (ssp_env.ProposerEnv, 5),
    "SolverVectorEnv": (lambda **setup: ssp_env.SolverVectorEnv(2, **setup), [5, 5]),
    "ProposerVectorEnv": (lambda **setup: ssp_env.ProposerVectorEnv(2, **setup), [5, 5]),
    "GameBatch": (lambda **setup: ssp_env.GameBatch(2, **setup), [[5], [5]]),
    "TextGame": (ssp_env.TextGame, "what"),
    "TextRole": (ssp_env.TextRole, "what"),
}
"""Every door, from a setup, and a proper action of it."""
OWN = [name for name in DOORS if name != "env"]
"""Doors whose calls no wrapper checks."""


def made(door: str, **setup: Any) -> Any:
    setup = {"world": SMALL, **setup}
    return DOORS[door][0](setup) if door == "rllib" else DOORS[door][0](**setup)


def without_answers() -> SmallWorld:
    world = SmallWorld()
    world.answers = ()
    return world


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_what_is_wrong(door: str) -> None:
    with pytest.raises(ConfigError, match=r"retreiver = None.*did you mean 'retriever'"):
        made(door, retreiver=None)
    with pytest.raises(ConfigError, match=r"world.answers = .*give it some, or play questions"):
        made(door, world=without_answers())


RULES = ssp_env.raw_env(world=SMALL).rules


@pytest.mark.parametrize(
    ("setup", "field", "said"),
    [
        ({"world": "minni"}, "world", "did you mean 'mini'"),
        ({"world_options": {"entities": 20}}, "world_options", "to the world itself"),
        ({"game": {"atempts": 1}}, "game.atempts", "did you mean 'attempts'"),
        ({"game": {"verifier": "openai"}}, "game.verifier", "ssp_env.judge.openai.OpenAIVerifier"),
        ({"judge": F1Judge}, "judge", "give an object with a judge()"),
        ({"filters": {"unverified": lambda p: False}}, "filters", "reason code is taken"),
        ({"search": "x", "retriever": RULES.retriever}, "search", "leave one out"),
        ({"rules": RULES, "game": {}}, "game", "the rules are ready already"),
        ({"world": "small", "tokenizer": "bytes"}, "view.legal_moves", "one_hot"),
    ],
)
def test_settings_that_cannot_work(setup: dict[str, Any], field: str, said: str) -> None:
    if "rules" not in setup:
        setup = {"world": SMALL, **setup}
    with pytest.raises(ConfigError) as error:
        ssp_env.raw_env(**setup)
    assert error.value.field == field
    assert said in str(error.value)


def test_an_unknown_render_mode() -> None:
    for make in (ssp_env.env, ssp_env.SolverEnv):
        with pytest.raises(RenderModeError, match="'ansi'"):
            make(world=SMALL, render_mode="rgb")  # type: ignore[operator]


def test_questions_are_for_a_solver() -> None:
    world = without_answers()
    for make in (ssp_env.SolverEnv, ssp_env.SolverVectorEnv, ssp_env.TextRole):
        make(world=world, questions=[QUESTION])
        with pytest.raises(ConfigError, match="at least one Question"):
            make(world=world, questions=[])
    with pytest.raises(ConfigError, match="only a solver is given questions"):
        ssp_env.TextRole("proposer", world=world, questions=[QUESTION])


# -- calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", OWN)
def test_steps_at_the_wrong_time(door: str) -> None:
    env, action = made(door), DOORS[door][1]
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        env.step(action)
    if "Vector" in door or door == "GameBatch":  # one begins anew, the other takes no turn
        return

    env.reset(seed=0)
    end = "" if "Text" in door else env.rules.tokenizer.eos_id
    while env.game.outcome == "pending":
        env.step({"proposer": end} if door == "rllib" else end)
    env.agents = []  # after PettingZoo's dead steps
    with pytest.raises(UsageError, match=r"the game is over: call reset\(\)"):
        env.step(action)
    env.reset()


@pytest.mark.parametrize("door", [name for name in OWN if "Text" not in name])
def test_an_action_outside_the_space(door: str) -> None:
    env = made(door)
    for token in (-1, 10**6):
        bad: Any = {"proposer": token} if door == "rllib" else token
        bad = [token] * 2 if "Vector" in door else [[token]] * 2 if door == "GameBatch" else bad
        env.reset(seed=0)
        with pytest.raises(UsageError):
            env.step(bad)
    if door == "rllib":
        with pytest.raises(UsageError, match="the turn of 'proposer'"):
            env.step({"solver": 5})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"answr": "x"}, "give an answer"),
        ({"answer": "Rome", "question": QUESTION}, "give an answer .* or neither"),
        ({"answer": " "}, r"options\['answer'\] = ' ': it is blank"),
        ({"answer": "Zebra"}, "the tokenizer has no tokens"),
    ],
)
def test_bad_options(options: Any, said: str) -> None:
    for door in ("raw_env", "SolverEnv", "ProposerVectorEnv", "TextGame"):
        with pytest.raises(UsageError, match=said):
            made(door).reset(seed=0, options=options)
    with pytest.raises(UsageError, match="nothing to propose"):
        made("ProposerEnv").reset(seed=0, options={"question": QUESTION})
