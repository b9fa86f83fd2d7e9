"""Reads the plain data of a file strictly, and names file and line in what it raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from ssp_env.errors import ConfigError, DataError
from ssp_env.settings import plain, read

__all__ = ["Reader", "plain"]

T = TypeVar("T")


@dataclass(frozen=True)
class Reader:
    """Makes dataclasses of plain data: every field, each of its type, and no other."""

    path: str
    line: int | None = None

    def read(self, kind: type[T], value: Any, field: str = "") -> T:
        """A dataclass of this kind.

        Args:
            kind: the dataclass.
            value: as :func:`~ssp_env.settings.plain` gave it.
            field: what errors call it.

        Raises:
            DataError: a field that is missing, unknown, of another type, or refused by its
                dataclass.
        """
        try:
            return read(kind, value, field, strict=True)
        except ConfigError as error:
            raise self.wrong(error.field, error.fix) from None

    def wrong(self, field: str, what: str) -> DataError:
        """The error that says what is wrong with a field."""
        return DataError(self.path, f"field {field!r} {what}", self.line)
