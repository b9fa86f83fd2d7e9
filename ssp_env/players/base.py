"""What a player is: something that writes turns in place of a learning policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ssp_env.checks import describe
from ssp_env.errors import UsageError
from ssp_env.game.trajectory import Trajectory


class Player(Protocol):
    """Writes turns for any role: proposer, solver, verifier and closed book.

    It may look at everything that a policy sees (``ids``), and at the same things as text and
    objects: ``about``, ``documents``, ``searches``.
    """

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes one turn in each trajectory, with its ``feed_turn`` or ``feed``.

        Args:
            trajectories: all of them wait for tokens; they may be of different games and roles.

        Raises:
            ServiceError: the player could not play; the games of all these trajectories are void.
        """
        ...


class TextPlayer:
    """A player that writes text; subclasses implement :meth:`write`."""

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes :meth:`write`'s text in each.

        Raises:
            UsageError: :meth:`write` did not return a string.
        """
        for trajectory in trajectories:
            text: object = self.write(trajectory)
            if not isinstance(text, str):
                what = (
                    f"{type(self).__name__}.write() gave {describe(text)} for a "
                    f"{trajectory.role}'s turn"
                )
                raise UsageError(f"{what}: the turn's text is wanted, a string")

            trajectory.feed_turn(trajectory.limits.tokenizer.encode(text))

    def write(self, trajectory: Trajectory) -> str:
        """The next turn of a trajectory."""
        raise NotImplementedError
