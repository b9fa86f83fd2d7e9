"""A scripted player for real text, which writes and solves cloze questions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.players.base import TextPlayer
from ssp_env.types import Action, Document, Role
from ssp_env.wording.answers import normalise

GAP = "_____"
_FRAME = 'What is missing in this sentence: "{}"'
_SHORTEST, _LONGEST = 60, 400
"""Characters of a sentence worth asking about."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_ASKED = re.compile(r'this sentence: "(.*)"', re.DOTALL)


class ClozePlayer(TextPlayer):
    """Plays every role in any world whose passages are sentences, without a model.

    As proposer it searches for the answer, picks the first sentence that mentions it, and asks for
    the missing words. As solver, verifier or closed book it looks for a sentence that goes on
    before and after the gap as asked."""

    def __init__(self, tags: Tags) -> None:
        """
        Args:
            tags: of the rules it plays by.
        """
        self._tags = tags

    def write(self, trajectory: Trajectory) -> str:
        """The next turn: one call."""
        if trajectory.role is Role.PROPOSER:
            return self._propose(trajectory)
        if Action.SEARCH in trajectory.limits.actions and not trajectory.searches:
            return self._call("search", _query(trajectory))

        found = [d for search in trajectory.searches for d in search.documents]
        return self._call("answer", _fill(trajectory.about, [*found, *trajectory.documents]))

    def _propose(self, trajectory: Trajectory) -> str:
        if not trajectory.searches:
            return self._call("search", trajectory.about)
        documents = [d for search in trajectory.searches for d in search.documents]
        return self._call(
            "question", next(_questions(trajectory.about, documents), _FRAME.format(GAP))
        )

    def _call(self, action: str, content: str) -> str:
        return f"{self._tags.opening(action)} {content} {self._tags.closing(action)}"


def _questions(answer: str, documents: Iterable[Document]) -> Iterator[str]:
    """Questions about sentences of a suitable length that mention the answer once."""
    mention = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    for document in documents:
        for sentence in _SENTENCE_END.split(document.text):
            if _SHORTEST <= len(sentence) <= _LONGEST and len(mention.findall(sentence)) == 1:
                yield _FRAME.format(mention.sub(GAP, " ".join(sentence.split())))


def _query(trajectory: Trajectory) -> str:
    """The sentence around the gap, cut to the longest query allowed."""
    asked = _ASKED.search(trajectory.about)
    words = (asked[1] if asked else trajectory.about).replace(GAP, " ").split()

    # Words are dropped from the end until the query fits its budget.
    tokenizer, limit = trajectory.limits.tokenizer, trajectory.limits.max_query_tokens
    while len(words) > 1 and len(tokenizer.encode_data(" ".join(words))) > limit:
        words.pop()
    return " ".join(words)


def _fill(question: str, documents: Iterable[Document]) -> str:
    """The words that stand in the gap, in the first passage that has the sentence."""
    asked = _ASKED.search(question)

    before, gap, after = (asked[1] if asked else question).partition(GAP)
    if gap:
        sentence = re.compile(re.escape(before) + r"(.{1,200}?)" + re.escape(after))
        for document in documents:
            found = sentence.search(" ".join(document.text.split()))
            if found is not None and normalise(found[1]):
                return found[1]
    return "unknown"
