"""A scripted player for the mini-wiki: searches, reads and chains facts, without a model."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Trajectory
from ssp_env.players.base import TextPlayer
from ssp_env.types import Action, Document, Role
from ssp_env.worlds.mini.grammar import (
    Hop,
    fact_tables,
    follow,
    parse_question,
    read_facts,
    write_question,
)
from ssp_env.worlds.mini.lexicon import Relation


class MiniPlayer(TextPlayer):
    """Plays every role well: asks questions of ``hops`` hops, and reads answers off the pages.

    Asked for a citizen of a nation, it names any that it has read of."""

    def __init__(self, tags: Tags, hops: int = 1, citizens: bool = False) -> None:
        """
        Args:
            tags: of the rules it plays by.
            hops: facts to chain in a question.
            citizens: begin the chain at a nation where a page names one, so that the question is
                ambiguous: "the mentor of the citizen of V".
        """
        self._tags, self._hops, self._citizens = tags, hops, citizens

    def write(self, trajectory: Trajectory) -> str:
        """The next turn: one call."""
        if trajectory.role is Role.PROPOSER:
            return self._propose(trajectory)
        if Action.SEARCH in trajectory.limits.actions:
            return self._solve(trajectory)
        return self._call("answer", _read(trajectory.about, trajectory.documents))

    def _propose(self, trajectory: Trajectory) -> str:
        """Searches backwards from the answer, and asks for the way back."""
        entity, seen = trajectory.about, {trajectory.about}
        path: list[Hop] = []

        for search in trajectory.searches:
            last = len(path) + 1 == self._hops
            nation = _nation(search.documents, entity) if last and self._citizens else None
            facts = _backwards(search.documents, entity, seen)
            if nation is None and not facts:
                break

            entity, hop = nation or (facts[0][0], Hop(facts[0][1]))
            path.append(hop)
            seen.add(entity)

        # Every search has found a fact, and more of them are wanted and allowed.
        if len(path) == len(trajectory.searches) < min(self._hops, trajectory.limits.max_searches):
            return self._call("search", entity)

        return self._call("question", write_question(entity, path[::-1]))

    def _solve(self, trajectory: Trajectory) -> str:
        """Looks up one fact after another."""
        parsed = parse_question(trajectory.about)
        if parsed is None:
            return self._call("answer", "nothing")

        entity, hops = parsed
        tables = fact_tables(
            read_facts(d for search in trajectory.searches for d in search.documents)
        )

        # Follows the facts that were found so far.
        for hop in hops[: len(trajectory.searches)]:
            reached = follow(entity, [hop], *tables)
            if not reached or (len(reached) > 1 and not hop.inverted):
                return self._call("answer", "nothing")
            entity = min(reached)

        if len(trajectory.searches) < min(len(hops), trajectory.limits.max_searches):
            return self._call("search", entity)
        return self._call("answer", entity)

    def _call(self, action: str, content: str) -> str:
        return f"{self._tags.opening(action)} {content} {self._tags.closing(action)}"


def _read(question: str, documents: Sequence[Document]) -> str:
    """What these documents, and nothing else, say the answer is."""
    parsed = parse_question(question)
    reached = follow(*parsed, *fact_tables(read_facts(documents))) if parsed is not None else ()
    return next(iter(reached)) if len(reached) == 1 else "nothing"


def _backwards(
    documents: Sequence[Document], value: str, seen: set[str]
) -> list[tuple[str, Relation]]:
    """The new entities that have this value, and by which relation."""
    return [
        (subject, relation)
        for subject, relation, object_ in read_facts(documents)
        if object_ == value and subject not in seen and relation.inverse is None
    ]


def _nation(documents: Sequence[Document], citizen: str) -> tuple[str, Hop] | None:
    """The nation of a person, and the hop that leads back from it."""
    for subject, relation, value in read_facts(documents):
        if subject == citizen and relation.inverse is not None:
            return value, Hop(relation, inverted=True)
    return None
