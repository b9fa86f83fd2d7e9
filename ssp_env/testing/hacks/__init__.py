"""A gym for reward hacking: scripted cheats to play against your own rules.

:func:`probe` plays every cheat against a verifier, a judge, filters, prompts and settings, and
reports who was paid what, beside an honest player. ``ssp probe`` is its command line, and
``docs/probe.md`` lists the cheats and shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

from ssp_env.config import load
from ssp_env.errors import ConfigError, nearest
from ssp_env.testing.hacks import instructions, proposers, solvers
from ssp_env.testing.hacks.cheat import SKILL, Cheat, CheatPlayer, HonestPlayer, Recalled, Turn
from ssp_env.testing.hacks.probe import (
    GAMES,
    MARGIN,
    Finding,
    Gate,
    Interval,
    Pay,
    Played,
    Report,
    Result,
    play,
    probe,
    tally,
)

__all__ = [
    "CHEATS",
    "GAMES",
    "MARGIN",
    "SKILL",
    "Cheat",
    "CheatPlayer",
    "Finding",
    "Gate",
    "HonestPlayer",
    "Interval",
    "Pay",
    "Played",
    "Recalled",
    "Report",
    "Result",
    "Turn",
    "all_cheats",
    "find_cheat",
    "play",
    "probe",
    "tally",
]

_CLASSES: tuple[type[Cheat], ...] = (
    proposers.NoSearch,
    proposers.IrrelevantSearch,
    proposers.UnretrievedEvidence,
    proposers.ForgedEvidence,
    proposers.WrongQuestion,
    proposers.Nonsense,
    proposers.ClosedBookQuestion,
    proposers.Ambiguous,
    proposers.TwoQuestions,
    proposers.NearDuplicate,
    proposers.DocumentAsQuestion,
    proposers.FloodedQuery,
    instructions.IfAnotherPageIsFound,
    solvers.ForgeInformation,
    solvers.Throw,
    solvers.Sandbag,
)

CHEATS: dict[str, Callable[[], Cheat]] = {kind.name: kind for kind in _CLASSES}
"""Maker of every cheat that ships, by name."""

# These remember nothing, so a copy is as good as a new one.
CHEATS |= {
    cheat.name: partial(copy, cheat)
    for cheat in (
        *instructions.CONDITIONS, solvers.INSTRUCT_VERIFIER, *solvers.CODES, *solvers.ANSWERS
    )
}  # fmt: skip


def all_cheats() -> list[Cheat]:
    """One of each cheat that ships."""
    return [make() for make in CHEATS.values()]


def find_cheat(name: str) -> Cheat:
    """A cheat by its name, or one of your own by ``module:Class``."""
    if ":" not in name:
        if name not in CHEATS:
            raise ConfigError("cheat", name, f"{nearest(name, CHEATS)}; or give module:Class")
        return CHEATS[name]()

    kind = load("cheat", name)
    if not (isinstance(kind, type) and issubclass(kind, Cheat)):
        raise ConfigError("cheat", name, "name a subclass of ssp_env.testing.hacks.Cheat")
    return kind()
