"""What an error of the set-up tells to do: it names the setting by which it is done, and doing it
works."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ssp_env
from ssp_env.errors import ConfigError, RenderModeError, ServiceError, UsageError
from ssp_env.types import Document


def error_of(make: Callable[[], object]) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        make()
    return error.value


def advised_view(error: ConfigError) -> dict[str, Any]:
    """The view that an error offers."""
    found = re.search(r"view=(\{.*?\})", error.fix)
    assert found is not None, error.fix
    view: dict[str, Any] = ast.literal_eval(found[1])
    return view


# -- the own view of a world -------------------------------------------------------------------


def test_the_worlds_own_view_is_named_and_can_be_switched_off() -> None:
    error = error_of(lambda: ssp_env.env(world="small", tokenizer="bytes"))
    assert error.field == "view.legal_moves"
    assert "the own view of the world 'small'" in error.fix
    env = ssp_env.env(world="small", tokenizer="bytes", view=advised_view(error))
    env.reset(seed=0)
    assert env.observe("proposer")["observation"].shape == (48,)


def test_following_the_advice_on_prompts_works() -> None:
    rules = ssp_env.GameConfig(attempts=2)
    error = error_of(lambda: ssp_env.env(world="small", game=rules))
    assert error.field == "game.prompts"
    assert "choose 'mini', or tokenizer='bytes' with view=" in error.fix
    ssp_env.env(world="small", game=rules, tokenizer="bytes", view=advised_view(error)).reset(
        seed=0
    )
    ssp_env.env(world="small", game=ssp_env.GameConfig(attempts=2, prompts="mini")).reset(seed=0)


def test_where_no_moves_are_masked_no_view_is_advised() -> None:
    error = error_of(lambda: ssp_env.env(world="mini", game=ssp_env.GameConfig()))
    assert error.field == "game.prompts"
    assert "view" not in error.fix
    error = error_of(
        lambda: ssp_env.env(world="mini", tokenizer="bytes", view={"legal_moves": True})
    )
    assert error.field == "view.legal_moves"
    assert "own view" not in error.fix


# -- settings and parts ------------------------------------------------------------------------


class Narrow:
    """Every method that is called with too much."""

    def search(self, queries: Sequence[str]) -> list[list[Document]]:
        raise NotImplementedError

    def judge(self) -> None:
        raise NotImplementedError

    verify = judge


@pytest.mark.parametrize(
    ("setup", "field", "said"),
    [
        ({"judge": "exact"}, "judge", "leave it out for exact match"),
        ({"verifier": "world"}, "verifier", 'game={"verifier": "world"}'),
        ({"proposer_reward": "1-p"}, "proposer_reward", 'game={"proposer_reward": "4p(1-p)"}'),
        ({"game": {"verifier": "openai"}}, "game.verifier", "ssp_env.judge.openai.OpenAIVerifier"),
        ({"retriever": {"ur": "x"}}, "retriever.ur", "did you mean 'url'"),
        ({"retriever": Narrow()}, "retriever", r"it is called with (queries, k)"),
        ({"judge": Narrow()}, "judge", r"it is called with (tasks)"),
        ({"verifier": Narrow()}, "verifier", r"it is called with (tasks)"),
        ({"filters": {"": lambda proposal: False}}, "filters", "not empty"),
        ({"filters": {5: lambda proposal: False}}, "filters", "a string"),
        ({"rules": 5}, "rules", "env.unwrapped.rules"),
        (
            {"world": "mini", "world_options": {"entities": "many"}},
            "world_options.entities",
            "not str",
        ),
        ({"world": "mini", "world_options": {"entities": -1}}, "world_options.entities", "16 to"),
        (
            {"world": "mini", "world_options": {"one_to_many": 1}},
            "world_options.one_to_many",
            "type bool",
        ),
        (
            {
                "world": "files",
                "world_options": {"name": "x", "corpus_path": 5, "answers_path": "a"},
            },
            "world_options.corpus_path",
            "type str | Path",
        ),
        ({"rendermode": "ansi"}, "rendermode", "did you mean 'render_mode'"),
    ],
)
def test_settings_and_parts(setup: dict[str, Any], field: str, said: str) -> None:
    error = error_of(
        lambda: ssp_env.env(**({} if "rules" in setup else {"world": "small"}) | setup)
    )
    assert error.field == field
    assert said in str(error)


def test_whole_numbers_of_numpy_are_world_options_too() -> None:
    world = ssp_env.open_world("small", entities=np.int64(20), seed=np.int32(3))
    assert len(world.corpus) == len(ssp_env.open_world("small", entities=20, seed=3).corpus)


@pytest.mark.parametrize(
    ("door", "name", "meant"),
    [
        (ssp_env.SolverEnv, "question", "questions"),
        (ssp_env.ProposerEnv, "othr", "other"),
        (ssp_env.SolverVectorEnv, "numenvs", "num_envs"),
        (ssp_env.ProposerVectorEnv, "num_env", "num_envs"),
        (ssp_env.TextRole, "rol", "role"),
        (lambda **setup: ssp_env.GameBatch(1, **setup), "numgames", "num_games"),
    ],
)
def test_a_doors_own_keywords_are_offered(door: Callable[..., Any], name: str, meant: str) -> None:
    assert repr(meant) in error_of(lambda: door(world="small", **{name: None})).fix


def test_a_world_in_the_place_of_the_render_mode() -> None:
    with pytest.raises(RenderModeError, match="a world is named as world='small'"):
        ssp_env.env("small")


@pytest.mark.parametrize("questions", [5, "what is it?", iter(())])
def test_questions_are_a_list(questions: Any) -> None:
    error = error_of(lambda: gymnasium.make("ssp/Solver-v0", world="small", questions=questions))
    assert (error.field, error.value) == ("questions", questions)
    assert "a list of Questions" in error.fix
    assert (
        error_of(lambda: ssp_env.TextRole("proposer", world="small", questions=questions)).field
        == "questions"
    )


def test_prompts_of_a_path(tmp_path: Path) -> None:
    for name, text in (
        ("proposer", "{answer}"),
        ("solver", "{question}"),
        ("verifier", "{documents}{question}"),
    ):
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "document.txt").write_text("{text}")
    (tmp_path / "nothing.txt").write_text("?")
    for game in ({"prompts": tmp_path}, ssp_env.GameConfig(prompts=tmp_path)):  # type: ignore[arg-type]
        assert ssp_env.raw_env(
            world="mini", tokenizer="bytes", game=game
        ).rules.config.prompts == str(tmp_path)


# -- calls -------------------------------------------------------------------------------------


def test_no_mask_before_the_first_reset() -> None:
    env = ssp_env.SolverEnv(world="small")
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        env.action_masks()


@pytest.mark.parametrize("written", [[1, 2], [None, [5]]])
def test_a_turn_that_is_no_list(written: Any) -> None:
    batch = ssp_env.GameBatch(2, world="small")
    batch.reset(seed=0)
    with pytest.raises(UsageError, match=f"turn 0 is {written[0]}: a list of token ids is wanted"):
        batch.step(written)


@pytest.mark.parametrize("error", ["err", None, ValueError("err"), ServiceError])
def test_only_a_service_error_voids_games(error: Any) -> None:
    batch = ssp_env.GameBatch(2, world="small")
    turns = batch.reset(seed=0)
    with pytest.raises(UsageError, match=r'wrap it: ServiceError\("engine", str\(error\)\)'):
        batch.void(turns, error)
    assert batch.turns == turns, "nothing was voided"
    batch.void(turns, ServiceError("engine", "err"))
    assert {info["outcome"] for info in batch.infos} == {"void"}
