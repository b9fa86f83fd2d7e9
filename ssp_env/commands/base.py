"""Wording that commands share."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """A number of things in words: ``1 trial``, ``2 trials``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
