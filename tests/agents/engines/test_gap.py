"""Engine and learner compared: engines that are wrong on purpose, and a frozen partner."""

from __future__ import annotations

import numpy as np
import pytest
from engine_tests import scored_by
from playful import new_round, playful_model

from ssp_agents.config import LearningConfig
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.gap import MOST_NATS, MOST_ROWS, compared_rows, measure
from ssp_agents.engines.opening import Partnered
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.rollout import play
from ssp_env.errors import ServiceError
from ssp_env.game.record import record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules

ROLES = ("proposer", "solver")


def test_an_engine_passes_with_its_own_weights_and_names_the_worst_token_with_others(
    played: Round, engine: TransformersEngine
) -> None:
    tokenizer = played.rules.tokenizer
    rows = compared_rows([record_game(game, played.rules) for game in played.games])
    assert len(rows) == MOST_ROWS
    gap = measure(rows, scored_by(engine.model), tokenizer)
    assert gap.tokens == sum(row.tokens for row in rows)
    assert gap.mean <= gap.largest < 1e-4
    gap.check()

    score = scored_by(playful_model(1).eval())
    gap, learner = measure(rows, score, tokenizer), score(rows)
    apart = np.abs(np.concatenate([row.logprobs[row.mask > 0] for row in rows]) - learner)
    assert gap.mean == pytest.approx(apart.mean(), rel=1e-5)
    worst = int(np.argmax(apart))
    token = np.concatenate([row.ids[row.mask > 0] for row in rows])[worst]
    assert gap.worst[0].startswith(f"token {token} {tokenizer.decode([int(token)])!r} at ")
    with pytest.raises(ServiceError, match=r"engine: .*a run ends beyond 0\.05.*token \d+"):
        gap.check()


@pytest.mark.parametrize("learning", ROLES)
def test_each_role_is_written_by_its_own_policy(
    learning: str, rules: Rules, stop: StopRule, engine: TransformersEngine
) -> None:
    models = {"policy": engine.model, "partner": playful_model(1).eval()}
    partner = TransformersEngine(models["partner"], rules.tokenizer, stop)
    plays = LearningConfig(learning_roles=(learning,), partner="its directory").plays

    together = Partnered(engine, partner, plays)
    games = play(new_round(rules), together, temperature=0.8).games
    assert together.running == engine.running == partner.running == 0

    # The log-probabilities that a role's tokens were sampled with are those of one policy alone.
    for role in ROLES:
        rows = compared_rows([record_game(game, rules) for game in games], role.__eq__)
        gaps = {n: measure(rows, scored_by(lm), rules.tokenizer) for n, lm in models.items()}
        mine, other = ("policy", "partner") if role == learning else ("partner", "policy")
        assert gaps[mine].largest < 1e-4
        assert gaps[other].mean > MOST_NATS
