"""The transformers engine: what every engine promises, and what it alone does. Engine and learner
compared: engines that are wrong on purpose, and a frozen partner."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from engine_tests import (
    STOPS,
    Conversation,
    EngineTests,
    finish,
    made,
    requests,
    scored_by,
    words,
)
from playful import new_batch, playful_model

from ssp_agents.config import EngineConfig, LearningConfig
from ssp_agents.engines import transformers_engine
from ssp_agents.engines.base import Engine, StopRule, Turn, generate
from ssp_agents.engines.gap import MOST_NATS, MOST_ROWS, compared_rows, measure
from ssp_agents.engines.opening import ByRole, open_engine
from ssp_agents.engines.sampling import sample
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.rollout import play
from ssp_env.errors import ModelError, ServiceError
from ssp_env.game.batch import GameBatch
from ssp_env.game.record import record_game
from ssp_env.game.rules import Rules
from ssp_env.tokenizers.base import Tokenizer


class TestTransformersEngine(EngineTests):
    def engine(
        self, lm: Any, tokenizer: Tokenizer, stop: StopRule, dtype: str = "float32"
    ) -> Engine:
        # A model of its own: tests of weights change them in place.
        twin = deepcopy(lm)
        # As each is served: the tiny policy by eager attention, others by the fused one.
        twin.set_attn_implementation("eager" if lm.config.model_type == "lfm2" else "sdpa")
        return open_engine(EngineConfig(dtype=dtype), "", tokenizer, stop, model=twin)


def engine_for(lm: Any, stops: frozenset[int] = STOPS) -> TransformersEngine:
    return TransformersEngine(lm, words(), StopRule(stops, ()))


def test_a_call_that_breaks_leaves_no_half_written_cache() -> None:
    lm = made("lfm2", 2)
    engine = engine_for(lm)
    talk = Conversation(lm, engine)
    talk.join(*range(3))
    talk.turn(range(3))
    calls = iter(range(3))

    def fail(*_: object) -> None:
        if next(calls) == 2:
            raise RuntimeError("out of memory")

    hook = lm.model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        talk.turn(range(3))
    hook.remove()
    talk.turn(range(3))


@pytest.mark.parametrize(("most", "attention"), [(3, "eager"), (3, "sdpa"), (0, "eager")])
def test_where_memory_runs_out_fewer_rows_run_at_once(most: int, attention: str) -> None:
    """Their tokens stay the same, those that were sampled before included. A GPU and the CPU have
    no room in turn."""
    lm, asked = made("qwen2"), requests(12, room=20)
    lm.set_attn_implementation(attention)
    expected = {r.key: generate(engine_for(lm), [r])[0].ids for r in asked}
    sizes: list[int] = []

    def small(_: object, __: object, kwargs: dict[str, Any]) -> None:
        sizes.append(len(kwargs["input_ids"]))
        if sizes[-1] > most and len(sizes) % 2:
            raise torch.OutOfMemoryError("no room")
        if sizes[-1] > most:
            torch.empty(1 << 50)

    engine = engine_for(lm)
    engine.submit(asked)
    found = {key: g.ids for _ in range(4) for key, g in engine.step()}
    hook = lm.model.register_forward_pre_hook(small, with_kwargs=True)
    if most:
        assert found | finish(engine) == expected
        assert max(sizes) > most >= max(sizes[4:])
    else:
        with pytest.raises(ModelError, match=r"even alone: lower game\.max_prompt_tokens"):
            finish(engine)
        assert engine.running == 0
    hook.remove()


def test_where_memory_runs_out_in_the_sampler_tokens_stay_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm, asked, calls = made("qwen2"), requests(6, room=20), count()
    expected = {r.key: generate(engine_for(lm), [r])[0].ids for r in asked}

    def failing(logits: torch.Tensor, turns: Sequence[Turn]) -> tuple[torch.Tensor, torch.Tensor]:
        sampled = sample(logits, turns)
        if next(calls) == 3:
            raise torch.OutOfMemoryError("no room")
        return sampled

    monkeypatch.setattr(transformers_engine, "sample", failing)
    engine = engine_for(lm)
    engine.submit(asked)
    assert finish(engine) == expected


def test_weights_that_are_no_numbers_are_an_outage() -> None:
    lm = made("qwen2")
    engine = engine_for(lm)
    broken = {name: tensor * float("nan") for name, tensor in lm.state_dict().items()}
    engine.update_weights(broken, 7)
    with pytest.raises(ServiceError, match=r"engine: the weights \(version 7\)"):
        generate(engine, requests(3))
    assert engine.running == 0


# -- engine against learner --------------------------------------------------------------------

ROLES = ("proposer", "solver")


def test_an_engine_passes_with_its_own_weights_and_names_the_worst_token_with_others(
    played: GameBatch, engine: TransformersEngine
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
    token = np.concatenate([row.ids[row.mask > 0] for row in rows])[int(np.argmax(apart))]
    with pytest.raises(ServiceError, match=rf"a run ends beyond 0\.05.*token {token} "):
        gap.check()


@pytest.mark.parametrize("learning", ROLES)
def test_each_role_is_written_by_its_own_policy(
    learning: str, rules: Rules, stop: StopRule, engine: TransformersEngine
) -> None:
    models = {"policy": engine.model, "partner": playful_model(1).eval()}
    partner = TransformersEngine(models["partner"], rules.tokenizer, stop)
    plays = LearningConfig(learning_roles=(learning,), partner="its directory").plays
    engines = {"policy": engine, "partner": partner}

    together = ByRole(engines, lambda role: "policy" if plays(role) else "partner")
    games = play(new_batch(rules), together, temperature=0.8).games
    assert together.running == engine.running == partner.running == 0

    # The log-probabilities that a role's tokens were sampled with are those of one policy alone.
    for role in ROLES:
        rows = compared_rows([record_game(game, rules) for game in games], role.__eq__)
        gaps = {n: measure(rows, scored_by(lm), rules.tokenizer) for n, lm in models.items()}
        mine, other = ("policy", "partner") if role == learning else ("partner", "policy")
        assert gaps[mine].largest < 1e-4
        assert gaps[other].mean > MOST_NATS
