"""Settings name the field, the value and the fix of whatever does not fit."""

from __future__ import annotations

import pickle
from typing import ClassVar, Literal

import numpy as np
import pytest
from pydantic import PositiveInt, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError


class Inner(Settings):
    """A section."""

    section: ClassVar[str] = "inner"

    attempts: PositiveInt = 5
    """How many."""
    kind: Literal["auto", "world"] = "auto"
    """One of two."""
    span: tuple[int, int] = (1, 3)
    """Low and high."""

    @model_validator(mode="after")
    def _ordered(self) -> Inner:
        if self.span[0] > self.span[1]:
            raise ConfigError("inner.span", self.span, "give (low, high)")
        return self


class Outer(Settings):
    """Settings that hold the section."""

    inner: Inner = Inner()
    """The section."""
    steps: int = 1
    """A number."""


@pytest.mark.parametrize(
    ("values", "field", "fix"),
    [
        ({"inner": {"attempts": 0}}, "inner.attempts", "greater than 0"),
        ({"inner": {"attemps": 1}}, "inner.attemps", "did you mean 'attempts'?"),
        ({"inner": {"kind": "wolrd"}}, "inner.kind", "did you mean 'world'?"),
        ({"inner": {"span": [3, 1]}}, "inner.span", "give (low, high)"),
        ({"inner": 3}, "inner", "dictionary"),
        ({"kind": "auto"}, "kind", "did you mean inner.kind?"),
        ({"steps": "many"}, "steps", "integer"),
        ({"stps": 1, "inner": {"attempts": 0}}, "inner.attempts", "also stps = 1"),
    ],
)
def test_errors_name_the_field_and_the_fix(values: dict[str, object], field: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Outer(**values)

    assert caught.value.field == field
    assert fix in caught.value.fix


def test_values_are_converted_whichever_way_settings_are_made() -> None:
    made = Inner(attempts=np.int64(3), span=[1, 2])

    assert made == Inner().replace(attempts=3, span=(1, 2))
    assert type(made.attempts) is int
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(ConfigError):
        made.replace(attempts=0)
