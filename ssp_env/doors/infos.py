"""What ``infos`` hold, the same behind every door. Everything follows from seed and tokens.

The keys and lengths are the same at every step and no value is ``None``: clients keep infos in
arrays.
"""

from __future__ import annotations

from typing import Any

from ssp_env.game.game import Game
from ssp_env.game.round import Round
from ssp_env.game.trajectory import Trajectory

Info = dict[str, Any]


def turn_info(round_: Round, current: Trajectory) -> Info:
    """At the beginning of a turn: phase, whose turn it is, and what is left of the budgets."""
    attempts = round_.rules.config.attempts
    return {
        "phase": round_.phase.value,
        "role": current.role.value,
        "tokens_left": current.tokens_left,
        "searches_left": current.limits.max_searches - len(current.searches),
        "attempt": attempt_of(round_, current),
        "attempts": attempts,
        "attempt_rewards": (0.0,) * attempts,
        "attempt_counts": (False,) * attempts,
        "closed_book_reward": 0.0,
        "outcome": "pending",
        "reason": "",
        "question": "",
        "answer": "",
        "solve_rate": 0.0,
    }


def attempt_of(round_: Round, current: Trajectory) -> int:
    """Which attempt to solve a trajectory is, from 0 up; -1 where it is none."""
    for game in round_.games:
        for index, attempt in enumerate(game.attempts):
            if attempt.trajectory is current:
                return index
    return -1


def info_of(round_: Round) -> Info:
    """Infos of a round of one game, which waits for tokens or is over."""
    pending = round_.pending()

    if pending:
        return turn_info(round_, pending[0])
    return final_info(round_.games[0], round_.rules.config.attempts)


def final_info(game: Game, attempts: int) -> Info:
    """At the end of a game: its outcome, what it was about, and what each attempt earned.

    Attempts are judged together when all have ended: ``attempt_rewards`` are theirs, in order, and
    ``attempt_counts`` says which were judged (an outage may have hit others). ``outcome`` is
    ``valid``, ``invalid`` or ``void``. ``solve_rate`` is only meaningful in valid games; ``reason``
    and ``question`` may be empty.
    """
    # As long as the game's attempts could be, whether or not they were made.
    rewards = [attempt.reward for attempt in game.attempts]
    rewards += [None] * (attempts - len(rewards))

    return {
        "phase": "done",
        "role": "",
        "tokens_left": 0,
        "searches_left": 0,
        "attempt": -1,
        "attempts": attempts,
        "attempt_rewards": tuple(reward or 0.0 for reward in rewards),
        "attempt_counts": tuple(reward is not None for reward in rewards),
        "closed_book_reward": game.closed_book_reward or 0.0,
        "outcome": game.outcome.value,
        "reason": game.reason or "",
        "question": game.question or "",
        "answer": game.truth.answer,
        "solve_rate": game.solve_rate or 0.0,
    }
