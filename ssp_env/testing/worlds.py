"""A mixin for worlds."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from ssp_env.checks import describe
from ssp_env.testing.material import AWKWARD, missing, shown, skip
from ssp_env.types import Analysis, Document, GroundTruth, Question, World
from ssp_env.wording.answers import exact_match
from ssp_env.worlds.files import shared_answers

_WITHOUT = (
    "evaluation questions are optional; without them, set has_questions = False in your subclass"
)


class WorldTests:
    """Tests a :class:`~ssp_env.types.World`. ``make_world`` is called twice in all."""

    has_questions = True
    """``False`` for a world without evaluation questions."""
    per_group: int = 2
    """How many evaluation questions of each group are looked at."""
    _opened: ClassVar[World | None] = None

    def make_world(self) -> World:
        """The world to be tested, always with the same settings."""
        missing("make_world(self)")

    @property
    def world(self) -> World:
        """One that was made for all tests of the class."""
        opened: World | None = vars(type(self)).get("_opened")
        if opened is None:
            opened = type(self)._opened = self.make_world()
        return opened

    def test_name_and_reader(self) -> None:
        assert isinstance(self.world.name, str), (
            "World.name is a string: records and configs use it"
        )
        assert self.world.name, "World.name is a non-empty string: records and configs use it"
        assert type(self.world.can_read) is bool, (
            f"World.can_read is True or False, not {self.world.can_read!r}"
        )

    def test_the_corpus_can_be_walked_through(self) -> None:
        corpus = self.world.corpus
        documents = list(corpus)
        assert documents, "the corpus holds no passage"
        assert len(corpus) == len(documents), (
            f"len(corpus) is {len(corpus)}, but it gives {len(documents)} passages"
        )
        assert corpus[len(corpus) - 1] == documents[-1], (
            "corpus[i] is not the i-th passage that it gives"
        )

        wrong = next((d for d in documents if not isinstance(d, Document)), None)
        assert wrong is None, f"the corpus holds Documents, not {type(wrong).__name__}"

        _check_unique("passage", [document.id for document in documents])

    def test_answers_can_be_played_from(self) -> None:
        answers = self.world.answers
        assert len(answers) > 0, "the answer set is empty: there is nothing to play from"
        for truth in answers:
            assert isinstance(truth, GroundTruth), (
                f"the answer set holds GroundTruths, not {type(truth).__name__}"
            )
            assert all(wording.strip() for wording in truth.wordings), (
                f"answer {truth.id!r} has a blank wording"
            )

        _check_unique("answer", [truth.id for truth in answers])

    def test_every_answer_can_be_found(self) -> None:
        from ssp_env.search.bm25 import tokenize

        words = {
            word
            for document in self.world.corpus
            for word in tokenize(f"{document.title} {document.text}")
        }

        lost = next(
            (t for t in self.world.answers if words.isdisjoint(tokenize(" ".join(t.wordings)))),
            None,
        )
        assert lost is None, (
            f"answer {lost.id!r} ({lost.answer!r}) has no word that occurs in the corpus, so no "
            f"search by words can "
            "find it: add a passage that mentions it, or leave it out"
        )

    def test_questions(self) -> None:
        questions = self._questions()
        assert questions, f"questions() gave none: {_WITHOUT}"

        for question in questions:
            assert isinstance(question, Question), (
                f"questions are Questions, not {type(question).__name__}"
            )
            assert question.text.strip(), f"question {question.id!r} is blank"
            assert question.answers, f"question {question.id!r} has no answer"
            assert all(a.strip() for a in question.answers), (
                f"question {question.id!r} has a blank answer"
            )

        _check_unique("question", [question.id for question in questions])
        most = Counter(question.group for question in questions).most_common(1)[0]
        asked = f"questions(0, per_group={self.per_group})"
        assert most[1] <= self.per_group, (
            f"{asked} gave {most[1]} of group {most[0]!r}: give at most that many"
        )

    def test_questions_follow_from_the_seed(self) -> None:
        questions = self._questions()
        assert self._questions() == questions, "the same seed has to draw the same questions"

    def test_questions_and_answers_share_nothing(self) -> None:
        shared = next(shared_answers(self.world.answers, self._questions()), None)
        assert shared is None, (
            f"answer {shared[0].answer!r} is played from and also answers evaluation question "
            f"{shared[1].id!r}: leave "
            "it out of one of the two"
        )

    def test_nothing_is_random(self) -> None:

        again = self.make_world()
        assert list(again.corpus) == list(self.world.corpus), (
            "a second world has another corpus: seed what is drawn"
        )
        assert list(again.answers) == list(self.world.answers), (
            "a second world has other answers: seed what is drawn"
        )

    def test_any_text_can_be_analysed(self) -> None:
        for text in AWKWARD:
            result = self.world.analyse(text)
            assert result is None or isinstance(result, Analysis), (
                f"analyse({shown(text)}) gave {result!r}: an Analysis, or None for what is not "
                f"understood"
            )

    def test_analysis_knows_the_right_answer(self) -> None:
        for question in self._questions():
            analysis = self.world.analyse(question.text)
            assert analysis is None or exact_match(question.answers[0], sorted(analysis.answers)), (
                f"analyse({question.text!r}) does not count {question.answers[0]!r} among the "
                f"right answers"
            )

    def test_reading_uses_the_documents_alone(self) -> None:
        world = self.world

        texts = [
            *AWKWARD,
            *(question.text for question in (self._questions() if self.has_questions else [])),
        ]
        for text in texts:
            found = world.read(text, [])
            if not world.can_read:
                assert found is None, f"can_read is False, but read() gave {found!r}: return None"
            else:
                assert not found, (
                    f"read({shown(text)}) found {found!r} in no documents at all: use them alone"
                )

    def _questions(self) -> list[Question]:
        if not self.has_questions:
            skip("has_questions is False")

        ask = getattr(self.world, "questions", None)
        assert ask is not None, f"the world has no method questions(): {_WITHOUT}"

        try:
            found = ask(0, self.per_group)
        except NotImplementedError:
            raise AssertionError(f"questions() is not implemented: {_WITHOUT}") from None

        assert isinstance(found, list | tuple), (
            f"questions() gave {describe(found)}, not a list: {_WITHOUT}"
        )
        return list(found)


def _check_unique(what: str, ids: list[str]) -> None:
    twice = [name for name, count in Counter(ids).items() if count > 1]
    assert not twice, f"{what} id {twice[0]!r} occurs twice: give each an id of its own"
