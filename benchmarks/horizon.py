"""How likely a proposer writes a question that is longer than any it was shown.

Scripted demonstrations (those of the bootstrap, without faults, in worlds of their own) search
their way through chains of one to four hops. At the end of each, this reads off the probability
that a policy puts on the one right question, at several temperatures. The demonstrations
of the bootstrap have up to three hops.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from agents.models import load_model
from agents.tiny.traces import Trace, TraceConfig
from benchmarks.chains import demonstrations, run
from ssp_env.tokenizers import HuggingFaceTokenizer

TEMPERATURES = (1.0, 1.5, 2.0)


def main() -> int:
    """Measures the base policy, and each checkpoint that is given."""
    return run("horizon", __doc__, "probability_of_the_right_question", _probabilities)


def _probabilities(policy: Path, hops: int, chains: int, seed: int) -> dict[str, float]:
    """By temperature, the mean over chains of the probability of the whole question."""
    tokenizer = HuggingFaceTokenizer.load(policy)
    model = load_model(policy).eval()
    (opening,) = tokenizer.encode("<question>")

    found: dict[str, list[float]] = {f"temperature {value}": [] for value in TEMPERATURES}
    for trace in _traces(tokenizer, hops, chains, seed):
        question = max(place for place, token in enumerate(trace.ids) if token == opening) + 1
        ids = torch.tensor(trace.ids)
        with torch.no_grad():
            logits = model(ids[None]).logits[0, question - 1 : -1].float()

        for value, probabilities in zip(TEMPERATURES, found.values(), strict=True):
            scores = torch.log_softmax(logits / value, -1)
            log_probability = scores.gather(1, ids[question:, None]).sum()
            probabilities.append(float(log_probability.exp()))
    return {name: float(f"{np.mean(values):.2g}") for name, values in found.items()}


def _traces(tokenizer: HuggingFaceTokenizer, hops: int, chains: int, seed: int) -> list[Trace]:
    """Proposals of so many hops, without faults."""
    config = TraceConfig(
        proposer_share=1.0,
        proposer_hops=(*[0.0] * (hops - 1), 1.0),
        proposer_slips=0.0,
        proposer_citizens=0.0,
        broken=0.0,
    )
    return demonstrations(tokenizer, config, chains, seed)


if __name__ == "__main__":
    sys.exit(main())
