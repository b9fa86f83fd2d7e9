"""Search self-play from top to bottom in one file: no Ray, no trainer, plain PyTorch.

    python examples/self_play.py --steps 20

One language model writes search questions and answers them (Algorithm 1 of the paper). The game
itself (search, tags, budgets, filters, verification) is ``ssp_env``; the sampling engine is
``agents``; everything that learns is spelled out here. ``ssp train`` makes the same update in
micro-batches, on several machines and with more settings: a test holds the two together.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.engines.base import Request, StopRule, generate
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from ssp_env import MINI_GAME, Game, Round, Rules, Trajectory, open_world
from ssp_env.tokenizers import HuggingFaceTokenizer

# The paper's names for them, with values that suit a policy of under a million parameters.
B = 32  # answers, and so questions, per step
N = 5  # attempts per question: the group that GRPO compares
TEMPERATURE = 1.0  # of self-play; evaluation is greedy
BETA = 0.01  # weight of the KL to the reference policy (equation 4)
CLIP_LOW, CLIP_HIGH = 0.2, 0.28  # bounds of the importance ratio; they bite where a batch is reused
PROPOSER_WEIGHT = 0.03  # of the proposer's loss beside the solver's; the paper has 1
LEARNING_RATE, BETA2, MAX_GRAD_NORM = 3e-4, 0.95, 1.0


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


# -- rewards and advantages: lines 8 to 10 ---------------------------------------------------------


def solver_rewards(game: Game) -> list[float]:
    """1 for each attempt that the judge calls right, else 0 (line 8)."""
    return [1.0 if attempt.right else 0.0 for attempt in game.counted]


def proposer_reward(game: Game) -> float:
    """1 - mean solve rate (line 9): hard questions pay. An invalid question pays 0, never less."""
    return 1.0 - fmean(solver_rewards(game)) if game.outcome == "valid" else 0.0


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """How much better each attempt did than its group's mean; no division by the deviation."""
    mean = fmean(rewards)
    return [reward - mean for reward in rewards]


# -- losses: equations 4 and 5 ---------------------------------------------------------------------


def token_logprobs(model: Any, trajectory: Trajectory) -> Tensor:
    """Log-probabilities (tokens,) of what the policy wrote; other tokens are only read."""
    ids = torch.tensor(trajectory.ids)
    own = torch.tensor(list(trajectory.mask[1:]), dtype=torch.bool)

    # The logits at position t belong to the token at t + 1.
    logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0, own]
    logprobs = torch.log_softmax(logits / TEMPERATURE, dim=-1)

    return logprobs.gather(1, ids[1:][own][:, None]).squeeze(1)


def grpo_loss(model: Any, reference: Any, trajectory: Trajectory, advantage: float) -> Tensor:
    """Equation 4 for one attempt: the mean over its tokens of clipped policy loss and KL."""
    logprobs = token_logprobs(model, trajectory)
    with torch.no_grad():
        reference_logprobs = token_logprobs(reference, trajectory)

    # The ratio is 1 as long as a batch is used once: its gradient is then A * grad log pi.
    behaviour = torch.tensor(trajectory.logprobs)[torch.tensor(list(trajectory.mask)) > 0]
    ratio = torch.exp(logprobs - behaviour)
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage)

    # KL(policy || reference) from samples: unbiased and never negative (Schulman's k3).
    difference = reference_logprobs - logprobs
    kl = torch.exp(difference) - difference - 1

    return (policy_loss + BETA * kl).mean()


def reinforce_loss(model: Any, trajectory: Trajectory, reward: float) -> Tensor:
    """Equation 5 for one proposal: its log-probability, weighted by its reward.

    There is no baseline: with one proposal per answer, a group's mean would cancel every reward.
    """
    return -reward * token_logprobs(model, trajectory).sum()


# -- update: lines 12 and 13 -----------------------------------------------------------------------


def loss_terms(model: Any, reference: Any, games: Sequence[Game]) -> Iterator[Tensor]:
    """What each trajectory adds to the loss. Denominators are B and n, however many are valid."""
    for game in games:
        # An outage of search or judge is not an outcome of play.
        if game.outcome == "void":
            continue

        # Attempts that all fail, or all succeed, have nothing to compare.
        rewards = solver_rewards(game)
        if game.outcome == "valid" and len(set(rewards)) > 1:
            for attempt, advantage in zip(game.counted, group_advantages(rewards), strict=True):
                yield grpo_loss(model, reference, attempt.trajectory, advantage) / (B * N)

        # No reward, no gradient.
        reward = proposer_reward(game)
        if game.proposer is not None and reward != 0:
            yield PROPOSER_WEIGHT * reinforce_loss(model, game.proposer, reward) / B


def update(
    model: Any, reference: Any, optimizer: torch.optim.Optimizer, games: Sequence[Game]
) -> dict[str, float]:
    """One optimizer step on both roles together."""
    optimizer.zero_grad()
    loss = 0.0

    # One trajectory at a time: gradients add up, and memory holds one graph.
    for term in loss_terms(model, reference, games):
        term.backward()
        loss += float(term.detach())

    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    return {"loss": loss, "grad_norm": float(norm)}


# -- the loop --------------------------------------------------------------------------------------


def accuracy(rules: Rules, engine: TransformersEngine, per_group: int) -> dict[str, float]:
    """Pass@1 by the number of hops, on questions that are never trained on."""
    once = replace(rules, config=replace(rules.config, attempts=1))
    questions = rules.world.questions(0, per_group)
    games = play(Round.of_questions(once, questions, [0]), engine, temperature=0.0, seed=0)

    right: dict[str, list[float]] = {}
    for question, game in zip(questions, games, strict=True):
        right.setdefault(question.group, []).extend(solver_rewards(game))

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
    rules = Rules.build(open_world("mini"), tokenizer, replace(MINI_GAME, attempts=N))
    engine = TransformersEngine(model, tokenizer, StopRule.of(rules.config, tokenizer))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, BETA2))

    def draw(rng: np.random.Generator, count: int) -> list[Any]:
        """Ground truths to ask about (line 1)."""
        answers = rules.world.answers
        return [answers[i] for i in rng.choice(len(answers), count, replace=False)]

    print("accuracy before:", accuracy(rules, engine, arguments.questions), flush=True)

    for step in range(1, arguments.steps + 1):
        seed = arguments.seed * 1_000_003 + step
        games = play(Round(rules, draw, B, [seed]), engine, TEMPERATURE, seed)
        figures = update(model, reference, optimizer, games)

        # The engine samples from the same tensors; it only has to forget what it computed before.
        engine.update_weights(model.state_dict(), step)

        valid = [game for game in games if game.outcome == "valid"]
        solved = [reward for game in valid for reward in solver_rewards(game)]
        print(
            f"step {step:3d}",
            f"proposer reward {fmean(proposer_reward(game) for game in games):.3f}",
            f"valid {len(valid) / B:.3f}",
            f"solve rate {fmean(solved) if solved else float('nan'):.3f}",
            f"loss {figures['loss']:+.5f}",
            sep="   ",
            flush=True,
        )

    print("accuracy after: ", accuracy(rules, engine, arguments.questions), flush=True)


if __name__ == "__main__":
    main()
