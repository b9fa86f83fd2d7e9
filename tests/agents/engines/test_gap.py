"""Engine and learner compared: engines that are wrong on purpose, and a frozen partner."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_tests import scored_by
from playful import GAME, WORLD, make_rules, new_round, playful_model

from agents.config import EngineConfig, LearningConfig
from agents.engines.base import StopRule
from agents.engines.gap import MOST_ROWS, compared_rows, measure
from agents.engines.opening import Partnered, check_same_tokens
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model
from agents.rollout import play
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.config import GameConfig
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.mini import MiniWorld

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


@pytest.mark.parametrize("wrong", ["weights", "rotary"])
def test_an_engine_that_computes_something_else_is_named_with_its_tokens(
    wrong: str, games: list[GameRecord], tokenizer: HuggingFaceTokenizer
) -> None:
    """Other weights, or positions that count twice."""
    model = playful_model(int(wrong == "weights")).eval()
    if wrong == "rotary":
        model.model.rotary_emb.inv_freq *= 2.0
    rows, score = compared_rows(games), scored_by(model)
    gap = measure(rows, score, tokenizer)
    assert gap.mean > BOUND

    # The first one that is named is the one that is furthest apart.
    learner = score(rows)
    engine = np.concatenate([row.logprobs[row.mask > 0] for row in rows])
    worst = int(np.argmax(np.abs(engine - learner)))
    token = np.concatenate([row.ids[row.mask > 0] for row in rows])[worst]
    assert gap.worst[0].startswith(f"token {token} {tokenizer.decode([int(token)])!r} at ")
    assert f"engine {engine[worst]:.3f}, learner {learner[worst]:.3f}" in gap.worst[0]
    with pytest.raises(ServiceError, match=r"engine: .*engine.max_gap is 0\.05.*: token \d+"):
        gap.check(BOUND)
    gap.check(gap.mean * 1.01)


ROLES = ("proposer", "solver")


def authors(
    records: list[GameRecord], models: dict[str, Any], tokenizer: HuggingFaceTokenizer
) -> dict[str, str]:
    """By role, which model gives its tokens the log-probabilities that they were sampled with."""
    found = {}
    for role in ROLES:
        rows = compared_rows(records, lambda written, role=role: written == role)
        gaps = {name: measure(rows, scored_by(lm), tokenizer) for name, lm in models.items()}
        found[role] = min(gaps, key=lambda name: gaps[name].mean)
        assert gaps[found[role]].largest < 1e-4
        assert all(gap.mean > BOUND for name, gap in gaps.items() if name != found[role])
    return found


@pytest.mark.parametrize("learning", ROLES)
def test_each_role_is_written_by_its_own_policy(
    learning: str, model_dir: Path, tokenizer: HuggingFaceTokenizer
) -> None:
    rules = make_rules(MiniWorld(**WORLD), tokenizer, GameConfig(**GAME))
    models = {"policy": load_model(model_dir), "partner": playful_model(1).eval()}
    stop = StopRule.of(rules.config, tokenizer)
    policy, partner = (TransformersEngine(lm, tokenizer, stop) for lm in models.values())
    plays = LearningConfig(learning_roles=(learning,), partner="its directory").plays

    together = Partnered(policy, partner, plays)
    games = play(new_round(rules), together, temperature=0.8).games

    assert together.running == policy.running == partner.running == 0
    written = authors([record_game(game, rules) for game in games], models, tokenizer)
    assert written == {role: "policy" if role == learning else "partner" for role in ROLES}


def test_a_partner_of_other_tokens_is_refused(model_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(model_dir, other)
    text = (other / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(text.replace("rival", "rivel"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        check_same_tokens(other, model_dir)
    assert caught.value.field == "learning.partner"
