"""Advice in errors of the set-up: following it works."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ssp_env
from ssp_env.errors import ConfigError


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
    assert "disable the default view of the world 'small'" in error.fix
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


def test_whole_numbers_of_numpy_are_world_options_too() -> None:
    world = ssp_env.open_world("small", entities=np.int64(20), seed=np.int32(3))
    assert len(world.corpus) == len(ssp_env.open_world("small", entities=20, seed=3).corpus)


@pytest.mark.parametrize("questions", [5, "what is it?"])
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
