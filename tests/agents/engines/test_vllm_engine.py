"""vLLM behind the same interface: what every engine promises, and whole games.

`make vllm-check` runs this file where vLLM is installed; elsewhere it is skipped.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_tests import (
    SIZES,
    VOCABULARY,
    EngineTests,
    check,
    made,
    model,
    scored_by,
    words,
)
from playful import new_batch, play_watched, tilted
from transformers import BertConfig, BertModel, Gemma3TextConfig, MistralConfig, Qwen2Config
from transformers.models.auto import AutoModelForCausalLM

from ssp_agents.config import EngineConfig
from ssp_agents.engines.base import Engine, Request, StopRule, generate
from ssp_agents.engines.gap import Gap, compared_rows, measure
from ssp_agents.engines.opening import open_engine
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.engines.vllm_engine import VLLMEngine, arguments
from ssp_agents.models import adapt, is_adapter, load_model, state_of, tiny_directory
from ssp_agents.rllib import SSPConfig
from ssp_agents.rollout import play
from ssp_agents.shipped.tiny.bootstrap import save_policy, tiny_tokenizer
from ssp_env.errors import ModelError, ServiceError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.record import record_game
from ssp_env.game.rules import Rules
from ssp_env.tokenizers.base import Tokenizer


def test_what_vllm_is_started_with(model_dir: Path) -> None:
    plain: dict[str, Any] = {"on_gpu": True, "dtype": torch.bfloat16, "memory": 0.4}
    plain |= {"longest": None, "sleeps": False, "tensor_parallel": 1}
    before = arguments(model_dir, **plain)
    for changes, name in (
        ({"memory": 0.7}, "gpu_memory_utilization"),
        ({"longest": 99}, "max_model_len"),
        ({"sleeps": True}, "enable_sleep_mode"),
        ({"on_gpu": False}, "gpu_memory_utilization"),
        ({"dtype": torch.float32}, "dtype"),
        ({"tensor_parallel": 2}, "tensor_parallel_size"),
    ):
        assert before[name] != arguments(model_dir, **{**plain, **changes}).get(name)


def test_a_tokenizer_with_more_tokens_than_the_model_has_logits_is_refused(rules: Rules) -> None:
    llm = Broken(error=RuntimeError("not asked"))
    llm.model_config.hf_text_config.vocab_size = rules.tokenizer.vocab_size - 3
    with pytest.raises(ModelError, match="its model 3 logits fewer"):
        VLLMEngine(llm, "model", *parts(rules))


BERT = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 32}
BERT |= {"num_hidden_layers": 1, "num_attention_heads": 1}


def parts(rules: Rules) -> tuple[Tokenizer, StopRule]:
    """What an engine is told of the game."""
    return rules.tokenizer, StopRule.of(rules.config, rules.tokenizer)


class Broken:
    """vLLM's engine, of which some calls fail."""

    def __init__(self, *failing: str, error: Exception) -> None:
        self.failing, self.error = set(failing), error
        self.model_config = SimpleNamespace(hf_text_config=SimpleNamespace(vocab_size=1500))

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> Any:
            if name in self.failing:
                raise self.error
            return [] if name == "step" else True

        return call


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (("step", "abort_request"), torch.OutOfMemoryError("CUDA out of memory")),
        (("add_request",), AssertionError("dead")),
        (("collective_rpc",), KeyError("lm_head")),
        (("wake_up", "step"), Exception("EngineCore encountered an issue")),
    ],
)
def test_whatever_vllm_fails_in_voids_games_as_an_outage_of_the_engine(
    failing: tuple[str, ...],
    error: Exception,
    rules: Rules,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VLLMEngine, "_parameters", lambda engine, request: None)
    engine = VLLMEngine(Broken(*failing, error=error), "model", *parts(rules))
    engine._asleep = {"weights", "kv_cache"}

    for version in (1, 2):
        engine.update_weights({}, version)
        engine.wake()
        games = play(new_batch(rules), engine, temperature=1.0).games
        outages = [game.outage for game in games]
        assert all(outage and outage.service == "engine" for outage in outages)
        assert {outage.what for outage in outages if outage} == {f"vLLM failed: {error!r}"}
        assert engine.running == 0


def test_what_failed_before_new_weights_is_told_once(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VLLMEngine, "_parameters", lambda engine, request: None)
    llm = Broken("abort_request", error=RuntimeError("not there"))
    engine = VLLMEngine(llm, "model", *parts(rules))
    engine.submit([Request(key=1, ids=(1, 2), max_new_tokens=3, temperature=1.0, seed=1)])
    engine.release([1])
    engine.update_weights({}, 1)
    with pytest.raises(ServiceError, match="not there"):
        engine.step()
    assert engine.step() == []


# -- with vLLM itself --------------------------------------------------------------------------

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")

HELD: dict[tuple[str, int, int, str], Any] = {}
"""Engines that have been started, by kind of model, numbers of logits and tokens, and dtype: each
takes seconds."""
KEPT: list[Engine] = []
"""Other engines: the first that goes would take down what the rest needs."""


def opened(*args: Any, **kwargs: Any) -> Any:
    """An engine, where vLLM's CPU build has kernels for the model."""
    try:
        return open_engine(*args, **kwargs)
    except ModelError as error:
        if "not implemented for 'Float'" in str(error):  # 0.26's short convolutions
            pytest.skip(f"this release computes this model in other dtypes alone: {error}")
        raise


def vllm_engine(
    lm: Any, tokenizer: Tokenizer, stop: StopRule, folder: Path, dtype: str = "float32"
) -> Any:
    """An engine with these weights, and nothing in it."""
    kind = (type(lm).__name__, lm.config.vocab_size, tokenizer.vocab_size, dtype)
    if kind not in HELD:
        lm.save_pretrained(folder)
        config = EngineConfig(kind="vllm", dtype=dtype)
        HELD[kind] = opened(config, folder, tokenizer, stop)

    # The rest of the engine is as new.
    engine = copy(HELD[kind])
    engine._tokenizer, engine._stop = tokenizer, stop
    engine.update_weights(lm.state_dict(), 0)
    return engine


@needs_vllm
class TestVLLMEngine(EngineTests):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def engine(
        self, lm: Any, tokenizer: Tokenizer, stop: StopRule, dtype: str = "float32"
    ) -> Engine:
        return vllm_engine(lm, tokenizer, stop, self.folder, dtype)


@needs_vllm
def test_tokens_of_other_weights_than_the_due_ones_are_an_outage(tmp_path: Path) -> None:
    engine = vllm_engine(model("qwen2"), words(), StopRule(frozenset(), ()), tmp_path)
    assert len(generate(engine, [Request(0, [9, 8], 4, 1.0, 1)])[0].ids) == 4

    # As if an update had not arrived.
    engine.weights_version = 5
    with pytest.raises(ServiceError, match="weights of version 0, and version 5 was due"):
        generate(engine, [Request(0, [9, 8], 4, 1.0, 1)])
    assert engine.running == 0


@needs_vllm
def test_thousands_of_logits_beyond_the_tokenizer_are_never_sampled(tmp_path: Path) -> None:
    """gpt-oss has 1,069 of them, others more; before and after an update, in any sampling."""
    config = Qwen2Config(**{**SIZES, "vocab_size": 5000})
    lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    engine = vllm_engine(lm, words(), StopRule(frozenset(), ()), tmp_path)
    for version in (1, 2):
        asked = [Request(i, [9, 8 + i % 20], 8, i % 3 / 2, i) for i in range(60)]
        for request, found in zip(asked, generate(engine, asked), strict=True):
            assert max(found.ids) < VOCABULARY
            check(lm, request, found)  # renormalised over the tokens that there are
        with torch.no_grad():
            for parameter in lm.parameters():
                parameter += 0.1 * torch.randn(parameter.shape)
            lm.lm_head.weight[VOCABULARY:] *= 3
        engine.update_weights(lm.state_dict(), version)


@needs_vllm
def test_a_token_that_the_tokenizer_has_not_is_an_outage(tmp_path: Path) -> None:
    engine = vllm_engine(model("qwen2"), words(), StopRule(frozenset(), ()), tmp_path)
    engine._tokenizer = SimpleNamespace(pieces=words().pieces, vocab_size=5)
    with pytest.raises(ServiceError, match="which the tokenizer has not"):
        generate(engine, [Request(i, [9, 8 + i], 30, 1.0, i) for i in range(9)])


@needs_vllm
def test_a_model_that_writes_no_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    BertModel(BertConfig(**BERT)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no code for .*BertModel.*engine\.kind=transformers"):
        open_engine(
            EngineConfig(kind="vllm"), tmp_path, words(), StopRule(frozenset(), ()), lora_rank=4
        )


@needs_vllm
def test_weights_reach_both_processes_of_a_spread_policy(tmp_path: Path) -> None:
    lm, other, stop = made("qwen2"), made("qwen2", 1), StopRule(frozenset(), ())
    lm.save_pretrained(tmp_path)
    engine = open_engine(EngineConfig(kind="vllm"), tmp_path, words(), stop, tensor_parallel=2)
    asked = [Request(key, [9, 8 + key], 8, 1.0, key) for key in range(3)]
    for version, policy in enumerate((lm, other)):
        engine.update_weights(policy.state_dict(), version)
        for request, found in zip(asked, generate(engine, asked), strict=True):
            check(policy, request, found)


LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
CONFIGS: dict[str, Any] = {
    "qwen2": Qwen2Config,
    "mistral": partial(MistralConfig, sliding_window=16, head_dim=32),
    # Of its output layer, vLLM knows the embedding alone.
    "gemma3": partial(
        Gemma3TextConfig,
        sliding_window=16,
        head_dim=32,
        query_pre_attn_scalar=32,
        num_hidden_layers=3,
        layer_types=LAYERS,
        tie_word_embeddings=True,
    ),
}


def playful(name: str, seed: int) -> Any:
    """The tiny policy, or a model of random weights that plays with its tokens."""
    if name == "lfm2":
        lm = load_model(tiny_directory())
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in lm.parameters() if seed else ():
                parameter += 0.01 * torch.randn(parameter.shape, generator=generator)
        return lm

    sizes = {**SIZES, "vocab_size": len(tiny_tokenizer()), "tie_word_embeddings": False}
    kind = CONFIGS[name]
    config = kind(**{**sizes, **getattr(kind, "keywords", {})})
    lm = tilted(AutoModelForCausalLM.from_config(config, attn_implementation="eager"), seed)
    if config.tie_word_embeddings:
        with torch.no_grad():
            lm.lm_head.weight[:, 0] += 5.0  # the bias, which is to be above 0 in an embedding
    return lm.eval()


def tokens_of(game: Game) -> list[list[int]]:
    return [trajectory.ids for trajectory in game.trajectories()]


def sampled_gap(engine: Engine, rules: Rules, lm: Any) -> Gap:
    """A batch's log-probabilities against those of a model, which are printed."""
    games = play_watched(rules, engine).games
    rows = compared_rows([record_game(game, rules) for game in games])
    gap = measure(rows, scored_by(lm), rules.tokenizer)
    print(f"{gap.tokens} tokens, mean gap {gap.mean:.1e} nats, largest {gap.largest:.1e}")
    return gap


@needs_vllm
@pytest.mark.parametrize("name", ["lfm2", "qwen2", "mistral", "gemma3"])
def test_whole_games_and_updates_of_weights(name: str, rules: Rules, tmp_path: Path) -> None:
    """Greedy games are the transformers engine's; what is sampled is what the model finds."""
    first, second = playful(name, 0), playful(name, 1)
    engine = vllm_engine(first, *parts(rules), tmp_path)

    for version, lm in enumerate((first, second, first), start=1):
        engine.update_weights(lm.state_dict(), version)
        plain = TransformersEngine(lm, *parts(rules))
        greedy = [
            [tokens_of(game) for game in play(new_batch(rules), e, temperature=0.0).games]
            for e in (engine, plain)
        ]
        assert greedy[0] == greedy[1]

        assert sampled_gap(engine, rules, lm).largest < 1e-4


@needs_vllm
def test_games_of_a_dead_engine_are_void_and_later_ones_are_played(
    rules: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine.exceptions import EngineDeadError

    engine = vllm_engine(playful("qwen2", 0), *parts(rules), tmp_path)
    expected = play(new_batch(rules), engine, temperature=0.0).games
    steps = iter(range(100))
    core, step = engine._llm.engine_core, engine._llm.engine_core.get_output

    def dying() -> Any:
        if next(steps) == 20:
            raise EngineDeadError
        return step()

    with monkeypatch.context() as patch:
        patch.setattr(core, "get_output", dying)
        games = play(new_batch(rules), engine, temperature=0.0).games
    voided = [game.outage for game in games if game.outage]
    assert voided
    assert "EngineCore encountered an issue" in voided[0].what

    again = play(new_batch(rules), engine, temperature=0.0).games
    assert list(map(tokens_of, again)) == list(map(tokens_of, expected))


def adapted(lm: Any, rank: int, seed: int) -> dict[str, torch.Tensor]:
    """A model's adapters, which it is given if it has none, after a random step."""
    if not any(is_adapter(part) for part in state_of(lm)):
        adapt(lm, rank, seed=0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part, parameter in lm.named_parameters():
            if is_adapter(part):
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return state_of(lm)


@needs_vllm
@pytest.mark.parametrize(
    ("name", "rank"), [("lfm2", 4), ("qwen2", 12), ("gemma3", 4), ("qwen2", 0)]
)
def test_adapters_alone_are_sent_and_played(
    name: str, rank: int, rules: Rules, tmp_path: Path
) -> None:
    """By vLLM beside the model (of rank 12, by kernels of rank 16), or merged into it (0)."""
    lm = playful(name, 0)
    lm.save_pretrained(tmp_path)
    engine = opened(EngineConfig(kind="vllm"), tmp_path, *parts(rules), lora_rank=rank)
    KEPT.append(engine)
    assert engine._adapts == bool(rank)
    assert sampled_gap(engine, rules, lm).largest < 1e-4

    sent = adapted(lm, rank or 4, seed=1)
    assert all(map(is_adapter, sent))
    assert sampled_gap(engine, rules, lm).largest > 0.01
    for version in (1, 2):  # the second time, nothing may have been added to the first
        engine.update_weights(sent, version)
    assert sampled_gap(engine, rules, lm).largest < 1e-4
    engine.update_weights(adapted(lm, rank or 4, seed=2), 3)
    assert sampled_gap(engine, rules, lm).largest < 1e-4
    if rank:
        with pytest.raises(UsageError, match="a whole model"):
            engine.update_weights(playful(name, 1).state_dict(), 4)


@needs_vllm
def test_each_role_is_played_by_its_own_adapters(rules: Rules, tmp_path: Path) -> None:
    policies = {"proposer": playful("qwen2", 0), "solver": playful("qwen2", 0)}
    policies["solver"].save_pretrained(tmp_path)
    engine = opened(
        EngineConfig(kind="vllm"), tmp_path, *parts(rules), lora_rank=4, policy_of=role_of
    )
    KEPT.append(engine)
    for version in (1, 2):
        seeds = {"proposer": version, "solver": version + 2}
        sent = {role: adapted(lm, 4, seeds[role]) for role, lm in policies.items()}
        engine.update_weights(sent, version)
        games = play(new_batch(rules), engine, temperature=0.8).games
        for role, lm in policies.items():
            rows = compared_rows([record_game(game, rules) for game in games], role.__eq__)
            assert measure(rows, scored_by(lm), rules.tokenizer).largest < 1e-4


def role_of(role: str) -> str:
    return "proposer" if role == "proposer" else "solver"


@needs_vllm
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("name", "rank"), [("mistral", 0), ("gemma3", 0), ("mistral", 4)])
def test_random_weights_of_other_architectures_are_trained_for_two_steps(
    name: str, rank: int, rules: Rules, tmp_path: Path, algorithm_config: SSPConfig
) -> None:
    lm = playful(name, 0)
    save_policy(lm, tmp_path)
    config = algorithm_config.training(model_dir=tmp_path, engine="vllm", lora_rank=rank)
    algorithm = config.build_algo()
    engine = algorithm.env_runner.engine
    KEPT.append(engine)
    try:
        figures = [algorithm.train()["ssp"]["figures"] for _ in range(2)]
        learnt = algorithm.get_module().lm
        assert figures[0]["learner_logprob_gap"] < 1e-5
        assert [f["learner_updates"] for f in figures] == [1, 1]
        assert engine.weights_version == 2
        assert sampled_gap(engine, rules, lm).largest > 1e-3
        assert sampled_gap(engine, rules, learnt).largest < 1e-4
    finally:
        algorithm.stop()
