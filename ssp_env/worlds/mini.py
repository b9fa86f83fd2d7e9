"""The mini world: a generated knowledge graph, rendered as short encyclopedia pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from ssp_env.errors import ConfigError
from ssp_env.judge.judges import ExactMatchJudge
from ssp_env.search.base import Corpus, Retriever
from ssp_env.types import Action, Analysis, Document, GroundTruth, Question
from ssp_env.worlds.mini_language import (
    KINDS,
    NAME_POOL,
    NATION,
    RELATIONS,
    Facts,
    Hop,
    Relation,
    continue_question,
    count_hops,
    fact_tables,
    follow,
    names,
    parse_question,
    read_facts,
    read_off,
    vocabulary,
    words_with,
    write_question,
)

_FACT_CHANCE = 0.75
"""Chance that an entity has a given fact of its kind."""


@dataclass
class Graph:
    """Facts ``(entity, relation) -> value`` over a set of named entities."""

    entities: dict[str, str]
    facts: dict[str, dict[Relation, str]] = field(default_factory=dict)

    def backlinks(self) -> dict[str, list[tuple[str, Relation]]]:
        """Name -> the ``(entity, functional relation)`` pairs that have it as their value."""
        links: dict[str, list[tuple[str, Relation]]] = {name: [] for name in self.entities}
        for entity, facts in self.facts.items():
            for relation, value in facts.items():
                if relation.inverse is None:
                    links[value].append((entity, relation))
        return links

    def walk(
        self, rng: np.random.Generator, hops: int
    ) -> tuple[str, tuple[Relation, ...], str] | None:
        """A random chain of ``hops`` functional facts without a repeated entity, or ``None``: a
        start, the relations to follow in order, and the entity reached."""
        # Drawn without a look ahead: a chain that comes to nothing is drawn anew by the caller.
        entity = start = list(self.entities)[int(rng.integers(len(self.entities)))]
        path, seen = [], {start}
        for _ in range(hops):
            steps = [
                (r, v) for r, v in self.facts[entity].items() if r.inverse is None and v not in seen
            ]
            if not steps:
                return None
            relation, entity = steps[int(rng.integers(len(steps)))]
            path.append(relation)
            seen.add(entity)
        return start, tuple(path), entity


def grow(rng: np.random.Generator, names: Sequence[str], one_to_many: bool = True) -> Graph:
    """A random graph over ``names``, whose kinds are drawn by their shares, in order.

    With ``one_to_many``, every person is a citizen of one country. With a single one, noise
    matters: a passage of the corpus names a rival answer to "the citizen of V" with a chance of
    .21, one that another proposer retrieved with .32."""
    bounds, kinds = np.cumsum(list(KINDS.values())) * len(names), list(KINDS)
    # Name i of n has the first kind whose cumulated share of n exceeds i.
    places = np.searchsorted(bounds, np.arange(len(names)), side="right")
    drawn_kinds = (kinds[min(int(place), len(kinds) - 1)] for place in places)
    graph = Graph(dict(zip(names, drawn_kinds, strict=True)))

    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, kind in graph.entities.items():
        by_kind[kind].append(name)

    for name, kind in graph.entities.items():
        graph.facts[name] = {}

        # Every entity keeps at least one fact, so that it has a page.
        relations = [relation for relation in RELATIONS if relation.subject == kind]
        kept = [relation for relation in relations if rng.random() < _FACT_CHANCE]
        for relation in kept or [relations[int(rng.integers(len(relations)))]]:
            # Nobody is his own mentor.
            others = [other for other in by_kind[relation.value] if other != name]
            graph.facts[name][relation] = others[int(rng.integers(len(others)))]
        if one_to_many and kind == "person":
            # One country for all, so that any two persons are rivals for "the citizen of" it.
            graph.facts[name][NATION] = by_kind["country"][0]

    return graph


def write_pages(rng: np.random.Generator, graph: Graph) -> list[Document]:
    """One page per entity: its facts in random order and wording, then some backlinks."""
    links, pages = graph.backlinks(), []
    for name in graph.entities:
        sentences = []
        for relation, value in graph.facts[name].items():
            wording = relation.phrase if relation is NATION or rng.random() < 0.5 else relation.noun
            sentences.append(f"{name} {wording} {value}")

        # Facts about other entities, two at most, let a proposer search backwards from its answer.
        backlinks = links[name]
        chosen = rng.permutation(len(backlinks))[:2]
        sentences.extend(f"{name} {backlinks[i][1].noun} of {backlinks[i][0]}" for i in chosen)

        text = " ".join(f"{sentences[i]} ." for i in rng.permutation(len(sentences)))
        pages.append(Document(name, name, text))
    return pages


FEWEST = 16
"""Entities of the smallest graph that has every kind."""
_GRAPHS = 0x5EED
"""First number of the seed that names, graphs and pages are drawn by."""


class MiniWorld:
    """Two graphs over disjoint entities, one to play in and one to be judged by, behind one index.

    The answers of self-play come from the first graph, the evaluation questions from the second,
    and no fact connects them. The world parses any question of its grammar, so it knows how many
    hops a question has and all its right answers, and it can read: see :meth:`read`."""

    name = "mini"
    can_read = True
    judge = ExactMatchJudge()
    """Names differ by single letters, and each has one spelling."""
    per_group = 150
    """Evaluation questions per hop count, unless the caller says how many."""

    def __init__(
        self, seed: int = 0, entities: int = 449, one_to_many: bool = True, max_hops: int = 4
    ) -> None:
        """
        Args:
            seed: names, graphs and pages follow from it.
            entities: number of entities in *each* of the two graphs.
            one_to_many: also state citizenships, which allow ambiguous questions ("the citizen of
                E"). Without them no noise document can make the world's reader reject a question.
            max_hops: evaluation questions have 1 to this many hops.
        """
        for name, value, choices in (
            ("entities", entities, range(FEWEST, NAME_POOL // 2 + 1)),
            ("max_hops", max_hops, range(1, 7)),
        ):
            if value not in choices:
                fix = f"choose {choices[0]} to {choices[-1]}"
                raise ConfigError(f"world_options.{name}", value, fix)

        self.max_hops = max_hops
        grown = _grown(seed, entities, one_to_many)
        self.train_graph, self.eval_graph, self.corpus, self._facts = grown

        self._names = frozenset({*self.train_graph.entities, *self.eval_graph.entities})
        relations = (*RELATIONS, NATION) if one_to_many else RELATIONS
        self._nouns = frozenset(
            noun for r in relations for noun in (r.noun, r.inverse) if noun is not None
        )

        # An answer needs a fact that leads to it, or no question could ask for it.
        linked = self.train_graph.backlinks()
        self.answers: Sequence[GroundTruth] = tuple(
            GroundTruth(f"mini-{name}", name) for name in self.train_graph.entities if linked[name]
        )

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word there is; the same in all worlds of this kind, so that policies can move."""
        return vocabulary()

    @property
    def retriever(self) -> Retriever:
        """BM25 in memory, with the k1 on which the policies that ship were trained."""
        # Imported here: a retriever of one's own can do without.
        from ssp_env.search.bm25 import BM25Retriever
        from ssp_env.search.postings import TRAINED_K1, BM25Index

        return BM25Retriever(self.corpus, BM25Index(self.corpus, TRAINED_K1))

    def continuations(
        self, action: str, words: Sequence[str], seen: frozenset[str]
    ) -> tuple[frozenset[str], bool]:
        """A query or an answer is one name; a question follows the grammar. Names and relations are
        those that the player has read of, as long as it has read of any."""
        names, nouns = self._names & seen or self._names, self._nouns & seen or self._nouns

        if action == Action.QUESTION:
            following = continue_question(words, nouns, names, self.max_hops)
            return following, not following
        return (names, False) if not words else (frozenset(), True)

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """Questions over the evaluation graph, each with one right answer, grouped by hop count."""
        wanted = self.per_group if per_group is None else per_group
        return [
            question
            for hops in range(1, self.max_hops + 1)
            for question in self._questions(np.random.default_rng([seed, hops]), hops, wanted)
        ]

    def analyse(self, question: str) -> Analysis | None:
        if (parsed := self._parse(question)) is None:
            return None
        return Analysis(count_hops(*parsed, *self._facts), follow(*parsed, *self._facts))

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """The answer by these documents and nothing else.

        A perfect but narrow reader, which knows the grammar of pages and questions, but not the
        graph. Several answers mean that the documents leave the question ambiguous, be it on the
        way (see :func:`~ssp_env.worlds.mini_language.read_off`); ``None``: it is ill-formed."""
        parsed = self._parse(question)
        return None if parsed is None else read_off(*parsed, *fact_tables(read_facts(documents)))

    def _parse(self, question: str) -> tuple[str, tuple[Hop, ...]] | None:
        parsed = parse_question(question)
        known = parsed is not None and all(hop.noun in self._nouns for hop in parsed[1])
        return parsed if known else None

    def _questions(self, rng: np.random.Generator, hops: int, wanted: int) -> list[Question]:
        questions: dict[str, Question] = {}
        in_vain = 0
        while len(questions) < wanted:
            # The more are known, the more draws give a known one: patience grows with them.
            if in_vain == 50 * (100 + len(questions)):
                what = f"this graph has only about {len(questions)} {hops}-hop questions"
                fix = f"{what}: ask for fewer"
                raise ConfigError("questions.per_group", wanted, fix)
            in_vain += 1
            chain = self.eval_graph.walk(rng, hops)
            if chain is None:
                continue

            start, path, answer = chain
            text = write_question(start, [Hop(relation) for relation in path])
            if text not in questions:
                in_vain = 0
                questions[text] = Question(
                    f"mini-{hops}hop-{len(questions)}", text, (answer,), str(hops)
                )
        return list(questions.values())


@lru_cache(maxsize=4)
def _grown(
    seed: int, entities: int, one_to_many: bool
) -> tuple[Graph, Graph, Corpus, tuple[Facts, Facts]]:
    """Both graphs, their pages, and the facts of both; shared, since nothing changes them."""
    rng = np.random.default_rng(np.random.SeedSequence([_GRAPHS, seed]))
    pool = names()
    drawn = [pool[i] for i in rng.permutation(NAME_POOL)[: 2 * entities]]

    # No fact connects the two: what is learnt about one graph says nothing of the other.
    train = grow(rng, drawn[:entities], one_to_many)
    evaluation = grow(rng, drawn[entities:], one_to_many)

    pages = write_pages(rng, train) + write_pages(rng, evaluation)
    order = rng.permutation(len(pages))
    corpus = Corpus((pages[i] for i in order), name=f"mini-wiki (seed {seed})")
    facts = (
        (entity, relation, value)
        for graph in (train, evaluation)
        for entity, of_entity in graph.facts.items()
        for relation, value in of_entity.items()
    )
    return train, evaluation, corpus, fact_tables(facts)


class SmallWorld(MiniWorld):
    """Two graphs of a few entities each; some eighty words in all; one-hop questions by default."""

    name = "small"
    per_group = 15

    def __init__(
        self, seed: int = 0, entities: int = FEWEST, one_to_many: bool = False, max_hops: int = 1
    ) -> None:
        super().__init__(seed, entities, one_to_many, max_hops)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return words_with((*self.train_graph.entities, *self.eval_graph.entities))
