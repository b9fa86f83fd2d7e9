"""Pages: facts written down as sentences, and read back from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from ssp_env.types import Document
from ssp_env.worlds.mini.graph import Graph
from ssp_env.worlds.mini.lexicon import NATION, RELATIONS, Relation

BACKLINKS = 2
"""Most facts about *other* entities on a page; a proposer needs them to search backwards."""

Fact = tuple[str, Relation, str]
"""``(entity, relation, value)``."""

_BY_NOUN = {relation.noun: relation for relation in (*RELATIONS, NATION)}
_BY_PHRASE = {relation.phrase: relation for relation in (*RELATIONS, NATION)}


def write_pages(rng: np.random.Generator, graph: Graph) -> list[Document]:
    """One page per entity: its facts in random order and wording, then some backlinks."""
    links = graph.backlinks()
    return [Document(name, name, _page(rng, name, graph, links[name])) for name in graph.entities]


def read_facts(documents: Iterable[Document]) -> Iterator[Fact]:
    """The facts that pages state; sentences that are not of this world's kind are skipped."""
    for document in documents:
        for sentence in document.text.split(" ."):
            fact = _read_sentence(sentence)
            if fact is not None:
                yield fact


def _page(
    rng: np.random.Generator, name: str, graph: Graph, links: list[tuple[str, Relation]]
) -> str:
    sentences = []
    for relation, value in graph.facts[name].items():
        wording = relation.phrase if relation is NATION or rng.random() < 0.5 else relation.noun
        sentences.append(f"{name} {wording} {value}")

    # Backlinks let a proposer search backwards from its answer.
    chosen = rng.permutation(len(links))[:BACKLINKS]
    sentences.extend(f"{name} {links[i][1].noun} of {links[i][0]}" for i in chosen)

    return " ".join(f"{sentences[i]} ." for i in rng.permutation(len(sentences)))


@lru_cache(maxsize=65536)  # the same pages are read in every verification
def _read_sentence(sentence: str) -> Fact | None:
    words = sentence.split()
    if len(words) < 3:
        return None

    name, *head, last = words
    if not (name[0].isupper() and last[0].isupper()):
        return None

    wording = " ".join(head)
    relation = _BY_NOUN.get(wording) or _BY_PHRASE.get(wording)
    if relation is not None:
        return name, relation, last

    # "X mentor of Y" on the page of X: a fact about Y, read backwards.
    if len(head) == 2 and head[1] == "of" and head[0] in _BY_NOUN:
        return last, _BY_NOUN[head[0]], name
    return None
