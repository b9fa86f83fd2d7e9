"""The tiny policy: a stock Lfm2, its tokenizer, and its training on demonstrations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.models import WordLevel
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, Lfm2Config, Lfm2ForCausalLM, PreTrainedTokenizerFast

from ssp_agents.checksums import write_checksums
from ssp_agents.shipped.tiny.traces import Trace, TraceWriter
from ssp_env.game.config import GameConfig
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.plain import EOS, PAD, UNKNOWN, WORD, WordTokenizer
from ssp_env.worlds.mini_language import vocabulary


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The mini world's words and tags as a `transformers` tokenizer, with `WordTokenizer`'s ids."""
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

    ``width`` is a multiple of ``HEAD_SIZE``; with the vocabulary of the mini world, 64, 128, 192
    and 320 give 0.3, 0.9, 2.0 and 5.2 million parameters.
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
    model: Lfm2ForCausalLM = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
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


# -- training ----------------------------------------------------------------------------------

POOL = 256
"""Traces that are sorted by length together."""
_TRACES = 0xB007
"""Second number of the seed that demonstrations are drawn by."""
STEPS = 1800
"""Optimizer steps of the policy that ships."""
TOKENS_PER_STEP = 6000
"""Tokens of one step's batch, padding included, at most."""
LR = 4e-3
"""Highest learning rate of AdamW at width 128, at others in inverse proportion to the width; 50
steps of warm-up, linear decay to a twentieth."""
SIMPLE_SHARE = 0.45
"""The first share of the steps shows one-hop demonstrations without faults. Looking a value up is
learnt from these or not at all: among faulty ones a model stays where it copies names that are not
in the documents."""


def bootstrap(
    game: GameConfig,
    seed: int = 0,
    width: int = WIDTH,
    steps: int = STEPS,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> Lfm2ForCausalLM:
    """Trains a fresh tiny policy, in float32.

    The same seed gives the same weights, to the bit, on one kind of processor; on another they may
    differ, since PyTorch picks its kernels by the instructions that the processor has.

    ``game`` is the format that it will play in (prompts, ``top_k``). ``report`` is called after
    each step with its number and its loss in nats a token.
    """
    tokenizer = HuggingFaceTokenizer(tiny_tokenizer())
    generator = torch.Generator().manual_seed(seed)
    model = tiny_model(tokenizer.vocab_size, generator, width)
    rng = np.random.default_rng([seed, _TRACES])
    simple = TraceWriter(
        game, tokenizer, rng, faults=False, solver_hops=(1.0,), proposer_hops=(1.0,)
    )
    writers = simple, TraceWriter(game, tokenizer, rng)
    at_first, later = (endless(writer.stream(), rng) for writer in writers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    # Adam moves each weight by about lr, and a layer sums up width of them.
    lr = LR * WIDTH / width

    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr * rate(step, steps)

        batch = next(at_first if step <= SIMPLE_SHARE * steps else later)
        loss, _ = token_loss(model, batch)
        descend(optimizer, loss, model)
        report(step, float(loss.detach()))

    return model.eval()


def save_policy(
    model: Lfm2ForCausalLM, directory: str | Path, tokenizer: PreTrainedTokenizerFast | None = None
) -> None:
    """Writes config, weights and tokenizer (the tiny one, unless told), readable by everybody."""
    model.save_pretrained(directory)
    (tokenizer or tiny_tokenizer()).save_pretrained(directory)
    write_checksums(directory)
    for file in Path(directory).iterdir():
        file.chmod(0o644)


def batches(pool: list[Trace], rng: np.random.Generator) -> Iterator[list[Trace]]:
    """Batches of at most ``TOKENS_PER_STEP`` tokens, in random order. Each holds traces of similar
    length, which saves a third of the padding."""
    parts: list[list[Trace]] = [[]]
    for trace in sorted(pool, key=lambda trace: len(trace.ids)):
        # Lengths rise, so the batch would be padded to this trace's.
        if len(trace.ids) * (len(parts[-1]) + 1) > TOKENS_PER_STEP:
            parts.append([])
        parts[-1].append(trace)
    return (parts[i] for i in rng.permutation(len(parts)))


def padded(batch: Sequence[Trace], name: str, value: int = 0) -> torch.Tensor:
    """An attribute of traces: int64 (rows, length), filled up on the right."""
    return pad_sequence([torch.tensor(getattr(trace, name)) for trace in batch], True, value)


def rate(step: int, steps: int) -> float:
    """Share of the highest learning rate, see ``LR``."""
    # A rise over 50 steps, then a line from 1 to .05.
    return step / 50 if step < 50 else 1.0 - 0.95 * (step - 50) / max(1, steps - 50)


def endless(stream: Iterator[Trace], rng: np.random.Generator) -> Iterator[list[Trace]]:
    """Batches of a stream of demonstrations that never ends, pool by pool."""
    while True:
        yield from batches(list(islice(stream, POOL)), rng)


def token_loss(
    model: Lfm2ForCausalLM, batch: Sequence[Trace], **outputs: Any
) -> tuple[torch.Tensor, Any]:
    """Mean cross-entropy of the player's own tokens, in nats, and what the layers gave out, with
    what they were asked for; being causal, they ignore the right padding."""
    ids, by_policy = padded(batch, "ids"), padded(batch, "mask")[:, 1:] > 0
    read = model.model(input_ids=ids[:, :-1], use_cache=False, **outputs)
    logits = model.lm_head(read.last_hidden_state[by_policy])  # (tokens, vocabulary)
    loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:][by_policy])
    if not math.isfinite(float(loss.detach())):
        raise FloatingPointError("the bootstrap diverged: its loss is not finite")
    return loss, read


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor, model: Lfm2ForCausalLM) -> None:
    """One step down a loss, with the gradient's norm held at 1."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
