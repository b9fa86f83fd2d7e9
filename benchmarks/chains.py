"""Policies read off along faultless demonstrations of one to four hops: what such benchmarks share.

The demonstrations are those of the bootstrap, in worlds of their own; it has none of four hops.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from agents.models import tiny_directory
from agents.tiny.traces import Trace, TraceConfig, TraceWriter
from benchmarks.origin import origin
from ssp_env.game.config import MINI_GAME
from ssp_env.tokenizers import HuggingFaceTokenizer

Measure = Callable[[Path, int, int, int], dict[str, float]]
"""From a policy, a number of hops, how many chains and a seed to figures by name."""


def run(name: str, description: str | None, figure: str, measure: Measure) -> int:
    """Measures the base policy, and each checkpoint that is given; writes a JSON file.

    Args:
        name: of the benchmark.
        description: for its help.
        figure: what is measured.
        measure: does so for one policy and one number of hops.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "policies", nargs="*", help="NAME=DIRECTORY of further policies, such as step80=RUN/..."
    )
    parser.add_argument("--chains", type=int, default=100, help="per number of hops")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(1)

    named = dict(given.split("=", 1) for given in settings.policies)
    policies = {"base": tiny_directory(), **{name: Path(given) for name, given in named.items()}}
    result = {
        **origin(name),
        "chains": settings.chains,
        "seed": settings.seed,
        figure: {
            one: {
                f"{hops} hops": measure(policy, hops, settings.chains, settings.seed)
                for hops in (1, 2, 3, 4)
            }
            for one, policy in policies.items()
        },
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


def demonstrations(
    tokenizer: HuggingFaceTokenizer, config: TraceConfig, chains: int, seed: int
) -> list[Trace]:
    """So many demonstrations."""
    game = MINI_GAME.replace(max_response_tokens=512)
    writer = TraceWriter(config, game, tokenizer, np.random.default_rng(seed))
    return list(itertools.islice(writer.stream(), chains))
