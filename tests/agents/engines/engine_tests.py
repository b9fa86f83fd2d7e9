"""What every engine promises, as tests that each engine's own file inherits.

Every log-probability is recomputed from scratch, by one plain forward pass over one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2Config
from transformers.models.auto import AutoModelForCausalLM

from ssp_agents.batches import columns_of
from ssp_agents.engines.base import Engine, Generation, Request, StopRule, generate
from ssp_agents.engines.gap import MOST_NATS
from ssp_agents.rows import Row
from ssp_agents.scoring import TokenScorer
from ssp_agents.shipped.tiny.bootstrap import tiny_model
from ssp_env.tokenizers import WordTokenizer
from ssp_env.tokenizers.base import Tokenizer

VOCABULARY = 60
STOPS = frozenset(range(5))
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


def made(name: str, seed: int = 0) -> Any:
    """A model with weights so wide that every token of the context matters."""
    generator = torch.Generator().manual_seed(seed)
    if name == "lfm2":
        return tiny_model(VOCABULARY, generator).eval()
    config = Qwen2Config(**SIZES)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 0.3, generator=generator)
    return model.eval()


model = cache(made)


def far_seeing() -> Any:
    """A model of sharp attention over some thousand tokens, so that positions matter. Were its
    rotary frequencies rounded to bfloat16, it would be .15 nats away after 2,000."""
    sizes = {**SIZES, "max_position_embeddings": 4096, "initializer_range": 0.15}
    config = Qwen2Config(**sizes, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for layer in lm.model.layers:
            layer.self_attn.q_proj.weight *= 1.5
            layer.self_attn.k_proj.weight *= 1.5
    return lm


def large() -> Any:
    """A model of ten thousand tokens."""
    config = Qwen2Config(**{**SIZES, "vocab_size": 10_000})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def words(count: int = VOCABULARY) -> WordTokenizer:
    """A tokenizer of so many tokens."""
    return WordTokenizer([f"w{i}" for i in range(count - 3)], ())


@torch.inference_mode()
def recomputed(
    lm: Any, ids: Sequence[int], temperature: float = 1.0, size: int = VOCABULARY
) -> torch.Tensor:
    """Log-probabilities after each of these ids (ids, size), by one plain forward pass."""
    logits = lm(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0].float()[:, :size]
    return torch.log_softmax(logits / (temperature or 1.0), dim=-1)


def scored_by(lm: Any) -> Callable[[Sequence[Row]], np.ndarray]:
    """What a learner with this model would say of rows that were sampled at temperature 0.8."""

    def score(rows: Sequence[Row]) -> np.ndarray:
        columns = {name: torch.as_tensor(value) for name, value in columns_of(rows).items()}
        with torch.inference_mode():
            return np.asarray(TokenScorer(lm, 0.8, lm.config.vocab_size)(columns).logprobs)

    return score


class Conversation:
    """Rows that grow by generations and observations, each generation checked."""

    def __init__(self, lm: Any, engine: Engine) -> None:
        self.lm, self.engine, self.rng = lm, engine, np.random.default_rng(0)
        self.rows: dict[int, list[int]] = {}

    def text(self, low: int, high: int) -> list[int]:
        return self.rng.integers(5, VOCABULARY, size=int(self.rng.integers(low, high))).tolist()

    def join(self, *keys: int) -> None:
        for key in keys:
            self.rows[key] = self.text(2, 30)

    def turn(self, keys: Iterable[int], temperature: float = 1.0, room: int = 15) -> None:
        requests = [
            Request(key, self.rows[key], room, temperature, seeded(0, key, self.rows[key]))
            for key in keys
        ]
        found = generate(self.engine, requests)
        for request, generation in zip(requests, found, strict=True):
            check(self.lm, request, generation)
            self.rows[request.key] = [*request.ids, *generation.ids, *self.text(1, 12)]


def check(lm: Any, request: Request, generation: Generation, size: int = VOCABULARY) -> None:
    """A generation's log-probabilities are the model's; at temperature 0, those of the unscaled
    distribution, and its tokens the likeliest."""
    logprobs = recomputed(lm, [*request.ids, *generation.ids], request.temperature, size)
    start = len(request.ids) - 1
    expected = [float(logprobs[start + i, token]) for i, token in enumerate(generation.ids)]
    np.testing.assert_allclose(generation.logprobs, expected, atol=1e-4, err_msg=f"{request.key}")
    if not request.temperature:
        assert generation.ids == logprobs[start:-1].argmax(dim=-1).tolist()


def seeded(seed: int, key: int, ids: Sequence[int]) -> int:
    return seed * 1_000_003 + key * 1_009 + len(ids)


def requests(count: int, room: int = 12, seed: int = 0) -> list[Request]:
    """Requests of different prompts and lengths."""
    rng = np.random.default_rng(3)
    prompts = [rng.integers(5, VOCABULARY, size=2 + 3 * (key % 7)).tolist() for key in range(count)]
    return [
        Request(key, prompt, room, 1.0, seeded(seed, key, prompt))
        for key, prompt in enumerate(prompts)
    ]


def finish(engine: Engine) -> dict[int, list[int]]:
    """Ids of all requests that run, by key."""
    found: dict[int, list[int]] = {}
    while engine.running:
        found.update({key: generation.ids for key, generation in engine.step()})
    return found


class EngineTests:
    """Inherit, and say how an engine is made."""

    def engine(
        self, lm: Any, tokenizer: Tokenizer, stop: StopRule, dtype: str = "float32"
    ) -> Engine:
        """An engine with the weights of this model, and with nothing in it."""
        raise NotImplementedError

    def fresh(self, name: str, stops: frozenset[int] = STOPS) -> Engine:
        return self.engine(model(name), words(), StopRule(stops, ()))

    @pytest.fixture(params=["lfm2", "qwen2"])
    def name(self, request: pytest.FixtureRequest) -> str:
        """One of each kind of layer."""
        return str(request.param)

    def test_logprobs_equal_recomputed_ones_over_many_turns(self, name: str) -> None:
        talk = Conversation(model(name), self.fresh(name))
        talk.join(*range(7))
        talk.turn([0, 1, 2, 3, 4, 5, 6])
        talk.turn([0, 1, 2, 3, 4, 5, 6])  # the same rows go on
        talk.turn([6, 1, 3])  # rows drop out, the order changes
        talk.join(7, 8)
        talk.turn([7, 3, 8, 6])  # rows join
        talk.turn([0, 8, 3], 0.5)  # a row comes back that was left out meanwhile
        talk.turn([3, 8], 2.0, room=1)
        talk.turn([8, 0, 1], 0.0, room=30)

        # Equal sequences, which an engine may read once, go their own ways.
        talk.rows |= {9: [*talk.rows[0]], 1: [*talk.rows[0]], 3: [*talk.rows[6]]}
        talk.turn([0, 9, 1, 6, 3])
        talk.turn([9, 0, 3, 1, 6])

    def test_tokens_are_drawn_with_their_probabilities(self) -> None:
        prompt, draws = [7, 30, 12], 2000
        asked = [Request(key, prompt, 1, 1.5, key) for key in range(draws)]
        found = generate(self.fresh("qwen2"), asked)
        counts = np.bincount([g.ids[0] for g in found], minlength=VOCABULARY)
        expected = recomputed(model("qwen2"), prompt, 1.5)[-1].exp().numpy() * draws
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()

    def test_logits_beyond_the_tokenizer_are_never_sampled(self) -> None:
        fewer = words(VOCABULARY - 20)
        engine = self.engine(model("qwen2"), fewer, StopRule(frozenset(), ()))
        asked = [Request(i, [9, 8 + i % 20], 8, float(i % 2), i) for i in range(40)]
        for request, found in zip(asked, generate(engine, asked), strict=True):
            assert max(found.ids) < fewer.vocab_size
            check(model("qwen2"), request, found, fewer.vocab_size)

    def test_in_bfloat16_it_samples_from_the_same_policy_after_2000_tokens(self) -> None:
        lm, rng = far_seeing(), np.random.default_rng(0)
        engine = self.engine(lm, words(), StopRule(frozenset(), ()), "bfloat16")
        rows = {key: rng.integers(5, VOCABULARY, 2000 + 150 * key).tolist() for key in range(3)}
        apart: list[float] = []
        for turn in range(2):
            asked = [Request(key, ids, 12, 1.0, 9 * turn + key) for key, ids in rows.items()]
            for request, found in zip(asked, generate(engine, asked), strict=True):
                ids = [*request.ids, *found.ids]
                exact = recomputed(lm, ids)[len(request.ids) - 1 : -1]
                apart += np.abs(exact[range(12), found.ids].numpy() - found.logprobs).tolist()
                rows[request.key] = [*ids, *rng.integers(5, VOCABULARY, 100).tolist()]
        assert 1e-5 < np.mean(apart) < MOST_NATS

    def test_tokens_do_not_hang_on_who_else_is_in_the_batch(self, name: str) -> None:
        """Nor on when the others join."""
        engine, asked = self.fresh(name), requests(9, room=30)
        alone = {r.key: generate(engine, [r])[0].ids for r in asked}
        assert [g.ids for g in generate(engine, asked[::-1])] == [*alone.values()][::-1]
        assert [*alone.values()] != [g.ids for g in generate(engine, requests(9, 30, seed=1))]

        engine.submit(asked[:5])
        early = {key: g.ids for _ in range(4) for key, g in engine.step()}
        engine.submit(asked[5:])
        assert early | finish(engine) == alone

    def test_nor_with_a_large_vocabulary(self) -> None:
        """Of which no token's share is far above rounding, in three groupings."""
        lm = large()
        engine = self.engine(lm, words(lm.config.vocab_size), StopRule(frozenset(), ()))
        asked = requests(20, room=8)
        found = [
            [g.ids for at in range(0, 20, size) for g in generate(engine, asked[at : at + size])]
            for size in (20, 7, 1)
        ]
        assert found[0] == found[1] == found[2]
        assert len({token for ids in found[0] for token in ids}) > 100

    def test_released_requests_end_and_others_go_on(self) -> None:
        engine = self.fresh("qwen2", frozenset())
        asked = [Request(key, [9, 8 + key], 20, 1.0, key) for key in range(4)]
        alone = {r.key: g.ids for r, g in zip(asked, generate(engine, asked), strict=True)}
        engine.submit(asked)
        engine.step()
        engine.release([0, 3])
        assert engine.running == 2
        assert finish(engine) == {key: alone[key] for key in (1, 2)}

    def test_a_turn_ends_with_its_first_stop_token_or_where_its_room_does(self) -> None:
        asked = [Request(i, [9, 8 + i], 40, 2.0, i) for i in range(30)]
        turns = [found.ids for found in generate(self.fresh("qwen2"), asked)]
        assert {ids[-1] in STOPS or len(ids) == 40 for ids in turns} == {True}
        assert len({len(ids) for ids in turns}) > 4
        assert not any(STOPS.intersection(ids[:-1]) for ids in turns)

    def test_a_text_stops_however_its_tokens_are_cut(self) -> None:
        """Also where it began before the turn."""
        engine = self.engine(model("qwen2"), words(), StopRule(frozenset(), (b"w1 w2",)))
        pieces, ends = words().pieces, 0
        asked = [Request(i, [9, pieces.index(b" w1")], 30, 2.0, i) for i in range(80)]
        for request, found in zip(asked, generate(engine, asked), strict=True):
            *before, last = [*request.ids, *found.ids]
            text = b"".join(pieces[i] for i in before)
            assert b"w1 w2" not in text
            ends += b"w1 w2" in text + pieces[last]
        assert ends

    def test_new_weights_drop_what_was_computed_with_the_old_ones(self, name: str) -> None:
        engine = self.fresh(name)
        talk = Conversation(model(name), engine)
        talk.join(*range(4))
        talk.turn(range(4))
        version = engine.weights_version
        for step, lm in enumerate((made(name, 1), model(name)), start=5):
            arrays = {key: tensor.numpy() for key, tensor in lm.state_dict().items()}
            engine.update_weights(arrays, version + step)
            assert engine.weights_version == version + step
            talk.lm = lm
            talk.turn(range(4))
