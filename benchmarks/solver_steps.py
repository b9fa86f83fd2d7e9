"""Which step of a long question a solver fails at, read off along faultless solutions.

Scripted demonstrations (those of the bootstrap, without faults, in worlds of their own) solve
questions of one to four hops. Along each, this reads off the probability that a policy puts on the
right token wherever there is something to decide, hop by hop: the relation that is looked for next,
its value, and whether to search on or to answer. The demonstrations of the bootstrap have up to
three hops.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from agents.models import load_model, tiny_directory
from agents.tiny.traces import Trace, TraceConfig, TraceWriter
from experiments.run.provenance import git_commit, machine
from ssp_env.game.config import MINI_GAME
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.mini.lexicon import RELATIONS

_NOUNS = frozenset(relation.noun for relation in RELATIONS)


def main() -> int:
    """Measures the base policy, and each checkpoint that is given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "policies", nargs="*", help="NAME=DIRECTORY of further policies, such as step80=RUN/..."
    )
    parser.add_argument("--chains", type=int, default=200, help="per number of hops")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(1)

    named = dict(given.split("=", 1) for given in settings.policies)
    policies = {"base": tiny_directory(), **{name: Path(given) for name, given in named.items()}}
    result = {
        "command": " ".join(["python -m benchmarks.solver_steps", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "chains": settings.chains,
        "seed": settings.seed,
        "mean_probability_of_the_right_token": {
            name: {
                f"{hops} hops": _steps(policy, hops, settings.chains, settings.seed)
                for hops in (1, 2, 3, 4)
            }
            for name, policy in policies.items()
        },
    }
    settings.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


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
    game = replace(MINI_GAME, max_response_tokens=512)
    writer = TraceWriter(config, game, tokenizer, np.random.default_rng(seed))
    return list(itertools.islice(writer.stream(), chains))


if __name__ == "__main__":
    sys.exit(main())
