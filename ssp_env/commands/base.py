"""The interface of a subcommand of ``ssp``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A subcommand, as an entry point of the group ``ssp.commands`` provides it."""

    name: str
    """Word that the user types after ``ssp``."""
    help: str
    """One line for ``ssp --help``."""
    configure: Callable[[ArgumentParser], None]
    """Adds the command's arguments to its parser."""
    run: Callable[[Namespace], int]
    """Does the work and returns the exit status.

    Raises:
        SSPError: a mistake of the user's.
    """


def plural(count: int, noun: str) -> str:
    """A number of things in words: ``1 trial``, ``2 trials``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
