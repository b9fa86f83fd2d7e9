"""Search self-play from top to bottom in one file: no Ray, no trainer, plain PyTorch.

    python examples/self_play.py --steps 20

One language model writes search questions and answers them (Algorithm 1 of the paper). The game
itself (search, tags, budgets, filters, verification) is ``ssp_env``. The sampling engine and the
update (equations 4 and 5) are ``agents``: the same objects that ``ssp train`` uses, so that a run
of yours learns what one of ours does. The formulas for one token are in ``agents/losses.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch

from agents.columns import columns_of
from agents.config import LearningConfig
from agents.credit import credited
from agents.engines.base import Request, StopRule, generate
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from agents.rows import rows_of, with_loss_weights
from agents.scoring import TokenScorer
from agents.update import Update, adam
from ssp_env import MINI_GAME, Game, Round, Rules, open_world
from ssp_env.tokenizers import HuggingFaceTokenizer

N = 5  # attempts per question: the group that GRPO compares

# Names and losses are the paper's, values suit a policy of under a million parameters.
LEARNING = LearningConfig(
    batch_size=32,  # answers, and so questions, per step
    minibatches=1,
    temperature=1.0,  # of self-play; evaluation is greedy
    kl_coeff=0.01,  # to the reference policy (equation 4)
    clip_low=0.2,  # bounds of the importance ratio; they bite where games are used more than once
    clip_high=0.28,
    proposer_weight=0.03,  # of the proposer's loss beside the solver's; the paper has 1
    lr=3e-4,
    beta2=0.95,
    warmup_steps=0,
    drop_uniform_groups=True,  # attempts that all fail, or all succeed, have nothing to compare
    importance_cap=None,  # one update per step, from games of the very same weights
)


# -- rollout: Algorithm 1, lines 2 to 8 ------------------------------------------------------------


def play(round_: Round, engine: TransformersEngine, temperature: float, seed: int) -> list[Game]:
    """Plays a round to its end: every trajectory that waits for tokens gets its next turn.

    The round moves through its phases by itself, once all trajectories of a phase are done:

    - *propose*: the policy sees an answer, searches, and writes a question;
    - *filter*: rules refuse a bad format, a question without a search, one that holds its answer;
    - *verify*: the answer must follow from what the proposer found, mixed with noise documents,
      so a question that cannot be answered does not count (the paper's RAG verification);
    - *solve*: ``N`` attempts per question that passed. They see the question, never the answer.
    """
    rng = np.random.default_rng(seed)

    while waiting := round_.pending():
        requests = [
            Request(t.key, t.ids, t.tokens_left, temperature, int(rng.integers(1 << 63)))
            for t in waiting
        ]
        turns = generate(engine, requests)

        # Tokens go in as they were sampled. The trajectory masks what the policy did not write:
        # its prompt, and the documents that `advance` appends after a search.
        for trajectory, turn in zip(waiting, turns, strict=True):
            trajectory.feed(turn.ids, turn.logprobs)
        engine.release(t.key for t in waiting if t.done)
        round_.advance()

    return round_.games


# -- rewards, advantages, losses: lines 8 to 13 ----------------------------------------------------


def learnable(games: Sequence[Game]) -> dict[str, torch.Tensor]:
    """What a step's games teach, as columns of one row per trajectory.

    - An attempt that the judge calls right is paid 1, else 0. Its advantage is what it got more
      than the mean attempt at its question (GRPO, without division by the deviation).
    - A proposal is paid 1 - mean solve rate: hard questions pay. One that failed is paid 0. Its
      advantage is the reward itself (REINFORCE): with one proposal per answer there is nothing to
      compare it with.
    - A void game, which an outage of search or judge has stopped, gives no row.
    - Weights hold the denominators, B and n, however many games are valid. So the losses of rows
      simply add up.
    """
    rows = credited(rows_of(games, LEARNING), LEARNING, baselines={})
    rows = with_loss_weights(rows, LEARNING, LEARNING.batch_size, N)
    return {name: torch.as_tensor(column) for name, column in columns_of(rows).items()}


def make_update(model: Any, reference: Any, vocabulary: int) -> Update:
    """One optimizer step per call, on both roles together.

    Token by token: clipped policy loss and KL for attempts, log-probability times reward for
    proposals. The mask leaves out what the policy did not write.
    """
    policy, frozen = (
        TokenScorer(lm, LEARNING.temperature, vocabulary) for lm in (model, reference)
    )
    return Update(policy, adam(model.parameters(), LEARNING), LEARNING, reference=frozen)


# -- the loop --------------------------------------------------------------------------------------


def accuracy(rules: Rules, engine: TransformersEngine, per_group: int) -> dict[str, float]:
    """Pass@1 by the number of hops, on questions that are never trained on."""
    once = replace(rules, config=rules.config.replace(attempts=1))
    questions = rules.world.questions(0, per_group)
    games = play(Round.of_questions(once, questions, [0]), engine, temperature=0.0, seed=0)

    right: dict[str, list[bool]] = {}
    for question, game in zip(questions, games, strict=True):
        right.setdefault(question.group, []).extend(attempt.right for attempt in game.counted)

    return {group: fmean(values) for group, values in sorted(right.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Search self-play in one file.")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--questions", type=int, default=50, help="evaluated per number of hops")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so small a model runs fastest with one

    # The policy, a frozen copy as the reference, a world to search in, and the rules of the game.
    tokenizer = HuggingFaceTokenizer.load(tiny_directory())
    model, reference = load_model(tiny_directory()), load_model(tiny_directory())
    rules = Rules.build(open_world("mini"), tokenizer, MINI_GAME.replace(attempts=N))
    engine = TransformersEngine(model, tokenizer, StopRule.of(rules.config, tokenizer))
    update = make_update(model, reference, tokenizer.vocab_size)

    def draw(rng: np.random.Generator, count: int) -> list[Any]:
        """Ground truths to ask about (line 1)."""
        answers = rules.world.answers
        return [answers[i] for i in rng.choice(len(answers), count, replace=False)]

    print("accuracy before:", accuracy(rules, engine, arguments.questions), flush=True)

    for step in range(1, arguments.steps + 1):
        seed = arguments.seed * 1_000_003 + step
        round_ = Round(rules, draw, LEARNING.batch_size, [seed])
        games = play(round_, engine, LEARNING.temperature, seed)
        figures = update(learnable(games), step - 1)

        # The engine samples from the same tensors; it only has to forget what it computed before.
        engine.update_weights(model.state_dict(), step)

        rewards = [game.proposer_reward or 0.0 for game in games]
        valid = [game for game in games if game.outcome == "valid"]
        solved = [attempt.right for game in valid for attempt in game.counted]
        print(
            f"step {step:3d}",
            f"proposer reward {fmean(rewards):.3f}",
            f"valid {len(valid) / len(games):.3f}",
            f"solve rate {fmean(solved) if solved else float('nan'):.3f}",
            f"loss {figures['loss']:+.5f}",
            sep="   ",
            flush=True,
        )

    print("accuracy after: ", accuracy(rules, engine, arguments.questions), flush=True)


if __name__ == "__main__":
    main()
