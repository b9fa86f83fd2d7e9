"""A GGUF file as a policy: converted once, to a directory of the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from ssp_agents.models import CHECKSUMS, load_model
from ssp_env.cli import main
from ssp_experiments.config import RunConfig

BLOCKS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.layers": "blk",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
}
"""Names of a Qwen2 in a GGUF file."""


@pytest.fixture
def gguf_file(stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That model as llama.cpp would write it, and an empty cache."""
    gguf = pytest.importorskip("gguf")
    monkeypatch.setenv("SSP_CACHE", str(tmp_path / "cache"))
    lm, tokenizer = load_model(stranger), AutoTokenizer.from_pretrained(stranger)
    path, config = tmp_path / "stranger.gguf", lm.config
    writer: Any = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])

    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    merges = json.loads((stranger / "tokenizer.json").read_text())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)

    for name, tensor in lm.named_parameters():
        for theirs, own in BLOCKS.items():
            name = name.replace(theirs, own)
        writer.add_tensor(name, tensor.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_the_same_model_and_is_converted_once(
    gguf_file: Path, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunConfig(model=str(gguf_file)).model_dir
    ids = torch.arange(20)[None]
    with torch.no_grad():
        logits = [load_model(path)(input_ids=ids).logits for path in (folder, stranger)]
    assert torch.allclose(*logits, atol=1e-6)

    written = (folder / CHECKSUMS).stat().st_mtime_ns
    assert main(["plan", "--model", str(gguf_file), "--preset", "h200"]) == 0
    assert f"{gguf_file}: " in capsys.readouterr().out
    assert (folder / CHECKSUMS).stat().st_mtime_ns == written
