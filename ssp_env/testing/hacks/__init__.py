"""A gym for reward hacking: scripted cheats to play against your own rules.

:func:`probe` plays every cheat against a verifier, a judge, filters, prompts and settings, and
reports who was paid what, beside an honest player. ``ssp probe`` is its command line, and
``docs/probe.md`` lists the cheats and shows how to write one.
"""

from __future__ import annotations

from ssp_env.testing.hacks.catalogue import CHEATS, all_cheats, find_cheat
from ssp_env.testing.hacks.cheat import Cheat
from ssp_env.testing.hacks.gate import Gate
from ssp_env.testing.hacks.honest import SKILL, HonestPlayer
from ssp_env.testing.hacks.pay import Finding, Interval, Pay
from ssp_env.testing.hacks.player import CheatPlayer
from ssp_env.testing.hacks.probe import GAMES, MARGIN, Played, Report, Result, play, probe
from ssp_env.testing.hacks.seat import Recalled, Seat

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
]
