"""Batch strategies: what a step plays in place of failed proposals (the paper's Appendix B.1).

A strategy belongs to the game, not to a trainer. Its state is plain data, so that any checkpoint
can hold it."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from ssp_env.errors import one_of
from ssp_env.game.pool import POOL, PooledQuestion, compose
from ssp_env.types import Role

RESET_EVERY = 10
"""Steps after which ``periodic_reset`` forgets its questions (the paper's)."""
MOST_SAMPLINGS = 1000
"""Times that one step samples proposals. A :class:`~ssp_env.game.batch.GameBatch` refuses a
strategy that asks for more."""


class BatchStrategy:
    """Decides what is played in place of failed proposals, each time they have been sampled and
    verified.

    This one plays nothing; the games that are missing still count in the denominators of the batch,
    as dummy problems."""

    def begin_step(self) -> None:
        """Called once at the start of each training step."""

    def wants_more(self, valid: int, num_games: int, samplings: int) -> bool:
        """True if proposals are to be sampled once more.

        Must return ``False`` once no game is missing, and eventually in any case: a batch of games
        raises a ``UsageError`` after :data:`MOST_SAMPLINGS`.

        Args:
            valid: verified questions of this step so far.
            num_games: how many the step is to have.
            samplings: times that proposals have been sampled so far, at least 1.
        """
        return False

    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], missing: int
    ) -> list[PooledQuestion]:
        """Questions in place of failed proposals: at most ``missing`` of them, which may be 0.

        ``fresh`` holds the batch's verified questions, which nobody has tried to solve yet."""
        return []

    def keep(self, questions: Sequence[PooledQuestion]) -> None:
        """Takes the questions of a batch's valid games, with their turns, for later steps."""

    def get_state(self) -> dict[str, Any]:
        """The state as plain data (JSON)."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state that :meth:`get_state` returned."""

    def asked_before(self, answer: str) -> tuple[str, ...]:
        """Questions of earlier steps about an answer, by its id, if they are remembered."""
        return ()


class DynamicResampling(BatchStrategy):
    """Proposes again, with new answers, until the batch is full, eight times at most."""

    def wants_more(self, valid: int, num_games: int, samplings: int) -> bool:
        return valid < num_games and samplings < 8


class ReplayBuffer(BatchStrategy):
    """Plays earlier verified questions in place of failed proposals.

    The pool is emptied every ``reset_every`` steps. The step that follows has no earlier questions,
    so it is filled with its own, and the batch is full all the same.

    A question played again does not enter the pool again, so that reuse cannot breed reuse, and
    earns its proposer nothing.

    >>> from ssp_env.types import GroundTruth
    >>> strategy, rng = ReplayBuffer(), np.random.default_rng(0)
    >>> strategy.keep([PooledQuestion("Who wrote Emma?", GroundTruth("1", "Jane Austen"))])
    >>> [item.question for item in strategy.fill(rng, [], missing=2)]
    ['Who wrote Emma?', 'Who wrote Emma?']
    """

    def __init__(self, reset_every: int | None = None, examples: Sequence[Role] = ()) -> None:
        """``reset_every``: steps between two resets; ``None`` never resets (the paper's Full
        Reuse). ``examples``: roles for which a question comes with the turns that solved it, or
        wrote it."""
        self.reset_every, self.examples = reset_every, examples
        self.pool: list[PooledQuestion] = []
        self._steps = 0

    def begin_step(self) -> None:
        # Before the first step as well, where there is nothing to forget.
        if self.reset_every is not None and self._steps % self.reset_every == 0:
            self.pool.clear()
        self._steps += 1

    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], missing: int
    ) -> list[PooledQuestion]:
        # Only questions of earlier steps are played again. After a reset there are none, and the
        # step's own have to do.
        earlier = self.pool
        if self.reset_every is not None:
            earlier = earlier or list(fresh)
        if not earlier:
            return []

        # Without replacement until the pool is used up: no question is played twice needlessly.
        order: list[int] = []
        while len(order) < missing:
            order.extend(rng.permutation(len(earlier)).tolist())
        return [earlier[i] for i in order[:missing]]

    def keep(self, questions: Sequence[PooledQuestion]) -> None:
        for item in questions:
            solution = item.solution if Role.SOLVER in self.examples else ()
            proposal = item.proposal if Role.PROPOSER in self.examples else ()
            self.pool.append(replace(item, solution=solution, proposal=proposal))

    def get_state(self) -> dict[str, Any]:
        return {"steps": self._steps, "pool": POOL.dump_python(self.pool, mode="json")}

    def set_state(self, state: dict[str, Any]) -> None:
        self._steps = int(state["steps"])
        self.pool = POOL.validate_python(state["pool"])


REMEMBERED = 16
"""Questions about one answer that are remembered, the latest ones."""


class Remembering(BatchStrategy):
    """Another strategy that also remembers what was asked, for the filter ``past_question``."""

    def __init__(self, strategy: BatchStrategy) -> None:
        self.strategy = strategy
        self._asked: dict[str, list[str]] = {}

    def begin_step(self) -> None:
        self.strategy.begin_step()

    def wants_more(self, valid: int, num_games: int, samplings: int) -> bool:
        return self.strategy.wants_more(valid, num_games, samplings)

    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], missing: int
    ) -> list[PooledQuestion]:
        return self.strategy.fill(rng, fresh, missing)

    def keep(self, questions: Sequence[PooledQuestion]) -> None:
        for item in questions:
            asked = [*self._asked.get(item.truth.id, ()), item.question]
            self._asked[item.truth.id] = asked[-REMEMBERED:]
        self.strategy.keep(questions)

    def asked_before(self, answer: str) -> tuple[str, ...]:
        return tuple(self._asked.get(answer, ()))

    def get_state(self) -> dict[str, Any]:
        return {"strategy": self.strategy.get_state(), "asked": dict(self._asked)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.strategy.set_state(state["strategy"])
        self._asked = dict(state["asked"])


_DRAWN = 4
"""Number of questions of which the least common one is played."""
_TRIES = 20
"""Attempts at putting a question together before an existing one is taken."""
_WORD = re.compile(r"[^\s?!.,;:()\"']+")


class BalancedReuse(ReplayBuffer):
    """Plays earlier verified questions, of the lengths that the step lacks, in place of failed
    proposals.

    A question's length is the number of searches that its proposer made. They are chosen so that,
    with the step's own questions, there are as many of each length as it is long: of three searches
    three times as many as of one. So what the proposer has left behind stays in the batch, and what
    it has just begun to ask is met more often. No question comes twice in a step before all others
    have: of a length that runs out, others stand in. Of each length, questions of rare words come
    first: a proposer comes to ask for few things, and the solver forgets the rest. The pool is
    never emptied.

    With ``compose_up_to``, half of what it fills in is put together from shorter ones, new almost
    every time. They are up to one search longer than the longest that the proposer has asked
    itself, which is how the game gets beyond what the proposer can write; see
    :func:`~ssp_env.game.pool.compose`. A solver that leaves out a hop of a long question may be
    right by luck, and often enough to learn nothing else. So an attempt at a question that was put
    together is right only with as many different searches as the proposers of its parts made.

    >>> from ssp_env.types import GroundTruth
    >>> truth = GroundTruth("1", "Jane Austen")
    >>> pool = [PooledQuestion(f"{i}: {n}?", truth, searches=n) for i in "abc" for n in (1, 2, 3)]
    >>> strategy, fresh = BalancedReuse(), pool[:1]
    >>> strategy.keep(pool)
    >>> [item.searches for item in strategy.fill(np.random.default_rng(0), fresh, missing=5)]
    [2, 3, 3, 2, 3]
    """

    def __init__(self, examples: Sequence[Role] = (), compose_up_to: int = 0) -> None:
        """``compose_up_to``: most searches of a question that is put together: the solver's; 0:
        none is."""
        super().__init__(examples=examples)
        self.compose_up_to = compose_up_to

    def fill(
        self, rng: np.random.Generator, fresh: Sequence[PooledQuestion], missing: int
    ) -> list[PooledQuestion]:
        if not self.pool or not missing:
            return []

        drawer = _Drawer(rng, self.pool)
        lengths = set(drawer.by_length)
        if self.compose_up_to:
            # Two questions of lengths a and b make one of a + b: the least is twice the shortest.
            # One search beyond the longest question that is known, within what a solver may search.
            reach = min(max(lengths) + 1, self.compose_up_to)
            lengths |= set(range(2 * min(lengths), reach + 1))

        # Goal: n(length) proportional to length. Filling where n(length) / length is least keeps
        # the counts as close to that as whole numbers can be; of equal ones, the shortest.
        filled = []
        there = Counter(item.searches for item in fresh)
        for _ in range(missing):
            length = min(sorted(lengths), key=lambda length: there[length] / length)
            filled.append(drawer.composed(length) if self.compose_up_to else drawer.drawn(length))
            # Also where none of this length was to be had: asking again would not bring one.
            there[length] += 1
        return filled


class _Drawer:
    """Draws from questions by their length, or by the first word of their answers."""

    def __init__(self, rng: np.random.Generator, questions: Iterable[PooledQuestion]) -> None:
        self._rng = rng
        self.by_length: dict[int, list[PooledQuestion]] = defaultdict(list)
        self._by_word: dict[str, list[PooledQuestion]] = defaultdict(list)
        self._asked: Counter[str] = Counter()
        self._left: list[PooledQuestion] = []
        for item in questions:
            self._asked.update(_WORD.findall(item.question))
            self.by_length[item.searches].append(item)
            for word in item.truth.answer.split()[:1]:
                self._by_word[word].append(item)

    def drawn(self, length: int) -> PooledQuestion:
        """A question of this length, or of any where this has run out; none twice before all."""
        if not self._left:
            # A proposer writes the same one again and again.
            known = {item.question: item for items in self.by_length.values() for item in items}
            self._left = [*known.values()]
        fitting = [item for item in self._left if item.searches == length]
        drawn = self._rarest(fitting or self._left)
        self._left.remove(drawn)
        return drawn

    def composed(self, length: int) -> PooledQuestion:
        """A question of this length, as often as not put together; else one of any length."""
        whole = length in self.by_length
        if whole and self._rng.random() < 0.5:
            return self.drawn(length)

        shorter = [known for known in sorted(self.by_length) if known < length]
        # A shorter one; what it names gives way to a question about that, until it is long enough.
        for _ in range(_TRIES if shorter else 0):
            made: PooledQuestion | None = self.drawn(int(self._rng.choice(shorter)))
            while made is not None and made.searches < length:
                fitting = self._named_in(made.question, length - made.searches)
                made = compose(made, self._rarest(fitting)) if fitting else None
            if made is not None:
                return made

        # Early on, hardly any question names another one's answer.
        return self.drawn(length if whole else int(self._rng.choice(sorted(self.by_length))))

    def _rarest(self, questions: Sequence[PooledQuestion]) -> PooledQuestion:
        """Of a few that are drawn, the one whose words have been asked least."""
        # With replacement, so that any number of questions will do.
        places: list[int] = self._rng.integers(len(questions), size=_DRAWN).tolist()
        return min((questions[place] for place in places), key=self._how_common)

    def _how_common(self, item: PooledQuestion) -> float:
        # Mean of log(1 + n(word)): the logarithm keeps one frequent word from deciding alone.
        words = _WORD.findall(item.question)
        return float(np.mean([math.log(1 + self._asked[word]) for word in words]))

    def _named_in(self, text: str, most: int) -> list[PooledQuestion]:
        """Questions of up to ``most`` searches whose answers a text names, or may name."""
        words = dict.fromkeys(_WORD.findall(text))
        named = [item for word in words for item in self._by_word.get(word, ())]
        return [item for item in named if item.searches <= most]


def update_strategy(
    strategy: BatchStrategy, game_batches: Iterable[Sequence[PooledQuestion]]
) -> None:
    """Brings a strategy up to date with a step that was played with copies of it: ``game_batches``
    are the questions of each batch's valid games, in order."""
    strategy.begin_step()
    for verified in game_batches:
        strategy.keep(verified)


StrategyName = Literal[
    "dummy",
    "resample",
    "reuse",
    "periodic_reset",
    "balanced",
    "compose",
    "compose_with_examples",
    "compose_with_proposals",
]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)


def make_strategy(name: str, max_searches: int = 10) -> BatchStrategy:
    """A new strategy, one of :data:`STRATEGIES`; ``max_searches`` bounds a composed question."""
    one_of("strategy", name, STRATEGIES)
    strategies: dict[str, BatchStrategy] = {
        "dummy": BatchStrategy(),
        "resample": DynamicResampling(),
        "reuse": ReplayBuffer(),
        "periodic_reset": ReplayBuffer(RESET_EVERY),
        "balanced": BalancedReuse(),
        "compose": BalancedReuse(compose_up_to=max_searches),
        "compose_with_examples": BalancedReuse([Role.SOLVER], max_searches),
        "compose_with_proposals": BalancedReuse([Role.SOLVER, Role.PROPOSER], max_searches),
    }
    return strategies[name]
