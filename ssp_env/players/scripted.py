"""Scripted players: one for the mini world, one for real text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.players.base import TextPlayer
from ssp_env.types import Action, Document, Role
from ssp_env.wording.normal import UNSPACED, is_unspaced, normalise
from ssp_env.worlds.mini_language import (
    Hop,
    Relation,
    fact_tables,
    follow,
    parse_question,
    read_facts,
    write_question,
)

GAP = "_____"
_FRAME = 'What is missing in this sentence: "{}"'
_SHORTEST, _LONGEST = 60, 400
"""Characters of a sentence that is best asked about."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|(?<=[。！？।॥])\s*")
_LAST_WORD = re.compile(rf"\s*(?:{UNSPACED}|(?:(?!{UNSPACED})\S)+)\Z")
"""A word, or a character of a script without spaces between words."""
_ASKED = re.compile(r'this sentence: "(.*)"', re.DOTALL)


class ScriptedPlayer(TextPlayer):
    """A text player that knows the tags of its game."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags

    def call(self, action: str, content: str) -> str:
        return f"{self._tags.opening(action)} {content} {self._tags.closing(action)}"

    def ask(self, trajectory: Trajectory, question: str) -> str:
        """This question; where a proposer chooses the answer, it is the topic."""
        below = f"\n{trajectory.about}" if trajectory.limits.chooses else ""
        return self.call("question", f"{question}{below}")

    def answer(self, trajectory: Trajectory, answer: str) -> str:
        """This answer; where one is shown to be verified, whether it is the same."""
        if trajectory.candidate is not None:
            answer = "yes" if normalise(answer) == normalise(trajectory.candidate) else "no"
        return self.call("answer", answer)


class MiniPlayer(ScriptedPlayer):
    """Plays every role well: asks questions of ``hops`` hops, and reads answers off the pages.

    Asked for a citizen of a nation, it names any that it has read of."""

    def __init__(self, tags: Tags, hops: int = 1, citizens: bool = False) -> None:
        """``hops`` facts are chained in a question. With ``citizens``, the chain begins at a nation
        where a page names one, so that it is ambiguous: "the mentor of the citizen of V"."""
        super().__init__(tags)
        self._hops, self._citizens = hops, citizens

    def write(self, trajectory: Trajectory) -> str:
        if trajectory.role is Role.PROPOSER:
            return self._propose(trajectory)

        parsed = parse_question(trajectory.about)
        if parsed is None:
            return self.answer(trajectory, "nothing")
        (entity, hops), tables = parsed, fact_tables(read_facts(_shown(trajectory)))
        if Action.SEARCH not in trajectory.limits.actions:  # only the documents given count
            reached = follow(entity, hops, *tables)
            return self.answer(trajectory, min(reached) if len(reached) == 1 else "nothing")

        # Follows the facts that were found so far.
        for hop in hops[: len(trajectory.searches)]:
            reached = follow(entity, [hop], *tables)
            # An inverted hop may lead to several, such as citizens: any will do.
            if not reached or (len(reached) > 1 and not hop.inverted):
                return self.answer(trajectory, "nothing")
            entity = min(reached)

        more = len(trajectory.searches) < min(len(hops), trajectory.limits.max_searches)
        if more:
            return self._look_up(trajectory, entity)
        return self.answer(trajectory, entity)

    def _propose(self, trajectory: Trajectory) -> str:
        """Searches backwards from the answer, and asks for the way back."""
        entity, seen = trajectory.about, {trajectory.about}
        path: list[Hop] = []

        for search in trajectory.searches:
            # The last fact found is where the question begins: only there may it be ambiguous.
            last = len(path) + 1 == self._hops
            nation = nation_of(search.documents, entity) if last and self._citizens else None
            facts = backwards(search.documents, entity, seen)
            if nation is None and not facts:
                break

            entity, hop = nation or (facts[0][0], Hop(facts[0][1]))
            path.append(hop)
            seen.add(entity)

        # Every search has found a fact, and more of them are wanted and allowed.
        if len(path) == len(trajectory.searches) < min(self._hops, trajectory.limits.max_searches):
            return self._look_up(trajectory, entity)
        return self.ask(trajectory, write_question(entity, path[::-1]))

    def _look_up(self, trajectory: Trajectory, entity: str) -> str:
        """Searches for an entity, or opens the page of one that it has read of, if it can."""
        opens = "open" in trajectory.limits.actions and bool(trajectory.searches)
        return self.call("open" if opens else "search", entity)


def _shown(trajectory: Trajectory) -> list[Document]:
    found = [document for search in trajectory.searches for document in search.documents]
    return [*found, *trajectory.documents]


def backwards(
    documents: Iterable[Document], value: str, seen: set[str]
) -> list[tuple[str, Relation]]:
    """The new entities that have this value, each with its relation."""
    return [
        (subject, relation)
        for subject, relation, object_ in read_facts(documents)
        if object_ == value and subject not in seen and relation.inverse is None
    ]


def nation_of(documents: Iterable[Document], citizen: str) -> tuple[str, Hop] | None:
    """The nation of a person, and the hop that leads back from it."""
    for subject, relation, value in read_facts(documents):
        if subject == citizen and relation.inverse is not None:
            return value, Hop(relation, inverted=True)
    return None


class ClozePlayer(ScriptedPlayer):
    """Plays every role in any world whose passages are sentences, without a model.

    As proposer it searches for the answer, picks the first sentence that mentions it, and asks for
    the missing words. As solver, verifier or closed book it looks for a sentence that continues
    before and after the gap as asked."""

    def write(self, trajectory: Trajectory) -> str:
        proposes, about = trajectory.role is Role.PROPOSER, trajectory.about
        if Action.SEARCH in trajectory.limits.actions and not trajectory.searches:
            return self.call("search", about if proposes else _query(trajectory))

        shown = _shown(trajectory)
        if proposes:
            return self.ask(trajectory, next(_questions(about, shown), _FRAME.format(GAP)))
        return self.answer(trajectory, _fill(about, shown))


def _questions(answer: str, documents: Iterable[Document]) -> Iterator[str]:
    """Questions about sentences that mention the answer once, those of a suitable length first."""
    before = "" if is_unspaced(answer[:1]) else r"(?<!\w)"
    after = "" if is_unspaced(answer[-1:]) else r"(?!\w)"
    mention = re.compile(before + re.escape(answer) + after, re.IGNORECASE)
    sentences = (s for document in documents for s in _SENTENCE_END.split(document.text))
    telling = [sentence for sentence in sentences if len(mention.findall(sentence)) == 1]
    # Sorting is stable: False before True, otherwise as they were found.
    for sentence in sorted(telling, key=lambda s: not _SHORTEST <= len(s) <= _LONGEST):
        yield _FRAME.format(mention.sub(GAP, " ".join(sentence.split())))


def _query(trajectory: Trajectory) -> str:
    """The sentence around the gap, cut to the longest query allowed."""
    asked = _ASKED.search(trajectory.about)
    query = " ".join((asked[1] if asked else trajectory.about).replace(GAP, " ").split())

    # Words are dropped from the end until the query fits its budget.
    tokenizer, limit = trajectory.limits.tokenizer, trajectory.limits.max_query_tokens
    while len(tokenizer.encode_data(query)) > limit and (less := _LAST_WORD.sub("", query)):
        query = less
    return query


def _fill(question: str, documents: Iterable[Document]) -> str:
    """The words that stand in the gap, in the first passage that has the sentence."""
    asked = _ASKED.search(question)
    before, gap, after = (asked[1] if asked else question).partition(GAP)
    if gap:
        sentence = re.compile(re.escape(before) + r"(.{1,200}?)" + re.escape(after))
        for document in documents:
            match = sentence.search(" ".join(document.text.split()))
            if match is not None and normalise(match[1]):
                return match[1]
    return "unknown"
