"""Fused attention beside the plain one, in the engine of transformers on a CPU.

    OMP_NUM_THREADS=1 python -m benchmarks.engine_speed --out engine_speed.json

A Qwen2 of 2.1 million parameters with random weights goes on with sequences of 400 tokens, is shown
1,400 tokens of documents, and goes on again. Both attentions take turns; times are CPU-seconds.
"""

from __future__ import annotations

import time
from functools import partial

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.harness import in_turns, parser, ratio, write
from ssp_agents.engines.base import Request, StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import tiny_directory
from ssp_env.tokenizers import HuggingFaceTokenizer

SEQUENCES, BEGINNING, DOCUMENTS, TURN = 8, 400, 1400, 30


def main() -> None:
    """Measures both and writes the ratio."""
    options = parser(__doc__)
    options.add_argument("--turns", type=int, default=3, help="timed ones of each")
    settings = options.parse_args()
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())

    def seconds(attention: str) -> float:
        torch.manual_seed(settings.seed)
        shape = Qwen2Config(
            vocab_size=tokenizer.vocab_size,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
            attn_implementation=attention,
        )
        model = Qwen2ForCausalLM(shape).eval()
        engine = TransformersEngine(model, tokenizer, StopRule(frozenset(), ()))
        ids = torch.randint(tokenizer.vocab_size, (SEQUENCES, BEGINNING + DOCUMENTS)).tolist()

        began = time.process_time()
        for length in (BEGINNING, BEGINNING + DOCUMENTS):
            engine.submit([Request(k, row[:length], TURN, 1.0, k) for k, row in enumerate(ids)])
            written = dict(each for _ in range(TURN) for each in engine.step())
            assert len(written) == SEQUENCES
            for k, turn in written.items():
                ids[k][length : length + TURN] = turn.ids
        return time.process_time() - began

    sides = {name: partial(seconds, name) for name in ("eager", "sdpa")}
    found = in_turns(sides, settings.turns)
    result = {"cpu_seconds": found, "eager_over_sdpa": ratio(found["eager"], found["sdpa"])}
    write(settings.out, {"seed": settings.seed, **result})


if __name__ == "__main__":
    main()
