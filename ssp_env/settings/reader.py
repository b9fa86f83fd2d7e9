"""Settings between plain data and typed dataclasses: the one reader, and the one writer.

:func:`read` makes a dataclass of what YAML, a command line or a sweep gave. It is lenient where
every reader of such data wants it to be: fields that are missing keep their defaults, lists become
tuples, whole numbers floats, NumPy's numbers Python's own, and ``1e-6``, which YAML takes for text,
the number that everybody means.

``read(..., strict=True)`` reads data that a program wrote with :func:`plain`: every field has to be
there, none besides, each of exactly its type. So a file that was cut, edited or written by another
version is refused instead of being completed with defaults.

Both name what they refuse by the name that was typed. A dataclass may help the reader with a class
attribute ``SYNONYMS``, from names that people know a setting by to the names of its fields, and
with a class method ``from_text``, for a section that may be written as a single text.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, UsageError
from ssp_env.settings.hints import fields_of, hints_of, members_of, section_of
from ssp_env.settings.suggestions import meant, suggestion, whole_paths

T = TypeVar("T")

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
"""What YAML 1.1, which PyYAML reads, takes for text though it is a number."""
_NOT_FINITE = ("nan", "inf", "-inf")
"""How :func:`plain` writes the floats that JSON has no word for."""
_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
"""Between two halves of a surrogate pair, which JSON would read back as one character."""


# -- reading -----------------------------------------------------------------------------------


def read(
    kind: type[T],
    values: Mapping[str, Any],
    where: str = "",
    *,
    default: T | None = None,
    strict: bool = False,
) -> T:
    """Makes a dataclass from plain values. Nested dataclasses are read from nested mappings.

    Args:
        kind: which dataclass.
        values: field name -> value.
        where: what the user calls this section; errors put it before a field's name.
        default: where fields that are not given come from; the dataclass' own defaults otherwise.
        strict: every field is required and nothing is converted but what :func:`plain` wrote.

    Raises:
        ConfigError: an unknown field (offers the nearest one), one that is missing, a value of
            another type, or one that the dataclass itself refuses.
    """
    if isinstance(kind, type) and issubclass(kind, Settings):
        return kind(**{**(dict(default) if default is not None else {}), **values})  # type: ignore
    result: T = _Reader(strict).section(kind, values, where, default)
    return result


def read_value(hint: Any, value: Any, name: str) -> Any:
    """One value, converted to a type as :func:`read` does.

    Args:
        hint: a type hint, as :func:`typing.get_type_hints` resolves it.
        value: what was given.
        name: what errors call it.

    Raises:
        ConfigError: a value of another type.
    """
    return _Reader(strict=False).value(hint, value, name)


def check_types(config: Any, where: str) -> None:
    """Converts the fields of a frozen dataclass in place, as :func:`read` does.

    For ``__post_init__``, so that a dataclass made in code is as sound as one that was read.

    Raises:
        ConfigError: names the field.
    """
    for name, hint in hints_of(type(config)).items():
        value = read_value(hint, getattr(config, name), f"{where}.{name}")
        object.__setattr__(config, name, value)


def check_path(kind: type[Any], path: str, value: object) -> None:
    """Makes sure that a dotted name leads to a field.

    Args:
        kind: the dataclass that the name begins in.
        path: such as ``game.tags.search``.
        value: what is to be assigned, for the error.

    Raises:
        ConfigError: no setting has this name (offers the nearest one).
    """
    hint: Any = kind
    for depth, name in enumerate(names := path.split(".")):
        section = section_of(hint)
        if section is None:
            fix = "no setting lies so deep; write section.field=value"
            raise ConfigError(path, value, fix)

        if not is_dataclass(section):
            # A mapping of free names, such as a world's options; its reader knows them.
            hint = None
        elif name in hints_of(section):
            hint = hints_of(section)[name]
        else:
            whole = whole_paths(names[depth:], section) if names[depth + 1 :] else []
            root = kind if depth == len(names) - 1 else None
            before = names[:depth]
            fix = meant(".".join([*before, way]) for way in whole)
            raise ConfigError(path, value, fix if whole else suggestion(name, section, root))


@contextmanager
def named(where: str) -> Iterator[None]:
    """Puts the name of a container before the names of the settings that are refused in it.

    Raises:
        ConfigError: the one that was raised inside, under its longer name.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}.{error.field}", error.value, error.fix) from None


@dataclass(frozen=True)
class _Reader:
    """Makes typed values of plain ones."""

    strict: bool

    def section(self, kind: Any, values: Any, where: str, default: Any = None) -> Any:
        """A dataclass; fields that are not given come from ``default``."""
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            fix = f"needs a mapping of settings, by the names of {kind.__name__}'s fields"
            raise ConfigError(where, values, fix)

        hints = hints_of(kind)
        for name, value in values.items():
            if name not in hints:
                fix = "is not known" if self.strict else suggestion(name, kind)
                raise ConfigError(_join(where, name), value, fix)

        for field in fields_of(kind):
            missing = field.name not in values
            if missing and (self.strict or (default is None and not _has_default(field))):
                raise ConfigError(_join(where, field.name), None, "is missing")

        ready = {}
        for name, value in values.items():
            below = None if self.strict else _default_of(kind, name, default)
            ready[name] = self.value(hints[name], value, _join(where, name), below)

        try:
            return kind(**ready) if default is None else replace(default, **ready)
        except ConfigError as error:
            raise self._under(kind, where, error) from None

    def value(self, hint: Any, value: Any, name: str, default: Any = None) -> Any:
        """A value of any type that settings have; ``default`` is what a section is laid over."""
        if hint is Any:
            return value

        members = members_of(hint)
        if value is None and NoneType in members:
            return None

        # What is an instance already is taken for that, before anything is converted.
        fitting = [m for m in members if self._fits(m, value)]
        exact = [m for m in fitting if isinstance(m, type) and isinstance(value, m)]
        if not fitting:
            raise ConfigError(name, value, self._needs(hint, value))
        return self._converted((exact or fitting)[0], value, name, default)

    def _fits(self, hint: Any, value: Any) -> bool:
        """Whether a value has the outer form of a type that is not a union."""
        hint = get_origin(hint) or hint
        if isinstance(hint, type) and issubclass(hint, Settings):
            return isinstance(value, Mapping | hint)
        if is_dataclass(hint):
            empty = value is None and not self.strict  # a YAML section without a line in it
            spelled = isinstance(value, str) and not self.strict and hasattr(hint, "from_text")
            taken = isinstance(value, Mapping) or empty or spelled
            return taken or isinstance(value, _class(hint))
        if hint is tuple:
            return isinstance(value, list | tuple)
        if hint is dict or hint is Mapping:
            return isinstance(value, Mapping) or (value is None and not self.strict)

        if hint is bool:
            return isinstance(value, bool | np.bool_)
        if hint is int:
            number = int if self.strict else Integral
            return isinstance(value, number) and not isinstance(value, bool)
        if hint is float:
            return self._fits_float(value)

        if hint is str:
            others = list if self.strict else Path
            return isinstance(value, str | others)
        if hint is Path:
            return isinstance(value, str | Path)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return True
        # Protocols and functions are checked where they are used.
        plain_class = isinstance(hint, type) and not getattr(hint, "_is_protocol", False)
        return isinstance(value, hint) if plain_class else True

    def _fits_float(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in _NOT_FINITE or (
                not self.strict and _NUMBER.fullmatch(value) is not None
            )
        return isinstance(value, Real) and not isinstance(value, bool)

    def _converted(self, hint: Any, value: Any, name: str, default: Any) -> Any:
        """A value that fits, in the very type."""
        origin = get_origin(hint) or hint
        if isinstance(origin, type) and issubclass(origin, Settings):
            return origin(**value) if isinstance(value, Mapping) else value
        if is_dataclass(origin):
            if isinstance(value, _class(origin)):
                return value
            if isinstance(value, str):
                return self._from_text(origin, value, name)
            return self.section(origin, value or {}, name, default)

        if origin is tuple:
            return self._tuple(get_args(hint), value, name)
        if origin is dict or origin is Mapping:
            return self._mapping(get_args(hint), value or {}, name)

        if isinstance(origin, type) and issubclass(origin, Enum):
            known = [member.value for member in origin]
            if value not in known:
                raise ConfigError(name, value, f"needs one of {', '.join(map(str, known))}")
            return origin(value)
        if origin is str and isinstance(value, list):
            return "".join(self.value(str, part, name) for part in value)

        convert = _CONVERSIONS.get(origin)
        if convert is None:
            return value
        try:
            return convert(value)
        except OverflowError:
            raise ConfigError(name, value, "is too large a number") from None

    def _from_text(self, kind: Any, text: str, name: str) -> Any:
        try:
            return kind.from_text(text)
        except ConfigError as error:
            raise ConfigError(name, text, error.fix) from None

    def _tuple(self, items: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
        if not items:
            return tuple(value)

        if items[-1] is not Ellipsis:
            if len(value) != len(items):
                raise ConfigError(name, value, f"needs {len(items)} items, not {len(value)}")
        elif items[0] is int and all(type(item) is int for item in value):
            return tuple(value)  # tokens: there are many
        else:
            items = (items[0],) * len(value)

        # A list on a command line is called by its name, one in a file by the place in it.
        names = [f"{name}[{i}]" if self.strict else name for i in range(len(value))]
        triples = zip(items, value, names, strict=True)
        return tuple(self.value(hint, item, called) for hint, item, called in triples)

    def _mapping(self, items: tuple[Any, ...], value: Any, name: str) -> dict[str, Any]:
        if not all(isinstance(key, str) for key in value):
            raise ConfigError(name, value, "needs a mapping of settings, by name")
        inner = items[1] if items else Any
        return {key: self.value(inner, item, f"{name}.{key}") for key, item in value.items()}

    def _needs(self, hint: Any, value: Any) -> str:
        """What would fit: to whoever wrote a setting in words, of a program's data by the type."""
        if self.strict:
            return f"needs a value of the type {_shown(hint)}, not {type(value).__name__}"
        # A number in quotes looks like a number in a file.
        instead = ", not a text" if isinstance(value, str) else ""
        return f"needs {' or '.join(map(_spoken, members_of(hint)))}{instead}"

    def _under(self, kind: Any, where: str, error: ConfigError) -> ConfigError:
        """What a dataclass refused by its own name, by the name that its user gave."""
        first, _, rest = error.field.partition(".")
        name = error.field if first in hints_of(kind) else rest
        given = reprlib.repr(error.value)
        fix = f"cannot be {given}: {error.fix}" if self.strict else error.fix
        return ConfigError(_join(where, name), error.value, fix)


_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    bool: bool,
    int: int,
    float: float,
    str: str,
    Path: Path,
}


# -- writing -----------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as what :mod:`json` and YAML write; :func:`read` takes it back.

    Tuples become lists, floats that are not finite become texts, and texts that JSON would change
    become lists of their parts.

    Raises:
        UsageError: something that no JSON can hold.
    """
    if isinstance(value, Settings):
        return value.model_dump(mode="json")
    match value:
        case Enum():
            return value.value
        case str():
            return value if _HALVES.search(value) is None else _HALVES.split(value)
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


# -- type hints --------------------------------------------------------------------------------


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _default_of(kind: Any, name: str, default: Any) -> Any:
    """What a nested section is laid over: a dataclass, or ``None`` where there is no default."""
    if default is not None:
        value = getattr(default, name)
    else:
        (field,) = (field for field in fields_of(kind) if field.name == name)
        factory = field.default_factory
        value = field.default if factory is MISSING else factory()
    return value if is_dataclass(value) and not isinstance(value, type) else None


def _class(hint: Any) -> type[Any]:
    assert isinstance(hint, type)
    return hint


def _shown(hint: Any) -> str:
    """A type as its author wrote it."""
    if hint is Ellipsis:
        return "..."
    if hint is NoneType:
        return "None"

    members = members_of(hint)
    if len(members) > 1:
        return " | ".join(_shown(member) for member in members)
    name = getattr(get_origin(hint) or hint, "__name__", str(hint))
    inner = ", ".join(_shown(argument) for argument in get_args(hint))
    return f"{name}[{inner}]" if inner else name


def _spoken(hint: Any) -> str:
    """A type that is not a union, as somebody calls it who writes settings."""
    origin = get_origin(hint) or hint
    if origin in _WORDS:
        return _WORDS[origin]
    if origin in (dict, Mapping):
        return "a mapping of settings, by name"
    if is_dataclass(origin):
        return f"a mapping of {_class(origin).__name__}'s fields"
    if origin is not tuple:
        return f"a {_shown(hint)}"

    items = [item for item in get_args(hint) if item is not Ellipsis]
    words = _WORDS.get(items[0]) if len({*items}) == 1 else None
    return f"a list, each item {words}" if words else "a list"


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    NoneType: "null",
}
"""What the types of single values are called."""


def _join(where: str, name: str) -> str:
    return ".".join(part for part in (where, name) if part)
