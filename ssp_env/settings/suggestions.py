"""What an unknown name of a setting may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from ssp_env.errors import nearest
from ssp_env.settings.hints import hints_of, section_of


def suggestion(name: str, kind: Any, root: Any = None) -> str:
    """What an unknown name may have meant: a synonym, a setting of another section, or the nearest.

    Args:
        name: what was typed.
        kind: the dataclass that has no such field.
        root: a dataclass with the other sections to look into; ``kind`` when not given.
    """
    synonyms: Mapping[str, str] = getattr(kind, "SYNONYMS", {})
    known = list(hints_of(kind))
    if name in synonyms:
        return f"did you mean {synonyms[name]!r}?"

    elsewhere = _elsewhere(name, root or kind)
    if root is not None and root is not kind and name in hints_of(root):
        elsewhere.insert(0, name)
    if elsewhere:
        return meant(elsewhere)

    # A synonym that is itself misspelt leads to its field, unless a field is nearer.
    close = difflib.get_close_matches(name, [*known, *synonyms], n=1, cutoff=0.75)
    if close and close[0] in synonyms:
        return f"did you mean {synonyms[close[0]]!r}?"
    return nearest(name, known)


def _elsewhere(name: str, kind: type[Any]) -> list[str]:
    """Dotted names of the settings in a dataclass' sections that go by this name."""
    found = []
    for section, hint in hints_of(kind).items():
        inner = section_of(hint)
        if inner is None or not is_dataclass(inner):
            continue
        field = getattr(inner, "SYNONYMS", {}).get(name, name)
        if field in hints_of(inner):
            found.append(f"{section}.{field}")
    return found


def whole_paths(typed: Sequence[str], kind: Any) -> list[str]:
    """Settings that ``learn.lr`` may have meant, where there is no section ``learn``: those that
    are called ``lr``, in a section of nearly that name if there is one."""
    found = _settings_called(typed[-1], kind)
    close = difflib.get_close_matches(typed[0], hints_of(kind), n=3, cutoff=0.5)
    sections = {getattr(kind, "SYNONYMS", {}).get(typed[0]), *close}
    near = [path for path in found if sections.intersection(path.split(".")[:-1])]
    return near or found


def _settings_called(name: str, kind: Any) -> list[str]:
    """Dotted names of all settings in a dataclass, however deep, that go by this name."""
    field = getattr(kind, "SYNONYMS", {}).get(name, name)
    hints = hints_of(kind)
    found = [field] if field in hints and section_of(hints[field]) is None else []
    for section, hint in hints.items():
        inner = section_of(hint)
        if inner is not None and is_dataclass(inner):
            found += [f"{section}.{path}" for path in _settings_called(name, inner)]
    return found


def meant(names: Iterable[str]) -> str:
    """The question that an error ends with."""
    return "did you mean " + " or ".join(map(repr, names)) + "?"
