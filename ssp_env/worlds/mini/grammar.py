"""Questions: "what is the R of the R of E ?", written and parsed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from ssp_env.worlds.mini.lexicon import NATION, RELATIONS, Relation


@dataclass(frozen=True)
class Hop:
    """One look-up: the value of a relation, or, inverted, the entities that have a value."""

    relation: Relation
    inverted: bool = False

    @property
    def noun(self) -> str:
        """The word that names it in a question."""
        if not self.inverted:
            return self.relation.noun
        assert self.relation.inverse is not None, "only one-to-many relations are asked backwards"
        return self.relation.inverse


_HOPS = {
    hop.noun: hop for hop in (*(Hop(r) for r in (*RELATIONS, NATION)), Hop(NATION, inverted=True))
}

Facts = Mapping[tuple[str, Relation], Set[str]]
"""``(entity, relation) -> values``."""


def write_question(start: str, hops: Sequence[Hop]) -> str:
    """The question that starts at ``start`` and follows ``hops``; the last hop is named first."""
    nouns = " of the ".join(hop.noun for hop in reversed(hops))
    return f"what is the {nouns} of {start} ?"


def parse_question(text: str) -> tuple[str, tuple[Hop, ...]] | None:
    """Start entity and hops of a question, or ``None`` when the text is not of the grammar."""
    words = text.split()
    if len(words) < 7 or words[:2] != ["what", "is"] or words[-1] != "?":
        return None

    body, start = words[2:-2], words[-2]
    if len(body) % 3 or not start[:1].isupper():
        return None

    hops = []
    for i in range(0, len(body), 3):
        the, noun, of = body[i : i + 3]
        if the != "the" or of != "of" or noun not in _HOPS:
            return None
        hops.append(_HOPS[noun])

    return start, tuple(reversed(hops))


def follow(start: str, hops: Sequence[Hop], forward: Facts, backward: Facts) -> frozenset[str]:
    """All entities that ``hops`` lead to from ``start``, by the given facts in both directions."""
    *_, reached = _stages(start, hops, forward, backward)
    return reached


def count_hops(start: str, hops: Sequence[Hop], forward: Facts, backward: Facts) -> int:
    """How many hops are left once detours are cut out: those that come back to where they began.

    All of them, where they lead to nothing. None, where the question comes back to ``start``.
    """
    path: list[frozenset[str]] = []
    for reached in _stages(start, hops, forward, backward):
        if not reached:
            return len(hops)
        if reached in path:
            del path[path.index(reached) :]
        path.append(reached)
    return len(path) - 1


def _stages(
    start: str, hops: Sequence[Hop], forward: Facts, backward: Facts
) -> Iterator[frozenset[str]]:
    """The start, and what is reached after each hop."""
    reached = frozenset([start])
    yield reached

    for hop in hops:
        table = backward if hop.inverted else forward
        reached = frozenset().union(
            *(table.get((entity, hop.relation), frozenset()) for entity in reached)
        )
        yield reached


def read_off(start: str, hops: Sequence[Hop], forward: Facts, backward: Facts) -> frozenset[str]:
    """What a careful reader of these facts takes for possible answers.

    Those that ``hops`` lead to, and, if there is any, every entity at which another branch ends:
    with two citizens of V, of whom one has a birthplace, "the birthplace of the citizen of V" is
    open, whatever else is true of the other one.
    """
    reached = frozenset([start])
    ends: frozenset[str] = frozenset()
    for hop in hops:
        onwards = {entity: follow(entity, [hop], forward, backward) for entity in reached}
        ends |= {entity for entity, after in onwards.items() if not after}
        reached = frozenset().union(*onwards.values())

    return reached | ends if reached else reached


def continue_question(
    words: Sequence[str], nouns: frozenset[str], names: frozenset[str], max_hops: int
) -> frozenset[str]:
    """The words that can follow in a question of at most ``max_hops`` hops; none after its end."""
    if len(words) < 2:
        return frozenset([("what", "is")[len(words)]])
    if words[-1] == "?":
        return frozenset()

    # After "what is", every hop takes three words: "the", a noun, "of".
    hops, place = divmod(len(words) - 2, 3)
    if words[-1] in names:
        return frozenset(["?"])

    match place:
        case 0:
            another = frozenset(["the"]) if hops < max_hops else frozenset()
            return another | names if hops else another
        case 1:
            return nouns
    return frozenset(["of"])
