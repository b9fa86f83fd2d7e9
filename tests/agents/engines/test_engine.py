"""The transformers engine, every log-probability recomputed from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    GraniteConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    T5Config,
)
from transformers.models.auto import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from agents.engines.base import Generation, Request, StopRule
from agents.engines.transformers_engine import TransformersEngine, check_architecture
from agents.tiny.model import tiny_model, tiny_tokenizer
from ssp_env.errors import ModelError, UsageError
from ssp_env.game.config import GameConfig
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer
from ssp_env.tokenizers.base import Tokenizer

VOCABULARY = 60
STOPS = frozenset(range(5))
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
ARCHITECTURES = ("lfm2", "qwen2", "qwen3", "llama")


def made(name: str, seed: int = 0) -> Any:
    """A model with weights so wide that every token of the context matters."""
    generator = torch.Generator().manual_seed(seed)
    if name == "lfm2":
        return tiny_model(VOCABULARY, generator).eval()
    config = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}[name](**SIZES)
    return widened(AutoModelForCausalLM.from_config(config, attn_implementation="eager"), generator)


def widened(model: Any, generator: torch.Generator) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 0.3, generator=generator)
    return model.eval()


model = cache(made)


@pytest.fixture(scope="module")
def words() -> WordTokenizer:
    return WordTokenizer([f"w{i}" for i in range(VOCABULARY - 3)], ())


def engine_for(lm: Any, tokenizer: Tokenizer, stops: frozenset[int] = STOPS) -> TransformersEngine:
    return TransformersEngine(lm, tokenizer, StopRule(stops, ()))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.inference_mode()
def recomputed(lm: Any, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
    """Log-probabilities of ids[start:] by one plain forward pass over one sequence."""
    logits = lm(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0].float() / (
        temperature or 1.0
    )
    logprobs = torch.log_softmax(logits, dim=-1)
    return [float(logprobs[i - 1, ids[i]]) for i in range(start, len(ids))]


class Conversation:
    """Rows that grow by generations and observations, each generation checked."""

    def __init__(self, lm: Any, engine: TransformersEngine, seed: int = 0) -> None:
        self.lm, self.engine = lm, engine
        self.rng, self.generator = np.random.default_rng(seed), seeded(seed)
        self.rows: dict[int, list[int]] = {}
        self.turn_lengths: list[int] = []

    def text(self, low: int, high: int) -> list[int]:
        return self.rng.integers(5, VOCABULARY, size=int(self.rng.integers(low, high))).tolist()

    def join(self, *keys: int) -> None:
        for key in keys:
            self.rows[key] = self.text(2, 30)

    def turn(
        self, keys: Sequence[int], temperature: float = 1.0, room: int = 15
    ) -> list[Generation]:
        requests = [Request(key, self.rows[key], room) for key in keys]
        found = self.engine.generate(requests, temperature=temperature, generator=self.generator)
        for key, generation in zip(keys, found, strict=True):
            start = len(self.rows[key])
            self.rows[key] = [*self.rows[key], *generation.ids]
            expected = recomputed(self.lm, self.rows[key], start, temperature)
            np.testing.assert_allclose(
                generation.logprobs, expected, atol=1e-4, err_msg=f"row {key}"
            )
            self.turn_lengths.append(len(generation.ids))
            self.rows[key] += self.text(1, 12)
        return found


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_behaviour_logprobs_equal_recomputed_ones_over_many_turns(
    name: str, words: WordTokenizer
) -> None:
    lm = model(name)
    talk = Conversation(lm, engine_for(lm, words))
    talk.join(*range(7))
    talk.turn([0, 1, 2, 3, 4, 5, 6])
    talk.turn([0, 1, 2, 3, 4, 5, 6])  # the same rows go on
    talk.turn([6, 1, 3])  # rows drop out, the order changes
    talk.join(7, 8)
    talk.turn([7, 3, 8, 6])  # rows join
    talk.turn([0, 8, 3])  # a row comes back that was left out meanwhile
    talk.turn([3, 8], room=1)
    talk.turn([8], room=30)
    assert len(set(talk.turn_lengths)) > 4, (
        "rows must stop at different times for this to test anything"
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_output_equals_generate(name: str, words: WordTokenizer) -> None:
    lm = model(name)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(5, VOCABULARY, size=size).tolist() for size in (3, 17, 9, 2, 25)]
    requests = [Request(key, prompt, 20) for key, prompt in enumerate(prompts)]
    found = engine_for(lm, words).generate(requests, temperature=0.0, generator=seeded())
    settings = GenerationConfig(
        max_new_tokens=20, do_sample=False, eos_token_id=sorted(STOPS), pad_token_id=0
    )
    for prompt, generation in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt])
        expected = lm.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=settings
        )[0]
        assert generation.ids == expected[len(prompt) :].tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_logprobs_are_those_of_the_distribution_sampled_from(
    temperature: float, words: WordTokenizer
) -> None:
    """At temperature 0, of the unscaled one: ``recomputed`` divides by 1 there."""
    lm = model("lfm2")
    talk = Conversation(lm, engine_for(lm, words))
    talk.join(*range(4))
    first = talk.turn(range(4), temperature)
    talk.turn(range(4), temperature)
    if temperature == 0.0:
        repeated = Conversation(lm, engine_for(lm, words))
        repeated.generator = seeded(99)
        repeated.join(*range(4))
        assert repeated.turn(range(4), temperature) == first, (
            "greedy output does not depend on the generator"
        )


def test_tokens_are_drawn_with_their_probabilities(words: WordTokenizer) -> None:
    lm = model("qwen2")
    prompt, draws = [7, 30, 12], 4000
    requests = [Request(key, prompt, 1) for key in range(draws)]
    found = engine_for(lm, words).generate(requests, temperature=1.5, generator=seeded())
    counts = np.bincount([g.ids[0] for g in found], minlength=VOCABULARY)
    with torch.inference_mode():
        logits = lm(input_ids=torch.tensor([prompt])).logits[0, -1] / 1.5
    expected = torch.softmax(logits, dim=-1).numpy() * draws
    tolerance = 5 * np.sqrt(expected) + 1
    assert (np.abs(counts - expected) < tolerance).all()


def test_same_seed_same_output(words: WordTokenizer) -> None:
    outputs = []
    for seed in (3, 3, 4):
        talk = Conversation(model("lfm2"), engine_for(model("lfm2"), words))
        talk.generator = seeded(seed)
        talk.join(*range(5))
        outputs.append([talk.turn(range(5)), talk.turn([4, 2])])
    assert outputs[0] == outputs[1] != outputs[2]


def test_no_requests_give_no_generations(words: WordTokenizer) -> None:
    assert engine_for(model("lfm2"), words).generate([], temperature=1.0, generator=seeded()) == []


def test_two_requests_of_one_key_are_an_error(words: WordTokenizer) -> None:
    with pytest.raises(UsageError, match="same key"):
        engine_for(model("lfm2"), words).generate(
            [Request(1, [9], 4), Request(1, [8], 4)], temperature=1.0, generator=seeded()
        )


def test_max_new_tokens_holds_for_each_row(words: WordTokenizer) -> None:
    engine = engine_for(model("qwen3"), words, frozenset())
    rooms = [1, 7, 3, 12]
    found = engine.generate(
        [Request(i, [9, 8], room) for i, room in enumerate(rooms)],
        temperature=1.0,
        generator=seeded(),
    )
    assert [len(g.ids) for g in found] == rooms
    assert [len(g.logprobs) for g in found] == rooms


def test_a_turn_ends_with_its_first_stop_token(words: WordTokenizer) -> None:
    engine = engine_for(model("qwen3"), words)
    found = engine.generate(
        [Request(i, [9, 8 + i], 60) for i in range(40)], temperature=2.0, generator=seeded()
    )
    stopped = [g.ids for g in found if len(g.ids) < 60]
    assert len(stopped) > 20
    assert all(ids[-1] in STOPS and not STOPS.intersection(ids[:-1]) for ids in stopped)


# -- the cache ---------------------------------------------------------------------------------


def test_new_weights_drop_what_was_computed_with_the_old_ones(words: WordTokenizer) -> None:
    lm, other = made("lfm2", 1), model("lfm2")
    engine = engine_for(lm, words)
    talk = Conversation(lm, engine)
    talk.join(*range(4))
    talk.turn(range(4))
    assert engine.weights_version == 0
    engine.update_weights({name: tensor.numpy() for name, tensor in other.state_dict().items()}, 5)
    assert engine.weights_version == 5
    talk.lm = other
    talk.turn(range(4))


@pytest.mark.parametrize("name", ["lfm2", "qwen2"])
def test_a_key_whose_tokens_do_not_go_on_is_computed_anew(name: str, words: WordTokenizer) -> None:
    lm = model(name)
    talk = Conversation(lm, engine_for(lm, words))
    talk.join(0, 1, 2)
    talk.turn([0, 1, 2])
    prompt = talk.rows[1][:2]
    talk.rows[0], talk.rows[1] = (
        talk.text(40, 41),
        prompt,
    )  # another text; and the same text, cut short
    talk.turn([0, 1, 2])
    talk.rows[1] = prompt
    talk.turn([1])
    talk.rows[1] = prompt
    talk.turn([1])


@pytest.mark.parametrize("name", ["lfm2", "qwen3"])
def test_equal_sequences_are_read_once_and_go_their_own_ways(
    name: str, words: WordTokenizer
) -> None:
    lm = model(name)
    talk = Conversation(lm, engine_for(lm, words))
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


def test_a_call_that_breaks_leaves_no_half_written_cache(words: WordTokenizer) -> None:
    lm = made("lfm2", 2)
    engine = engine_for(lm, words)
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


# -- architectures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (
            Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1),
            "sliding_attention",
        ),
        (MistralConfig(**SIZES, sliding_window=8), "sliding_attention"),
        (
            MambaConfig(vocab_size=60, hidden_size=16, state_size=4, num_hidden_layers=1),
            "linear_attention",
        ),
        (GraniteConfig(**SIZES, logits_scaling=2.0), "logits_scaling"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.model_type,
)
def test_an_architecture_that_would_be_wrong_silently_is_refused(
    config: Any, what: str, words: WordTokenizer
) -> None:
    with pytest.raises(ModelError, match=rf"{config.model_type}.*{what}"):
        engine_for(AutoModelForCausalLM.from_config(config), words)


def test_an_encoder_is_refused() -> None:
    config = T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ModelError, match="encoder"):
        check_architecture(AutoModelForSeq2SeqLM.from_config(config))


def test_an_unused_sliding_window_is_served(words: WordTokenizer) -> None:
    lm = widened(
        AutoModelForCausalLM.from_config(MistralConfig(**SIZES, sliding_window=None)), seeded()
    )
    talk = Conversation(lm, engine_for(lm, words))
    talk.join(0, 1)
    talk.turn([0, 1])
    talk.turn([1, 0])


def test_a_model_with_fewer_tokens_than_the_tokenizer_is_refused() -> None:
    with pytest.raises(
        ModelError, match=f"tokenizer has {VOCABULARY + 1} tokens, the model only {VOCABULARY}"
    ):
        engine_for(model("llama"), WordTokenizer([f"w{i}" for i in range(VOCABULARY - 2)], ()))


def test_logits_beyond_the_tokenizer_are_never_sampled() -> None:
    lm = model("llama")
    fewer = WordTokenizer([f"w{i}" for i in range(VOCABULARY - 23)], ())
    requests = [Request(i, [9, 8 + i % 20], 10) for i in range(50)]
    for temperature in (0.0, 1.0):
        found = engine_for(lm, fewer, frozenset()).generate(
            requests, temperature=temperature, generator=seeded()
        )
        for request, generation in zip(requests, found, strict=True):
            assert max(generation.ids) < fewer.vocab_size
            ids = torch.tensor([[*request.ids, *generation.ids]])
            with torch.inference_mode():
                logprobs = torch.log_softmax(
                    lm(input_ids=ids).logits[0, 1:-1, : fewer.vocab_size], dim=-1
                )
            expected = logprobs.gather(1, ids[0, 2:, None]).squeeze(1)
            np.testing.assert_allclose(generation.logprobs, expected, atol=1e-4)


# -- stop strings ------------------------------------------------------------------------------


def byte_tokenizer(*special: str) -> HuggingFaceTokenizer:
    """One token a byte, then the end token, then the given tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = RawTokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<eos>", *special])
    return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>"))


def reciting(text: str, tokenizer: HuggingFaceTokenizer) -> Any:
    """A model whose likeliest next token depends on the last one alone: it recites a text of
    different characters."""
    size = tokenizer.vocab_size
    one = {
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 8,
    }
    config = LlamaConfig(**{**SIZES, **one, "vocab_size": size, "hidden_size": size})
    lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    ids = tokenizer.encode(text)
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if parameter.ndim >= 2:
                parameter.zero_()
            if "embed" in name:
                parameter.copy_(torch.eye(size))
        for now, then in pairwise(ids):
            lm.lm_head.weight[then, now] = 5.0
    return lm


TEXT = "x</search>yz0123456789"


def recite(tokenizer: HuggingFaceTokenizer, *rooms: int) -> list[str]:
    """What the turns of one trajectory say."""
    stop = StopRule.of(GameConfig(), tokenizer)
    engine = TransformersEngine(reciting(TEXT, tokenizer), tokenizer, stop)
    ids, said = tokenizer.encode("x"), []
    for room in rooms:
        (generation,) = engine.generate(
            [Request(0, ids, room)], temperature=0.0, generator=seeded()
        )
        ids = [*ids, *generation.ids]
        said.append(tokenizer.decode(generation.ids))
    return said


def test_a_tag_of_many_tokens_stops() -> None:
    tokenizer = byte_tokenizer()
    stop = StopRule.of(GameConfig(), tokenizer)
    assert b"</search>" in stop.strings
    assert stop.token_ids == {tokenizer.eos_id}
    assert recite(tokenizer, 20) == ["</search>"]


def test_a_tag_that_has_a_token_but_is_spelled_out_stops() -> None:
    tokenizer = byte_tokenizer("</search>")
    tag = tokenizer.encode("</search>")
    assert len(tag) == 1
    stop = StopRule.of(GameConfig(), tokenizer)
    assert tag[0] in stop.token_ids
    assert b"</search>" in stop.strings
    lm = reciting("x<", tokenizer)
    plain = byte_tokenizer().encode("</search>")
    with torch.no_grad():
        for now, then in pairwise(plain):
            lm.lm_head.weight[then, now] = 5.0
    engine = TransformersEngine(lm, tokenizer, stop)
    (generation,) = engine.generate(
        [Request(0, tokenizer.encode("x"), 20)], temperature=0.0, generator=seeded()
    )
    assert generation.ids == plain


def test_a_tag_that_began_in_an_earlier_generation_stops() -> None:
    assert recite(byte_tokenizer(), 4, 20) == ["</se", "arch>"]


def test_a_tag_before_the_turn_does_not_stop_it() -> None:
    assert recite(byte_tokenizer(), 20, 6) == ["</search>", "yz0123"]


def test_single_token_tags_that_nothing_else_can_spell_need_no_strings() -> None:
    words = HuggingFaceTokenizer(tiny_tokenizer())
    stop = StopRule.of(GameConfig(), words)
    assert stop.strings == ()
    expected = ["</search>", "</question>", "</answer>", "<information>", "</information>"]
    assert stop.token_ids == {words.eos_id, *(words.encode(tag)[0] for tag in expected)}
