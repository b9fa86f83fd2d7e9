"""Policies and runs that several tests look at; each is made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import arguments


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small policy of random weights, of whose games about half are valid."""
    from playful import save_playful

    return save_playful(tmp_path_factory.mktemp("models") / "policy")


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy with random weights."""
    from ssp_agents.shipped.tiny.bootstrap import save_policy, tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("models") / "untrained"
    save_policy(tiny_model(len(tiny_tokenizer()), torch.Generator().manual_seed(0)), folder)
    return folder


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 with a byte-level vocabulary that has never heard of the tags."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = ["the question asks for an answer that a search for information would find"] * 10
    raw.train_from_iterator(words, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    folder = tmp_path_factory.mktemp("models") / "stranger"
    end = "<|endoftext|>"
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=end, pad_token=end).save_pretrained(
        folder
    )
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192}
    # As `transformers` reads it back: it adds tokens of Qwen2's own.
    vocabulary = len(AutoTokenizer.from_pretrained(folder))
    config = Qwen2Config(vocab_size=vocabulary, tie_word_embeddings=True, **sizes, **heads)
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def whole_run(policy: Path, cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an uninterrupted run of 4 steps."""
    from ssp_env.cli import main

    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(policy, out, "--steps", "4")) == 0
    return out


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two finished runs that differ in their seed."""
    from small_runs import make_run

    folder = tmp_path_factory.mktemp("report")
    return [str(make_run(folder / f"seed{seed}", seed).path) for seed in (0, 1)]


@pytest.fixture(scope="session")
def page(two_runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of both, with tokens."""
    from ssp_experiments.commands.report import report

    path = tmp_path_factory.mktemp("page") / "report.html"
    report(two_runs, str(path), tokens=True)
    return path
