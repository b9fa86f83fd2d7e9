"""An engine whose memory is full, by a limit on its process that makes allocations fail."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agents.engines.base import Request, StopRule, generate
from agents.engines.transformers_engine import TransformersEngine
from agents.tiny.model import tiny_tokenizer
from ssp_env.errors import ModelError
from ssp_env.tokenizers import HuggingFaceTokenizer

ROWS, TOKENS = 8, 256
WIDTH = 65_536
"""Of the layer's insides: a row of a pass needs three arrays of 67 MB, eight rows 1.6 GB."""
ROOM, LITTLE = 900_000_000, 60_000_000
"""Bytes that the process may take beside what it has: enough for some rows, and for none."""


def memory(place: Path, seed: int) -> dict[str, Any]:
    """Samples with all memory, with some, and with too little; see the package's head."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=64,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    lm = Qwen2ForCausalLM._from_config(config, attn_implementation="eager").eval()
    lm.save_pretrained(place)
    tiny_tokenizer().save_pretrained(place)
    tokenizer = HuggingFaceTokenizer.load(place)
    rng = np.random.default_rng(seed)
    prompts = rng.integers(10, tokenizer.vocab_size, size=(ROWS, TOKENS)).tolist()
    asked = [Request(key, ids, 6, 1.0, seed=key) for key, ids in enumerate(prompts)]

    def engine() -> TransformersEngine:
        return TransformersEngine(lm, tokenizer, StopRule(frozenset(), ()))

    expected = [generate(engine(), [request])[0].ids for request in asked]
    narrow = engine()
    with at_most(ROOM):
        found = [generation.ids for generation in generate(narrow, asked)]

    said = ""
    try:
        with at_most(LITTLE):
            generate(engine(), asked)
    except ModelError as error:
        said = str(error)

    rows = narrow._most_rows
    return {
        "rows": ROWS,
        "rows_side_by_side_with_some_memory": rows,
        "tokens_differ": sum(a != b for a, b in zip(expected, found, strict=True)),
        "said_with_too_little": said,
        "held": found == expected
        and rows is not None
        and 1 <= rows < ROWS
        and "lower game.max_prompt_tokens" in said,
    }


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Lets this process take so many more bytes of address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
