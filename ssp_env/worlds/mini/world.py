"""The mini-wiki as a world: pages to search, answers to play from, questions to be judged by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ssp_env.errors import ConfigError
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.search.corpus import Corpus
from ssp_env.types import Action, Analysis, Document, GroundTruth, Question
from ssp_env.worlds.mini.grammar import (
    Facts,
    Hop,
    continue_question,
    count_hops,
    fact_tables,
    follow,
    parse_question,
    read_facts,
    read_off,
    write_pages,
    write_question,
)
from ssp_env.worlds.mini.graph import Graph, grow
from ssp_env.worlds.mini.lexicon import (
    NAME_POOL,
    NATION,
    RELATIONS,
    names,
    vocabulary,
    words_with,
)

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
        if not FEWEST <= entities <= NAME_POOL // 2:
            fix = f"choose {FEWEST} to {NAME_POOL // 2}: names come from a fixed pool"
            raise ConfigError("world_options.entities", entities, fix)
        if seed < 0:
            raise ConfigError("world_options.seed", seed, "must be at least 0")
        if not 1 <= max_hops <= 6:
            raise ConfigError("world_options.max_hops", max_hops, "choose 1 to 6")

        self.max_hops = max_hops
        self.one_to_many = one_to_many

        grown = _grown(seed, entities, one_to_many)
        self.train_graph, self.eval_graph, self.corpus = grown.train, grown.evaluation, grown.corpus
        self._forward, self._backward = grown.facts

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

    def continuations(
        self, action: Action, words: Sequence[str], seen: frozenset[str]
    ) -> tuple[frozenset[str], bool]:
        """The words that can follow inside an action, and whether it can end there.

        A query or an answer is one name; a question follows the grammar.

        Names and relations are those that the player has read of, as long as it has read of any.
        """
        names, nouns = self._names & seen or self._names, self._nouns & seen or self._nouns

        if action is Action.QUESTION:
            following = continue_question(words, nouns, names, self.max_hops)
            return following, not following
        return (names, False) if not words else (frozenset(), True)

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """Questions over the evaluation graph, each with one right answer, grouped by hop count.

        Args:
            seed: decides which questions are drawn.
            per_group: number per hop count; ``None`` means :attr:`per_group`.
        """
        wanted = self.per_group if per_group is None else per_group
        if seed < 0:
            raise ConfigError("questions.seed", seed, "must be at least 0")
        if wanted < 1:
            raise ConfigError("questions.per_group", wanted, "must be at least 1")

        drawn: list[Question] = []
        for hops in range(1, self.max_hops + 1):
            drawn.extend(self._questions(np.random.default_rng([seed, hops]), hops, wanted))
        return drawn

    def analyse(self, question: str) -> Analysis | None:
        """Hops and all right answers of a question; ``None`` if it does not parse."""
        parsed = self._parse(question)
        if parsed is None:
            return None

        facts = self._forward, self._backward
        return Analysis(count_hops(*parsed, *facts), follow(*parsed, *facts))

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """The answer by these documents and nothing else.

        A perfect but narrow reader, which knows the grammar of pages and questions, but not the
        graph. Several answers mean that the documents leave the question ambiguous, be it on the
        way (see :func:`~ssp_env.worlds.mini.grammar.read_off`); ``None`` means that it is
        ill-formed.
        """
        parsed = self._parse(question)
        if parsed is None:
            return None

        return read_off(*parsed, *fact_tables(read_facts(documents)))

    def _parse(self, question: str) -> tuple[str, tuple[Hop, ...]] | None:
        parsed = parse_question(question)
        if (
            parsed is not None
            and not self.one_to_many
            and any(hop.relation.inverse for hop in parsed[1])
        ):
            return None
        return parsed

    def _questions(self, rng: np.random.Generator, hops: int, wanted: int) -> list[Question]:
        found: dict[str, Question] = {}
        in_vain = 0
        while in_vain < 50 * (100 + len(found)):
            in_vain += 1
            chain = self.eval_graph.walk(rng, hops)
            if chain is None:
                continue

            start, path, answer = chain
            text = write_question(start, [Hop(relation) for relation in path])
            if text not in found:
                in_vain = 0
                found[text] = Question(f"mini-{hops}hop-{len(found)}", text, (answer,), str(hops))

            if len(found) == wanted:
                return list(found.values())

        fix = f"this graph has only about {len(found)} {hops}-hop questions: ask for fewer"
        raise ConfigError("questions.per_group", wanted, fix)


class _Grown(NamedTuple):
    """Contents of a world; never changed, so worlds of the same settings share them."""

    train: Graph
    evaluation: Graph
    corpus: Corpus
    facts: tuple[Facts, Facts]


@lru_cache(maxsize=4)
def _grown(seed: int, entities: int, one_to_many: bool) -> _Grown:
    """Draws names, graphs and pages. A run opens its world several times: to check it, to play."""
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
        for entity, own in graph.facts.items()
        for relation, value in own.items()
    )
    return _Grown(train, evaluation, corpus, fact_tables(facts))


class SmallWorld(MiniWorld):
    """Two graphs of a few entities each; some eighty words in all; one-hop questions by default."""

    name = "small"
    per_group = 15

    def __init__(
        self, seed: int = 0, entities: int = FEWEST, one_to_many: bool = False, max_hops: int = 1
    ) -> None:
        """
        Args:
            seed: names, graphs and pages follow from it.
            entities: number of entities in each of the two graphs.
            one_to_many: also state citizenships, which allow ambiguous questions.
            max_hops: questions have 1 to this many hops.
        """
        super().__init__(seed, entities, one_to_many, max_hops)
        self._own_words: tuple[str, ...] = words_with(
            (*self.train_graph.entities, *self.eval_graph.entities)
        )

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of this world alone."""
        return self._own_words
