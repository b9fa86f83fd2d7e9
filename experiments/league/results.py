"""Results of a league: tables, data and a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np

from experiments.league.games import Games, Player
from experiments.league.ratings import ratings
from experiments.stats import Estimate, Floats
from experiments.sweeps.figure import save_figure
from experiments.sweeps.results import NONE, Table


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
        proposers, solvers = ratings(games.solved, attempts, seed)
        return cls(players, games, attempts, proposers, solvers)

    @property
    def paid(self) -> Floats:
        """The proposer's mean reward, of shape (proposers, solvers)."""
        paid: Floats = self.games.paid.mean(axis=2)
        return paid

    @property
    def solve_rate(self) -> Floats:
        """Share of right attempts at valid questions, of the same shape; NaN without any."""
        asked = ~np.isnan(self.games.solved)
        right = np.where(asked, np.nan_to_num(self.games.solved), 0.0).sum(axis=2)
        count = asked.sum(axis=2)
        shares: Floats = np.divide(right, count, out=np.full(right.shape, np.nan), where=count > 0)
        return shares

    def hops(self, proposer: int) -> float | None:
        """Mean over its valid questions; ``None`` where the world does not know."""
        known = [one.hops for one in self.games.proposals[proposer] if one.hops is not None]
        return fmean(known) if known else None

    def valid(self, proposer: int) -> float:
        """Share of valid questions."""
        return fmean(one.question is not None for one in self.games.proposals[proposer])


def make_tables(league: League) -> list[Table]:
    """All tables: ratings, solve rates, rewards."""
    names = [player.name for player in league.players]
    return [
        _ratings_table(league, names),
        _matrix("Share solved of valid questions", league.solve_rate, names),
        _matrix("The proposer's mean reward, invalid questions included", league.paid, names),
    ]


def as_data(league: League) -> dict[str, Any]:
    """Everything that the tables show, and every figure by answer that they rest on."""
    players = []
    for place, player in enumerate(league.players):
        reasons = Counter(one.reason for one in league.games.proposals[place] if one.reason)
        players.append(
            {
                "name": player.name,
                "step": player.step,
                "proposer_rating": asdict(league.proposers[place]),
                "solver_rating": asdict(league.solvers[place]),
                "valid_share": round(league.valid(place), 6),
                "invalid": dict(sorted(reasons.items())),
                "hops": league.hops(place),
            }
        )
    return {
        "players": players,
        "attempts": league.attempts,
        "answers": league.games.solved.shape[2],
        "solve_rate": _rounded(league.solve_rate),
        "proposer_reward": _rounded(league.paid),
        "solved_by_answer": _rounded(league.games.solved),
    }


def draw(league: League, out: Path) -> None:
    """Draws solve rates and rewards as matrices, and the ratings.

    Raises:
        RunError: the file cannot be written.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [player.name for player in league.players]
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.6), constrained_layout=True)
    _draw_matrix(axes[0], league.solve_rate, names, "share solved of valid questions")
    _draw_matrix(axes[1], league.paid, names, "proposer's reward, invalid ones included")

    places = np.arange(len(names))
    for offset, label, rated in (
        (-0.08, "as proposer", league.proposers),
        (0.08, "as solver", league.solvers),
    ):
        values = np.array([one.mean for one in rated])
        spread = [
            [one.mean - one.low for one in rated],
            [one.high - one.mean for one in rated],
        ]
        axes[2].errorbar(places + offset, values, yerr=spread, fmt="o-", capsize=3, label=label)
    axes[2].set_xticks(places, names, rotation=30, ha="right")
    axes[2].set(title="Elo by role, with 95% intervals")
    axes[2].grid(alpha=0.25)
    axes[2].spines[["top", "right"]].set_visible(False)
    axes[2].legend(frameon=False)
    try:
        save_figure(figure, out)
    finally:
        pyplot.close(figure)


# -- within ------------------------------------------------------------------------------------


def _ratings_table(league: League, names: Sequence[str]) -> Table:
    rows: list[tuple[str, ...]] = []
    for place, name in enumerate(names):
        hops = league.hops(place)
        rows.append(
            (
                name,
                _rating(league.proposers[place]),
                _rating(league.solvers[place]),
                f"{league.valid(place):.3f}",
                NONE if hops is None else f"{hops:.2f}",
            )
        )
    heads = ("player", "Elo as proposer", "Elo as solver", "valid questions", "their hops")
    note = (
        "In brackets, 95% intervals by bootstrap over answers. A proposer wins an attempt if its "
        "question is valid and the attempt is wrong; the mean solver has 1000."
    )
    return Table("Ratings", heads, rows, (note,))


def _matrix(title: str, values: Floats, names: Sequence[str]) -> Table:
    rows: list[tuple[str, ...]] = [
        (name, *(NONE if np.isnan(value) else f"{value:.3f}" for value in row))
        for name, row in zip(names, values, strict=True)
    ]
    return Table(f"{title} (rows: proposers, columns: solvers)", ("proposer", *names), rows)


def _rating(found: Estimate) -> str:
    return f"{found.mean:.0f} [{found.low:.0f}, {found.high:.0f}]"


def _rounded(values: Floats) -> Any:
    """As nested lists, with ``None`` for what is not a number."""
    if values.ndim > 1:
        return [_rounded(part) for part in values]
    return [None if np.isnan(value) else round(float(value), 6) for value in values]


def _draw_matrix(axis: Any, values: Floats, names: Sequence[str], title: str) -> None:
    axis.imshow(values, vmin=0, vmax=1, cmap="viridis")
    places = range(len(names))
    axis.set_xticks(places, names, rotation=30, ha="right")
    axis.set_yticks(places, names)
    axis.set(title=title, xlabel="solver", ylabel="proposer")
    for row in places:
        for column in places:
            value = values[row, column]
            text = NONE if np.isnan(value) else f"{value:.2f}"
            colour = "white" if np.isnan(value) or value < 0.6 else "black"
            axis.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)
