"""What ``infos`` hold, the same behind every door. Everything follows from seed and tokens.

The keys are the same at every step and no value is ``None``: clients keep infos in arrays.
"""

from __future__ import annotations

from typing import Any

from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.game.trajectory import Trajectory

Info = dict[str, Any]


def turn_info(round_: Round, current: Trajectory) -> Info:
    """At the beginning of a turn: phase, whose turn it is, and what is left of the budgets."""
    return {
        "phase": round_.phase.value,
        "role": current.role.value,
        "tokens_left": current.tokens_left,
        "searches_left": current.limits.max_searches - len(current.searches),
        "outcome": "pending",
        "reason": "",
        "question": "",
        "answer": "",
        "solve_rate": 0.0,
    }


def info_of(round_: Round) -> Info:
    """Infos of a round of one game, which waits for tokens or is over."""
    pending = round_.pending()

    return turn_info(round_, pending[0]) if pending else final_info(round_.games[0])


def final_info(game: Game) -> Info:
    """At the end of a game: its outcome, the reason, and what it was about.

    ``outcome`` is ``valid``, ``invalid`` or ``void``. ``solve_rate`` is only meaningful in valid
    games; ``reason`` and ``question`` may be empty.
    """
    return {
        "phase": "done",
        "role": "",
        "tokens_left": 0,
        "searches_left": 0,
        "outcome": game.outcome.value,
        "reason": game.reason or "",
        "question": game.question or "",
        "answer": game.truth.answer,
        "solve_rate": game.solve_rate or 0.0,
    }
