"""Which searches a right answer hangs on, by counterfactual replay, and what the likelihood says.

    python -m benchmarks.counterfactual runs/sweeps/gate/trials/leak-0-seed? --out DIR

Each run's last policy answers the questions of its evaluation, at the temperature of training; then
again with the first search of each attempt answered by nothing, the second, and so on. Seeds are
the same, so an attempt has the same tokens up to the search that is withheld; that attempts with
fewer searches have them to the end is checked. A search is *needed* if a right answer becomes
wrong without it. Beside it stands the rise in the likelihood of the right answer by each search
(IGPO, 2510.14967): ``auc`` is the chance that it is larger for a needed search of a right attempt
than for one that was not needed. Writes ``counterfactual.json`` and ``counterfactual.md``; the
first policy is the base.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import mannwhitneyu

from benchmarks.harness import headline, origin, parser, write
from benchmarks.strictness import shown
from ssp_agents.columns import answered, columns_of
from ssp_agents.config import LearningConfig
from ssp_agents.engines.base import Engine
from ssp_agents.models import load_model
from ssp_agents.rollout import play
from ssp_agents.rows import Row, rows_of
from ssp_agents.scoring import TokenScorer
from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.types import Question
from ssp_experiments.config import RunConfig, make_config
from ssp_experiments.evaluation import engine_of
from ssp_experiments.run.checks import open_run
from ssp_experiments.run.rundir import RunDirectory


def main() -> int:
    """Plays all, and writes the shares."""
    options = parser(__doc__)
    options.add_argument("runs", nargs="+", type=Path)
    settings = options.parse_args()
    torch.set_num_threads(1)

    tables = []
    for number, run in enumerate([None, *settings.runs]):
        directory = RunDirectory(run or settings.runs[0])
        config = make_config(directory.read_config())
        policy = directory.kept_checkpoints()[-1][1] / "policy" if run else config.model_dir
        found = searches_of(config, policy, settings.seed)
        tables.append(found.assign(policy="trained" if run else "base", seed=max(0, number - 1)))
    searches = pd.concat(tables)

    rows = []
    for (policy, seed), own in searches.groupby(["policy", "seed"], sort=False):
        right = own[own["right"]]
        needed = right["needed"]
        rises = right.loc[needed, "rise"], right.loc[~needed, "rise"]
        auc = mannwhitneyu(*rises).statistic / (len(rises[0]) * len(rises[1]))
        by_place = right.groupby(["hops", "place"])["needed"].mean()
        rows.append(
            {
                "policy": policy,
                "seed": seed,
                **{f"{h} hops, search {p + 1}": share for (h, p), share in by_place.items()},
                "rise where needed": rises[0].mean(),
                "rise where not": rises[1].mean(),
                "auc": auc,
                "made wrong answers right": own.loc[~own["right"], "right_without"].mean(),
                "searches": len(own),
            }
        )
    table = pd.DataFrame(rows).round(4).dropna(axis="columns", how="all")
    kept = table.astype(object).where(table.notna(), None)
    write(settings.out / "counterfactual.json", {"policies": kept.to_dict("records")})
    cells = table.drop(columns=["seed", "searches"]).groupby("policy", sort=False).agg(shown)
    page = f"{headline(origin())}\n\n{cells.T.to_markdown()}\n"
    (settings.out / "counterfactual.md").write_text(page, encoding="utf-8")
    return 0


def searches_of(config: RunConfig, policy: Path, seed: int) -> pd.DataFrame:
    """One row per search of a policy's attempts at the questions of a run's evaluation."""
    rules, questions = open_run(config.replace(model=str(policy)))
    once = replace(rules, config=rules.config.replace(attempts=1))
    engine = engine_of(config, rules, policy)
    at = config.learning.temperature
    factual = attempts(once, questions, engine, at, seed)
    learning = LearningConfig(turn_credit=1.0)
    scorer = TokenScorer(load_model(policy), at, rules.tokenizer.vocab_size, entropies=False)
    rises = [rise_by_turn(row, scorer) for row in rows_of(factual, learning)]

    found = []
    for place in range(rules.config.max_searches):
        without = attempts(once, questions, engine, at, seed, withhold=place)
        for game, other, question, rise in zip(factual, without, questions, rises, strict=True):
            (was,), (now,) = game.attempts, other.attempts
            if len(was.trajectory.searches) <= place:
                if was.trajectory.ids != now.trajectory.ids:
                    raise AssertionError(f"without search {place}, {question.text!r} differs")
                continue
            found.append(
                {
                    "hops": question.group,
                    "place": place,
                    "right": was.right,
                    "right_without": now.right,
                    "needed": was.right and not now.right,
                    "rise": rise[place],
                }
            )
    return pd.DataFrame(found)


def attempts(
    rules: Rules,
    questions: list[Question],
    engine: Engine,
    temperature: float,
    seed: int,
    withhold: int | None = None,
) -> list[Game]:
    """Games of one attempt at each question."""
    round_ = Round.of_questions(rules, questions, [seed])
    return play(round_, engine, temperature=temperature, withhold=withhold).games


@torch.inference_mode()
def rise_by_turn(row: Row, scorer: TokenScorer) -> np.ndarray:
    """By how much each turn, with what it found, makes the right answer likelier: (turns - 1,)."""
    own = np.flatnonzero(np.diff(row.mask.astype(int), prepend=0) == 1)  # where turns begin
    columns = {name: torch.as_tensor(values) for name, values in columns_of([row]).items()}
    likely = []
    for start in own.tolist():
        seen = answered(columns, torch.tensor([start]))
        likely.append(float(scorer(seen).logprobs.mean().exp()))
    return np.diff(likely)


if __name__ == "__main__":
    sys.exit(main())
