"""How tests of the test mixins say that something broken is noticed."""

from __future__ import annotations

import pytest


def fails_as(tests: object, test: str, message: str) -> None:
    """This test of a mixin fails, and says so.

    Args:
        tests: a mixin's subclass over something broken.
        test: the test's name, without ``test_``.
        message: a pattern that its message matches.
    """
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        getattr(tests, f"test_{test}")()
