"""Search self-play from top to bottom in one file: the environment, an engine, plain PyTorch.

    python examples/self_play.py --steps 20

One language model writes search questions and answers them (Algorithm 1 of "Search Self-play",
arXiv 2510.18821). ``ssp_env`` is the game: prompts, searches, tags and budgets, and the order of
its phases. ``ssp_agents.engines`` samples, with a KV cache. All that decides what is learnt is
here: filters, rewards, advantages, both losses and the optimizer step. One update equals that of
``ssp train`` with the settings of ``tiny``, to rounding.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from ssp_agents.engines.base import Request, StopRule, generate
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_env import MINI_GAME, Game, GameBatch, Rules, open_world
from ssp_env.tokenizers import HuggingFaceTokenizer

MODEL = Path(__file__).parents[1] / "agents" / "ssp_agents" / "shipped" / "tiny" / "checkpoint"

# The paper's names. Its values are in brackets where these, for a policy of under a million
# parameters, are others.
B = 32  # answers per step, and so questions [256]
N = 5  # attempts per question: the group that GRPO compares
BETA = 0.01  # weight of the KL to the reference policy
CLIP_LOW, CLIP_HIGH = 0.2, 0.28  # bounds of the importance ratio, for updates that reuse games
PROPOSER_WEIGHT = 0.03  # of the proposer's loss beside the solver's [1]
LR, BETAS, MAX_GRAD_NORM = 3e-4, (0.9, 0.95), 1.0  # [1e-6, (.9, .999)]
ROWS_PER_PASS = 64


# -- the rules: which questions count, and what is paid (lines 4, 7, 8) ----------------------------


def no_search(proposal: Any) -> bool:
    """The question rests on nothing that was found."""
    return not any(search.documents for search in proposal.trajectory.searches)


def short(proposal: Any) -> bool:
    return len(proposal.question.split()) < 4


def spoiler(proposal: Any) -> bool:
    """The answer is in the question."""
    return proposal.truth.answer.casefold() in proposal.question.casefold()


def solver_reward(game: Game, attempt: Any) -> float:
    """1 if the judge calls the answer right."""
    return float(attempt.right)


def proposer_reward(game: Game) -> float:
    """1 - mean solve rate: hard questions pay. One that fails a filter is paid 0."""
    return 1 - fmean(attempt.right for attempt in game.counted)


def make_rules(tokenizer: HuggingFaceTokenizer) -> Rules:
    """The game: a generated encyclopedia, a filter per reason code, verification, N attempts.

    Verification mixes what the proposer found with noise documents of other questions and asks for
    the answer without searching. ``verifier="policy"`` has the policy itself do that, as in the
    paper; here the world does, which knows all facts.
    """
    game = MINI_GAME.replace(attempts=N, filters=())
    return Rules.build(
        open_world("mini"),
        tokenizer,
        game,
        filters={"no_search": no_search, "short_question": short, "spoiler": spoiler},
        proposer_reward=proposer_reward,
        solver_reward=solver_reward,
    )


# -- rollout: lines 2 to 6 -------------------------------------------------------------------------


def play(batch: GameBatch, engine: TransformersEngine, temperature: float, seed: int) -> list[Game]:
    """Plays a batch of games to its end: every trajectory that waits for tokens gets its next turn.

    ``advance`` answers searches, and once all trajectories of a phase are over, begins the next:

    - *propose*: the policy sees an answer, searches, and writes a question (line 3);
    - *filter*: a broken format, or one of the filters above (line 4);
    - *verify*: the answer must follow from what the proposer found (line 4);
    - *solve*: N attempts per question that is left, by the same policy. They see the question,
      search, and answer (line 6); a judge compares that with the truth.
    """
    rng = np.random.default_rng(seed)

    while waiting := batch.pending():
        # Where the policy verifies, it does so at a temperature of its own.
        own = {"verifier": batch.rules.config.verification_temperature}
        requests = [
            Request(
                trajectory.key,
                trajectory.ids,
                trajectory.tokens_left,
                own.get(trajectory.role, temperature),
                int(rng.integers(1 << 63)),
            )
            for trajectory in waiting
        ]
        turns = generate(engine, requests)

        # Tokens go in as they were sampled. The trajectory masks what the policy did not write:
        # its prompt, and the documents that `advance` appends after a search.
        for trajectory, turn in zip(waiting, turns, strict=True):
            trajectory.feed(turn.ids, turn.logprobs)
        engine.release(t.key for t in waiting if t.done)
        batch.advance()

    return batch.games


# -- advantages ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One trajectory to learn from."""

    trajectory: Any
    solver: bool
    advantage: float
    weight: float
    """Factor on the sum of its token losses."""


def learnable(games: Sequence[Game]) -> list[Row]:
    """Advantages, and the denominators of equations 4 and 5.

    B and N divide, however many games and attempts count, so that a failed game changes nobody
    else's weight. A void game, which an outage of search or judge has stopped, pays nothing.
    """
    rows = []
    for game in games:
        # An attempt's advantage is its reward less the mean of its group (GRPO, not divided by the
        # deviation). Where all attempts fail, or all succeed, there is nothing to compare.
        rewards = [attempt.reward for attempt in game.counted if attempt.reward is not None]
        if len(set(rewards)) > 1:
            for attempt, reward in zip(game.counted, rewards, strict=True):
                own = sum(attempt.trajectory.mask)  # the loss is a mean over its tokens
                advantage, weight = reward - fmean(rewards), 1 / (B * N * own)
                rows.append(Row(attempt.trajectory, True, advantage, weight))

        # With one proposal per answer there is no group: the reward itself is the advantage.
        if game.proposer is not None and game.proposer_reward:
            weight = PROPOSER_WEIGHT / B  # of a sum over its tokens
            rows.append(Row(game.proposer, False, game.proposer_reward, weight))

    return rows


# -- losses: lines 11, 12 --------------------------------------------------------------------------


def token_logprobs(model: Any, ids: Tensor) -> Tensor:
    """log pi(token | what precedes it): (rows, length) -> (rows, length - 1).

    Rows are padded on the right, which needs no attention mask: attention is causal.
    """
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return torch.log_softmax(logits, dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)


def loss_of(policy: Any, reference: Any, rows: Sequence[Row]) -> Tensor:
    """Equations 4 and 5 over some rows: the weighted sum of their token losses."""
    # Tokens, 1 on those that the policy wrote, log-probabilities that they were sampled with.
    ids, mask, behaviour = (
        pad_sequence([torch.tensor(list(values)) for values in column], batch_first=True)
        for column in zip(*((t.ids, t.mask, t.logprobs) for t, *_ in rows), strict=True)
    )
    mask, behaviour = mask[:, 1:], behaviour[:, 1:]  # (rows, length - 1)
    solver, advantage, weight = (
        torch.tensor(column)[:, None] for column in zip(*(row[1:] for row in rows), strict=True)
    )

    logprobs = token_logprobs(policy, ids)
    with torch.no_grad():
        reference_logprobs = token_logprobs(reference, ids)

    # Equation 4, GRPO. On-policy the ratio is 1, and its gradient that of A log pi. Clipping bounds
    # how far it may move where games are learnt from more than once.
    ratio = torch.exp(torch.where(mask > 0, logprobs - behaviour, 0.0))
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    surrogate = torch.minimum(ratio * advantage, clipped * advantage)
    # Its KL[pi || pi_ref], by Schulman's k3: unbiased, never negative.
    difference = reference_logprobs - logprobs
    kl = torch.exp(difference) - difference - 1
    grpo = -surrogate + BETA * kl

    # Equation 5, REINFORCE.
    reinforce = -advantage * logprobs

    losses = torch.where(solver, grpo, reinforce)
    return (weight * mask * losses).sum()


def update(policy: Any, reference: Any, optimizer: torch.optim.Optimizer, rows: list[Row]) -> float:
    """One optimizer step on both roles together; the loss."""
    optimizer.zero_grad()
    rows = sorted(rows, key=lambda row: len(row.trajectory.ids))
    total = 0.0
    for first in range(0, len(rows), ROWS_PER_PASS):
        # Weights hold the denominators of the whole step, so passes simply add up.
        loss = loss_of(policy, reference, rows[first : first + ROWS_PER_PASS])
        loss.backward()
        total += float(loss.detach())

    torch.nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    return total


# -- the loop --------------------------------------------------------------------------------------


def accuracy(rules: Rules, engine: TransformersEngine, per_group: int) -> float:
    """Pass@1, greedily, on questions that are never trained on."""
    once = replace(rules, config=rules.config.replace(attempts=1))
    questions = rules.world.questions(0, per_group)
    games = play(GameBatch.of_questions(once, questions, [0]), engine, temperature=0.0, seed=0)
    return fmean(attempt.right for game in games for attempt in game.counted)


def main() -> None:
    parser = argparse.ArgumentParser(description="Search self-play in one file.")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--questions", type=int, default=50, help="evaluated per number of hops")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so small a model runs fastest with one
    logging.set_verbosity_error()

    # The policy, a frozen copy as the reference, the game, and an engine over the same tensors.
    tokenizer = HuggingFaceTokenizer.load(MODEL)
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(MODEL, attn_implementation="eager").eval()
        for _ in range(2)
    )
    rules = make_rules(tokenizer)
    engine = TransformersEngine(policy, tokenizer, StopRule.of(rules.config, tokenizer))
    optimizer = torch.optim.Adam(policy.parameters(), lr=LR, betas=BETAS)

    def draw(rng: np.random.Generator, count: int) -> list[Any]:
        """Ground truths to ask about (line 2)."""
        answers = rules.world.answers
        return [answers[i] for i in rng.choice(len(answers), count, replace=False)]

    print("accuracy before:", accuracy(rules, engine, arguments.questions), flush=True)

    for step in range(1, arguments.steps + 1):
        seed = arguments.seed * 1_000_003 + step
        games = play(GameBatch(rules, draw, B, [seed]), engine, temperature=1.0, seed=seed)
        loss = update(policy, reference, optimizer, learnable(games))
        engine.update_weights(policy.state_dict(), step)  # forgets what it computed before

        valid = [game for game in games if game.outcome == "valid"]
        solved = [attempt.right for game in valid for attempt in game.counted]
        print(
            f"step {step:3d}",
            f"proposer reward {fmean(game.proposer_reward or 0.0 for game in games):.3f}",
            f"valid {len(valid) / len(games):.3f}",
            f"solve rate {fmean(solved) if solved else float('nan'):.3f}",
            f"loss {loss:+.5f}",
            sep="   ",
            flush=True,
        )

    print("accuracy after: ", accuracy(rules, engine, arguments.questions), flush=True)


if __name__ == "__main__":
    main()
