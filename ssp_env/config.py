"""Base class of all settings: frozen pydantic models whose errors name field, value and fix."""

from __future__ import annotations

import pkgutil
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from ssp_env import removed
from ssp_env.errors import ConfigError, SSPError, nearest


class Settings(BaseModel):
    """A section of settings. Values are checked and converted whenever one is made: a
    ``ConfigError`` names the field with its section, such as ``game.attempts``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    section: ClassVar[str] = ""
    """Name of the field that holds this section in larger settings; errors begin with it."""

    @model_validator(mode="before")
    @classmethod
    def _read_older_files(cls, given: Any) -> Any:
        return removed.without_off(cls.section, given) if isinstance(given, dict) else given

    def __init__(self, **values: Any) -> None:
        # Sweeps draw NumPy's numbers, which pydantic does not take for Python's.
        values = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        try:
            super().__init__(**values)
        except ValidationError as error:
            # The first complaint of pydantic's as our error, the others in its last words.
            complaints = [_complaint(type(self), dict(e)) for e in error.errors(include_url=False)]
            field, value, fix = complaints[0]
            for other in complaints[1:]:
                fix += "; also {} = {!r}: {}".format(*other)
            raise ConfigError(field, value, fix) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one."""
        return type(self)(**{**dict(self), **changes})


def _complaint(kind: type[Settings], error: dict[str, Any]) -> tuple[str, object, str]:
    prefix = f"{kind.section}." if kind.section else ""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        # Raised by a validator of this section, which knows its name, or by a section within.
        inner = cause.field
        name = inner if inner == kind.section else prefix + inner.removeprefix(prefix)
        return name, cause.value, cause.fix

    name, value = ".".join(map(str, error["loc"])), error["input"]
    if error["type"] == "extra_forbidden":
        if gone := removed.SETTINGS.get(prefix + name):
            return prefix + name, value, f"no such setting any more; {gone}"
        # Users know a setting by its last name, whichever section it is in.
        meant = [path for path in setting_names(kind) if path.endswith(f".{name}")]
        hint = f"did you mean {' or '.join(meant)}?" if meant else nearest(name, kind.model_fields)
        return prefix + name, value, f"no such setting; {hint}"
    if error["type"] == "literal_error" and isinstance(value, str):
        return prefix + name, value, nearest(value, re.findall(r"'([^']*)'", error["msg"]))
    if error["type"] == "tuple_type":
        return prefix + name, value, "give a list, in square brackets"
    if error["type"] in ("model_type", "dict_type") and name in kind.model_fields:
        inside = section_of(kind.model_fields[name])
        if inside is not None:
            names = ", ".join(f"{name}.{field}" for field in [*inside.model_fields][:3])
            return prefix + name, value, f"it is a section; set what is in it ({names}, ...)"
    if error["type"] == "missing":
        return prefix + name, None, "give a value"
    return prefix + name, value, error["msg"][0].lower() + error["msg"][1:]


def setting_names(kind: type[Settings]) -> list[str]:
    """Names of all settings, those of sections within as ``section.name``."""
    names = []
    for name, field in kind.model_fields.items():
        names.append(name)
        if (inner := section_of(field)) is not None:
            names += [f"{name}.{path}" for path in setting_names(inner)]
    return names


def section_of(field: FieldInfo) -> type[Settings] | None:
    for kind in get_args(field.annotation) or [field.annotation]:
        if isinstance(kind, type) and issubclass(kind, Settings):
            return kind
    return None


@contextmanager
def named(where: str) -> Iterator[None]:
    """Puts the name of a section before the names of the settings that are refused within it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}.{error.field}", error.value, error.fix) from None


def load(field: str, name: str) -> Any:
    """The object that ``module:name`` names, looked for in the working directory as well;
    ``ConfigError`` if there is no such module or name, or the module raises."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # the command `ssp` does not look there
    with own_code(field, name):
        try:
            return pkgutil.resolve_name(name)
        except (ImportError, AttributeError, ValueError) as error:
            module = name.partition(":")[0]
            if isinstance(error, ImportError) and not f"{module}.".startswith(f"{error.name}."):
                raise  # the module is there, and what it imports is not
            where = "it is looked for in the working directory and on PYTHONPATH"
            raise ConfigError(field, name, f"give module:name; {where} ({error})") from error


@contextmanager
def own_code(field: str, name: str) -> Iterator[None]:
    """Runs code of a user's, which a setting names. What it raises becomes a ConfigError, with the
    frames from the user's on as its note."""
    try:
        yield
    except SSPError:
        raise
    except Exception as error:
        # The way from here to the user's code is of no use to the user.
        frames, ours = error.__traceback__, ("ssp_env", "ssp_experiments", "importlib", "pkgutil")
        while frames and frames.tb_frame.f_globals["__name__"].partition(".")[0] in ours:
            frames = frames.tb_next
        what = "".join(traceback.format_exception_only(error))
        shown = ConfigError(field, name, f"your code raised {what.strip()}; fix it")
        if frames:
            shown.add_note("".join(traceback.format_exception(type(error), error, frames)))
        raise shown from None
