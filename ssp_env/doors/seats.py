"""Games in which you play one role and a player plays the rest, for the one-role envs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ssp_env.doors.dealer import Dealer
from ssp_env.doors.infos import Info, info_of
from ssp_env.errors import ServiceError, UsageError
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round, advance_all
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.players.base import Player
from ssp_env.types import Role

MOST_REDEALS = 100
"""Games in a row that may end before the seat's turn."""


class Seat:
    """One game at a time, seen from one role."""

    def __init__(self, dealer: Dealer, role: Role) -> None:
        """
        Args:
            dealer: deals the games.
            role: the role that is yours.
        """
        self.role, self.dealer = role, dealer
        self._round: Round | None = None
        self._options: Mapping[str, Any] | None = None
        self.trajectory: Trajectory | None = None
        """Your trajectory; ``None`` before your first turn."""
        self.info: Info = {}
        """As in the AEC env, at the beginning of your turn or at the end of the game."""

    @property
    def round(self) -> Round:
        """The round of the present game.

        Raises:
            UsageError: there is none before the first deal.
        """
        if self._round is None:
            raise UsageError("call reset() first")
        return self._round

    @property
    def game(self) -> Game:
        """The present game."""
        return self.round.games[0]

    @property
    def over(self) -> bool:
        """Whether the present game has ended."""
        return self.round.done

    @property
    def reward(self) -> float:
        """What the present game has paid; 0 while it goes on."""
        paid = self.game.proposer_reward if self.role is Role.PROPOSER else self.game.solver_reward
        return float(paid or 0.0)

    @property
    def flags(self) -> tuple[bool, bool]:
        """Terminated, truncated. A void game is truncated, since an outage does not end play."""
        void = self.over and self.game.outcome is Outcome.VOID
        return self.over and not void, void

    def deal(self, options: Mapping[str, Any] | None = None) -> None:
        """Begins the next game; :func:`advance_seats` brings it to your turn.

        Raises:
            UsageError: an option that is unknown or does not fit, or a question where you are the
                proposer.
        """
        dealt = self.dealer.deal(options)
        if self.role is Role.PROPOSER and dealt.games[0].origin is not Origin.PROPOSED:
            raise UsageError("the question is given: there is nothing to propose")

        self._round, self._options, self.trajectory = dealt, options, None

    def deal_again(self) -> None:
        """Another game with the same options."""
        self.deal(self._options)

    def refresh(self) -> None:
        """Notes your trajectory and the info, once the game waits for you or is over."""
        pending = self.round.pending()
        self.trajectory = pending[0] if pending else self.trajectory
        self.info = info_of(self.round)


def advance_seats(seats: Sequence[Seat], other: Player) -> None:
    """Plays on until each seat waits for its own role or its game is over, in batches.

    A game that ends before the seat's turn is dealt again, with the same options: an episode needs
    a first move.

    Args:
        seats: any, dealt already.
        other: plays every trajectory that is not the seat's own.

    Raises:
        UsageError: a seat never gets its turn, or the player leaves a turn unfinished.
        ServiceError: a seat never gets its turn because a service is down.
    """
    redeals = dict.fromkeys(seats, 0)
    while True:
        advance_all([seat.round for seat in seats])

        # All other roles' turns are written first, in one call.
        others = [
            (seat, t) for seat in seats for t in seat.round.pending() if t.role is not seat.role
        ]
        if others:
            _play_others(other, others)
            continue

        for seat in seats:
            seat.refresh()

        # Their games ended before their first turn.
        idle = [seat for seat in seats if seat.trajectory is None]
        if not idle:
            return

        for seat in idle:
            redeals[seat] += 1
            if redeals[seat] > MOST_REDEALS:
                _give_up(seat)
            seat.deal_again()


def _give_up(seat: Seat) -> None:
    reason, what = (
        str(seat.game.reason),
        f"{MOST_REDEALS} games in a row ended before the {seat.role}'s turn",
    )

    if seat.game.outcome is Outcome.VOID:
        raise ServiceError(reason, what)
    raise UsageError(
        f"{what}, the last one as {reason}; see that the budgets and the other player suit this "
        f"game"
    )


def _play_others(other: Player, turns: Sequence[tuple[Seat, Trajectory]]) -> None:
    try:
        other.play([trajectory for _, trajectory in turns])
    except ServiceError as error:
        for seat, trajectory in turns:
            seat.round.void([trajectory], error)
        return
    for _, trajectory in turns:
        if trajectory.waiting is Waiting.POLICY:
            raise UsageError(
                f"the player left a {trajectory.role}'s turn unfinished: write it with feed_turn()"
            )
