"""The words of the mini-wiki: names, relations and the closed vocabulary they make."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

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

    A tuple, because readers look thousands of facts up per step, and tuples have a fast hash.
    """

    noun: str
    """Its one-word name: "the *mentor* of E"."""
    subject: str
    """Kind of the entity that has the fact."""
    value: str
    """Kind of the fact's value."""
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
"""The functional relations, present in every world."""

NATION = Relation("nation", "person", "country", "citizen of", inverse="citizen")
"""The one-to-many relation: all persons of a graph are citizens of one country."""

WORDS = tuple("what is the of ? . : ; propose solve read question nothing".split())  # noqa: SIM905
"""Function words of questions, pages and the tiny model's prompts."""


@cache
def names() -> tuple[str, ...]:
    """The pool of ``NAME_POOL`` invented names, always the same."""
    rng = np.random.default_rng(20_260_101)
    taken = {relation.noun.capitalize() for relation in RELATIONS}

    pool: dict[str, None] = {}
    while len(pool) < NAME_POOL:
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
    words: dict[str, None] = dict.fromkeys(WORDS)

    for relation in (*RELATIONS, NATION):
        words.setdefault(relation.noun)
        if relation.inverse:
            words.setdefault(relation.inverse)
        words.update(dict.fromkeys(relation.phrase.split()))

    words.update(dict.fromkeys(entities))
    return tuple(words)
