"""Questions and ground truths that are made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ssp_env.errors import ConfigError
from ssp_env.types import GroundTruth, Question


@pytest.mark.parametrize(
    ("answers", "fix"),
    [
        ("abc", r"give a tuple of strings: \('abc',\)"),
        ((), "give at least one accepted wording"),
        ([], "give at least one accepted wording"),
        (None, "give a tuple of strings, the canonical wording first"),
        (("a", 5), "give a tuple of strings, the canonical wording first"),
    ],
)
def test_answers_that_are_none(answers: Any, fix: str) -> None:
    with pytest.raises(ConfigError, match=rf"Question\.answers = .*: {fix}"):
        Question("1", "what ?", answers, "mine")


def test_a_list_of_answers_is_as_good_as_a_tuple() -> None:
    listed = Question("1", "what ?", ["a", "b"], "mine")  # type: ignore[arg-type]
    assert listed == Question("1", "what ?", ("a", "b"), "mine")
    assert listed.truth == GroundTruth("1", "a", ("b",))
    assert len({listed, listed}) == 1


def test_aliases_are_no_string() -> None:
    with pytest.raises(
        ConfigError, match=r"GroundTruth\.aliases = 'abc': give a tuple of strings: \('abc',\)"
    ):
        GroundTruth("1", "a", "abc")  # type: ignore[arg-type]
