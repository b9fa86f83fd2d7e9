"""Results of a league: Elo by role, tables, data and a figure.

The proposer wins an attempt if its question is valid and the attempt is wrong, which is what 1-p
pays. Proposers and solvers are rated on one scale (Bradley and Terry 1952, "Rank Analysis of
Incomplete Block Designs"): a proposer rated d wins against a solver rated r with probability
1 / (1 + 10^((r - d) / 400)). Intervals are 95%, by bootstrap over answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import choix
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.league.games import Games, Player
from experiments.report.curves import save_figure
from experiments.stats import Estimate, Floats, resampled
from experiments.sweeps.results import NONE, Table

MEAN = 1000.0
"""Rating of the mean solver: only differences mean something."""
ELO = 400.0 / np.log(10.0)
"""Rating points per unit of log odds."""
PRIOR = 0.5
"""Games that each side is taken to have won in each pairing in addition to those played, so that a
player who always wins has a finite rating."""


def rate(won: Floats, games: int) -> Floats:
    """The most likely ratings of all proposers, then of all solvers.

    Args:
        won: the share of games that the proposer won, of shape (proposers, solvers).
        games: how many each pairing played.
    """
    proposers, solvers = won.shape
    # counts[i, j]: games that player i won against player j; proposers first.
    counts = np.zeros((proposers + solvers, proposers + solvers))
    counts[:proposers, proposers:] = won * games + PRIOR
    counts[proposers:, :proposers] = (1.0 - won.T) * games + PRIOR
    rating: Floats = ELO * choix.ilsr_pairwise_dense(counts)
    rating += MEAN - rating[proposers:].mean()
    return rating


def ratings(solved: Floats, attempts: int, seed: int) -> tuple[list[Estimate], list[Estimate]]:
    """Ratings of proposers and of solvers.

    All games about an answer are drawn together, for those about one question are alike.

    Args:
        solved: share of right attempts, of shape (proposers, solvers, answers); NaN without a
            valid question, which its proposer loses.
        attempts: how often each question was tried.
        seed: of the bootstrap.
    """
    won, count = np.nan_to_num(1.0 - solved), solved.shape[2]

    def rated(answers: np.ndarray) -> Floats:
        return rate(won[:, :, answers].mean(axis=2), count * attempts)

    answers = np.arange(count)
    low, high = resampled(answers, rated, np.random.default_rng(seed))
    ends = zip(rated(answers).tolist(), low.tolist(), high.tolist(), strict=True)
    found = [Estimate(*values, count) for values in ends]
    return found[: len(won)], found[len(won) :]


@dataclass(frozen=True)
class League:
    """A league that has been played."""

    players: Sequence[Player]
    games: Games
    attempts: int
    proposers: list[Estimate]
    """Their ratings."""
    solvers: list[Estimate]

    @classmethod
    def of(cls, players: Sequence[Player], games: Games, attempts: int, seed: int) -> League:
        """Rates the players.

        Args:
            players: in the order of the games.
            games: what they played.
            attempts: how often each question was tried.
            seed: of the bootstrap.
        """
        return cls(players, games, attempts, *ratings(games.solved, attempts, seed))

    @property
    def paid(self) -> pd.DataFrame:
        """The proposer's mean reward, by proposer and solver."""
        return self._matrix(self.games.paid.mean(axis=2))

    @property
    def solve_rate(self) -> pd.DataFrame:
        """Share of right attempts at valid questions; NaN without any."""
        asked = np.ma.masked_invalid(self.games.solved)
        return self._matrix(asked.mean(axis=2).filled(np.nan))

    def _matrix(self, values: Floats) -> pd.DataFrame:
        names = [player.name for player in self.players]
        return pd.DataFrame(values, pd.Index(names, name="proposer"), names)

    def tables(self) -> list[Table]:
        """Ratings, solve rates, rewards."""
        rated = (self.proposers, self.solvers)
        elo = [[f"{r.mean:.0f} [{r.low:.0f}, {r.high:.0f}]" for r in role] for role in rated]
        facts = [self._facts(place) for place in range(len(self.players))]
        cells = pd.DataFrame(
            {
                "Elo as proposer": elo[0],
                "Elo as solver": elo[1],
                "valid questions": [f"{one['valid_share']:.3f}" for one in facts],
                "their hops": [_text(one["hops"], 2) for one in facts],
            },
            pd.Index([player.name for player in self.players], name="player"),
        )
        note = (
            "In brackets, 95% intervals by bootstrap over answers. A proposer wins an attempt if "
            "its question is valid and the attempt is wrong; the mean solver has 1000."
        )
        axes = "(rows: proposers, columns: solvers)"
        paid = f"The proposer's mean reward, invalid questions included {axes}"
        return [
            Table("Ratings", cells, (note,)),
            Table(f"Share solved of valid questions {axes}", self.solve_rate.map(_text)),
            Table(paid, self.paid.map(_text)),
        ]

    def as_data(self) -> dict[str, Any]:
        """Everything that the tables show, and every figure by answer that they rest on."""
        players = [
            {
                "name": player.name,
                "step": player.step,
                "proposer_rating": asdict(self.proposers[place]),
                "solver_rating": asdict(self.solvers[place]),
                **self._facts(place),
            }
            for place, player in enumerate(self.players)
        ]
        return {
            "players": players,
            "attempts": self.attempts,
            "answers": self.games.solved.shape[2],
            "solve_rate": _rounded(self.solve_rate.to_numpy()),
            "proposer_reward": _rounded(self.paid.to_numpy()),
            "solved_by_answer": _rounded(self.games.solved),
        }

    def _facts(self, proposer: int) -> dict[str, Any]:
        """Share of valid questions, reasons of the others, and mean hops where they are known."""
        asked = self.games.proposals[proposer]
        hops = [one.hops for one in asked if one.hops is not None]
        return {
            "valid_share": round(fmean(one.question is not None for one in asked), 6),
            "invalid": dict(sorted(Counter(one.reason for one in asked if one.reason).items())),
            "hops": fmean(hops) if hops else None,
        }

    def draw(self, out: Path) -> None:
        """Draws solve rates and rewards as matrices, and the ratings."""
        figure = Figure(figsize=(15, 4.6), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _draw_matrix(left, self.solve_rate, "share solved of valid questions")
        _draw_matrix(middle, self.paid, "proposer's reward, invalid ones included")

        places = np.arange(len(self.players))
        for offset, role, rated in (
            (-0.08, "proposer", self.proposers),
            (0.08, "solver", self.solvers),
        ):
            means = [one.mean for one in rated]
            spread = [[one.mean - one.low for one in rated], [one.high - one.mean for one in rated]]
            look: dict[str, Any] = {"fmt": "o-", "capsize": 3, "label": f"as {role}"}
            right.errorbar(places + offset, means, yerr=spread, **look)
        right.set_xticks(places, [player.name for player in self.players], rotation=30, ha="right")
        right.set(title="Elo by role, with 95% intervals")
        right.grid(alpha=0.25)
        right.spines[["top", "right"]].set_visible(False)
        right.legend(frameon=False)
        save_figure(figure, out)


def _text(value: float | None, digits: int = 3) -> str:
    return NONE if value is None or np.isnan(value) else f"{value:.{digits}f}"


def _rounded(values: Floats) -> Any:
    """As nested lists, with ``None`` for what is not a number."""
    plain = np.round(values, 6).astype(object)
    plain[np.isnan(values)] = None
    return plain.tolist()


def _draw_matrix(axis: Any, values: pd.DataFrame, title: str) -> None:
    axis.imshow(values, vmin=0, vmax=1, cmap="viridis")
    places = range(len(values))
    axis.set_xticks(places, values.columns, rotation=30, ha="right")
    axis.set_yticks(places, values.index)
    axis.set(title=title, xlabel="solver", ylabel="proposer")
    for (row, column), value in np.ndenumerate(values.to_numpy()):
        colour = "black" if value >= 0.6 else "white"
        axis.text(column, row, _text(value, 2), ha="center", va="center", color=colour, fontsize=9)
