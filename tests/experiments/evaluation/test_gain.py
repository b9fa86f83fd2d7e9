"""What a gain is made of, against sums by hand and policies whose shares are known."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from experiments.evaluation.gain import PARTS, Gain, gains, split
from experiments.evaluation.results import Answered, answered, memory
from ssp_env.doors.setup import set_up
from ssp_env.game.record import record_game
from ssp_env.game.round import Round
from ssp_env.types import Document, Question

Shares = tuple[float, float, float, float, float]
"""known, found, right where known, where found, else."""


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def means(gain: Gain) -> list[float]:
    return [gain.parts[part].mean for part in PARTS]


def accuracy(known: float, found: float, known_r: float, found_r: float, else_r: float) -> float:
    return known * known_r + (1 - known) * (found * found_r + (1 - found) * else_r)


def shapley(first: Shares, second: Shares) -> list[float]:
    """By the definition: each part's change of accuracy, over all orders of turning."""
    groups = {0: (0,), 1: (1,), 2: (2, 3, 4)}
    given = [0.0, 0.0, 0.0]
    for order in permutations(groups):
        for place, part in enumerate(order):
            early = {i for other in order[:place] for i in groups[other]}
            late = early | set(groups[part])
            values = [
                accuracy(*(second[i] if i in turned else first[i] for i in range(5)))
                for turned in (early, late)
            ]
            given[part] += (values[1] - values[0]) / 6
    return given


def policy(shares: Shares, count: int, draw: np.random.Generator) -> np.ndarray:
    """Answers of a policy with these shares, one attempt per question."""
    known, found, known_r, found_r, else_r = shares
    knows, finds = draw.random(count) < known, draw.random(count) < found
    chance = np.where(knows, known_r, np.where(finds, found_r, else_r))
    right = draw.random(count) < chance
    return np.array([knows, finds, finds & right, right], dtype=float).T


# -- sums by hand ------------------------------------------------------------------------------


def test_finding_and_reading_share_what_only_both_bring() -> None:
    """Half is found and half of that read, against all of both: .25 becomes 1."""
    first = np.array([[0, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=float)
    second = np.array([[0, 1, 1, 1]] * 4, dtype=float)
    gain = split(first, second, rng())
    assert means(gain) == pytest.approx([0, 0.375, 0.375])
    assert gain.total.mean == pytest.approx(0.75)
    assert (gain.first.found, gain.first.right_found, gain.first.right_else) == (0.5, 0.5, 0.0)
    assert (gain.second.found, gain.second.right_else, gain.second.right_known) == (1.0, None, None)


def test_learning_by_heart_is_memory() -> None:
    """Nothing was known before, so nobody can say that it is used any better."""
    first = np.zeros((4, 4))
    second = np.array([[1, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=float)
    assert means(split(first, second, rng())) == pytest.approx([0.5, 0, 0])


def test_finding_what_is_known_is_no_gain() -> None:
    first = np.array([[1, 0, 0, 1], [0, 0, 0, 0]], dtype=float)
    second = np.array([[1, 1, 1, 1], [0, 0, 0, 0]], dtype=float)
    gain = split(first, second, rng())
    assert [*means(gain), gain.total.mean] == [0, 0, 0, 0]


# -- policies whose shares are known -----------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0.1, 0.4, 0.9, 0.7, 0.1), (0.1, 0.8, 0.9, 0.7, 0.1)),
        ((0.1, 0.4, 0.9, 0.7, 0.1), (0.4, 0.4, 0.9, 0.7, 0.1)),
        ((0.1, 0.4, 0.9, 0.5, 0.0), (0.1, 0.4, 0.9, 0.9, 0.2)),
        ((0.1, 0.4, 0.6, 0.5, 0.0), (0.3, 0.7, 0.9, 0.8, 0.3)),
        ((0.5, 0.9, 0.9, 0.5, 0.1), (0.2, 0.6, 0.3, 0.9, 0.1)),
    ],
)
def test_the_parts_are_found_again(first: Shares, second: Shares) -> None:
    draw = np.random.default_rng(1)
    gain = split(policy(first, 20_000, draw), policy(second, 20_000, draw), rng())
    assert means(gain) == pytest.approx(shapley(first, second), abs=0.01)
    assert gain.total.mean == pytest.approx(accuracy(*second) - accuracy(*first), abs=0.015)


def test_parts_add_up_and_turn_round() -> None:
    """For any answers, several attempts per question included."""
    draw = np.random.default_rng(2)
    for _ in range(50):
        known = draw.integers(0, 2, (2, 7))
        found, right = draw.integers(0, 2, (2, 2, 7, 3))
        one, other = (
            np.array([k, f.mean(1), (f & r).mean(1), r.mean(1)], dtype=float).T
            for k, f, r in zip(known, found, right, strict=True)
        )
        gain, back = split(one, other, rng()), split(other, one, rng())
        assert sum(means(gain)) == pytest.approx(other[:, 3].mean() - one[:, 3].mean())
        assert gain.total.mean == pytest.approx(sum(means(gain)))
        assert means(back) == pytest.approx([-part for part in means(gain)])


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    first, second = (0.2, 0.4, 0.9, 0.6, 0.1), (0.3, 0.7, 0.9, 0.8, 0.1)
    truth, draw, covered = shapley(first, second), np.random.default_rng(3), np.zeros(3)
    for trial in range(100):
        ours, theirs = (policy(shares, 150, draw) for shares in (first, second))
        parts = split(ours, theirs, np.random.default_rng(trial)).parts
        covered += [
            parts[part].low <= value <= parts[part].high
            for part, value in zip(PARTS, truth, strict=True)
        ]
    assert (covered >= 88).all()
    assert covered.sum() < 300


# -- from answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (("nowhere", "the Seine!"), True),  # an alias, in the title, in its normal form
        (("dusty BRIDGE",), True),
        (("bridge Seine",), False),  # its end in the text, its beginning in the title
        (("sein",), False),  # only whole words
    ],
)
def test_found_is_what_the_documents_say(answers: tuple[str, ...], found: bool) -> None:
    class Fixed:
        def search(self, queries: list[str], k: int) -> list[list[Document]]:
            return [[Document("d", "Seine", "It has a dusty, bridge")] for _ in queries]

    rules = set_up({"world": "mini", "retriever": Fixed(), "game": {"attempts": 2}}).rules
    played = Round.of_questions(rules, [Question("q", "what is it ?", answers, "g")], [0])
    first, second = played.pending()
    first.feed_turn(rules.tokenizer.encode("<search> what </search>"))
    second.feed_turn(rules.tokenizer.encode("<answer> what </answer>"))
    while waiting := played.pending():
        for trajectory in waiting:
            trajectory.feed_turn(rules.tokenizer.encode("<answer> what </answer>"))
        played.advance()
    played.advance()

    read = answered(record_game(played.games[0], rules, question_group="g"), "own", known=True)
    assert (read.found, read.known) == ((found, False), True)


def answer(question: str, known: bool | None, found: bool, right: bool) -> Answered:
    verdicts = {"lenient": (right,)}
    return Answered("g", question, ("a",), verdicts, (0.0,), (found,), 1.0, 0, known)


def test_only_questions_that_both_were_asked_in_both_ways_count() -> None:
    first = [answer(q, False, False, False) for q in "abc"]
    second = [answer("c", None, True, True), answer("a", False, True, True)]
    ((group, gain),) = gains(first, second, "lenient", 0)
    assert (group, gain.total.count) == ("g", 1)
    assert means(gain) == pytest.approx([0, 1, 0])
    assert gains(first, second[:1], "lenient", 0) == []


def test_memory_counts_no_outage() -> None:
    asked = [answer("a", True, False, True), answer("b", False, False, True)]
    assert memory([*asked, answer("c", None, False, True)]) == {"g": 0.5, "all": 0.5}
    assert memory([answer("c", None, False, True)]) is None
