"""Lines of data files as models: what is wrong with one is said with its number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, StringConstraints, ValidationError

from ssp_env.errors import DataError
from ssp_env.tables import fields_of, read_table

Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""A string that is not blank."""


class Line(BaseModel, strict=True):
    """A line of an answer or question file; further fields are ignored."""

    id: str | int | None = None


L = TypeVar("L", bound=Line)
M = TypeVar("M", bound=BaseModel)


def read_rows(path: str | Path, kind: type[M]) -> Iterator[tuple[int, M]]:
    """Numbered rows of a file as models of this kind."""
    for line, fields in read_table(path):
        yield line, validated(path, line, fields, kind)


def validated(path: str | Path, line: int, fields: Mapping[str, Any], kind: type[M]) -> M:
    """A line as a model; a ``DataError`` names the field that is at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        missing = first["type"] == "missing"
        has = fields_of(fields) if missing else f"not {first['input']!r:.100}"
        if first["type"] == "list_type" and isinstance(first["input"], str):
            has += f", say {json.dumps([first['input']], ensure_ascii=False):.100}"
        what = f"field {'.'.join(map(str, first['loc']))!r}: {first['msg']}; {has}"
        raise DataError(path, what, line) from None


def identified(
    path: str | Path, rows: Iterable[tuple[int, L]], prefix: str
) -> Iterator[tuple[str, L]]:
    """Rows with their ids, no id twice, one row at least; a row without one is named after its
    line, such as ``a3``."""
    known: set[str] = set()
    for line, row in rows:
        name = f"{prefix}{line}" if row.id is None else str(row.id)
        if name in known:
            raise DataError(path, f"id {name!r} occurs twice", line)
        known.add(name)
        yield name, row
    if not known:
        raise DataError(path, "holds no line")
