"""Players: they write turns in place of a learning policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch
from ssp_env.game.trajectory import Trajectory

if TYPE_CHECKING:
    from ssp_env.judge.chat import ChatClient

_CONTINUE = "\n\n(Continue from here: write your next turn, and nothing after its closing tag.)"


class Player(Protocol):
    """Writes turns for any role: proposer, solver, verifier and closed book.

    It may look at everything that a policy sees (``ids``), and at the same things as text and
    objects: ``about``, ``documents``, ``searches``."""

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes one turn in each trajectory, with its ``feed_turn`` or ``feed``.

        All of them wait for tokens; they may be of different games and roles. A ``ServiceError`` is
        an outage of those that are not written."""


def play_by(batch: GameBatch, player: Player) -> GameBatch:
    """Lets a player, such as a model behind an API, play a batch of games to its end."""
    while pending := batch.pending():
        try:
            player.play(pending)
        except ServiceError as error:
            # Finished turns stand; trajectories that still wait for the player are void.
            lost = {trajectory.key for trajectory in pending}
            batch.void([t for t in batch.pending() if t.key in lost], error)
        batch.advance()
    return batch


class TextPlayer:
    """A player that writes text; subclasses implement :meth:`write`."""

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            trajectory.feed_text(self.write(trajectory))

    def write(self, trajectory: Trajectory) -> str:
        """The next turn of a trajectory."""
        raise NotImplementedError


class ChatPlayer:
    """Lets a model behind an OpenAI-compatible API write turns as text.

    Each turn is one call: the model is sent the whole transcript so far as a user's message."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes one turn in each; raises the last outage after all others have been written."""
        transcripts = []
        for trajectory in trajectories:
            text = trajectory.limits.tokenizer.decode(trajectory.ids)
            # A chat model takes a transcript that breaks off for one to talk about.
            begun = len(trajectory.ids) > trajectory.prompt_length
            transcripts.append(text + _CONTINUE if begun else text)

        failed = None
        replies = self._client.ask(transcripts, str, "player", may_be_cut=True)
        for trajectory, reply in zip(trajectories, replies, strict=True):
            if isinstance(reply, ServiceError):
                failed = reply
            else:
                trajectory.feed_text(reply)
        if failed is not None:
            raise failed
