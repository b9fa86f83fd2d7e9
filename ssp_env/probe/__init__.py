"""Probes rules for reward hacking: scripted cheats play against them.

:func:`probe` plays every cheat against a verifier, a judge, filters, prompts and settings, and
reports who was paid what, beside an honest player. ``ssp probe`` is its command line, and
``docs/probe.md`` lists the cheats and shows how to write one."""

from __future__ import annotations

from copy import deepcopy

from ssp_env.config import load
from ssp_env.errors import ConfigError, nearest
from ssp_env.probe import choosers, proposers, solvers
from ssp_env.probe.cheat import Cheat, CheatPlayer, HonestPlayer, Turn
from ssp_env.probe.run import Finding, Report, Result, play, probe, tally

__all__ = [
    "CHEATS",
    "Cheat",
    "CheatPlayer",
    "Finding",
    "HonestPlayer",
    "Report",
    "Result",
    "Turn",
    "find_cheat",
    "play",
    "probe",
    "tally",
]

CHEATS: dict[str, Cheat] = {}
for _part in (each for part in (proposers, solvers, choosers) for each in vars(part).values()):
    if isinstance(_part, list):
        CHEATS |= {cheat.name: cheat for cheat in _part}
    elif isinstance(_part, type) and issubclass(_part, Cheat) and _part.closed_by:
        CHEATS[_part.name] = _part()


def find_cheat(name: str) -> Cheat:
    """A cheat by its name, or one of your own by ``module:Class``."""
    if ":" not in name:
        if name not in CHEATS:
            fix = f"one of your own is module:Class; {nearest(name, CHEATS)}"
            raise ConfigError("cheat", name, fix)
        return deepcopy(CHEATS[name])  # it learns

    kind = load("cheat", name)
    if not (isinstance(kind, type) and issubclass(kind, Cheat)):
        raise ConfigError("cheat", name, "name a subclass of ssp_env.probe.Cheat")
    return kind()
