"""Architectures with windows and softcaps, trained for two steps by the transformers engine; and a
model that nothing can play."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from playful import tilted
from runs import SETTINGS, SSP, arguments, environment, metrics
from transformers import BertConfig, Gemma3TextConfig, MistralConfig
from transformers.models.auto import AutoModelForCausalLM

from ssp_agents.rllib.config import SSPConfig
from ssp_agents.shipped.tiny.bootstrap import save_policy, tiny_tokenizer
from ssp_env.errors import ModelError

pytestmark = pytest.mark.slow

KINDS = {"mistral": MistralConfig, "gemma3": Gemma3TextConfig, "bert": BertConfig}


def saved(name: str, folder: Path) -> Path:
    """A directory of random weights with the tokenizer of the policy that ships; what can play,
    likes tags and names."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0}
    sizes |= {"vocab_size": len(tiny_tokenizer()), "tie_word_embeddings": False}
    if name != "bert":
        sizes |= {"num_key_value_heads": 1, "sliding_window": 16, "head_dim": 16}
    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_config(KINDS[name](**sizes))
    save_policy(lm if name == "bert" else tilted(lm, 0), folder)
    return folder


@pytest.mark.parametrize("name", ["mistral", "gemma3"])
def test_a_random_model_is_trained_for_two_steps(name: str, tmp_path: Path) -> None:
    # Any question will do, so that some games are valid.
    settings = (*SETTINGS, "game.filters=[]", "game.question_chars=[0,1000]")
    model = saved(name, tmp_path / name)
    command = arguments(model, tmp_path / "run", "--steps", "2", settings=settings)
    done = subprocess.run([SSP, *command], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    # A run ends in its first step where engine and learner are apart.
    steps = [line for line in metrics(tmp_path / "run") if "learner_updates" in line]
    assert [step["learner_updates"] > 0 for step in steps] == [True, True]


def test_a_run_and_rllib_refuse_a_model_in_the_same_sentence(tmp_path: Path) -> None:
    model = saved("bert", tmp_path / "bert")
    command = [SSP, *arguments(model, tmp_path / "run", "--steps", "1")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    config = SSPConfig().environment(env_config={"world": "mini"}).training(model_dir=str(model))
    with pytest.raises(ModelError, match="no causal mask") as refused:
        config.build_algo()
    # The command looks before it has read the weights, at one layer of random ones.
    said = (done.stderr.strip().splitlines()[-1], f"ssp: {refused.value}")
    one, two = (re.sub(r"by [\d.e-]+ nats", "by some nats", each) for each in said)
    assert one == two
