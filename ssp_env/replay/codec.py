"""Frozen dataclasses as plain JSON data and back. Reading is strict: every field, each of its type,
and no other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ssp_env.errors import ConfigError, DataError, UsageError

T = TypeVar("T")

_CLOSES_UP = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
"""Two halves of a surrogate pair side by side, which JSON would read back as one character."""


def plain(value: Any) -> Any:
    """A value as what :mod:`json` writes: numbers that are not finite become texts, texts that JSON
    would change become lists of their parts.

    Raises:
        UsageError: something that no JSON can hold.
    """
    match value:
        case Enum():
            return value.value
        case str():
            return value if _CLOSES_UP.search(value) is None else _CLOSES_UP.split(value)
        case None | bool() | int():
            return value
        case float():
            return float(value) if math.isfinite(value) else repr(float(value))
        case np.generic():
            return plain(value.item())
        case Path():
            return str(value)
        case Mapping():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    raise UsageError(f"a {type(value).__name__} cannot be saved: {value!r}")


@dataclass(frozen=True)
class Reader:
    """Makes typed values of plain ones; names file, line and field in what it raises."""

    path: str
    line: int | None = None

    def read(self, kind: type[T], value: Any, field: str = "") -> T:
        """A value of this type.

        Args:
            kind: a dataclass, an enumeration, ``str``, ``float``, ``int``, ``bool``, or tuples,
                dicts and options of these.
            value: as :func:`plain` gave it.
            field: what errors call it.

        Raises:
            DataError: a field that is missing, unknown, of another type, or refused by its
                dataclass.
        """
        result: T = self._any(kind, value, field)
        return result

    def wrong(self, field: str, what: str) -> DataError:
        """The error that says what is wrong with a field."""
        return DataError(self.path, f"field {field!r} {what}", self.line)

    def _any(self, kind: Any, value: Any, field: str) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            (only,) = (argument for argument in arguments if argument is not NoneType)
            return None if value is None else self._any(only, value, field)
        if origin is tuple:
            return self._tuple(arguments, self._typed(list, value, field), field)
        if origin is dict:
            items = self._typed(dict, value, field).items()
            return {name: self._any(arguments[1], item, f"{field}.{name}") for name, item in items}
        if is_dataclass(kind):
            return self._dataclass(kind, self._typed(dict, value, field), field)
        if issubclass(kind, Enum):
            known = [member.value for member in kind]
            if value not in known:
                raise self.wrong(field, f"is {value!r}, which is none of {', '.join(known)}")
            return kind(value)
        if kind is str and isinstance(value, list):
            return "".join(self._typed(str, part, field) for part in value)
        if kind is float:
            return self._float(value, field)
        return self._typed(kind, value, field)

    def _tuple(self, arguments: tuple[Any, ...], value: list[Any], field: str) -> tuple[Any, ...]:
        if arguments[-1] is not Ellipsis:
            if len(value) != len(arguments):
                raise self.wrong(field, f"has {len(value)} items, not {len(arguments)}")
        elif arguments[0] is int and all(type(item) is int for item in value):
            return tuple(value)  # tokens: there are many
        else:
            arguments = (arguments[0],) * len(value)
        return tuple(self._any(arguments[i], item, f"{field}[{i}]") for i, item in enumerate(value))

    def _dataclass(self, kind: Any, value: dict[str, Any], field: str) -> Any:
        hints, before = _hints(kind), f"{field}." if field else ""
        for name in hints:
            if name not in value:
                raise self.wrong(f"{before}{name}", "is missing")
        for name in value:
            if name not in hints:
                raise self.wrong(f"{before}{name}", "is not known")
        ready = {
            name: self._any(hint, value[name], f"{before}{name}") for name, hint in hints.items()
        }
        try:
            return kind(**ready)
        except ConfigError as error:
            raise self.wrong(field, f"cannot be: {error}") from None

    def _float(self, value: Any, field: str) -> float:
        if value in ("nan", "inf", "-inf"):
            return float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(field, f"has the type {type(value).__name__}, not float")
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(field, "is too large a number") from None

    def _typed(self, kind: Any, value: Any, field: str) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(field, f"has the type {type(value).__name__}, not {kind.__name__}")
        return value


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}
