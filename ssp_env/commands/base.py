"""What a subcommand of ``ssp`` is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A subcommand, as the entry-point group ``ssp.commands`` offers it."""

    name: str
    """What the user types after ``ssp``."""
    help: str
    """One line for ``ssp --help``."""
    configure: Callable[[ArgumentParser], None]
    """Adds the command's arguments to its parser."""
    run: Callable[[Namespace], int]
    """Does the work and returns the exit status; raises :class:`~ssp_env.errors.SSPError` for a
    user's mistake."""
