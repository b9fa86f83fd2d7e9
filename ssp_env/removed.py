"""What is gone or has another name, each with what to do instead; commit 1662d6ae has what is
gone."""

from __future__ import annotations

OFF: tuple[object, ...] = (None, "", 0.0, False, (), [], (0.0, 0.0), [0.0, 0.0], "eager", "sdpa")
"""Values by which a setting did nothing, or what is done without it. Files of older versions hold
them, and are read."""
SETTINGS = {
    "learning.privileged": "leave it out: it did not help (docs/findings/teachers.md)",
    "learning.turn_credit": "name a function as learning.credit (docs/algorithms.md)",
    "game.gate_errors": "leave it out (docs/findings/gate.md has what it showed)",
    "engine.attention": "leave it out: it follows from the model's size (docs/engines.md)",
}
"""By dotted name."""
NAMES = {
    "Round": "it is called GameBatch now, and what was called GameBatch is TurnVectorEnv",
    "SolverVectorEnv": "gymnasium.make_vec('ssp/Solver-v0', num_envs=...) makes vectors",
    "ProposerVectorEnv": "gymnasium.make_vec('ssp/Proposer-v0', num_envs=...) makes vectors",
}
"""Of :mod:`ssp_env`."""
COMMANDS = {
    "plot": "ssp report draws the curves",
    "submit": "add the run's row to docs/leaderboard.md by hand, which says where its figures are",
}
"""By name."""
PROMPTS = dict.fromkeys(
    ("zerosearch", "r-search"),
    "this one does not ship any more: copy its folder out of commit 1662d6ae and name that",
)
"""Prompt sets by name."""


def without_off(section: str, given: dict[str, object]) -> dict[str, object]:
    """Settings of a section, without those that are gone and did nothing there.

    >>> without_off("learning", {"privileged": 0.0, "turn_credit": 0.5})
    {'turn_credit': 0.5}
    """
    prefix = f"{section}." if section else ""
    return {k: v for k, v in given.items() if prefix + k not in SETTINGS or v not in OFF}
