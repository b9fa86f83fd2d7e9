"""Random knowledge graphs: who stands in which relation to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ssp_env.worlds.mini.lexicon import KINDS, NATION, RELATIONS, Relation

_FACT_CHANCE = 0.75
"""Chance that an entity has a given fact of its kind."""
_Chain = tuple[str, tuple[Relation, ...], str]
"""A start entity, the relations to follow in order, and the entity reached."""


@dataclass
class Graph:
    """Facts ``(entity, relation) -> value`` over a set of named entities."""

    entities: dict[str, str]
    """Name -> kind."""
    facts: dict[str, dict[Relation, str]] = field(default_factory=dict)
    """Name -> its facts."""

    def backlinks(self) -> dict[str, list[tuple[str, Relation]]]:
        """Name -> the ``(entity, functional relation)`` pairs that have it as their value."""
        links: dict[str, list[tuple[str, Relation]]] = {name: [] for name in self.entities}
        for entity, facts in self.facts.items():
            for relation, value in facts.items():
                if relation.inverse is None:
                    links[value].append((entity, relation))
        return links

    def walk(self, rng: np.random.Generator, hops: int, start: str | None = None) -> _Chain | None:
        """A random chain of ``hops`` functional facts without a repeated entity, or ``None``.

        It begins at a random entity when ``start`` is not given."""
        if start is None:
            start = _pick(rng, list(self.entities))
        path, entity = [], start
        seen = {start}
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
    """A random graph over ``names``.

    Args:
        rng: source of all randomness.
        names: the entities; kinds are dealt by :data:`~ssp_env.worlds.mini.lexicon.KINDS`.
        one_to_many: also make every person a citizen of one country. With a single one, noise
            matters: a passage of the corpus names a rival answer to "the citizen of V" with a
            chance of .21, one that another proposer retrieved with .32.
    """
    # Kinds are dealt by their shares, in order.
    bounds, kinds = np.cumsum(list(KINDS.values())) * len(names), list(KINDS)
    places = np.searchsorted(bounds, np.arange(len(names)), side="right")
    dealt = (kinds[min(int(place), len(kinds) - 1)] for place in places)
    graph = Graph(dict(zip(names, dealt, strict=True)))

    by_kind: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, kind in graph.entities.items():
        by_kind[kind].append(name)

    for name, kind in graph.entities.items():
        graph.facts[name] = {}

        # Every entity keeps at least one fact, so that it has a page.
        own = [relation for relation in RELATIONS if relation.subject == kind]
        kept = [relation for relation in own if rng.random() < _FACT_CHANCE]
        for relation in kept or [own[int(rng.integers(len(own)))]]:
            graph.facts[name][relation] = _pick(
                rng, [n for n in by_kind[relation.value] if n != name]
            )

        if one_to_many and kind == "person":
            graph.facts[name][NATION] = by_kind["country"][0]

    return graph


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
