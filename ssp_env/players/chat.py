"""A model behind an OpenAI-compatible API as a player of any role."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.errors import ServiceError
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.chat import ChatClient

_GO_ON = "\n\n(Go on from here: write your next turn, and nothing after its closing tag.)"


class ChatPlayer:
    """Lets a model write turns as text.

    Each turn is one call: the model is sent the whole transcript so far as a user's message, and
    what follows the first complete action of its reply is dropped.
    """

    def __init__(self, client: ChatClient) -> None:
        """
        Args:
            client: the server.
        """
        self._client = client

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes one turn in each.

        Raises:
            ServiceError: a call failed for good; the turns of the other trajectories are written.
        """
        replies = self._client.ask([_transcript(t) for t in trajectories], str, "player")

        failed = None
        for trajectory, reply in zip(trajectories, replies, strict=True):
            if isinstance(reply, ServiceError):
                failed = reply
            else:
                trajectory.feed_turn(trajectory.limits.tokenizer.encode(reply))
        if failed is not None:
            raise failed


def _transcript(trajectory: Trajectory) -> str:
    text = trajectory.limits.tokenizer.decode(trajectory.ids)
    return text if len(trajectory.ids) == trajectory.prompt_length else text + _GO_ON
