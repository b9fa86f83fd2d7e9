"""What a cheater sees, and what it can write: one trajectory, with a few helpers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssp_env.errors import ServiceError
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import SearchRecord, Trajectory, Waiting
from ssp_env.testing.hacks.honest import HonestPlayer
from ssp_env.types import Document, Role


@dataclass(frozen=True)
class Recalled:
    """What an honest proposer would have asked about an answer, and what it would have read."""

    question: str
    documents: tuple[Document, ...]


class Seat:
    """A trajectory that waits for a cheater's turn."""

    def __init__(
        self, trajectory: Trajectory, rules: Rules, honest: HonestPlayer, rng: np.random.Generator
    ) -> None:
        """
        Args:
            trajectory: it waits for tokens.
            rules: what the game is played by.
            honest: writes what an honest player would.
            rng: the source of the cheater's randomness.
        """
        self._trajectory, self._honest = trajectory, honest
        self.rules, self.rng = rules, rng

    # -- what it sees --------------------------------------------------------------------------

    @property
    def answer(self) -> str:
        """The ground truth that a proposer is given."""
        return self._trajectory.about

    @property
    def question(self) -> str:
        """The question that a solver is given."""
        return self._trajectory.about

    @property
    def text(self) -> str:
        """All that the policy reads, decoded: prompt, its own turns and what searches found."""
        return self._trajectory.limits.tokenizer.decode(self._trajectory.ids)

    @property
    def searches(self) -> Sequence[SearchRecord]:
        """The searches so far, with what they found."""
        return self._trajectory.searches

    @property
    def documents(self) -> list[Document]:
        """All passages that it has been shown."""
        found = [d for search in self._trajectory.searches for d in search.documents]
        return [*self._trajectory.documents, *found]

    @property
    def sure(self) -> bool:
        """Whether an honest solver would find the answer in this attempt.

        See :data:`~ssp_env.testing.hacks.honest.SKILL`.
        """
        return self._honest.is_sure(self._trajectory)

    # -- what it can write ---------------------------------------------------------------------

    def search(self, query: str) -> str:
        """A turn that searches."""
        return self._call("search", query)

    def ask(self, question: str) -> str:
        """A turn that proposes a question."""
        return self._call("question", question)

    def say(self, answer: str) -> str:
        """A turn that answers."""
        return self._call("answer", answer)

    def honest(self, question: str | None = None, skip: int = 0) -> str:
        """The turn that an honest player would write here.

        Args:
            question: to another question than the one that is asked.
            skip: first searches that it would not have made, and does not look at.
        """
        if question is None:
            return self._honest.write(self._trajectory)

        return self._honest.write(self._in_the_head(question, skip))

    def honest_answer(self, question: str) -> str | None:
        """What an honest player would answer from what was read so far; ``None``: it searches."""
        imagined = self._in_the_head(question)
        imagined.feed_turn(self._encode(self._honest.write(imagined)))
        return imagined.result

    def recall(self, answer: str | None = None) -> Recalled:
        """What an honest proposer asks about an answer, and reads; a cheater knows it by heart.

        Args:
            answer: another one than the ground truth.

        Raises:
            ServiceError: the search failed.
        """
        about = self.answer if answer is None else answer
        prompt = self.rules.prompts.proposer(about, 1)
        imagined = Trajectory(self.rules.limits[Role.PROPOSER], prompt, about)

        while not imagined.done:
            imagined.feed_turn(self._encode(self._honest.write(imagined)))
            if imagined.waiting is Waiting.SEARCH and imagined.query is not None:
                imagined.observe(self._look_up(imagined.query), ())

        found = [d for search in imagined.searches for d in search.documents]
        return Recalled(imagined.result or "", tuple(found))

    def stranger(self) -> Document:
        """A passage that is about something else: drawn from the corpus."""
        corpus = self.rules.corpus
        return corpus[int(self.rng.integers(len(corpus)))]

    def fits(self, query: str) -> bool:
        """Whether a query is within its budget."""
        limits = self._trajectory.limits
        return len(limits.tokenizer.encode_data(query)) <= limits.max_query_tokens

    # -- shared --------------------------------------------------------------------------------

    def _call(self, action: str, content: str) -> str:
        tags = self.rules.config.tags
        return f"{tags.opening(action)} {content} {tags.closing(action)}"

    def _encode(self, text: str) -> list[int]:
        return self._trajectory.limits.tokenizer.encode(text)

    def _in_the_head(self, question: str, skip: int = 0) -> Trajectory:
        """This trajectory as it would be about another question."""
        trajectory = self._trajectory
        # With the same key, it is the same attempt: an honest solver succeeds in both or in none.
        limits, read, library = trajectory.limits, trajectory.documents, trajectory.library
        imagined = Trajectory(limits, [], question, read, library, key=trajectory.key)
        imagined.searches.extend(trajectory.searches[skip:])
        return imagined

    def _look_up(self, query: str) -> list[Document]:
        (found,) = self.rules.checked.search([query])
        if isinstance(found, ServiceError):
            raise found
        return found
