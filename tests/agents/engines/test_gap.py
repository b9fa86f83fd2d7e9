"""The comparison of engine and learner, with engines that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_tests import scored_by
from playful import playful_model

from agents.config import EngineConfig
from agents.engines.gap import MOST_ROWS, compared_rows, measure
from agents.models import load_model
from ssp_env.errors import ServiceError
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.tokenizers import HuggingFaceTokenizer

BOUND = EngineConfig().max_gap


@pytest.fixture(scope="module")
def games(played: Round) -> list[GameRecord]:
    """Sampled at temperature 0.8."""
    return [record_game(game, played.rules) for game in played.games]


def test_the_engine_of_this_package_passes(
    games: list[GameRecord], model_dir: Path, tokenizer: HuggingFaceTokenizer
) -> None:
    rows = compared_rows(games)
    assert len(rows) == MOST_ROWS
    gap = measure(rows, scored_by(load_model(model_dir)), tokenizer)
    assert gap.tokens == sum(row.tokens for row in rows)
    assert gap.mean <= gap.largest < 1e-4
    gap.check(BOUND)


def perturbed_rotary() -> Any:
    """The policy, with positions that count twice."""
    model = playful_model().eval()
    model.model.rotary_emb.inv_freq *= 2.0
    return model


@pytest.mark.parametrize(
    "wrong", [lambda: playful_model(1).eval(), perturbed_rotary], ids=["weights", "rotary"]
)
def test_an_engine_that_computes_something_else_is_named_with_its_tokens(
    wrong: Callable[[], Any],
    games: list[GameRecord],
    tokenizer: HuggingFaceTokenizer,
) -> None:
    rows = compared_rows(games)
    gap = measure(rows, scored_by(wrong()), tokenizer)
    assert gap.mean > BOUND

    # The first one that is named is the one that is furthest apart.
    learner = scored_by(wrong())(rows)
    engine = np.concatenate([row.logprobs[row.mask > 0] for row in rows])
    worst = int(np.argmax(np.abs(engine - learner)))
    token = np.concatenate([row.ids[row.mask > 0] for row in rows])[worst]
    assert gap.worst[0].startswith(f"token {token} {tokenizer.decode([int(token)])!r} at ")
    assert f"engine {engine[worst]:.3f}, learner {learner[worst]:.3f}" in gap.worst[0]
    with pytest.raises(ServiceError, match=r"engine: .*engine.max_gap is 0\.05.*: token \d+"):
        gap.check(BOUND)
    gap.check(gap.mean * 1.01)
