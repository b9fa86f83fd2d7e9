"""What people and models say around an answer, and sentences that answer without naming it."""

from __future__ import annotations

import pytest

from ssp_env.judge.lenient import matching

ANSWERS = [
    ("Who wrote Hamlet?", "William Shakespeare", "Christopher Marlowe"),
    ("What is the capital of Canada?", "Ottawa", "Toronto"),
    ("When did World War II end in Europe?", "8 May 1945", "7 May 1944"),
    ("How many bones are in the adult human body?", "206", "208"),
    ("Which band recorded 'Abbey Road'?", "The Beatles", "The Kinks"),
    ("What percentage of the atmosphere is nitrogen?", "78%", "21%"),
]


def says(gold: str, given: str, question: str = "") -> bool:
    return matching(question, given, [gold]) is not None


@pytest.mark.parametrize(
    "said",
    [
        "<b>{}</b>", "<answer>{}</answer>", "\\boxed{{{}}}", "**{}**", "{} [1]", "1. {}", "- {}",
        "According to Wikipedia, it is {}.", "Based on the passages, the answer is {}.",
        "The passage says {}.", "Sure! The answer is {}.", "Clearly, {}.", "Result: {}",
        "{}, I believe.", "{}, of course.", "{} (according to Wikipedia)", "{} - source: Wikipedia",
        "{}. This is stated in the document.", "{}; this is well known.", "Okay, {}.",
    ],
)  # fmt: skip
def test_words_around_an_answer_change_nothing(said: str) -> None:
    for question, gold, wrong in ANSWERS:
        assert says(gold, said.format(gold), question), gold
        assert not says(gold, said.format(wrong), question), wrong


@pytest.mark.parametrize(
    "said",
    [
        "It isn't {0}.", "It was never {0}.", "{0} is wrong.", "It is false that it is {0}.",
        "Some say {0}, others {1}.", "Possibly {0}, possibly {1}", "{0}... actually {1}.",
        "{0}? No, {1}.", "{0}. Wait, {1}.", "Unlike {0}, it is {1}.", "everything except {0}",
        "the opposite of {0}", "{1} (often confused with {0})", "{1}, followed by {0}",
        "Many people believe it is {0}, but it is {1}.",
    ],
)  # fmt: skip
def test_an_answer_that_is_denied_or_taken_back_is_wrong(said: str) -> None:
    for question, gold, wrong in ANSWERS:
        assert not says(gold, said.format(gold, wrong), question), gold


@pytest.mark.parametrize(
    ("gold", "turned"),
    [("Ottawa", "Toronto? No, Ottawa."), ("Ottawa", "Many say Toronto, but the answer is Ottawa.")],
)
def test_what_is_said_last_counts(gold: str, turned: str) -> None:
    assert says(gold, turned, "What is the capital of Canada?")


@pytest.mark.parametrize("name", ["Almost Famous", "Unlike Pluto", "Before Sunrise", "Not Paris"])
def test_a_name_that_reads_as_a_denial_is_itself(name: str) -> None:
    assert says(name, name, "Which film is it?")


def test_a_sentence_prefers_one_of_two() -> None:
    question = "Who lived longer, Friedrich Gogarten or Giangiacomo Feltrinelli?"
    assert says("Friedrich Gogarten", "Gogarten lived longer than Feltrinelli.", question)
    assert not says("Friedrich Gogarten", "Feltrinelli lived longer than Gogarten.", question)
    assert not says("Friedrich Gogarten", "Gogarten died younger than Feltrinelli.", question)


def test_words_of_the_question_come_and_go() -> None:
    question = "Who heads the executive department of West Virginia?"
    assert says("the Governor of West Virginia", "The governor", question)
    assert not says("the Governor of West Virginia", "The Governor of Ohio", question)
    assert says("Rocky IV", "the fourth Rocky film", "Which Rocky film features Ivan Drago?")
    assert not says("Rocky IV", "the sixth Rocky film", "Which Rocky film features Ivan Drago?")


@pytest.mark.parametrize(
    ("question", "text", "yes"),
    [
        ("Is Mars smaller than the Earth?", "Correct, Mars is smaller.", True),
        ("Is Mars smaller than the Earth?", "Mars is smaller than the Earth.", True),
        ("Is Mars smaller than the Earth?", "It is not", False),
        ("Are they in the same family?", "They belong to different families.", False),
        ("Did she win?", "She lost.", False),
    ],
)
def test_sentences_say_yes_or_no(question: str, text: str, yes: bool) -> None:
    assert says("yes", text, question) is yes
    assert says("no", text, question) is not yes


@pytest.mark.parametrize(
    ("gold", "given", "same"),
    [
        ("Charlotte of Hesse-Kassel", "Charlotte of Hesse-Cassel", True),
        ("Arnold Schwarzenegger", "Arnold Schwarzeneger", True),
        ("Holston River", "Houston River", False),
        ("Robert Johnson", "Robert Johnston", False),
        ("Paul Auster", "Paula Auster", False),
        ("Rafael Nadal", "Rafa Nadal", True),
    ],
)
def test_spelling_may_differ_where_it_makes_no_other_name(
    gold: str, given: str, same: bool
) -> None:
    assert says(gold, given) is same
