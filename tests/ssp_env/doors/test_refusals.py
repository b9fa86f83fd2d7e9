"""Bad input behind every door: an error that names field, value and fix, before any play.

One test of wording per kind of error. Fields of the configs are in game/test_parts.py, files
of a world in worlds/test_files.py, servers in judge/test_openai.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ssp_env
from ssp_env.errors import (
    ConfigError,
    RenderModeError,
    ServiceError,
    UsageError,
)
from ssp_env.judge.exact import F1Judge
from ssp_env.worlds.mini import SmallWorld

SMALL = SmallWorld()
QUESTION = SMALL.questions(0, 1)[0]

DOORS: dict[str, Callable[..., Any]] = {
    "env": ssp_env.env,
    "raw_env": ssp_env.raw_env,
    "SolverEnv": ssp_env.SolverEnv,
    "ProposerEnv": ssp_env.ProposerEnv,
    "SolverVectorEnv": lambda **setup: ssp_env.SolverVectorEnv(2, **setup),
    "ProposerVectorEnv": lambda **setup: ssp_env.ProposerVectorEnv(2, **setup),
    "GameBatch": lambda **setup: ssp_env.GameBatch(2, **setup),
    "TextGame": ssp_env.TextGame,
    "TextRole": ssp_env.TextRole,
}
"""Every door, from a setup."""


def raw(**setup: Any) -> ssp_env.SearchSelfPlayEnv:
    return ssp_env.raw_env(**{"world": SMALL, **setup})


def refused(make: Callable[[], object], field: str, *said: str) -> None:
    """A ``ConfigError`` about this field that says all of this."""
    with pytest.raises(ConfigError) as error:
        make()
    assert error.value.field == field
    for words in said:
        assert words in str(error.value)


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_keyword(door: str) -> None:
    refused(
        lambda: DOORS[door](world=SMALL, retreiver=None), "retreiver", "did you mean 'retriever'"
    )


@pytest.mark.parametrize(
    ("setup", "field", "said"),
    [
        ({"world": "minni"}, "world", "did you mean 'mini'"),
        ({"tokenizer": "byts"}, "tokenizer", "'bytes'"),
        ({"game": {"atempts": 1}}, "game.atempts", "did you mean 'attempts'"),
        (
            {"world": "small", "world_options": {"entitis": 20}},
            "world_options.entitis",
            "did you mean 'entities'",
        ),
        ({"world": "files"}, "world_options.name", "world_options.corpus_path"),
        ({"search": {"servr": "x"}}, "search.servr", "did you mean 'server'"),
    ],
)
def test_unknown_names(setup: dict[str, Any], field: str, said: str) -> None:
    refused(lambda: raw(**setup), field, said)


def test_an_unknown_render_mode() -> None:
    for door in ("env", "raw_env", "SolverEnv", "ProposerEnv"):
        refused(
            lambda door=door: DOORS[door](world=SMALL, render_mode="rgb"), "render_mode", "'ansi'"
        )
    with pytest.raises(RenderModeError, match="a world is named as world='small'"):
        ssp_env.env("small")


# -- wrong types and ranges --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "field", "said"),
    [
        ({"world": 5}, "world", "give a World"),
        ({"world_options": {"entities": 20}}, "world_options", "to the world itself"),
        ({"tokenizer": 5}, "tokenizer", "give a Tokenizer"),
        ({"game": {"attempts": "x"}}, "game.attempts", "integer"),
        ({"view": {"window": None, "one_hot": True}}, "view.one_hot", "view.window"),
        ({"retriever": 5}, "retriever", "give a"),
        ({"proposer_reward": "1-p"}, "proposer_reward", "give a function"),
        ({"judge": F1Judge}, "judge", "give an object with a judge()"),
        ({"game": {"verifier": "openai"}}, "game.verifier", "ssp_env.judge.openai.OpenAIVerifier"),
        ({"filters": {"unverified": lambda p: False}}, "filters", "reason code is taken"),
    ],
)
def test_parts_that_are_none(setup: dict[str, Any], field: str, said: str) -> None:
    refused(lambda: raw(**setup), field, said)


# -- answers: known when the game is set up -----------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_a_world_without_answers(door: str) -> None:
    world = SmallWorld()
    world.answers = ()
    if door not in ("SolverEnv", "SolverVectorEnv", "TextRole"):
        refused(
            lambda: DOORS[door](world=world), "world.answers", "give it some, or play questions"
        )
    else:
        DOORS[door](world=world, questions=[QUESTION])


# -- calls -------------------------------------------------------------------------------------


ACTIONS: dict[str, Any] = {
    "raw_env": 5,
    "SolverEnv": 5,
    "ProposerEnv": 5,
    "SolverVectorEnv": [5, 5],
    "ProposerVectorEnv": [5, 5],
    "GameBatch": [[5], [5]],
    "TextGame": "what",
    "TextRole": "what",
}
"""A proper action of each door."""


@pytest.mark.parametrize("door", ACTIONS)
def test_a_step_before_reset(door: str) -> None:
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        DOORS[door](world=SMALL).step(ACTIONS[door])


@pytest.mark.parametrize("door", list(ACTIONS)[:6])
@pytest.mark.parametrize("token", [-1, 10**6])
def test_an_action_outside_the_space(door: str, token: int) -> None:
    env = DOORS[door](world=SMALL)
    env.reset(seed=0)
    bad: Any = [[token]] * 2 if door == "GameBatch" else [token] * 2 if "Vector" in door else token
    with pytest.raises(UsageError):
        env.step(bad)


@pytest.mark.parametrize("door", ["SolverEnv", "ProposerEnv", "TextGame", "TextRole"])
def test_a_step_after_the_end(door: str) -> None:
    env = DOORS[door](world=SMALL)
    env.reset(seed=0)
    over = False
    while not over:
        end = "" if "Text" in door else env.rules.tokenizer.eos_id
        over = any(env.step(end)[2:4])
    with pytest.raises(UsageError, match=r"the game is over: call reset\(\)"):
        env.step(ACTIONS[door])
    env.reset()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("answer", "options are a mapping, not str"),
        ({"answr": "x"}, r"options\['answr'\]: there is no such option; did you mean 'answer'"),
        ({"answer": 5}, r"options\['answer'\] is a string or a GroundTruth, not int"),
        ({"answer": " "}, r"options\['answer'\] = ' ': it is blank"),
        ({"answer": "Zebra"}, "the tokenizer has no tokens"),
        ({"answer": "Rome", "question": QUESTION}, "not about answer and question"),
    ],
)
def test_bad_options(options: Any, said: str) -> None:
    for door in ("raw_env", "SolverEnv", "ProposerVectorEnv", "TextGame"):
        with pytest.raises(UsageError, match=said):
            DOORS[door](world=SMALL).reset(seed=0, options=options)


@pytest.mark.parametrize("error", [ValueError("err"), ServiceError])
def test_only_a_service_error_voids_games(error: Any) -> None:
    batch = ssp_env.GameBatch(2, world="small")
    turns = batch.reset(seed=0)
    with pytest.raises(UsageError, match=r'wrap it: ServiceError\("engine", str\(error\)\)'):
        batch.void(turns, error)
    assert batch.turns == turns, "nothing was voided"

    batch.void(turns, ServiceError("engine", "err"))
    assert {info["outcome"] for info in batch.infos} == {"void"}
