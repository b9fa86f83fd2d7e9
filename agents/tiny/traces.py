"""Demonstrations for the bootstrap: a scripted player with chosen faults, in the game's own format.

The bootstrap stands in for pre-training and instruction tuning. It has to leave room for self-play:
most of its questions have one hop, and on longer ones it mostly answers too early. A quarter of its
proposals are about one-to-many facts ("the citizen of V"), which have many right answers: whether
verification sees through them depends on the noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveInt

from ssp_env.config import Settings
from ssp_env.game.config import GameConfig
from ssp_env.game.protocol import Tags
from ssp_env.game.rules import Rules
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini.grammar import Fact, Hop, read_facts, write_question
from ssp_env.worlds.mini.graph import Graph
from ssp_env.worlds.mini.lexicon import NATION, RELATIONS

CARELESS_ORDER = (*RELATIONS[::2], *RELATIONS[1::2])
"""Relations in the order in which they become careless: some of every kind of entity first."""


Share = Annotated[float, Field(ge=0, le=1)]


class TraceConfig(Settings):
    """Settings of the demonstrations."""

    section: ClassVar[str] = "traces"

    solver_hops: tuple[float, ...] = (0.58, 0.22, 0.20)
    """Shares of solver questions with 1, 2, 3 hops."""
    careless_relations: Annotated[int, Field(ge=0, le=len(RELATIONS))] = 8
    """Number of relations of :data:`CARELESS_ORDER` after which the player tends to answer at
    once."""
    premature: Share = 0.85
    """Chance that it does so there. If this did not depend on the relation, the greedy policy would
    be on a knife's edge: it would answer all two-hop questions early, or none."""
    premature_deep: Share = 0.6
    """Chance of an answer after the second hop of a three-hop question, whatever the relation."""
    solver_slips: Share = 0.15
    """Share of solver demonstrations with a wrong value at some hop."""
    broken: Share = 0.06
    """Share of demonstrations whose last tag is missing."""
    proposer_share: Share = 0.5
    """Share of proposer demonstrations."""
    proposer_hops: tuple[float, ...] = (0.72, 0.24, 0.04)
    """Shares of proposals with 1, 2, 3 hops."""
    proposer_slips: Share = 0.12
    """Share of proposals with a wrong relation at some hop."""
    proposer_citizens: Share = 0.75
    """Chance that a one-hop proposal about a person asks for a citizen of its nation: about a
    quarter of all proposals."""
    solver_citizens: Share = 0.0
    """Share of solver questions that begin with a citizen of a nation; the player takes any that it
    reads of."""
    worlds_every: PositiveInt = 400
    """Demonstrations per world; a fixed world would be learnt by heart."""


@dataclass(frozen=True)
class _Step:
    """One look-up of a chain: what is looked up, which hop, and what the solver takes from it."""

    entity: str
    hop: Hop
    value: str


@dataclass
class Trace:
    """One demonstration: token ids, and a mask that is 1 on the player's own tokens."""

    ids: list[int]
    mask: list[int]


class TraceWriter:
    """Endless demonstrations over ever new worlds."""

    def __init__(
        self, config: TraceConfig, game: GameConfig, tokenizer: Tokenizer, rng: np.random.Generator
    ) -> None:
        self.config, self.game, self.tokenizer, self.rng = config, game, tokenizer, rng
        self.tags: Tags = game.tags
        self._careless = CARELESS_ORDER[: config.careless_relations]

    def simple(self) -> TraceWriter:
        """A writer of one-hop demonstrations without faults, over the same stream of randomness.

        Looking a value up is learnt from these or not at all: among faulty ones a model stays where
        it copies names that are not in the documents."""
        clean = self.config.replace(
            premature=0.0,
            premature_deep=0.0,
            solver_slips=0.0,
            broken=0.0,
            proposer_slips=0.0,
            proposer_citizens=0.0,
            solver_citizens=0.0,
            solver_hops=(1.0,),
            proposer_hops=(1.0,),
        )
        return TraceWriter(clean, self.game, self.tokenizer, self.rng)

    def stream(self) -> Iterator[Trace]:
        """Demonstrations without end."""
        while True:
            world = MiniWorld(seed=int(self.rng.integers(1 << 31)))
            rules = Rules.build(world, self.tokenizer, self.game)
            answers = [truth.answer for truth in world.answers]

            for _ in range(self.config.worlds_every):
                if self.rng.random() < self.config.proposer_share:
                    trace = self._propose(rules, str(self.rng.choice(answers)))
                else:
                    trace = self._solve(world, rules)

                if trace is not None:
                    yield trace

    def _solve(self, world: MiniWorld, rules: Rules) -> Trace | None:
        graph, wanted = world.train_graph, self._hops(self.config.solver_hops)
        citizens = self.rng.random() < self.config.solver_citizens
        steps = self._from_nation(graph, rules, wanted) if citizens else self._chain(graph, wanted)
        if steps is None:
            return None

        start, hops = steps[0].entity, [step.hop for step in steps]
        prompt = rules.prompts.solver(write_question(start, hops), self.game.max_searches)
        trace = Trace(list(prompt), [0] * len(prompt))
        stop_after = len(steps)

        for count in range(1, len(steps)):
            if self.rng.random() < self._haste(count, hops):
                stop_after = count
                break

        slip_at = (
            int(self.rng.integers(stop_after))
            if self.rng.random() < self.config.solver_slips
            else -1
        )
        entity = start

        for place, step in enumerate(steps[:stop_after]):
            documents = self._look_up(rules, trace, entity)

            # After a slip, the facts of the wrong entity are followed.
            on_track = entity == step.entity
            value = step.value if on_track else graph.facts[entity].get(step.hop.relation)
            if place == slip_at or value is None:
                value = self._some_name(documents, entity)
            if value is None:
                return None

            self._write(
                trace, f"{self._tag('think')}{entity} {step.hop.noun} {value}{self._end('think')}"
            )
            entity = value

        self._finish(trace, "answer", entity)

        return trace

    def _chain(self, graph: Graph, hops: int, start: str | None = None) -> list[_Step] | None:
        """A random chain of functional facts."""
        chain = graph.walk(self.rng, hops, start)
        if chain is None:
            return None

        entity, steps = chain[0], []
        for relation in chain[1]:
            steps.append(_Step(entity, Hop(relation), graph.facts[entity][relation]))
            entity = steps[-1].value
        return steps

    def _from_nation(self, graph: Graph, rules: Rules, hops: int) -> list[_Step] | None:
        """A chain that begins with a citizen of a nation: any that a search for it shows."""
        nations = sorted({facts[NATION] for facts in graph.facts.values() if NATION in facts})
        nation = str(self.rng.choice(nations))
        (found,) = rules.retriever.search([nation], self.game.top_k)

        shown = [
            entity
            for entity, relation, value in read_facts(found)
            if relation is NATION and value == nation
        ]
        if not shown:
            return None

        citizen = str(self.rng.choice(shown))
        first = _Step(nation, Hop(NATION, inverted=True), citizen)
        if hops == 1:
            return [first]

        rest = self._chain(graph, hops - 1, citizen)
        return [first, *rest] if rest is not None else None

    def _haste(self, count: int, hops: list[Hop]) -> float:
        """Chance of an answer after this many hops, though the question goes on."""
        if count > 1:
            return self.config.premature_deep
        return self.config.premature if hops[0].relation in self._careless else 0.0

    def _propose(self, rules: Rules, answer: str) -> Trace | None:
        prompt = rules.prompts.proposer(answer, 1)
        trace = Trace(list(prompt), [0] * len(prompt))
        wanted = self._hops(self.config.proposer_hops)
        slip_at = (
            int(self.rng.integers(wanted)) if self.rng.random() < self.config.proposer_slips else -1
        )
        entity, hops, seen = answer, [], {answer}

        for place in range(wanted):
            documents = self._look_up(rules, trace, entity)
            back = self._step_back(documents, entity, seen, citizens=wanted == 1)
            if back is None:
                return None

            source, hop = back
            if place == slip_at:
                hop = Hop(RELATIONS[int(self.rng.integers(len(RELATIONS)))])

            self._write(
                trace, f"{self._tag('think')}{entity} {hop.noun} of {source}{self._end('think')}"
            )
            hops.append(hop)
            seen.add(source)
            entity = source

        self._finish(trace, "question", write_question(entity, hops[::-1]))

        return trace

    def _step_back(
        self, documents: list[Document], entity: str, seen: set[str], citizens: bool
    ) -> tuple[str, Hop] | None:
        """An entity that these documents say leads to this one, and by which hop."""
        facts: list[Fact] = list(read_facts(documents))

        # Many are citizens of a nation, so a question that begins there is ambiguous.
        nations = [f[2] for f in facts if f[0] == entity and f[1] is NATION]
        if citizens and nations and self.rng.random() < self.config.proposer_citizens:
            return nations[0], Hop(NATION, inverted=True)

        back = [
            (subject, Hop(relation))
            for subject, relation, value in facts
            if value == entity and relation.inverse is None and subject not in seen
        ]
        return back[int(self.rng.integers(len(back)))] if back else None

    def _write(self, trace: Trace, text: str) -> None:
        ids = self.tokenizer.encode(text)
        trace.ids.extend(ids)
        trace.mask.extend([1] * len(ids))

    def _finish(self, trace: Trace, kind: str, content: str) -> None:
        broken = self.rng.random() < self.config.broken
        self._write(trace, f"{self._tag(kind)}{content}{'' if broken else self._end(kind)}")
        if broken:
            assert self.tokenizer.eos_id is not None, "the tiny tokenizer has an end token"
            trace.ids.append(self.tokenizer.eos_id)
            trace.mask.append(1)

    def _look_up(self, rules: Rules, trace: Trace, entity: str) -> list[Document]:
        self._write(trace, f"{self._tag('search')}{entity}{self._end('search')}")
        (found,) = rules.retriever.search([entity], self.game.top_k)
        shuffled = [found[i] for i in self.rng.permutation(len(found))]
        information = rules.prompts.information(shuffled, self.game.max_document_tokens)
        trace.ids.extend(information)
        trace.mask.extend([0] * len(information))

        return shuffled

    def _some_name(self, documents: list[Document], other_than: str) -> str | None:
        names = sorted(
            {name for fact in read_facts(documents) for name in (fact[0], fact[2])} - {other_than}
        )
        return str(self.rng.choice(names)) if names else None

    def _hops(self, shares: tuple[float, ...]) -> int:
        return int(self.rng.choice(len(shares), p=shares)) + 1

    def _tag(self, name: str) -> str:
        return f"{self.tags.opening(name)} "

    def _end(self, name: str) -> str:
        return f" {self.tags.closing(name)} "
