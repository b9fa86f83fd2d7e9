"""A league: proposers and solvers of different steps play each other (docs/league.md).

Each proposer asks about the same answers, in a step of self-play with its noise and verification;
each solver tries all questions. The proposer wins an attempt if its question is valid and the
attempt is wrong, which is what 1-p pays. Both are rated on one scale (Bradley and Terry 1952, "Rank
Analysis of Incomplete Block Designs"): a proposer rated d wins against a solver rated r with
probability 1 / (1 + 10^((r - d) / 400)). Intervals are 95%, by bootstrap over answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ssp_agents.engines.base import Engine
from ssp_agents.rollout import play
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question
from ssp_experiments.config import RunConfig
from ssp_experiments.evaluation import engine_of, players_of
from ssp_experiments.report.curves import panels, save_figure
from ssp_experiments.run.checks import check_model
from ssp_experiments.run.rundir import finite
from ssp_experiments.stats import Floats, resampled
from ssp_experiments.sweeps.results import Table, short

MEAN = 1000.0
"""Rating of the mean solver: only differences mean something."""
ELO = 400.0 / np.log(10.0)
"""Rating points per unit of log odds."""
PRIOR = 0.5
"""Games that each side is taken to have won in each pairing in addition to those played, so that a
player who always wins has a finite rating."""
_PROPOSE, _SOLVE = 0x1EA6, 0x501E
"""First numbers of the seeds: the games are none of training's."""


# -- games -------------------------------------------------------------------------------------


def play_league(
    players: dict[str, str], config: RunConfig, rules: Rules, answers: int, attempts: int
) -> League:
    """Lets each player propose, and then answer what all have asked; in the same order for all."""
    folders = {name: config.replace(model=model).model_dir for name, model in players.items()}
    for player, folder in folders.items():
        check_model(folder)
        if HuggingFaceTokenizer.load(folder).pieces != rules.tokenizer.pieces:
            fix = "all players need one tokenizer, since one reads what another has written"
            raise ConfigError("player", player, fix)

    # (proposers, solvers, answers): what a proposer asked about an answer is one question for all.
    shape = (len(players), len(players), answers)
    proposals, hops = [], np.full((len(players), answers), np.nan)
    for row, (player, folder) in enumerate(folders.items()):
        print(f"{player} proposes", file=sys.stderr)
        proposals.append(_propose(players_of(config, rules, folder), config, rules, answers))
        for place, question in proposals[-1].items():
            if (analysis := rules.world.analyse(question.text)) is not None:
                hops[row, place] = analysis.hops

    solved, paid = np.full(shape, np.nan), np.full(shape, rules.config.invalid_reward)
    tried = replace(rules, config=rules.config.replace(attempts=attempts))
    size = config.learning.round_size
    for column, (player, folder) in enumerate(folders.items()):
        print(f"{player} solves", file=sys.stderr)
        solver = engine_of(config, rules, folder)
        for row, by_place in enumerate(proposals):
            places, questions = [*by_place], [*by_place.values()]
            game_batches = (
                GameBatch.of_questions(tried, questions[i : i + size], [_SOLVE, config.seed, i])
                for i in range(0, len(questions), size)
            )
            games = _play(game_batches, solver, config)
            solved[row, column, places] = [game.share_right for game in games]
            paid[row, column, places] = [rules.proposer_reward(game) for game in games]
    return League(list(players), hops, solved, paid, attempts, config.seed)


def _propose(engine: Engine, config: RunConfig, rules: Rules, answers: int) -> dict[int, Question]:
    """A proposer's valid questions, by the answer's place. Batches of games are of the size that
    training has, since noise documents come from them."""
    # A batch of games is played to its end, so the proposer's own solver tries each question; once
    # will do, unless the attempts decide whether it is valid.
    attempts = rules.config.attempts if rules.attempt_filters else 1
    once = replace(rules, config=rules.config.replace(attempts=attempts, proposals=1))
    # All proposers get the same answers, each once unless there are fewer.
    rng = np.random.default_rng([_PROPOSE, config.seed])
    truths = iter(answers_of(rules.world)(rng, answers))
    size = config.learning.round_size
    game_batches = (
        GameBatch(
            once,
            lambda _, count: [*islice(truths, count)],
            min(size, answers - i),
            [_PROPOSE, config.seed, i],
        )
        for i in range(0, answers, size)
    )
    return {
        place: Question(f"league-{place}", game.question, game.truth.wordings, "league")
        for place, game in enumerate(_play(game_batches, engine, config))
        if game.outcome is Outcome.VALID and game.question is not None
    }


def _play(game_batches: Iterable[GameBatch], engine: Engine, config: RunConfig) -> list[Game]:
    """Games of these game batches; a void one ends the league: not all would play the same
    games."""
    temperature = config.learning.temperature
    games = [
        game for each in game_batches for game in play(each, engine, temperature=temperature).games
    ]
    for game in games:
        outage = game.outage or next((a.outage for a in game.attempts if a.outage), None)
        if outage is not None:
            raise ServiceError(outage.service, f"{outage.what}: a league needs all of its games")
    return games


# -- results -----------------------------------------------------------------------------------


def rate(won: Floats, games: int) -> Floats:
    """The most likely ratings of all proposers, then of all solvers.

    ``won`` is the proposer's share of the games of each pairing, of shape (proposers, solvers).

    >>> rate(np.array([[0.5, 0.9], [0.1, 0.5]]), games=100).round()
    array([1187.,  813., 1187.,  813.])
    """
    proposers, solvers = won.shape
    # counts[i, j]: games that player i won against player j; proposers first.
    counts = np.zeros((proposers + solvers, proposers + solvers))
    counts[:proposers, proposers:] = won * games + PRIOR
    counts[proposers:, :proposers] = (1.0 - won.T) * games + PRIOR
    # 400 / ln 10 points per unit of log odds: 400 points are odds of ten to one.
    rating: Floats = ELO * _bradley_terry(counts)
    rating += MEAN - rating[proposers:].mean()
    # Rounded, so that equal players are equal whatever the order of sums.
    return rating.round(6)


def _bradley_terry(counts: Floats) -> Floats:
    """The most likely strengths r, where P(i wins against j) = 1 / (1 + exp(r_j - r_i)).

    ``counts[i, j]`` are the games that i won against j. Only differences of strengths count.
    """
    # log L = sum_ij counts_ij log P_ij, with n_ij = counts_ij + counts_ji games of i and j.
    games, strengths = counts + counts.T, np.zeros(len(counts))
    # Newton's method, by steps of at most 2: a dozen for the most unequal players.
    for _ in range(100):
        # P_ij: (players, players).
        chances = 1 / (1 + np.exp(strengths - strengths[:, None]))
        # d log L / d r_i = sum_j (counts_ij - n_ij P_ij): (players,).
        slope = (counts - games * chances).sum(axis=1)
        # -d2 log L / d r_i d r_j = -w_ij, and sum_k w_ik where i = j; w_ij = n_ij P_ij (1 - P_ij).
        weights = games * chances * (1 - chances)
        # The ones fix the mean, which the likelihood leaves open.
        step = np.linalg.solve(np.diag(weights.sum(axis=1)) - weights + 1, slope)
        strengths += np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            break
    return strengths


@dataclass(frozen=True)
class League:
    """A league that has been played."""

    players: list[str]
    hops: Floats
    """Hops of questions, of shape (proposers, answers); NaN where they are invalid or unknown."""
    solved: Floats
    """Share of right attempts, of shape (proposers, solvers, answers); NaN without a question."""
    paid: Floats
    """The proposer's reward, of the same shape, invalid questions included."""
    attempts: int
    seed: int
    """Seed of the bootstrap."""

    @cached_property
    def ratings(self) -> dict[str, pd.DataFrame]:
        """Ratings as proposer and as solver, with intervals: a row per player.

        All games about an answer are drawn together, because those about one question are alike. An
        invalid question is lost by its proposer.
        """
        won, count = np.nan_to_num(1.0 - self.solved), self.solved.shape[2]

        def rated(answers: np.ndarray) -> Floats:
            return rate(won[:, :, answers].mean(axis=2), count * self.attempts)

        answers = np.arange(count)
        low, high = resampled(answers, rated, np.random.default_rng(self.seed))
        ends = {"mean": rated(answers), "low": low, "high": high}
        ratings = pd.DataFrame({**ends, "count": count})
        return {"proposer": ratings[: len(won)], "solver": ratings[len(won) :]}

    @property
    def valid_share(self) -> Floats:
        # All solvers get the same questions, so one of them tells which are valid.
        shares: Floats = 1.0 - np.isnan(self.solved[:, 0]).mean(axis=1)
        return shares

    @property
    def matrices(self) -> dict[str, pd.DataFrame]:
        """Share of right attempts at valid questions, and the proposer's mean reward, invalid
        questions included, by proposer and solver."""
        means = {
            "share solved of valid questions": _known_mean(self.solved),
            "proposer's reward, invalid questions included": self.paid.mean(axis=2),
        }
        return {
            title: pd.DataFrame(values, self.players, self.players).rename_axis("proposer")
            for title, values in means.items()
        }

    def tables(self) -> list[Table]:
        cells = pd.DataFrame(index=pd.Index(self.players, name="player"))
        for role, rated in self.ratings.items():
            ends = rated[["mean", "low", "high"]].to_numpy()
            cells[f"Elo as {role}"] = [f"{r:.0f} [{low:.0f}, {high:.0f}]" for r, low, high in ends]
        cells["valid questions"] = [short(value) for value in self.valid_share]
        cells["their hops"] = [short(value, 2) for value in _known_mean(self.hops)]
        note = (
            "In brackets, 95% intervals by bootstrap over answers. A proposer wins an attempt if "
            "its question is valid and the attempt is wrong; the mean solver has 1000."
        )
        tables = [Table("Ratings", cells, (note,))]
        for title, values in self.matrices.items():
            title = f"{title.capitalize()} (rows: proposers, columns: solvers)"
            tables.append(Table(title, values.map(short)))
        return tables

    def as_data(self) -> dict[str, Any]:
        """Ratings, shares of valid questions, and solve rates by answer."""
        ratings = {f"{role}_rating": r.to_dict("records") for role, r in self.ratings.items()}
        columns = {"name": self.players, **ratings, "valid_share": self.valid_share}
        return {
            "players": pd.DataFrame(columns).to_dict("records"),
            "attempts": self.attempts,
            "answers": self.solved.shape[2],
            "solved_by_answer": finite(np.round(self.solved, 6).tolist()),
        }

    def draw(self, out: Path) -> None:
        """Draws solve rates and rewards as matrices, and the ratings."""
        places = np.arange(len(self.players))
        figure, axes = panels(3)
        for axis, (title, values) in zip(axes, self.matrices.items(), strict=False):
            axis.grid(visible=False)
            axis.imshow(values, vmin=0, vmax=1, cmap="viridis")
            axis.set(title=title, xlabel="solver", ylabel="proposer")
            axis.set_yticks(places, self.players)
            for (row, column), value in np.ndenumerate(values.to_numpy()):
                look = {"ha": "center", "color": "black" if value >= 0.6 else "white"}
                axis.text(column, row, short(value, 2), **look)

        for offset, (role, rated) in zip((-0.08, 0.08), self.ratings.items(), strict=True):
            spread = (rated["mean"] - rated["low"], rated["high"] - rated["mean"])
            at, label = places + offset, f"as {role}"
            axes[2].errorbar(at, rated["mean"], spread, fmt="o-", capsize=3, label=label)
        axes[2].set(title="Elo by role, with 95% intervals")
        axes[2].legend(frameon=False)
        for axis in axes:
            axis.set_xticks(places, self.players, rotation=30, ha="right")
        save_figure(figure, out)


def _known_mean(values: Floats) -> Any:
    """Mean over answers without gaps; NaN where there are only gaps."""
    return np.ma.masked_invalid(values).mean(axis=-1).filled(np.nan)
