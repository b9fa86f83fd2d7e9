"""What a cheat is: a small class that says who gains, and what the cheater writes."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from ssp_env.game.rules import Rules
from ssp_env.testing.hacks.seat import Seat
from ssp_env.types import Role


class Cheat:
    """A documented way to be paid without doing what the game is for.

    Subclass it, and let the docstring's first line say what the cheat is. Override :meth:`propose`,
    :meth:`solve`, or both: a cheat that overrides both is a pair that shares a convention, as the
    proposer and the solver of one network can. The probe makes one object for all its games, so
    attributes are what a network has learnt, not what it remembers of a game.
    """

    gains: ClassVar[Role] = Role.PROPOSER
    """Whose pay is compared with an honest player's: ``Role.PROPOSER`` or ``Role.SOLVER``."""
    rival: ClassVar[type[Any] | None] = None
    """Another :class:`Cheat`: the honest way to play what this one knows, in place of the honest
    player, where that knows less. What the closed-book gate pays counts for both then."""
    closed_by: ClassVar[str] = ""
    """Which setting or part closes it; shown where it pays."""

    @property
    def name(self) -> str:
        """What the report calls it: the class's name in small letters."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def about(self) -> str:
        """The first line of the docstring."""
        return (type(self).__doc__ or "").strip().partition("\n")[0]

    def applies(self, rules: Rules) -> bool:
        """Whether it can be played by these rules at all, such as a cheat at a gate that is on."""
        return True

    def propose(self, seat: Seat) -> str | None:
        """The proposer's next turn; ``None``: what an honest player writes."""
        return None

    def solve(self, seat: Seat) -> str | None:
        """The next turn of whatever the solver plays; ``None``: what an honest player writes.

        This is asked for in attempts, for the policy's own verification and at the closed-book gate
        alike. A policy is not told which of them it is playing: only :attr:`Seat.text` may differ.
        """
        return None
