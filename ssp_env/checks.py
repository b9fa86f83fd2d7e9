"""Parts that others bring: found by name, checked for what they can be called with, and described
in errors."""

from __future__ import annotations

import inspect
import pkgutil
import reprlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, nearest


def describe(value: object) -> str:
    """Type and value, as errors show them; a large value is abridged."""
    return "None" if value is None else f"{type(value).__name__} {reprlib.repr(value)}"


def load(field: str, name: str) -> Any:
    """The object that ``module:name`` names, looked for in the working directory as well.

    Raises:
        ConfigError: no such module, or nothing of that name in it.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # the command `ssp` does not look there
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(field, name, f"give module:name ({error})") from error


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


def check_positive_count(name: str, value: object) -> None:
    """
    Raises:
        ConfigError: no whole number from 1 up.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ConfigError(name, value, f"give a whole number, not {type(value).__name__}")
    if value < 1:
        raise ConfigError(name, value, "must be at least 1")


def one_of(field_name: str, value: str, known: Any) -> None:
    """Checks that a name is a known one.

    Raises:
        ConfigError: offers the nearest names.
    """
    if value not in known:
        raise ConfigError(field_name, value, nearest(value, known))
