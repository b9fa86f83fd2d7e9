"""Which step of a long question a solver fails at, read off along faultless solutions.

Scripted demonstrations (those of the bootstrap, without faults, in worlds of their own) solve
questions of one to four hops. Along each, this reads off the probability that a policy puts on the
right token wherever there is something to decide, hop by hop: the relation that is looked for next,
its value, and whether to search on or to answer. The demonstrations of the bootstrap have up to
three hops.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from agents.models import load_model
from agents.tiny.traces import Trace, TraceConfig
from benchmarks.chains import demonstrations, run
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.mini.lexicon import RELATIONS

_NOUNS = frozenset(relation.noun for relation in RELATIONS)


def main() -> int:
    """Measures the base policy, and each checkpoint that is given."""
    return run("solver_steps", __doc__, "mean_probability_of_the_right_token", _steps)


def _steps(policy: Path, hops: int, chains: int, seed: int) -> dict[str, float]:
    """By decision, the mean over chains; ``whole`` is that of all decisions of a chain at once."""
    tokenizer = HuggingFaceTokenizer.load(policy)
    model = load_model(policy).eval()

    found: dict[str, list[float]] = defaultdict(list)
    for trace in _traces(tokenizer, hops, chains, seed):
        ids = torch.tensor(trace.ids)
        with torch.no_grad():
            probabilities = torch.softmax(model(ids[None]).logits[0, :-1].float(), -1)

        whole = 1.0
        for name, place in _decisions(tokenizer, trace):
            right = float(probabilities[place - 1, ids[place]])
            found[name].append(right)
            whole *= right
        found["whole"].append(whole)
        for name, place, other in _skips(tokenizer, trace, hops):
            found[name].append(float(probabilities[place - 1, other]))
    return {name: float(f"{np.mean(values):.2g}") for name, values in found.items()}


def _decisions(tokenizer: HuggingFaceTokenizer, trace: Trace) -> Iterator[tuple[str, int]]:
    """What there is to decide, and the place of the token that decides it."""
    hop = 0
    for place, (token, own) in enumerate(zip(trace.ids, trace.mask, strict=True)):
        text = tokenizer.decode([token]).strip()
        if not own:
            continue
        if text in ("<search>", "<answer>") and hop:
            yield f"{text.strip('<>')} after {hop}", place
        if text in _NOUNS:
            hop += 1
            yield f"relation {hop}", place
            yield f"value {hop}", place + 1


def _skips(
    tokenizer: HuggingFaceTokenizer, trace: Trace, hops: int
) -> Iterator[tuple[str, int, int]]:
    """Where a relation is due, the one after it, as if a hop were left out."""
    due = [place for name, place in _decisions(tokenizer, trace) if name.startswith("relation")]
    for hop, (place, following) in enumerate(itertools.pairwise(due), start=1):
        if trace.ids[place] != trace.ids[following]:
            yield f"skips {hop}", place, trace.ids[following]


def _traces(tokenizer: HuggingFaceTokenizer, hops: int, chains: int, seed: int) -> list[Trace]:
    """Solutions of so many hops, without faults."""
    config = TraceConfig(
        proposer_share=0.0,
        solver_hops=(*[0.0] * (hops - 1), 1.0),
        premature=0.0,
        premature_deep=0.0,
        solver_slips=0.0,
        broken=0.0,
    )
    return demonstrations(tokenizer, config, chains, seed)


if __name__ == "__main__":
    sys.exit(main())
