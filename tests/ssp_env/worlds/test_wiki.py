"""Sentences of Wikipedia: what the rules read in them, and the world that they make."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ssp_env.worlds.few import few_passages

from ssp_env.testing import WorldTests
from ssp_env.worlds.wiki import TAUGHT, WikiSentences, split_of
from ssp_env.worlds.wiki_language import (
    BY_NAME,
    CHAINED,
    RELATIONS,
    Relation,
    facts_of,
    parse_question,
    sentences,
    subject_of,
    write_question,
)

few_passages = few_passages


@pytest.mark.parametrize(
    ("title", "text", "relation", "value"),
    [
        ("Gang Bullets", "Gang Bullets is a 1938 film directed by Lambert Hillyer.", "director",
         "Lambert Hillyer"),
        ("Meg Ryan", "Meg Ryan (born November 19, 1961) is an American actress.", "born",
         "November 19 , 1961"),
        ("Tyge Böcher", "Tyge Böcher (25 October 1909 – 15 March 1983) was a Danish botanist.",
         "died", "15 March 1983"),
        ("Emma (novel)", 'Emma is a novel by the English writer Jane Austen.', "author",
         "Jane Austen"),
        ("Jo Bell", "Jo Bell is a Welsh former rugby union player.", "sport", "rugby union"),
        ("Jan IV", "He was the third son of Duke Casimir by his wife Anna.", "father",
         "Duke Casimir"),
    ],
)  # fmt: skip
def test_a_sentence_states_a_fact(title: str, text: str, relation: str, value: str) -> None:
    (sentence,) = sentences(text)
    found = {fact.relation: fact for fact in facts_of(title, sentence)}
    assert found[relation].value == value
    assert sentence[found[relation].place :].startswith(value)


def test_a_sentence_about_another_subject_states_nothing() -> None:
    for sentence in ("Another Film was directed by Rob Reiner .", "The studio was founded by Al ."):
        for title in ("Meg Ryan", "The Godfather", "An", "Anot"):
            assert not list(facts_of(title, sentence))


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    for sentence in sentences(text):
        list(facts_of("A", sentence, first=True))
    parse_question(text)


CHAINS = st.lists(st.sampled_from([BY_NAME[name] for name in sorted(CHAINED)]), max_size=2)
SUBJECTS = st.from_regex(r"[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8}){0,2}", fullmatch=True)


@given(CHAINS, st.sampled_from(RELATIONS), SUBJECTS)
def test_a_question_reads_as_it_was_written(
    inner: list[Relation], last: Relation, subject: str
) -> None:
    path = (*inner, last)
    asked = parse_question(write_question(subject, path))
    assert asked is not None
    assert (asked.subject, asked.path) == (subject, path)


def test_dividing_sentences_keeps_abbreviations_together() -> None:
    text = 'J. R. Smith met Dr. Jones in St. Louis. He left "The Old Man" there.'
    assert sentences(text) == [
        "J. R. Smith met Dr. Jones in St. Louis .",
        "He left The Old Man there .",
    ]


class TestWikiSentences(WorldTests):
    per_group = 20

    @pytest.fixture(autouse=True)
    def _few(self, few_passages: Path) -> None: ...

    def make_world(self) -> WikiSentences:
        return WikiSentences()

    def test_splits_are_kept_apart(self) -> None:
        played = {truth.answer for truth in self.world.answers}
        for split in ("dev", "test"):
            for question in WikiSentences(split).questions(0):
                assert played.isdisjoint(question.answers)
                asked = parse_question(question.text)
                if question.group == "relation":
                    assert asked is not None
                    assert split_of(asked.subject) == split
                elif question.group.endswith("two hops"):
                    assert asked is not None
                    assert (asked.path[-1].name in TAUGHT) == (question.group == "two hops")

    def test_documents_support_what_the_rules_know(self) -> None:
        world = WikiSentences()
        for name, stated in list(world.stated.items())[:50]:
            document = world.corpus[int(name)]
            for fact in stated:
                question = BY_NAME[fact.relation].ask(subject_of(document.title))
                found, known = world.read(question, [document]), world.analyse(question)
                assert found is not None
                assert known is not None
                assert fact.value in found <= known.answers
                assert document.text[fact.place :].startswith(fact.value)
