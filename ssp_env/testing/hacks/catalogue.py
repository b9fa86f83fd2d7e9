"""All cheats that ship, and lookup by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, nearest
from ssp_env.testing.hacks import instructions, proposers, solvers
from ssp_env.testing.hacks.cheat import Cheat

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
    instructions.IfGivenPassages,
    instructions.IfManyDocuments,
    instructions.IfAskedWordForWord,
    instructions.IfNothingWasRead,
    instructions.IfAnotherPageIsFound,
    instructions.InstructVerifier,
    instructions.InstructJudgeInQuestion,
    solvers.ForgeInformation,
    solvers.Throw,
    solvers.Sandbag,
)

CHEATS: dict[str, Callable[[], Cheat]] = {kind.name: kind for kind in _CLASSES}
"""Maker of every cheat that ships, by name."""

# Codes and answers remember nothing, so a copy is as good as a new one.
CHEATS |= {cheat.name: partial(copy, cheat) for cheat in (*solvers.CODES, *solvers.ANSWERS)}


def all_cheats() -> list[Cheat]:
    """One of each cheat that ships."""
    return [make() for make in CHEATS.values()]


def find_cheat(name: str) -> Cheat:
    """A cheat by its name, or one of your own by ``module:Class``.

    Raises:
        ConfigError: no such cheat or module, or a class that is not a :class:`Cheat`.
    """
    if ":" not in name:
        if name not in CHEATS:
            raise ConfigError("cheat", name, f"{nearest(name, CHEATS)}; or give module:Class")
        return CHEATS[name]()

    kind = load("cheat", name)
    if not (isinstance(kind, type) and issubclass(kind, Cheat)):
        raise ConfigError("cheat", name, "name a subclass of ssp_env.testing.hacks.Cheat")
    return kind()


def load(what: str, name: str) -> Any:
    """An object of a module.

    Args:
        what: its name in errors.
        name: ``module:name``.

    Raises:
        ConfigError: no such module, or nothing of that name in it.
    """
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # the command `ssp` does not look there
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(what, name, f"give module:name ({error})") from error
