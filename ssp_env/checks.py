"""How errors speak of parts that others bring: what came from one, and whether a function can be
called at all."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import numpy as np

from ssp_env.errors import ConfigError, nearest

C = TypeVar("C")


def describe(value: object) -> str:
    """Type and value, as errors show them; a large value is abridged."""
    return "None" if value is None else f"{type(value).__name__} {reprlib.repr(value)}"


def check_call(name: str, function: object, arguments: tuple[str, ...]) -> None:
    """
    Args:
        name: the setting that the function was given as.
        function: anything callable; one that Python cannot read the parameters of (some builtins)
            passes.
        arguments: what it is called with, by position.

    Raises:
        ConfigError: it does not take these arguments.
    """
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except ValueError:
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        fix = (
            f"it is called with ({', '.join(arguments)}), but its parameters are {signature} "
            f"({error})"
        )
        raise ConfigError(name, function, fix) from None


def check_number_of_games(name: str, value: object) -> None:
    """
    Raises:
        ConfigError: no whole number from 1 up.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ConfigError(name, value, f"give a whole number, not {type(value).__name__}")
    if value < 1:
        raise ConfigError(name, value, "must be at least 1")


def typed(config: Any, prefix: str) -> None:
    """Checks the types of all fields, and turns lists into tuples and whole numbers into floats
    where they are meant.

    Raises:
        ConfigError: names the field.
    """
    hints = get_type_hints(type(config))
    for field_ in fields(config):
        name = field_.name
        value = of_type(field_.type, getattr(config, name), f"{prefix}.{name}", hints[name])
        object.__setattr__(config, name, value)


def at_least(config: Any, prefix: str, minimum: float, *names: str) -> None:
    """Checks that numeric fields are not below ``minimum``.

    Raises:
        ConfigError: names the field.
    """
    for name in names:
        # Put this way round, so that NaN fails as well.
        if not getattr(config, name) >= minimum:
            raise ConfigError(
                f"{prefix}.{name}", getattr(config, name), f"must be at least {minimum}"
            )


def one_of(field_name: str, value: str, known: Any) -> None:
    """Checks that a name is a known one.

    Raises:
        ConfigError: offers the nearest names.
    """
    if value not in known:
        raise ConfigError(field_name, value, nearest(value, known))


def from_mapping(
    kind: type[C], values: Mapping[str, Any], prefix: str, default: C | None = None
) -> C:
    """Makes a config dataclass from plain values, as they come from YAML.

    Args:
        kind: which dataclass.
        values: field name -> value.
        prefix: what errors put before a field's name.
        default: where the other fields come from; the dataclass' own defaults when not given.

    Raises:
        ConfigError: an unknown field (offers the nearest), a value of another type or out of range.
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    ready: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{prefix}.{name}", value, nearest(name, known))
        ready[name] = of_type(known[name].type, value, f"{prefix}.{name}", hints[name])
    return kind(**ready) if default is None else replace(default, **ready)  # type: ignore[type-var]


def of_type(annotation: Any, value: Any, name: str, section: Any = None) -> Any:
    """The value in the very type of an annotation, given as text (``from __future__ import
    annotations``).

    Raises:
        ConfigError: a value of another type. Annotations other than those of the configs are not
            looked at.
    """
    text = str(annotation)
    kind = text.removesuffix(" | None")
    if value is None and kind != text:
        return None
    if is_dataclass(section):
        if isinstance(value, dict):
            return from_mapping(cast(type[Any], section), value, name)
        expected: Any = section
    else:
        expected = _TYPES.get(kind.partition("[")[0])
    if kind.startswith("tuple[") and isinstance(value, list | tuple):
        item = kind.removeprefix("tuple[").removesuffix("]").split(",")[0]
        return tuple(of_type(item, inner, name) for inner in value)
    if kind == "str" and isinstance(value, Path):
        return str(value)
    # YAML 1.1, which PyYAML reads, takes 1e-6 for text; everybody means a number.
    if (
        kind == "float"
        and isinstance(value, str)
        and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value)
    ):
        return float(value)
    if expected is None:
        return value
    if not isinstance(value, expected) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(
            name, value, f"a value of the type {text} is needed, not {type(value).__name__}"
        )
    return _NUMBERS.get(kind, lambda same: same)(value)


_TYPES: dict[str, Any] = {
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool,),
    "str": (str,),
    "str | Path": (str, Path),
    "tuple": (tuple,),
}
_NUMBERS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}
"""numpy's numbers, as sweeps draw them, become Python's own."""
