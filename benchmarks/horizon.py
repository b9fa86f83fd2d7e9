"""How likely a policy goes beyond the three hops that its bootstrap showed, decision by decision.

Scripted demonstrations (those of the bootstrap, without faults, in worlds of their own) ask and
solve questions of one to four hops. Along each, this reads off what a policy finds probable: of a
proposer, the one right question, at several temperatures; of a solver, the right token wherever
there is something to decide: the next relation, its value, and whether to search on or to answer.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.models import load_model, tiny_directory
from agents.tiny.traces import Trace, TraceWriter
from benchmarks.harness import parser, write
from ssp_env.game.config import MINI_GAME
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.worlds.mini_language import RELATIONS

TEMPERATURES = (1.0, 1.5, 2.0)
_NOUNS = frozenset(relation.noun for relation in RELATIONS)
Figures = dict[str, list[float]]


def main() -> int:
    """Measures the base policy, and each checkpoint that is given."""
    options = parser(__doc__)
    options.add_argument("policies", nargs="*", help="NAME=DIRECTORY, such as step80=RUN/...")
    options.add_argument("--chains", type=int, default=100, help="per number of hops")
    settings = options.parse_args()
    torch.set_num_threads(1)

    named = dict(given.split("=", 1) for given in settings.policies)
    result: dict[str, Any] = {"chains": settings.chains, "seed": settings.seed, "policies": {}}
    for name, directory in {"base": tiny_directory(), **named}.items():
        tokenizer = HuggingFaceTokenizer.load(Path(directory))
        policy = load_model(Path(directory)).eval()
        found: dict[str, Any] = {"proposer": {}, "solver": {}}
        result["policies"][name] = found
        for hops in (1, 2, 3, 4):
            asked: Figures = defaultdict(list)
            solved: Figures = defaultdict(list)
            for trace in demonstrations(tokenizer, True, hops, settings.chains, settings.seed):
                ask(policy, tokenizer, trace, asked)
            for trace in demonstrations(tokenizer, False, hops, settings.chains, settings.seed):
                solve(policy, tokenizer, trace, solved)
            for role, figures in (("proposer", asked), ("solver", solved)):
                found[role][f"{hops} hops"] = {
                    what: float(f"{np.mean(values):.2g}") for what, values in figures.items()
                }

    write(settings.out, result)
    return 0


def demonstrations(
    tokenizer: HuggingFaceTokenizer, proposes: bool, hops: int, chains: int, seed: int
) -> list[Trace]:
    """Faultless proposals, or solutions, of so many hops."""
    only = (*[0.0] * (hops - 1), 1.0)
    hop_shares: dict[str, Any] = {"proposer_hops" if proposes else "solver_hops": only}
    writer = TraceWriter(
        MINI_GAME.replace(max_response_tokens=512),
        tokenizer,
        np.random.default_rng(seed),
        faults=False,
        proposer_share=float(proposes),
        **hop_shares,
    )
    return list(islice(writer.stream(), chains))


@torch.no_grad()
def ask(policy: Any, tokenizer: HuggingFaceTokenizer, trace: Trace, found: Figures) -> None:
    """Adds the probability of the whole question, by temperature."""
    (opening,) = tokenizer.encode("<question>")
    question = max(place for place, token in enumerate(trace.ids) if token == opening) + 1
    ids = torch.tensor(trace.ids)
    logits = policy(ids[None]).logits[0, question - 1 : -1].float()

    for value in TEMPERATURES:
        scores = torch.log_softmax(logits / value, -1)
        probability = scores.gather(1, ids[question:, None]).sum().exp()
        found[f"temperature {value}"].append(float(probability))


@torch.no_grad()
def solve(policy: Any, tokenizer: HuggingFaceTokenizer, trace: Trace, found: Figures) -> None:
    """Adds the probability of each right decision; ``whole`` is that of all of them at once, and
    ``skips n`` that of the relation after the one that is due, as if a hop were left out."""
    ids = torch.tensor(trace.ids)
    probabilities = torch.softmax(policy(ids[None]).logits[0, :-1].float(), -1)
    decided = list(decisions(tokenizer, trace))

    right = [float(probabilities[place - 1, ids[place]]) for _, place in decided]
    for (name, _), probability in zip(decided, right, strict=True):
        found[name].append(probability)
    found["whole"].append(float(np.prod(right)))

    due = [place for name, place in decided if name.startswith("relation")]
    for hop, (place, following) in enumerate(pairwise(due), start=1):
        if trace.ids[place] != trace.ids[following]:
            skipped = float(probabilities[place - 1, trace.ids[following]])
            found[f"skips {hop}"].append(skipped)


def decisions(tokenizer: HuggingFaceTokenizer, trace: Trace) -> Iterator[tuple[str, int]]:
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


if __name__ == "__main__":
    sys.exit(main())
