"""The transformers engine: what every engine promises, and what it alone does."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from engine_tests import (
    SIZES,
    STOPS,
    Conversation,
    EngineTests,
    finish,
    made,
    model,
    requests,
    words,
)
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import (
    GraniteConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.auto import AutoModelForCausalLM

from agents.config import EngineConfig
from agents.engines.base import Engine, Request, StopRule, generate
from agents.engines.opening import open_engine
from agents.engines.transformers_engine import TransformersEngine
from ssp_env.errors import ModelError, ServiceError
from ssp_env.game.config import GameConfig
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer


class TestTransformersEngine(EngineTests):
    @pytest.fixture(params=["lfm2", "qwen2"])
    def name(self, request: pytest.FixtureRequest) -> str:
        """One of each kind of layer: Llama's are Qwen's without their biases."""
        return str(request.param)

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


# -- the cache ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lfm2", "qwen3"])
def test_equal_sequences_are_read_once_and_go_their_own_ways(name: str) -> None:
    lm = model(name)
    talk = Conversation(lm, engine_for(lm))
    fed: list[int] = []
    hook = lm.base_model.register_forward_pre_hook(
        lambda _, __, kwargs: fed.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    talk.join(0, 5)
    talk.rows.update({key: list(talk.rows[0]) for key in (1, 2, 3)})
    first = talk.turn([0, 1, 5, 2])
    assert fed[0] == 2
    assert len({tuple(generation.ids) for generation in first}) > 2, (
        "equal rows must not sample the same tokens"
    )
    talk.turn([2, 0, 1])
    talk.rows[1] = list(talk.rows[2])  # two known rows become equal; one of them is read anew
    talk.rows[7] = list(talk.rows[0])  # a new row equals a known one
    fed.clear()
    talk.turn([7, 2, 0, 1])
    assert fed[0] == 2
    talk.turn([0, 1, 2, 7])
    hook.remove()


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


@pytest.mark.parametrize("most", [3, 0])
def test_where_memory_runs_out_fewer_rows_run_at_once(most: int) -> None:
    """Their tokens stay the same, those that were sampled before included. A GPU and the CPU have
    no room in turn."""
    lm, asked = made("qwen2"), requests(12, room=20)
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


def test_weights_that_are_no_numbers_are_an_outage() -> None:
    lm = made("qwen2")
    engine = engine_for(lm)
    broken = {name: tensor * float("nan") for name, tensor in lm.state_dict().items()}
    engine.update_weights(broken, 7)
    with pytest.raises(ServiceError, match=r"engine: the weights \(version 7\)"):
        generate(engine, requests(3))
    assert engine.running == 0


# -- architectures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (MistralConfig(**SIZES, sliding_window=8), "sliding_attention"),
        (
            MambaConfig(vocab_size=60, hidden_size=16, state_size=4, num_hidden_layers=1),
            "linear_attention",
        ),
        (GraniteConfig(**SIZES, logits_scaling=2.0), "logits_scaling"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.model_type,
)
def test_an_architecture_that_would_be_wrong_silently_is_refused(config: Any, what: str) -> None:
    with pytest.raises(ModelError, match=rf"{config.model_type}.*{what}"):
        engine_for(AutoModelForCausalLM.from_config(config))


# -- stop strings ------------------------------------------------------------------------------


def byte_tokenizer(*special: str) -> HuggingFaceTokenizer:
    """One token a byte, then the end token, then the given tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<eos>", *special])
    return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>"))


def reciting(text: str, tokenizer: HuggingFaceTokenizer, size: int) -> Any:
    """A model whose likeliest next token depends on the last one alone: it recites a text of
    different characters."""
    one = dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), 1)
    sizes = {"head_dim": 8, "vocab_size": size, "hidden_size": size}
    config = LlamaConfig(**{**SIZES, **one, **sizes})
    lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if parameter.ndim >= 2:
                parameter.zero_()
            if "embed" in name:
                parameter.copy_(torch.eye(size))
        for now, then in pairwise(tokenizer.encode(text)):
            lm.lm_head.weight[then, now] = 5.0
    return lm


def test_a_tag_that_has_a_token_but_is_spelled_out_stops() -> None:
    tokenizer, plain = byte_tokenizer("</search>"), byte_tokenizer()
    (tag,) = tokenizer.encode("</search>")
    stop = StopRule.of(GameConfig(), tokenizer)
    assert tag in stop.token_ids
    assert b"</search>" in stop.strings

    engine = TransformersEngine(
        reciting("x</search>", plain, tokenizer.vocab_size), tokenizer, stop
    )
    (generation,) = generate(engine, [Request(0, tokenizer.encode("x"), 20, 0.0, 0)])
    assert generation.ids == plain.encode("</search>")
