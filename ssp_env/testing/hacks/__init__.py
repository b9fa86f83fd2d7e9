"""A gym for reward hacking: scripted cheats to play against your own rules.

:func:`probe` plays every cheat against a verifier, a judge, filters, prompts and settings, and
reports who was paid what, beside an honest player. ``ssp probe`` is its command line, and
``docs/probe.md`` lists the cheats and shows how to write one.
"""

from __future__ import annotations

from ssp_env.testing.hacks.catalogue import CHEATS, all_cheats, find_cheat
from ssp_env.testing.hacks.cheat import SKILL, Cheat, CheatPlayer, HonestPlayer, Recalled, Seat
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
    "Seat",
    "all_cheats",
    "find_cheat",
    "play",
    "probe",
    "tally",
]
