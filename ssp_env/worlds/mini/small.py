"""The small world: a mini-wiki of a few entities, for small networks and quick trials."""

from __future__ import annotations

from ssp_env.worlds.mini.lexicon import words_with
from ssp_env.worlds.mini.world import FEWEST, MiniWorld


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
            entities: how many entities each of the two graphs has.
            one_to_many: also state citizenships, which allow ambiguous questions.
            max_hops: questions have 1 to this many hops.

        Raises:
            ConfigError: an option out of its range.
        """
        super().__init__(seed, entities, one_to_many, max_hops)
        self._own_words: tuple[str, ...] = words_with(
            (*self.train_graph.entities, *self.eval_graph.entities)
        )

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of this world alone."""
        return self._own_words
