"""The tiny policy: a stock Lfm2 with fewer than a million parameters, and its tokenizer."""

from __future__ import annotations

import math

import torch
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.models import WordLevel
from transformers import Lfm2Config, Lfm2ForCausalLM, PreTrainedTokenizerFast

from ssp_env.game.protocol import Tags
from ssp_env.tokenizers.plain import EOS, PAD, UNKNOWN, WORD, WordTokenizer
from ssp_env.worlds.mini_language import vocabulary


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The mini-wiki's words and tags as a `transformers` tokenizer, with `WordTokenizer`'s ids."""
    words = WordTokenizer(vocabulary(), Tags().all())
    raw = RawTokenizer(
        WordLevel({token: i for i, token in enumerate(words.tokens)}, unk_token=UNKNOWN)
    )
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    raw.add_special_tokens([PAD, EOS, UNKNOWN, *words.tags])

    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN
    )


WIDTH = 128
"""Of the tiny policy that ships."""
HEAD_SIZE = 64
"""Of each attention head, at every width: copying of names needs heads of this size."""


def tiny_config(vocab_size: int, width: int = WIDTH) -> Lfm2Config:
    """Four layers: convolution, attention, convolution, attention.

    ``width`` is a multiple of ``HEAD_SIZE``; with the vocabulary of the mini-wiki, 64, 128, 192 and
    320 give 0.3, 0.9, 2.0 and 5.2 million parameters.
    """
    return Lfm2Config(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=width * 5 // 2,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=4,
        num_attention_heads=width // HEAD_SIZE,
        num_key_value_heads=width // HEAD_SIZE,
        layer_types=["conv", "full_attention", "conv", "full_attention"],
        conv_L_cache=4,
        conv_bias=False,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        dtype="float32",
        # vLLM reads these two; the configuration class does not define them.
        block_dim=width,
        conv_dim=width,
    )


def tiny_model(vocab_size: int, generator: torch.Generator, width: int = WIDTH) -> Lfm2ForCausalLM:
    """A fresh model; arguments as of :func:`tiny_config`.

    The stock initialisation stalls at this size; wide embeddings and taps make the difference.
    """
    config = tiny_config(vocab_size, width)
    model = Lfm2ForCausalLM._from_config(config, attn_implementation="eager")
    # The same variance of what a layer gives out, however many inputs it sums up.
    # Var(sum of w_i x_i) = width Var(w) Var(x).
    spread = 0.06 * math.sqrt(WIDTH / width)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_tokens" in name:
                parameter.normal_(0.0, 0.2, generator=generator)
            elif name.endswith("conv.conv.weight"):
                parameter.uniform_(-0.5, 0.5, generator=generator)
            elif parameter.ndim >= 2:
                parameter.normal_(0.0, spread, generator=generator)

    model.tie_weights()
    return model
