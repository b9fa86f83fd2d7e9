"""Model directories: what is saved is what was trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from playful import damage, small_config
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ssp_agents.models import load_model, save_policy
from ssp_agents.shipped.tiny.bootstrap import save_policy as save_tiny
from ssp_agents.shipped.tiny.bootstrap import tiny_config, tiny_tokenizer
from ssp_env.errors import ModelError


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_policy_gives_identical_logits_in_transformers(tied: bool, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "a" / "policy"
    words = tiny_tokenizer()
    config = tiny_config(len(words)) if tied else small_config(len(words))
    made = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    save_tiny(made, source)
    (source / "pytorch_model.bin.index.json").write_text("{}")

    model, generator = load_model(source), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1e-3 * torch.randn(parameter.shape, generator=generator)
    save_policy({n: w.numpy() for n, w in model.state_dict().items()}, source, target)
    ids = torch.arange(40)[None]
    loaded = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager").eval()
    assert loaded.dtype == torch.float32
    with torch.inference_mode():
        assert torch.equal(loaded(ids).logits, load_model(target)(ids).logits)
        assert torch.equal(load_model(target)(ids).logits, model(ids).logits)
    text = "what is the mentor of <search>"
    assert AutoTokenizer.from_pretrained(target).encode(text) == words.encode(text)
    assert not (target / "pytorch_model.bin.index.json").exists(), "an index of other weights"
    assert (target / "model.safetensors").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("rope", "former"),
    [
        ({"rope_type": "default"}, {}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        ),
        (
            {"rope_type": "default", "partial_rotary_factor": 0.5},
            {"partial_rotary_factor": 0.5},
        ),
    ],
)
def test_what_is_saved_has_the_names_of_transformers_4(
    rope: dict[str, Any], former: dict[str, Any], tmp_path: Path
) -> None:
    """It knows no ``rope_parameters`` and would take base 10,000; 5 reads what it did before."""
    source, target = tmp_path / "source", tmp_path / "target"
    config = small_config(len(tiny_tokenizer()))
    config.rope_parameters = {"rope_theta": 5e5, **rope}
    model = AutoModelForCausalLM.from_config(config)
    save_tiny(model, source)
    save_policy(model.state_dict(), source, target)

    written = json.loads((target / "config.json").read_text())
    assert written["rope_theta"] == 5e5
    scaling = written.get("rope_scaling", {})
    assert former.pop("rope_scaling", {}).items() <= scaling.items()
    assert "rope_theta" not in scaling
    assert former.items() <= written.items()
    tokenizer = json.loads((target / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    read = AutoConfig.from_pretrained(target).rope_parameters
    assert read == AutoConfig.from_pretrained(source).rope_parameters


def test_one_damaged_byte_is_noticed(model_dir: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model_dir, tmp_path / "copy"))
    file = copy / "model.safetensors"
    damage(file)
    with pytest.raises(ModelError, match=f"{file} is damaged.*restore it.*delete {copy}"):
        load_model(copy)
    file.rename(copy / "other")
    with pytest.raises(ModelError, match="No such file"):
        load_model(copy)


def test_a_model_is_loaded_without_the_attention_that_plans_each_shape(model_dir: Path) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_model(model_dir)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
