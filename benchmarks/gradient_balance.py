"""How loud each role is: gradient norms of proposer and solver under each aggregation.

A round of the tiny policy gives the rewards. Then trajectories of other lengths are sampled from
the same policy, from the same prompts and past any end of turn, and keep the rewards of those that
they stand for: real proposals of a large policy have hundreds of tokens.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.columns import Columns, columns_of
from agents.config import LearningConfig
from agents.credit import credited
from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from agents.rollout import play
from agents.rows import Row, rows_of, with_loss_weights
from agents.scoring import Scores, token_scores
from agents.update import Update, merge_figures
from benchmarks.origin import origin
from experiments.config import load_preset, make_config
from ssp_env import Round, Rules, open_world
from ssp_env.tokenizers import HuggingFaceTokenizer

PLAYED = 0
"""Stands for the lengths that were really played."""


def main() -> int:
    """Measures all lengths and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=[PLAYED, 50, 200, 500])
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(1)

    config = make_config(load_preset("tiny"))
    learning = replace(config.learning, proposer_weight=1.0, drop_uniform_groups=False)
    model = load_model(tiny_directory())
    rows = played(model, config, settings.seed)
    norms = []
    for length in settings.lengths:
        some = rows if length == PLAYED else stretched(model, rows, length, settings.seed)
        for aggregation in ("sum", "sequence", "token"):
            measured = measure(replace(learning, proposer_aggregation=aggregation), some, config)
            norms.append({"tokens": mean_tokens(some), "aggregation": aggregation, **measured})
            print(norms[-1], flush=True)

    result = {
        **origin("gradient_balance"),
        "seed": settings.seed,
        "proposer_weight": 1.0,
        "norms": norms,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def played(model: Any, config: Any, seed: int) -> list[Row]:
    """The rows of a round."""
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    rules = Rules.build(open_world("mini"), tokenizer, config.game)
    engine = TransformersEngine(model, tokenizer, StopRule.of(config.game, tokenizer))
    answers = rules.world.answers
    round_ = Round(
        rules,
        lambda rng, count: [answers[i] for i in rng.choice(len(answers), count, replace=False)],
        config.learning.batch_size,
        [seed],
    )
    play(round_, engine, temperature=1.0)
    return rows_of(round_.games, config.learning)


@torch.no_grad()
def stretched(model: Any, rows: Sequence[Row], length: int, seed: int) -> list[Row]:
    """Rows with the same prompts and rewards, and exactly so many tokens of the policy's own."""
    generator = torch.Generator().manual_seed(seed)
    result = []
    for row in rows:
        prompt = row.ids[: int(np.flatnonzero(row.mask)[0])]
        ids, logprobs = sample(model, prompt, length, generator)
        mask = np.zeros(len(ids), dtype=np.uint8)
        mask[len(prompt) :] = 1
        result.append(replace(row, ids=ids, mask=mask, logprobs=logprobs))
    return result


def sample(
    model: Any, prompt: np.ndarray, length: int, generator: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and log-probabilities of a prompt and what the policy writes after it."""
    given = torch.as_tensor(prompt, dtype=torch.int64)[None]
    ids, logprobs = list(prompt), [0.0] * len(prompt)
    cache = None
    for _ in range(length):
        out = model(input_ids=given, past_key_values=cache, use_cache=True)
        cache, every = out.past_key_values, torch.log_softmax(out.logits[0, -1].float(), dim=-1)
        token = int(torch.multinomial(every.exp(), 1, generator=generator))
        ids.append(token)
        logprobs.append(float(every[token]))
        given = torch.tensor([[token]])
    return np.array(ids, dtype=np.int32), np.array(logprobs, dtype=np.float32)


def measure(learning: LearningConfig, rows: Sequence[Row], config: Any) -> dict[str, float]:
    """Gradient norms of an update of the tiny policy."""
    model, reference = load_model(tiny_directory()), load_model(tiny_directory())
    vocab = len(HuggingFaceTokenizer.load(tiny_directory()).pieces)

    def scorer(lm: Any) -> Any:
        def score(part: Columns) -> Scores:
            return token_scores(lm, part["ids"], part["loss_mask"], 1.0, vocab)

        return score

    optimizer = torch.optim.Adam(model.parameters(), lr=learning.lr)
    update = Update(scorer(model), optimizer, learning, reference=scorer(reference))
    weighted = with_loss_weights(
        credited(rows, learning, {}), learning, learning.batch_size, config.game.attempts
    )
    columns = {name: torch.as_tensor(value) for name, value in columns_of(weighted).items()}
    figures = merge_figures([update(columns, 0)])
    norms = {role: figures[f"{role}_grad_norm"] for role in ("proposer", "solver")}
    return {**norms, "ratio": norms["proposer"] / norms["solver"]}


def mean_tokens(rows: Sequence[Row]) -> dict[str, float]:
    """Mean number of the policy's own tokens, by role."""
    roles = ("proposer", "solver")
    return {role: float(np.mean([r.tokens for r in rows if r.role == role])) for role in roles}


if __name__ == "__main__":
    raise SystemExit(main())
