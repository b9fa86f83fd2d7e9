"""Lists of words, written as words are."""

from __future__ import annotations


def vocabulary(words: str) -> frozenset[str]:
    """The words of a text that lists them with spaces between."""
    return frozenset(words.split())
