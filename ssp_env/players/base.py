"""Players: they write turns in place of a learning policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch
from ssp_env.game.trajectory import Trajectory

if TYPE_CHECKING:
    from ssp_env.game.prompts import Prompts
    from ssp_env.judge.chat import ChatClient, Message


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

    Each turn is one call, with the trajectory so far as a :func:`conversation`. A server of the
    model whose tokenizer the rules have puts the same tokens before it as an engine would."""

    def __init__(self, client: ChatClient, prompts: Prompts) -> None:
        """``prompts`` are those of the rules that are played by."""
        self._client, self._prompts = client, prompts

    def play(self, trajectories: Sequence[Trajectory]) -> None:
        """Writes one turn in each; raises the last outage after all others have been written."""
        conversations = [conversation(self._prompts, trajectory) for trajectory in trajectories]
        failed = None
        replies = self._client.ask(conversations, str, "player", may_be_cut=True)
        for trajectory, reply in zip(trajectories, replies, strict=True):
            if isinstance(reply, ServiceError):
                failed = reply
            else:
                trajectory.feed_text(reply)
        if failed is not None:
            raise failed


def conversation(prompts: Prompts, trajectory: Trajectory) -> list[Message]:
    """A trajectory as messages for a server that has a chat template of its own: the prompt's, the
    policy's turns by ``assistant``, and what the environment replied by ``user``.

    >>> from ssp_env.game.config import GameConfig
    >>> from ssp_env.game.prompts import Prompts
    >>> from ssp_env.game.trajectory import Limits
    >>> from ssp_env.tokenizers import ByteTokenizer
    >>> from ssp_env.types import Document, Role
    >>> tokenizer = ByteTokenizer()
    >>> prompts = Prompts.open("compact", tokenizer)
    >>> limits = Limits.of(Role.SOLVER, GameConfig(), tokenizer, prompts.tags)
    >>> attempt = Trajectory(limits, prompts.solver("Who wrote Emma?", 2))
    >>> attempt.feed_text("<search> Emma </search>")
    >>> page = Document("1", "Emma", "A novel by Jane Austen.")
    >>> attempt.observe([page], prompts.information([page], 50))
    >>> for message in conversation(prompts, attempt)[1:]:
    ...     print(message["role"], message["content"])
    assistant <search> Emma </search>
    user <information>[Emma] A novel by Jane Austen.</information>
    """
    read = trajectory.limits.tokenizer.decode
    messages = prompts.chat(prompts.unframed(read(trajectory.ids[: trajectory.prompt_length])))
    ended: list[int] = []  # by the policy itself, so that the reply begins without it
    for start, stop, by_policy in trajectory.runs():
        ids = trajectory.ids[start:stop]
        if by_policy:
            ended = [i for i in ids[-1:] if i in trajectory.limits.ends]
            text = read(ids[: len(ids) - len(ended)])
            messages.append({"role": "assistant", "content": text})
            continue
        text, ended = prompts.unframed(read(ended + ids)), []
        if messages[-1]["role"] == "user":  # the turn between them was empty
            messages[-1]["content"] += f"\n{text}"
        else:
            messages.append({"role": "user", "content": text})
    return messages
