"""Architectures by truth: tiny random models of many families, cached play, scoring and gradients
beside their own plain forward pass; and what is refused, with its figure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from engine_tests import Conversation, words
from packaging.version import Version
from torch import Tensor
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    causal_mask_function,
    eager_mask,
    sdpa_mask,
)

from benchmarks.tiny_models import VOCABULARY, tiny_model
from ssp_agents import causal_lm
from ssp_agents.architecture import Plain, can_share_prefix, check_scoring
from ssp_agents.causal_lm import head_logits, plain_logits, states
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.ragged_cache import RaggedCache
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import adapt, round_parameters
from ssp_agents.scoring import common_prefix, token_scores
from ssp_env.errors import ModelError

WINDOWS = ("mistral", "gemma2", "gemma3_text", "gpt_oss", "olmo3", "llama4_text")
SCALED = ("cohere", "granite")
RECURRENT = ("mamba", "mamba2", "qwen3_next", "qwen3_5_text", "jamba", "falcon_h1")
"""Models that go on from a state at several tokens only since `transformers` 5.21."""
STATES = ("lfm2", *RECURRENT)
OTHERS = ("deepseek_v32", "gemma3n_text", "bloom", "bart", "inkling_text", "mixtral")
FAMILIES = (*WINDOWS, *SCALED, *STATES, *OTHERS)
ENCODERS = (
    *("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie"),
    *("megatron-bert", "rembert", "roberta", "roc_bert", "roformer", "xlm-roberta"),
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()


def engine_of(lm: Any) -> TransformersEngine:
    return TransformersEngine(lm, words(), StopRule(frozenset(range(5)), ()))


REFUSED = RECURRENT if Version(transformers.__version__) < Version("5.21") else ()


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in REFUSED])
def test_cached_play_of_several_turns_is_the_plain_forward_pass(name: str) -> None:
    """Rows join, leave, idle and come back; texts are several windows and chunks long."""
    lm = tiny_model(name)
    engine = engine_of(lm)
    assert engine.passes.checked < 1e-4
    talk = Conversation(lm, engine)
    talk.join(*range(4))
    talk.turn([0, 1, 2, 3])
    talk.turn([3, 1])
    talk.join(4)
    talk.turn([4, 0, 3])
    talk.rows[1] = [*talk.rows[0]]  # equal texts, which are read once
    talk.turn([1, 0, 2], 0.5)


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_and_their_gradients_are_the_plain_forward_pass_s(name: str) -> None:
    """In chunks that are computed again for the backward pass."""
    lm = tiny_model(name)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, VOCABULARY, (2, 14), generator=generator)
    mask = torch.zeros(2, 14)
    mask[0, 5:12], mask[1, 3:8] = 1, 1
    ids[1, 8:] = 0
    weights = torch.randn(12, generator=generator)

    scores = token_scores(lm, ids, mask, 0.8, VOCABULARY, 5 * VOCABULARY, entropies=False).logprobs
    own = torch.cat([plain_scores(lm, ids[0], mask[0]), plain_scores(lm, ids[1, :8], mask[1, :8])])
    torch.testing.assert_close(scores, own, rtol=1e-4, atol=1e-4)

    trained = [weight for weight in lm.parameters() if weight.requires_grad]
    found, expected = (
        torch.autograd.grad((weights * values).sum(), trained, allow_unused=True)
        for values in (scores, own)
    )
    for one, two in zip(found, expected, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4 * float(two.abs().max() + 1))


SHARING = ("llama", "qwen2", "qwen3", "mixtral", "granite", "cohere", "bloom")
"""Some of those whose rows go on from one reading of their common prefix."""


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_share_no_prefix(name: str) -> None:
    assert not can_share_prefix(tiny_model(name), VOCABULARY)


@pytest.mark.parametrize("name", SHARING)
def test_a_common_prefix_is_read_once_to_the_same_gradients(name: str) -> None:
    lm = tiny_model(name)
    assert can_share_prefix(lm, VOCABULARY)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, VOCABULARY, (3, 14), generator=generator)
    ids[:, :7] = ids[0, :7]
    mask = torch.zeros(3, 14)
    mask[0, 6:12], mask[1, 9:11], mask[2, 7:] = 1, 1, 1
    assert common_prefix(ids, mask) == 6
    trained = [weight for weight in lm.parameters() if weight.requires_grad]
    passes: list[int] = []
    with counted_tokens(lm, passes):
        found = [
            token_scores(lm, ids, mask, 0.8, VOCABULARY, share_prefix=o) for o in (True, False)
        ]
    assert passes == [6, 3 * 7, 3 * 13]
    torch.testing.assert_close(found[0].logprobs, found[1].logprobs, rtol=1e-4, atol=1e-5)
    one, two = (torch.autograd.grad(f.logprobs.sum(), trained, allow_unused=True) for f in found)
    for a, b in zip(one, two, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * float(b.abs().max() + 1))


@contextmanager
def counted_tokens(lm: Any, passes: list[int]) -> Iterator[None]:
    """Notes the number of tokens of each pass through the embedding."""
    handle = lm.get_input_embeddings().register_forward_hook(
        lambda _, given, __: passes.append(given[0].numel())
    )
    yield
    handle.remove()


def plain_scores(lm: Any, ids: Tensor, mask: Tensor) -> Tensor:
    logprobs = (plain_logits(lm, ids[None])[0, :-1, :VOCABULARY] / 0.8).log_softmax(-1)
    return logprobs.gather(1, ids[1:, None]).squeeze(1)[mask[1:] > 0]


ROUNDED = ("gemma3_text", "qwen3_next", "mixtral", "gpt_oss")


@pytest.mark.parametrize("name", [name for name in ROUNDED if name not in REFUSED])
def test_in_bfloat16_rounding_is_no_reason_to_refuse(name: str) -> None:
    for seed in range(3):
        lm = tiny_model(name, seed=seed)
        round_parameters(lm, torch.bfloat16)
        engine_of(lm)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_model_without_a_causal_mask_is_refused_by_all_in_one_sentence(name: str) -> None:
    lm, said = tiny_model(name), []
    for check in (engine_of, lambda lm: check_scoring(lm, words().vocab_size)):
        with pytest.raises(ModelError, match=r"by [\d.]+ nats .* no causal mask") as refused:
            check(lm)
        said.append(str(refused.value))
    assert said[0] == said[1]


ELSEWHERE = ("rwkv", "recurrent_gemma", "deepseek_v4")


@pytest.mark.parametrize("name", [*ELSEWHERE, *REFUSED])
def test_a_model_that_keeps_its_state_elsewhere_is_refused_by_this_engine_alone(name: str) -> None:
    lm = tiny_model(name)
    assert check_scoring(lm, VOCABULARY) < 1e-4
    with pytest.raises(ModelError, match=rf"{lm.config.model_type}.*cache.*engine\.kind=vllm"):
        engine_of(lm)


def test_a_bert_that_was_made_a_decoder_plays() -> None:
    """Its output layer has a transform of its own."""
    from transformers import BertConfig, BertLMHeadModel

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
    config = BertConfig(**sizes, vocab_size=VOCABULARY, num_hidden_layers=2, is_decoder=True)
    lm = BertLMHeadModel._from_config(config, attn_implementation="eager").eval()
    assert check_scoring(lm, VOCABULARY) < 1e-5
    assert engine_of(lm).passes.checked < 1e-5


def test_what_is_wrong_is_refused_with_its_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that forgets how long its rows are, and an output layer that the learner shortens."""
    with monkeypatch.context() as patch:
        patch.setattr(RaggedCache, "commit", lambda self: None)
        with pytest.raises(ModelError, match=r"mistral: its log-probabilities are [\d.]+ nats"):
            engine_of(tiny_model("mistral"))

    capped = tiny_model("gemma2")
    assert check_scoring(capped, VOCABULARY) < 1e-4
    monkeypatch.setattr(
        "ssp_agents.scoring.head_logits", lambda lm, hidden: lm.get_output_embeddings()(hidden)
    )
    capped.config.final_logit_softcapping = 0.5
    with pytest.raises(ModelError, match="the learner cannot score gemma2"):
        check_scoring(capped, VOCABULARY)


def test_a_model_that_cannot_be_compared_says_so() -> None:
    lm = tiny_model("llama4_text")
    assert Plain.of(lm, VOCABULARY).bound < 1e-2
    lm.add_module("second", lm.model)
    lm._modules["second"] = tiny_model("mistral").model
    with pytest.raises(ModelError, match="does not keep its layers apart"):
        states(lm, torch.tensor([[5, 6]]))


# -- what an upgrade of transformers may take away ---------------------------------------------


@pytest.mark.parametrize("name", ["mistral", "qwen3_next", "gemma3_text"])
def test_canary_models_call_their_cache_what_the_masks_call_it(name: str) -> None:
    assert causal_lm.CACHE in causal_lm._arguments(type(causal_lm._base(tiny_model(name))))


def test_canary_masks_are_made_by_functions_that_are_registered() -> None:
    for name, original in (("eager", eager_mask), ("sdpa", sdpa_mask)):
        made = ALL_MASK_ATTENTION_FUNCTIONS[name]
        asked: dict[str, Any] = {"batch_size": 1, "q_length": 2, "kv_length": 2, "q_offset": 0}
        asked |= {"kv_offset": 0, "dtype": torch.float32, "allow_is_causal_skip": False}
        asked |= {"mask_function": causal_mask_function, "attention_mask": None}
        assert torch.equal(made(**asked), original(**asked)), "outside of an engine's pass"
        with causal_lm._masks_by(torch.tensor([[5, 6]])):
            mask = made(**{**asked, "kv_length": 8})
        visible = mask if mask.dtype == torch.bool else mask == 0
        assert visible.sum(-1).tolist() == [[[6, 7]]]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_canary_models_ask_for_masks_with_a_cache_by_keyword(attention: str) -> None:
    asked: list[int] = []

    class Watched:
        is_sliding = ()

        def get_mask_sizes(self, width: int, layer: int) -> tuple[int, int]:
            asked.append(width)
            return 3, 0

        def get_query_offset(self, layer: int = 0) -> int:
            return 0

        def get_seq_length(self, layer: int = 0) -> int:
            return 0

        def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            return keys, values

    lm = tiny_model("mistral", attention)
    ids = torch.tensor([[5, 6, 7]])
    kept = causal_lm.cached_states(lm, ids, torch.arange(3)[None], Watched())
    torch.testing.assert_close(kept, states(lm, ids), rtol=1e-4, atol=1e-4)
    assert set(asked) == {3}


@pytest.mark.parametrize("name", ["granite", "gemma2", "bert", "bart"])
def test_canary_the_output_layer_takes_states_that_are_given(name: str) -> None:
    """In autocast, with adapters and under inference, and the model is as it was afterwards."""
    lm, ids = tiny_model(name), torch.tensor([[5, 6, 7, 8]])
    layers = dict(lm.named_modules())
    with torch.inference_mode():
        torch.testing.assert_close(head_logits(lm, states(lm, ids)[0]), plain_logits(lm, ids)[0])
    adapt(lm, 2, 0)
    with torch.autocast("cpu", torch.bfloat16):
        made = head_logits(lm, states(lm, ids)[0])
        torch.testing.assert_close(made, plain_logits(lm, ids)[0], rtol=0, atol=0)
    assert layers.keys() <= dict(lm.named_modules()).keys()
