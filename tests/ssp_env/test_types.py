"""Questions and ground truths that are made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ssp_env.errors import ConfigError
from ssp_env.types import GroundTruth, Question


@pytest.mark.parametrize("answers", ["abc", (), None])
def test_answers_that_are_none(answers: Any) -> None:
    with pytest.raises(ConfigError, match=r"Question\.answers = .*: give a tuple of strings"):
        Question("1", "what ?", answers, "mine")


def test_aliases_are_no_string() -> None:
    with pytest.raises(ConfigError, match=r"GroundTruth\.aliases = 'abc'"):
        GroundTruth("1", "a", "abc")  # type: ignore[arg-type]


def test_a_list_of_answers_is_as_good_as_a_tuple() -> None:
    listed = Question("1", "what ?", ["a", "b"], "mine")  # type: ignore[arg-type]
    assert listed == Question("1", "what ?", ("a", "b"), "mine")
    assert listed.truth == GroundTruth("1", "a", ("b",))
