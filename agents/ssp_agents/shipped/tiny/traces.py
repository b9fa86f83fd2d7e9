"""Demonstrations for the bootstrap: a scripted player with chosen faults, in the game's own format.

The bootstrap stands in for pre-training and instruction tuning. It has to leave room for self-play:
most of its questions have one hop, and on longer ones it mostly answers too early. A quarter of its
proposals are about one-to-many facts ("the citizen of V"), which have many right answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import tags_of
from ssp_env.game.rules import Rules
from ssp_env.players.scripted import backwards, nation_of
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini_language import RELATIONS, Hop, read_facts, write_question

CARELESS_ORDER = (*RELATIONS[::2], *RELATIONS[1::2])
"""Relations in the order in which they become careless: some of every kind of entity first."""
SOLVER_HOPS = (0.58, 0.22, 0.20)
"""Shares of solver questions with 1, 2, 3 hops."""
CARELESS = CARELESS_ORDER[:8]
"""Relations after which the player tends to answer at once."""
PREMATURE = 0.85
"""Chance that it does so there. If this did not depend on the relation, the greedy policy would be
on a knife's edge: it would answer all two-hop questions early, or none."""
PREMATURE_DEEP = 0.6
"""Chance of an answer after the second hop of a three-hop question, whatever the relation."""
SOLVER_SLIPS = 0.15
"""Share of solver demonstrations with a wrong value at some hop."""
BROKEN = 0.06
"""Share of demonstrations whose last tag is missing."""
PROPOSER_SHARE = 0.5
"""Share of proposer demonstrations."""
PROPOSER_HOPS = (0.72, 0.24, 0.04)
"""Shares of proposals with 1, 2, 3 hops."""
PROPOSER_SLIPS = 0.12
"""Share of proposals with a wrong relation at some hop."""
PROPOSER_CITIZENS = 0.75
"""Chance that a one-hop proposal about a person asks for a citizen of its nation: about a quarter
of all proposals."""
WORLDS_EVERY = 400
"""Demonstrations per world; a fixed world would be learnt by heart."""


@dataclass
class Trace:
    """A demonstration."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """1 on the player's own tokens, else 0."""
    source: list[int] = field(default_factory=list)
    """Place that each token is copied from, or -1."""
    role: str = "solver"

    def show(self, ids: Sequence[int]) -> range:
        """Appends tokens that are not the player's; returns their places."""
        self.write(ids, mask=0)
        return range(len(self.ids) - len(ids), len(self.ids))

    def write(self, ids: Sequence[int], source: Sequence[int] = (), mask: int = 1) -> None:
        """Appends the player's own tokens, and where they are copied from, if they are."""
        self.ids.extend(ids)
        self.mask.extend([mask] * len(ids))
        self.source.extend(source or [-1] * len(ids))


class TraceWriter:
    """Endless demonstrations over ever new worlds."""

    def __init__(
        self,
        game: GameConfig,
        tokenizer: Tokenizer,
        rng: np.random.Generator,
        *,
        faults: bool = True,
        solver_hops: tuple[float, ...] = SOLVER_HOPS,
        proposer_hops: tuple[float, ...] = PROPOSER_HOPS,
    ) -> None:
        """``faults``: with slips, haste and questions about citizens; writers may share ``rng``."""
        self.game, self.tokenizer, self.rng = game, tokenizer, rng
        self.tags = tags_of(game.prompts)
        self._faults = faults
        self._solver_hops, self._proposer_hops = solver_hops, proposer_hops

    def stream(self) -> Iterator[Trace]:
        while True:
            world = MiniWorld(seed=int(self.rng.integers(1 << 31)))
            rules = Rules.build(world, self.tokenizer, self.game)
            answers = [truth.answer for truth in world.answers]

            for _ in range(WORLDS_EVERY):
                if self.rng.random() < PROPOSER_SHARE:
                    trace = self._propose(rules, str(self.rng.choice(answers)))
                else:
                    trace = self._solve(world, rules)
                if trace is not None:
                    yield trace

    def _solve(self, world: MiniWorld, rules: Rules) -> Trace | None:
        graph, wanted = world.train_graph, self._hops(self._solver_hops)
        self.rng.random()  # unused; the weights that ship are from a stream that drew it
        chain = graph.walk(self.rng, wanted)
        if chain is None:
            return None

        # The entities along a random chain of functional facts, and its hops.
        hops = [Hop(relation) for relation in chain[1]]
        places = [chain[0]]
        for relation in chain[1]:
            places.append(graph.facts[places[-1]][relation])

        trace = Trace()
        question = write_question(places[0], hops)
        trace.show(rules.prompts.solver(question, self.game.max_searches))
        stop_after = len(hops)
        for count in range(1, len(hops)):
            # Behind the first hop, haste depends on its relation; later on it does not.
            careless = PREMATURE if hops[0].relation in CARELESS else 0.0
            haste = careless if count == 1 else PREMATURE_DEEP
            if self.rng.random() < haste and self._faults:
                stop_after = count
                break

        slips = self._happens(SOLVER_SLIPS)
        slip_at = int(self.rng.integers(stop_after)) if slips else -1
        entity = places[0]
        for i, hop in enumerate(hops[:stop_after]):
            documents = self._look_up(rules, trace, entity)

            # After a slip, the facts of the wrong entity are followed.
            on_track = entity == places[i]
            value = places[i + 1] if on_track else graph.facts[entity].get(hop.relation)
            if i == slip_at or value is None:
                value = self._some_name(documents, entity)
            if value is None:
                return None

            self._write(trace, "think", f"{entity} {hop.noun} {value}")
            entity = value

        return self._finished(trace, "answer", entity)

    def _propose(self, rules: Rules, answer: str) -> Trace | None:
        trace = Trace(role="proposer")
        trace.show(rules.prompts.proposer(answer, 1))
        wanted = self._hops(self._proposer_hops)
        slips = self._happens(PROPOSER_SLIPS)
        slip_at = int(self.rng.integers(wanted)) if slips else -1
        entity, hops, seen = answer, [], {answer}

        for place in range(wanted):
            documents = self._look_up(rules, trace, entity)
            back = self._step_back(documents, entity, seen, citizens=wanted == 1)
            if back is None:
                return None

            source, hop = back
            if place == slip_at:
                hop = Hop(RELATIONS[int(self.rng.integers(len(RELATIONS)))])

            self._write(trace, "think", f"{entity} {hop.noun} of {source}")
            hops.append(hop)
            seen.add(source)
            entity = source

        return self._finished(trace, "question", write_question(entity, hops[::-1]))

    def _step_back(
        self, documents: list[Document], entity: str, seen: set[str], citizens: bool
    ) -> tuple[str, Hop] | None:
        """An entity that these documents say leads to this one, and by which hop."""
        # Many are citizens of a nation, so a question that begins there is ambiguous.
        nation = nation_of(documents, entity) if citizens else None
        if nation is not None and self._happens(PROPOSER_CITIZENS):
            return nation
        if not (back := backwards(documents, entity, seen)):
            return None
        subject, relation = back[int(self.rng.integers(len(back)))]
        return subject, Hop(relation)

    def _write(self, trace: Trace, tag: str, text: str, *, closed: bool = True) -> None:
        end = f" {self.tags.closing(tag)} " if closed else ""
        trace.write(self.tokenizer.encode(f"{self.tags.opening(tag)} {text}{end}"))

    def _finished(self, trace: Trace, tag: str, text: str) -> Trace:
        broken = self._happens(BROKEN)
        self._write(trace, tag, text, closed=not broken)
        if broken:
            assert self.tokenizer.eos_id is not None, "the tiny tokenizer has an end token"
            trace.write([self.tokenizer.eos_id])
        return trace

    def _look_up(self, rules: Rules, trace: Trace, entity: str) -> list[Document]:
        self._write(trace, "search", entity)
        (found,) = rules.retriever.search([entity], self.game.top_k)
        shuffled = [found[i] for i in self.rng.permutation(len(found))]
        trace.show(rules.prompts.information(shuffled, self.game.max_document_tokens))
        return shuffled

    def _some_name(self, documents: list[Document], other_than: str) -> str | None:
        facts = read_facts(documents)
        names = sorted({name for fact in facts for name in (fact[0], fact[2])} - {other_than})
        return str(self.rng.choice(names)) if names else None

    def _happens(self, chance: float) -> bool:
        """Draws whether a fault happens; the stream of randomness is the same without faults."""
        return bool(self.rng.random() < chance) and self._faults

    def _hops(self, shares: tuple[float, ...]) -> int:
        return int(self.rng.choice(len(shares), p=shares)) + 1
