"""Tiny random models of every causal LM of `transformers`: default configs with small sizes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from transformers.models.auto import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 64
_SIZES = {
    VOCABULARY: "vocab_size text_vocab_size vocab_size_per_layer_input "
    "encoder_hash_byte_group_vocab mamba_d_ssm",
    32: "hidden_size d_model n_embd dim embed_dim embedding_size emb_dim dim_model hidden_dim "
    "word_embed_proj_dim lru_width attention_hidden_size n_embed hidden_size_global",
    48: "intermediate_size ffn_dim decoder_ffn_dim encoder_ffn_dim n_inner dff d_inner dim_ff "
    "feed_forward_size ffn_hidden_size mlp_hidden_size ffn_hidden_dim intermediate_size_mlp",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_blocks "
    "num_decoder_layers num_encoder_layers num_key_value_heads n_head_kv num_kv_heads "
    "multi_query_group_num swa_num_key_value_heads num_experts_per_tok moe_topk moe_top_k "
    "top_k_experts experts_per_token num_experts_per_token moe_k linear_num_key_heads "
    "mamba_n_groups mamba_ngroups n_groups mamba_expand "
    "num_global_key_value_heads",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads "
    "encoder_attention_heads num_decoder_attention_heads num_encoder_attention_heads "
    "swa_num_attention_heads qk_rope_head_dim qk_nope_head_dim rotary_dim num_experts "
    "num_local_experts n_routed_experts moe_num_experts ffn_num_experts attention_chunk_size "
    "mamba_n_heads mamba_num_heads n_mamba_heads time_step_rank mamba_dt_rank chunk_size "
    "mamba_chunk_size linear_num_value_heads linear_num_heads",
    8: "head_dim v_head_dim swa_head_dim attention_head_dim dim_head global_head_dim kv_channels "
    "swa_v_head_dim mamba_d_state state_size ssm_state_size linear_key_head_dim linear_head_dim "
    "linear_value_head_dim index_head_dim d_head d_kv hidden_size_per_layer_input laurel_rank "
    "router_hidden_size",
    16: "index_n_heads q_lora_rank kv_lora_rank o_lora_rank mamba_head_dim mamba_d_head "
    "mamba_headdim "
    "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size expert_dim "
    "shared_intermediate_size moe_shared_expert_intermediate_size",
    1: "n_group topk_group num_expert_group first_k_dense_replace n_shared_experts "
    "num_shared_experts num_dense_layers num_mtp_layers",
    5: "index_topk sliding_window attention_window_size window_size",
    256: "max_position_embeddings n_positions max_target_positions max_seq_len n_ctx "
    "max_source_positions",
}
SMALL = {name: size for size, names in _SIZES.items() for name in names.split()}

LINEAR = ["linear_attention", "full_attention"] * 2
ROPE = {"rope_type": "default", "rope_theta": 1e4}
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "granitemoehybrid": {"layer_types": LINEAR, "num_hidden_layers": 4, "num_local_experts": 4},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "ministral": {"head_dim": 8},
    "mamba2": {"num_heads": 4, "head_dim": 16, "expand": 2},
    "longcat_flash": {"head_dim": 4},
    "nemotron": {
        "head_dim": 8,
        "num_key_value_heads": 2,
        "rope_parameters": ROPE | {"partial_rotary_factor": 0.5},
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "ple_embed_dim": 8,
        "ngram_vocab_size_base": 50,
        "split_ngram_parts": 2,
        "hc_lowrank": 8,
        "heads_per_ngram": 2,
    },
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local", "lsh"]},
    "cohere_compass_text": {
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "num_hidden_layers": 4,
    },
    "deepseek_v2": {"num_experts_per_tok": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gemma3n_text": {
        "num_kv_shared_layers": 2,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "intermediate_size": 48,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "num_hidden_layers": 4,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4},
    "zaya": {"num_experts_per_tok": 1},
}
"""What some architectures need besides small sizes, to be built or to have all of their layers."""


def small(config: Any) -> dict[str, Any]:
    """Arguments of a small config of the same architecture as this one."""
    made: dict[str, Any] = {}
    for name in {field.name for field in fields(config)}:
        value = vars(config).get(name)
        if isinstance(value, int) and not isinstance(value, bool) and name in SMALL:
            made[name] = SMALL[name]
        elif name.endswith("token_id") and isinstance(value, int):
            made[name] = 0 if name == "pad_token_id" else min(value, VOCABULARY - 1)
        elif hasattr(value, "model_type"):
            made[name] = small(value) | OWN.get(value.model_type, {})
    if "kv_lora_rank" in made:  # latent attention has keys for every head
        made["num_key_value_heads"] = SMALL["num_attention_heads"]
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if kinds:
        number = max(2, len(kinds)) if len(kinds) != 2 else 4
        depth = next((n for n in ("num_hidden_layers", "n_layer", "num_layers") if n in made), None)
        if depth:
            made[depth] = number
        if any(field.name == "layer_types" for field in fields(config)):
            made["layer_types"] = (kinds * number)[:number]
    return made


def tiny_config(name: str) -> Any:
    """A small config of an architecture, by the name that `transformers` has for it."""
    kind = CONFIG_MAPPING[name]
    return kind(**small(kind()) | OWN.get(name, {}))


def tiny_model(name: str, attention: str = "eager", seed: int = 0) -> Any:
    """A model of random weights, so wide that every token of the context matters."""
    torch.manual_seed(seed)
    lm = AutoModelForCausalLM.from_config(tiny_config(name), attn_implementation=attention)
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 0.3)
    return lm.float().eval()
