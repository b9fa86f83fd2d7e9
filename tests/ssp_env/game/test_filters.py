"""Rule filters: what each of them refuses, and that its name is the reason."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import WRITTEN, begin, by_role, play, propose, rules_of, word_tokenizer

from ssp_env.game.config import DEFAULT_FILTERS, MINI_GAME, FilterName
from ssp_env.game.filters import ATTEMPT_FILTERS, FILTERS, Proposal
from ssp_env.game.game import Attempt, Game, InitialState, Origin
from ssp_env.game.outcome import Outage
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Limits, SearchRecord, Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.tokenizers import ByteTokenizer
from ssp_env.types import Document, GroundTruth, Role
from ssp_env.worlds.mini import MiniWorld

CONFIG = MINI_GAME.replace(question_chars=(10, 20))
TRUTH = GroundTruth("g", "New York", ("NYC", "Big Apple"))
FOUND = SearchRecord("cities", (Document("d", "", "text"),))
EMPTY = SearchRecord("cities", ())


def searched(*searches: SearchRecord) -> Trajectory:
    limits = Limits.of(Role.PROPOSER, CONFIG, ByteTokenizer(), Tags())
    return Trajectory(limits, [1], searches=list(searches))


def fails(rule: str, question: str, *searches: SearchRecord, past: tuple[str, ...] = ()) -> bool:
    return FILTERS[rule](Proposal(question, TRUTH, searched(*searches), CONFIG, past))


def test_names_are_reason_codes() -> None:
    assert (*FILTERS, *ATTEMPT_FILTERS) == get_args(FilterName), "the config names what ships"
    assert set(DEFAULT_FILTERS) <= set(FILTERS)
    assert all(name == rule.__name__ for name, rule in FILTERS.items())


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("empty_question", ["é?", "東"], ["", " ?! ", "‹›", "\u3164\u200b?"]),
        ("short_question", ["x y z 6789", "Which  city\u200b is it?"], ["x y z 678", "x y  z 678"]),
        ("few_words", ["a b c d e f g h i j"], ["a b c d e f g h  i", ""]),
        ("few_words", ["奥地利的首都在哪条河的岸边呢现在这里有谁?"], ["奥地利的首都是哪里？"]),
        ("short_question", ["奥地利首都？"], ["首都？", "奥地利？"]),
        ("short_question", [], [f"Who is{padding * 10}?" for padding in " \u200b\x00\u3164\n"]),
        ("long_question", ["x" * 20], ["x" * 21, f"Who{' ' * 20}?"]),
        ("spoiler", ["Is it York?", "In NYCity?"], ["Is it New York?", "nyc?", "The BIG-APPLE?"]),
    ],
)
def test_questions(rule: str, good: list[str], bad: list[str]) -> None:
    assert not any(fails(rule, question) for question in good)
    assert all(fails(rule, question) for question in bad)


@given(st.sampled_from(WRITTEN) | st.text(), st.sampled_from(WRITTEN), st.integers(0, 300))
def test_no_text_makes_a_filter_raise(written: str, other: str, cut: int) -> None:
    trajectory = searched(FOUND, SearchRecord(other, ()))
    truth = GroundTruth("g", other[cut:] or "a", (other[:cut], written))
    for rule in FILTERS.values():
        assert rule(Proposal(written, truth, trajectory, CONFIG, (other, written))) in (True, False)


def test_past_questions_are_known_again_in_slightly_other_words() -> None:
    rule, past = "past_question", "Which river runs through the old town of the capital of Austria?"
    assert fails(rule, past, past=("Who is it?", past))
    assert fails(rule, f"Again: {past.upper()}  ", past=(past,))
    assert fails(rule, past.replace("river", "ri\u200bver"), past=(past,))
    assert not fails(rule, past)
    assert not fails(rule, past.replace("the old town of ", ""), past=(past,))


def test_one_document_that_answers_is_no_chain() -> None:
    rule, question = "one_document", "What is the largest city of the State that Albany governs?"
    state = Document("s", "State of New York", "Its largest city is New York; it has 62 counties.")
    albany = Document("a", "Albany", "Albany governs the state of New York, whose city is NYC.")
    capital = Document("c", "Albany", "Albany is the capital of a state.")
    assert fails(rule, question, SearchRecord("x", (state, albany)))
    assert not fails(rule, question, SearchRecord("x", (state,)), SearchRecord("y", (capital,)))
    assert fails(rule, "in which city of 62 counties?", SearchRecord("x", (state,))), "no names"
    assert not fails(rule, question, EMPTY)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_one_document_knows_which_pages_of_the_mini_wiki_answer(hops: int) -> None:
    """In questions as an honest proposer asks them. Pages are read from both ends: the page in the
    middle of two hops names both of them."""
    rules = rules_of(MiniWorld(), word_tokenizer())
    games = play(begin(rules, num_games=20), by_role(propose(hops))).games
    refused = []
    for game in games:
        assert game.question is not None
        assert game.proposer is not None
        proposal = Proposal(game.question, game.truth, game.proposer, CONFIG)
        refused.append(FILTERS["one_document"](proposal))
        read = (rules.world.read(game.question, [page]) for page in game.evidence)
        assert refused[-1] == any(answers == {game.truth.answer} for answers in read)
    assert all(refused) == (hops < 3)


def test_searches() -> None:
    assert fails("no_search", "?")
    assert fails("no_search", "?", EMPTY, EMPTY)
    assert not fails("no_search", "?", EMPTY, FOUND)
    assert fails("few_searches", "?", FOUND)
    assert not fails("few_searches", "?", FOUND, EMPTY)
    for query in ("city", " CITIES\n", "ｃｉｔ\u200bies"):
        repeats = fails("repeated_query", "?", FOUND, SearchRecord(query, ()))
        assert repeats == (query != "city")


VOID = object()


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        (["NYC", "a", "b", "c", "d"], set()),
        (["a", "a", "b", None, ""], {"unsolved"}),
        (["NYC", "x y", "xy", "y x", "The X Y"], set()),
        (["NYC", "x", "The X!", "x ", "b"], {"outvoted"}),
        (["NYC", "NYC", "a", "a", "a"], {"outvoted"}),
        (["NYC", "NYC", "NYC", "a", "a"], set()),
        (["NYC", "", "", None, None], set()),
        (["NYC", "a", "a", VOID, VOID], {"outvoted"}),
        (["a", "a", "b", "b", VOID], {"unsolved"}),
    ],
)
def test_what_attempts_say_of_a_question(said: list[Any], refused: set[str]) -> None:
    """Void ones have no vote; blank answers agree on nothing."""
    game = Game(InitialState((1,), 0, 0, TRUTH, Origin.PROPOSED, question="Which?"))
    for answer in said:
        trajectory = searched()
        outage = Outage("judge", "down") if answer is VOID else None
        trajectory.result = None if answer is VOID else answer
        game.attempts.append(Attempt(trajectory, Verdict(answer == "NYC"), None, outage))
    assert {name for name, fails in ATTEMPT_FILTERS.items() if fails(game)} == refused
