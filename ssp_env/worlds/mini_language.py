"""The language of the mini world: a closed vocabulary, questions such as "what is the R of the R of
E ?", and the facts that pages state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from ssp_env.types import Document

NAME_POOL = 1_400
"""Number of names. Worlds draw theirs from this pool, so that no model knows them by heart."""

KINDS = {"person": 0.42, "city": 0.20, "company": 0.18, "book": 0.12, "country": 0.08}
"""Entity kinds and their share of a graph."""

_SYLLABLES = (  # noqa: SIM905
    "ba be bo da de do fa fe ga go ha he ka ke ko la le lo ma me mo na ne no pa po ra re ro sa "
    "se so ta te to va ve vi za"
).split()
_ENDINGS = (  # noqa: SIM905
    "ban dor fell gan hall len lin mar mond nar nes rick ris sen ston tal ter vik ward wyn"
).split()


class Relation(NamedTuple):
    """A fact type: each entity of ``subject`` kind has at most one value of it.

    A tuple, because readers look thousands of facts up per step, and tuples have a fast hash."""

    noun: str
    """Its one-word name: "the *mentor* of E"."""
    subject: str
    value: str
    phrase: str
    """The second wording that pages use: "E : *taught by* X"."""
    inverse: str | None = None
    """Name of the subjects of one value, if a question may ask for them (one-to-many)."""


RELATIONS = (
    Relation("birthplace", "person", "city", "born in"),
    Relation("mentor", "person", "person", "taught by"),
    Relation("rival", "person", "person", "opposed by"),
    Relation("employer", "person", "company", "works for"),
    Relation("mayor", "city", "person", "run by"),
    Relation("country", "city", "country", "lies in"),
    Relation("twin", "city", "city", "paired with"),
    Relation("founder", "company", "person", "started by"),
    Relation("headquarters", "company", "city", "based in"),
    Relation("owner", "company", "company", "held by"),
    Relation("author", "book", "person", "written by"),
    Relation("setting", "book", "city", "set in"),
    Relation("capital", "country", "city", "governed from"),
    Relation("leader", "country", "person", "led by"),
)

NATION = Relation("nation", "person", "country", "citizen of", inverse="citizen")
"""The one-to-many relation: all persons of a graph are citizens of one country."""
_EVERY = (*RELATIONS, NATION)

WORDS = tuple("what is the of ? . : ; propose solve read question nothing".split())  # noqa: SIM905
"""Function words of questions, pages and the tiny model's prompts."""


@cache
def names() -> tuple[str, ...]:
    """The pool of ``NAME_POOL`` invented names, always the same."""
    rng = np.random.default_rng(20_260_101)
    taken = {relation.noun.capitalize() for relation in RELATIONS}

    pool: dict[str, None] = {}
    while len(pool) < NAME_POOL:
        # One syllable or two, and an ending.
        middle = "".join(rng.choice(_SYLLABLES, size=int(rng.integers(1, 3))))
        name = (middle + str(rng.choice(_ENDINGS))).capitalize()
        if name not in taken:
            pool.setdefault(name)
    return tuple(pool)


@cache
def vocabulary() -> tuple[str, ...]:
    """Every word of pages, questions and tiny prompts, without tags and special tokens."""
    return words_with(names())


def words_with(entities: Iterable[str]) -> tuple[str, ...]:
    """The words of pages, questions and prompts about these entities alone."""
    words = [*WORDS]
    for relation in _EVERY:
        inverse = [relation.inverse] if relation.inverse else []
        words += [relation.noun, *inverse, *relation.phrase.split()]
    return tuple(dict.fromkeys([*words, *entities]))


# -- questions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hop:
    """One look-up: the value of a relation, or, inverted, the entities that have a value."""

    relation: Relation
    inverted: bool = False

    @property
    def noun(self) -> str:
        return (self.inverted and self.relation.inverse) or self.relation.noun


_HOPS = {hop.noun: hop for hop in (*map(Hop, _EVERY), Hop(NATION, inverted=True))}

Facts = Mapping[tuple[str, Relation], Set[str]]
"""``(entity, relation) -> values``."""


def write_question(start: str, hops: Sequence[Hop]) -> str:
    """The question that starts at ``start`` and follows ``hops``; the last hop is named first.

    >>> write_question("Ladorban", [Hop(RELATIONS[1]), Hop(RELATIONS[0])])
    'what is the birthplace of the mentor of Ladorban ?'
    """
    nouns = " of the ".join(hop.noun for hop in reversed(hops))
    return f"what is the {nouns} of {start} ?"


def parse_question(text: str) -> tuple[str, tuple[Hop, ...]] | None:
    """Start entity and hops of a question, or ``None`` when the text is not of the grammar."""
    words = text.split()
    if len(words) < 7 or words[:2] != ["what", "is"] or words[-1] != "?":
        return None

    body, start = words[2:-2], words[-2]
    # Each hop is three words: the, its noun, of.
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
    *_, (reached, _) = _stages(start, hops, forward, backward)
    return reached


def count_hops(start: str, hops: Sequence[Hop], forward: Facts, backward: Facts) -> int:
    """Number of hops left once detours are cut out: those that come back to their beginning.

    All of them, where they lead to nothing. None, where the question comes back to ``start``."""
    path: list[frozenset[str]] = []
    for reached, _ in _stages(start, hops, forward, backward):
        if not reached:
            return len(hops)
        if reached in path:
            # It has been here before: what lies between was a detour.
            del path[path.index(reached) :]
        path.append(reached)
    return len(path) - 1


def read_off(start: str, hops: Sequence[Hop], forward: Facts, backward: Facts) -> frozenset[str]:
    """Possible answers of a careful reader of these facts.

    Those that ``hops`` lead to, and, if there is any, every entity at which another branch ends:
    with two citizens of V, of whom one has a birthplace, "the birthplace of the citizen of V" is
    open, whatever else is true of the other one."""
    *_, (reached, _) = stages = list(_stages(start, hops, forward, backward))
    return reached.union(*(ends for _, ends in stages)) if reached else reached


def _stages(
    start: str, hops: Sequence[Hop], forward: Facts, backward: Facts
) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """The entities reached after each hop, and those at which it ended; first the start alone."""
    reached = frozenset([start])
    yield reached, frozenset()

    for hop in hops:
        table = backward if hop.inverted else forward
        onwards = {entity: table.get((entity, hop.relation), frozenset()) for entity in reached}
        # All branches at once: a question may lead to several entities at every hop.
        reached = frozenset().union(*onwards.values())
        yield reached, frozenset(entity for entity, after in onwards.items() if not after)


def continue_question(
    words: Sequence[str], nouns: frozenset[str], names: frozenset[str], max_hops: int
) -> frozenset[str]:
    """The words that can follow in a question of at most ``max_hops`` hops; none after its end."""
    if len(words) < 2:
        return frozenset([("what", "is")[len(words)]])
    if words[-1] == "?":
        return frozenset()

    if words[-1] in names:
        return frozenset(["?"])

    # After "what is", every hop takes three words: "the", a noun, "of".
    hops, place = divmod(len(words) - 2, 3)
    if place:
        return nouns if place == 1 else frozenset(["of"])
    another = frozenset(["the"] if hops < max_hops else [])
    return another | names if hops else another


# -- pages ---------------------------------------------------------------------------------------

Fact = tuple[str, Relation, str]
"""``(entity, relation, value)``."""

_BY_WORDING = {w: relation for relation in _EVERY for w in (relation.noun, relation.phrase)}


def read_facts(documents: Iterable[Document]) -> Iterator[Fact]:
    """The facts that pages state; sentences that are not of this world's kind are skipped."""
    for document in documents:
        for sentence in document.text.split(" ."):
            if fact := _read_sentence(sentence):
                yield fact


@lru_cache(maxsize=65536)  # the same pages are read in every verification
def _read_sentence(sentence: str) -> Fact | None:
    words = sentence.split()
    if len(words) < 3:
        return None

    # Both ends of a sentence are entities; what stands between says how they are related.
    name, *head, last = words
    if not (name[0].isupper() and last[0].isupper()):
        return None

    if relation := _BY_WORDING.get(" ".join(head)):
        return name, relation, last

    # "X mentor of Y" on the page of X: a fact about Y, read backwards.
    if len(head) == 2 and head[1] == "of" and head[0] in _BY_WORDING:
        return last, _BY_WORDING[head[0]], name
    return None


def fact_tables(facts: Iterable[Fact]) -> tuple[Facts, Facts]:
    """Facts as tables to follow hops by: forwards and backwards."""
    forward, backward = defaultdict(set), defaultdict(set)
    for entity, relation, value in facts:
        forward[entity, relation].add(value)
        backward[value, relation].add(entity)
    return forward, backward
