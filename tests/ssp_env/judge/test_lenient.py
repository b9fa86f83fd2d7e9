"""The judge by rules: a floor on labelled pairs, and its promises."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.judges import Pair, measure
from ssp_env.judge.lenient import LenientJudge, matching
from ssp_env.types import GroundTruth
from ssp_env.wording.answers import normalise

PAIRS = Path(__file__).parents[3] / "benchmarks" / "data" / "judge_pairs.jsonl.gz"


@cache
def rows() -> list[dict[str, Any]]:
    """Labelled answers to questions of seven benchmarks."""
    lines = gzip.decompress(PAIRS.read_bytes()).decode().splitlines()
    return [row for row in map(json.loads, lines) if row["set"] == "held_out"]


def says(gold: str, given: str, question: str = "") -> bool:
    return matching(question, given, (gold,)) is not None


def test_the_rules_agree_with_people() -> None:
    pairs = [Pair(**{field: row[field] for field in Pair.model_fields}) for row in rows()]
    result = measure(LenientJudge(), pairs)
    assert len(pairs) == 336
    assert (result.precision or 0) >= 0.98
    assert (result.recall or 0) >= 0.9


@given(st.text(max_size=60), st.text(max_size=30), st.text(max_size=30))
def test_it_raises_on_no_text(question: str, prediction: str, wording: str) -> None:
    matching(question, prediction, (wording,))
    assert says(prediction, prediction, question) is (normalise(prediction) != "")


SCRAPS = ["(?)", "()", " (", ")", "[", '"', "'", "...", "-", "–", "/", "½", "²", "٣", "VII", "1/2"]
SCRAPS += ["$", "%", "°C", "0", "9" * 400, "million", "BC", "May", "Jan.", "Jr.", "of", ",", "\x00"]


@settings(max_examples=300)
@given(st.data())
def test_it_raises_on_no_mutated_answer(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(rows()))
    text = data.draw(st.sampled_from([row["prediction"], *row["answers"]]))
    for scrap in data.draw(st.lists(st.sampled_from(SCRAPS) | st.text(max_size=3), max_size=4)):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + scrap + text[at:]
    matching(row["question"], text, tuple(row["answers"]))
    matching(row["question"], row["prediction"], (text,))


SEVERAL = [
    "{} or {}", "{}, also known as {}", "{} ({})", "{} [{}]", "{} - {}", "{} – {}", "{}—{}",
    "{}: {}", "{} aka {}", "{}; {}", "{} / {}", "{} | {}", "{}\n{}", "{}, {}", "{} and {}",
    "{} & {}", "{}, that is, {}", "{} i.e. {}", "Answer: {}. Alternative: {}", "{}. {}",
    "The answer is {}. The answer is {}.", "{} is followed by {}", "{}, followed by {}",
    "{} was followed by {}", "{} by {}", "{} in {}", "{} is {}", "{} was {}", "{}, namely {}",
    "{} (formerly {})", '{} "{}"', "{} vs {}", "{} then {}", "{} {}", "either {} or {}",
    "{}, possibly {}", "It is {}. It may be {}.", "{} called {}", "{} with {}", "{}, who is {}",
]  # fmt: skip
GUESSES = [
    ("Who composed it?", "Wolfgang Amadeus Mozart", "Joseph Haydn"),
    ("Who composed it?", "Mozart", "Salieri"),
    ("What is the capital of France?", "Paris", "Lyon"),
    ("Where was she born?", "Ohio", "Texas"),
    ("Which country won?", "France", "Germany"),
    ("Which mammal is it?", "otter", "beaver"),
    ("When was it?", "1985", "1986"),
    ("How many are there?", "42", "43"),
    ("Which film came out earlier, Moner Manush or Dear Child?", "Moner Manush", "Dear Child"),
    ("Are both in one country?", "no", "yes"),
    ("", "Bob Dylan", "Joan Baez"),
    ("Who was the president?", "John F. Kennedy", "Robert F. Kennedy"),
]


@pytest.mark.parametrize("several", SEVERAL)
def test_several_guesses_are_wrong(several: str) -> None:
    for question, gold, other in GUESSES:
        for text in (several.format(gold, other), several.format(other, gold)):
            assert not says(gold, text, question), text
            assert not says(gold, text.lower(), question), text.lower()


@pytest.mark.parametrize("several", ["{} or {}", "{} ({})", "{}, also known as {}", "{} / {}"])
def test_several_wordings_of_the_truth_are_right(several: str) -> None:
    assert matching("Which city?", several.format("Kyiv", "Kiev"), ("Kyiv", "Kiev"))
    assert not matching("Which city?", several.format("Kyiv", "Lviv"), ("Kyiv", "Kiev"))


@pytest.mark.parametrize(
    ("gold", "given", "question", "right"),
    [
        # The paper's showcase games.
        ("Roger (alien)", "Roger", "Which grey alien crashed in Roswell?", True),
        ("George Smith", "George P. Smith", "Who bought a store in Duhamel?", True),
        # Names.
        ("Charles Dickens", "Dickens", "Who wrote it?", True),
        ("Charles Dickens", "Charles", "Who wrote it?", False),
        ("New York", "York", "Which city is it?", False),
        ("George W. Bush", "George H. W. Bush", "Who was it?", False),
        ("Edward VII", "Edward the Seventh", "Who was it?", True),
        ("Edward VII", "Edward VIII", "Who was it?", False),
        ("Bill Clinton", "William Jefferson Clinton", "Who was it?", True),
        ("Face/Off", "Face/Off", "Which film is it?", True),
        # Places.
        ("Portland, Oregon", "Portland", "Where was it?", True),
        ("Portland, Oregon", "Portland, Maine", "Where was it?", False),
        ("Oslo", "Oslo (Norway)", "Which city was it?", True),
        # Numbers and dates.
        ("1934", "2 May 1934", "When was it?", True),
        ("2 May 1934", "1934", "When was it?", False),
        ("2 May 1934", "1934", "In what year was it?", True),
        ("1943", "until 1943", "When did it end?", True),
        ("8,849 metres", "8849 m", "How high is it?", True),
        ("8,849 metres", "8,849 feet", "How high is it?", False),
        ("52%", "52 percent", "What share?", True),
        ("3,384,569", "about 3.38 million", "How many?", True),
        ("5.7 million", "5.7 billion", "How many?", False),
        # Signs.
        ("C++", "C", "", False), ("C", "C#", "", False), ("O negative", "O-", "", True),
        ("3.5", "35", "", False), ("-5", "5", "", False),
        # What is said around an answer.
        ("Paris", "**Paris**", "Which city?", True),
        ("Paris", "The answer is Paris.", "Which city?", True),
        ("Paris", "It was not Paris.", "Which city?", False),
        ("Paris", "I am not sure, Paris?", "Which city?", False),
        ("no", "No, they are in different countries.", "Are both in one country?", True),
        ("France and Spain", "Spain & France", "Which countries?", True),
        ("France and Spain", "Spain", "Which countries?", False),
    ],
)  # fmt: skip
def test_what_is_the_same_answer(gold: str, given: str, question: str, right: bool) -> None:
    assert says(gold, given, question) is right


@pytest.mark.parametrize("text", ["", "  ", "?!", "\u200b", "**", "(", "()", "Who?", "not", "or"])
def test_nothing_is_no_answer(text: str) -> None:
    assert not says("Paris", text)
    assert not says("42", text)


@pytest.mark.parametrize("text", ["Paris or London, and ", "5 km (3 mi) - ", "A.B. 'C' 1/3 of "])
def test_a_long_text_has_to_be_the_same_words(text: str) -> None:
    """Anything else would take seconds."""
    long = text * (40_000 // len(text))
    assert not says("Paris", long, "Which city?")
    assert says(long, long.upper(), "Which city?")


def test_the_verdict_names_the_wording_that_matched() -> None:
    truth = GroundTruth("g", "New York City", ("Big Apple",))
    task = JudgeTask("Which city?", "the big apple", truth)
    assert LenientJudge().judge([task, task]) == [Verdict(True, "as 'Big Apple'")] * 2
