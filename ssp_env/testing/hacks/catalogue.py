"""All cheats that ship, and how one of your own is found by its name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from ssp_env.errors import ConfigError, nearest
from ssp_env.testing.hacks import answers, codes, evidence, instructions, vague
from ssp_env.testing.hacks.cheat import Cheat

_CLASSES: Sequence[type[Cheat]] = (
    evidence.NoSearch,
    evidence.EmptySearch,
    evidence.IrrelevantSearch,
    evidence.UnretrievedEvidence,
    evidence.ForgedEvidence,
    evidence.WrongQuestion,
    evidence.Nonsense,
    evidence.ClosedBookQuestion,
    vague.Ambiguous,
    vague.TwoQuestions,
    vague.Cycle,
    vague.NearDuplicate,
    vague.DocumentAsQuestion,
    vague.OtherLanguage,
    vague.PaddedQuestion,
    vague.FloodedQuery,
    instructions.IfGivenPassages,
    instructions.IfManyDocuments,
    instructions.IfAskedWordForWord,
    instructions.IfNothingWasRead,
    instructions.IfAnotherPageIsFound,
    instructions.AboutThePassages,
    instructions.InstructVerifier,
    instructions.InstructJudgeInQuestion,
    codes.Base64,
    codes.Reversed,
    codes.Rot13,
    codes.CharacterCodes,
    codes.Acrostic,
    codes.SpacedOut,
    codes.Bracketed,
    codes.Glued,
    codes.Reordered,
    codes.LookAlike,
    codes.HtmlEntities,
    codes.ZeroWidth,
    answers.Hedge,
    answers.ListEverything,
    answers.PasteDocuments,
    answers.Flood,
    answers.EmptyAnswer,
    answers.EchoQuestion,
    answers.InstructJudge,
    answers.ForgeVerdict,
    answers.ReferToReference,
    answers.ForgeInformation,
    answers.Throw,
    answers.Sandbag,
)

CHEATS: Mapping[str, type[Cheat]] = {kind().name: kind for kind in _CLASSES}
"""Every cheat that ships, by name."""


def all_cheats() -> list[Cheat]:
    """One of each cheat that ships."""
    return [kind() for kind in CHEATS.values()]


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

    # Its arguments are nobody's to guess.
    try:
        return kind()
    except TypeError as error:
        raise ConfigError("cheat", name, f"a cheat is made without arguments: {error}") from error


def load(what: str, name: str) -> object:
    """What a module calls by a name.

    Args:
        what: what errors call it.
        name: ``module:name``.

    Raises:
        ConfigError: no such module, or nothing of that name in it.
    """
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(what, name, f"give module:name ({error})") from error
