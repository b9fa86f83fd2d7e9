"""The fields of settings, which are dataclasses, and the types that they are declared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


@lru_cache
def fields_of(kind: Any) -> tuple[Field[Any], ...]:
    """The fields of a dataclass that can be given."""
    return tuple(field for field in fields(kind) if field.init)


def _resolve(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields_of(kind)}


hints_of: Callable[[Any], dict[str, Any]] = lru_cache(_resolve)
"""The type of each field of a dataclass, resolved."""


def members_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union; the type itself where it is none."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def section_of(hint: Any) -> Any:
    """The dataclass, or ``dict``, that names can be looked up in; ``None`` for a single value."""
    for member in members_of(hint):
        origin = get_origin(member) or member
        if is_dataclass(origin) or origin is dict or origin is Mapping:
            return origin
    return None
