"""Learning from counterfactual credit: `examples/self_play.py`, with pay for each search by itself.

    python -m benchmarks.counterfactual_credit --seeds 0 1 2 3 4 --out DIR

Each step's round is played again with the first search of every attempt answered by nothing, with
the second, and so on; proposals, and attempts up to that search, are the same. What a search was
worth is its attempt's reward less that without it. The turn that wrote it gets this, times
``--credits``, in addition to GRPO's advantage; 0 is GRPO alone. Writes ``credit.csv``, a line per
evaluation, ``credit.md``, means over seeds with 95% intervals, and ``credit.png``, means and
ranges. Trials in DIR are not played again.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from examples import self_play

from benchmarks.harness import headline, origin, parser
from benchmarks.strictness import shown
from ssp_agents.engines.base import StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model
from ssp_agents.rollout import play
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round, answers_of
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_experiments.report.curves import panels, save_figure

STEPS, EVERY, PER_GROUP = 60, 20, 150


class Turn(NamedTuple):
    """A trajectory of which one turn alone is learnt from."""

    ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float]


def main() -> int:
    """Plays what is missing, two trials at a time, and makes the table."""
    options = parser(__doc__, seed=False)
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--credits", type=float, nargs="+", default=[0.0, 0.5])
    settings = options.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)

    trials = list(itertools.product(settings.seeds, settings.credits))
    files = [settings.out / f"credit-{credit}-seed{seed}.csv" for seed, credit in trials]
    missing = [i for i, file in enumerate(files) if not file.exists()]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        arguments = zip(*((*trials[i], files[i]) for i in missing), strict=True)
        for done in pool.map(train, *arguments) if missing else ():
            print(done, flush=True)

    table = pd.concat([pd.read_csv(file) for file in files])
    table.to_csv(settings.out / "credit.csv", index=False)
    cells = table.drop(columns=["seed"]).groupby(["credit", "step"]).agg(shown)
    page = f"{headline(origin())}\n\n{cells.to_markdown()}\n"
    (settings.out / "credit.md").write_text(page, encoding="utf-8")

    figure, axes = panels(3)
    for axis, name in zip(axes, ("2 hops", "3 hops", "4 hops"), strict=True):
        for credit, own in table.groupby("credit"):
            by_step = own.groupby("step")[name]
            axis.plot(by_step.mean(), "o-", label=f"credit {credit:g}" if credit else "GRPO alone")
            axis.fill_between(by_step.min().index, by_step.min(), by_step.max(), alpha=0.15)
        axis.set(title=f"accuracy at {name}", xlabel="step", ylim=(-0.02, 1.02))
    axes[0].legend(frameon=False, loc="lower right")
    save_figure(figure, settings.out / "credit.png")
    return 0


def train(seed: int, credit: float, out: Path) -> str:
    """Self-play as the example's ``main``, with that credit; writes its evaluations."""
    torch.set_num_threads(1)
    tokenizer = HuggingFaceTokenizer.load(self_play.MODEL)
    policy, reference = (load_model(self_play.MODEL, attention="eager") for _ in range(2))
    rules = self_play.make_rules(tokenizer)
    engine = TransformersEngine(policy, tokenizer, StopRule.of(rules.config, tokenizer))
    optimizer = torch.optim.Adam(policy.parameters(), self_play.LR, self_play.BETAS)
    draw = answers_of(rules.world)

    lines, paid = [evaluated(rules, engine)], []
    for step in range(1, STEPS + 1):
        at = seed * 1_000_003 + step

        def played(withhold: int | None = None, at: int = at) -> list[Game]:
            round_ = Round(rules, draw, self_play.B, [at])
            return play(round_, engine, temperature=1.0, withhold=withhold).games

        games = played()
        rows = self_play.learnable(games)
        if credit:
            without = [played(place) for place in range(rules.config.max_searches)]
            credited = credits(games, without, credit)
            paid.append(len(credited) / max(1, searches_in(games)))
            rows += credited
        self_play.update(policy, reference, optimizer, rows)
        engine.update_weights(policy.state_dict(), step)

        if step % EVERY == 0:
            share = {"searches that changed a reward": fmean(paid)} if paid else {}
            lines.append({"step": step, **evaluated(rules, engine), **share})
            paid = []

    own = {"credit": credit, "seed": seed, "step": 0}
    pd.DataFrame([{**own, **line} for line in lines]).round(4).to_csv(out, index=False)
    return f"{out}: {lines[-1]}"


def credits(
    games: Sequence[Game], without: Sequence[Sequence[Game]], credit: float
) -> list[self_play.Row]:
    """A row for each search whose loss would have changed an attempt's reward.

    On-policy, the gradient of equation 4 is that of -A log pi. So a row with the mask of a turn and
    an advantage of c (r - r without) adds just that to its tokens' advantage.
    """
    rows = []
    for place, others in enumerate(without):
        for game, other in zip(games, others, strict=True):
            if game.outcome is not Outcome.VALID:
                continue
            for was, now in zip(game.attempts, other.attempts, strict=True):
                trajectory = was.trajectory
                worth = (was.reward or 0.0) - (now.reward or 0.0)
                if len(trajectory.searches) <= place or not worth:
                    continue
                turns = [(start, stop) for start, stop, own in trajectory.runs() if own]
                mask = np.zeros(len(trajectory.ids), dtype=np.uint8)
                mask[slice(*turns[place])] = 1
                turn = Turn(trajectory.ids, mask.tolist(), trajectory.logprobs)
                weight = 1 / (self_play.B * self_play.N * sum(trajectory.mask))
                rows.append(self_play.Row(turn, False, credit * worth, weight))
    return rows


def searches_in(games: Sequence[Game]) -> int:
    """Searches of attempts at valid questions."""
    valid = [game for game in games if game.outcome is Outcome.VALID]
    return sum(len(attempt.trajectory.searches) for game in valid for attempt in game.attempts)


def evaluated(rules: Rules, engine: TransformersEngine) -> dict[str, Any]:
    """Accuracy by hops: greedily, on questions that are never trained on."""
    once = replace(rules, config=rules.config.replace(attempts=1))
    questions = rules.world.questions(0, PER_GROUP)
    games = play(Round.of_questions(once, questions, [0]), engine, temperature=0.0).games
    right = pd.Series([float(game.attempts[0].right) for game in games])
    by_group = right.groupby([question.group for question in questions]).mean()
    return {f"{group} hops": share for group, share in by_group.items()}


if __name__ == "__main__":
    sys.exit(main())
