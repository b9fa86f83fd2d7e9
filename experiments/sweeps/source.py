"""YAML files whose mistakes are told with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ssp_env.errors import ConfigError, DataError


class Source:
    """A YAML file that knows in which line each of its keys stands."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            DataError: it cannot be read, is not YAML, is no mapping, or has a key twice.
        """
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.values: Any = yaml.safe_load(text)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(path, f"cannot be read: {error}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line = mark.line + 1 if mark else None
            raise DataError(path, f"is not YAML: {error.problem}", line) from error

        if not isinstance(node, yaml.MappingNode):
            raise DataError(path, "holds no mapping of names")
        self._lines: dict[tuple[str, ...], int] = {}
        self._read_lines(node, ())

    def at(self, keys: Sequence[str]) -> int | None:
        """The line of a key, given with those above it; ``None`` if it is not there."""
        return self._lines.get(tuple(keys))

    def line(self, keys: Sequence[str]) -> int | None:
        """The same; of the nearest above where it is not there itself."""
        found = (self.at(keys[:depth]) for depth in range(len(keys), 0, -1))
        return next((line for line in found if line is not None), None)

    @contextmanager
    def place(self, *keys: str) -> Iterator[None]:
        """Tells where in the file a setting stands that is refused inside.

        Args:
            keys: of the part that is looked at; without any, errors name it.

        Raises:
            DataError: for a :class:`~ssp_env.errors.ConfigError`.
        """
        try:
            yield
        except ConfigError as error:
            line = self.line(keys or error.field.split("."))
            raise DataError(self.path, str(error), line) from None

    def _read_lines(self, node: yaml.MappingNode, above: tuple[str, ...]) -> None:
        for key, value in node.value:
            keys, line = (*above, str(key.value)), key.start_mark.line + 1
            if key.tag != "tag:yaml.org,2002:str":
                raise DataError(self.path, f"{key.value} is no name: put it in quotes", line)
            if keys in self._lines:
                what = f"{key.value!r} is there already, in line {self._lines[keys]}"
                raise DataError(self.path, what, line)
            self._lines[keys] = line
            if isinstance(value, yaml.MappingNode):
                self._read_lines(value, keys)
