"""A mixin for worlds, and with them for their corpus."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from ssp_env.testing.material import AWKWARD, check_unique, missing, shown, skip
from ssp_env.types import Analysis, Document, GroundTruth, Question, World
from ssp_env.wording.answers import exact_match
from ssp_env.worlds.files import shared_answers


class WorldTests:
    """Tests a :class:`~ssp_env.types.World`. ``make_world`` is called twice in all."""

    has_questions = True
    """``False`` for a world without evaluation questions."""
    per_group: int = 2
    """Number of evaluation questions of each group that are looked at."""
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

    def test_the_corpus_can_be_walked_through(self) -> None:
        assert self.world.name, "name is not empty: records use it"
        corpus = self.world.corpus
        documents = list(corpus)
        assert documents, "the corpus holds no passage"
        assert len(corpus) == len(documents), (
            f"len(corpus) is {len(corpus)}, but it gives {len(documents)} passages"
        )
        assert corpus[len(corpus) - 1] == documents[-1], "corpus[i] is not its i-th passage"
        assert all(isinstance(d, Document) for d in documents), "a corpus holds Documents"
        check_unique("passage", [document.id for document in documents])

    def test_answers_can_be_played_from_and_found(self) -> None:
        from ssp_env.search.bm25 import tokenize

        answers, words = self.world.answers, set[str]()
        for document in self.world.corpus:
            words.update(tokenize(f"{document.title} {document.text}"))

        assert len(answers) > 0, "the answer set is empty: there is nothing to play from"
        for truth in answers:
            assert isinstance(truth, GroundTruth), f"{shown(truth)} is no GroundTruth"
            assert all(map(str.strip, truth.wordings)), f"{truth} has a blank wording"
            assert not words.isdisjoint(tokenize(" ".join(truth.wordings))), (
                f"answer {truth.answer!r} has no word of the corpus, so no search can find it: add "
                f"a passage that mentions it, or leave it out"
            )
        check_unique("answer", [truth.id for truth in answers])

    def test_questions(self) -> None:
        questions = self._questions()
        assert questions, "questions() gave none: set has_questions = False if there are none"
        assert self._questions() == questions, "the same seed has to draw the same questions"

        for question in questions:
            assert isinstance(question, Question), f"{shown(question)} is no Question"
            texts = (question.text, *question.answers)
            assert all(map(str.strip, texts)), f"{question} holds a blank text"
        check_unique("question", [question.id for question in questions])

        group, most = Counter(question.group for question in questions).most_common(1)[0]
        assert most <= self.per_group, (
            f"questions(0, per_group={self.per_group}) gave {most} of group {group!r}"
        )

    def test_questions_and_answers_share_nothing(self) -> None:
        shared = next(shared_answers(self.world.answers, self._questions()), None)
        assert shared is None, (
            f"answer {shared[0].answer!r} is played from and also answers evaluation question "
            f"{shared[1].id!r}: leave it out of one of the two"
        )

    def test_nothing_is_random(self) -> None:
        again = self.make_world()
        for part in ("corpus", "answers"):
            same = list(getattr(again, part)) == list(getattr(self.world, part))
            assert same, f"a second world has another {part}: seed what is drawn"

    def test_any_text_can_be_analysed_and_read(self) -> None:
        for text in AWKWARD:
            result = self.world.analyse(text)
            assert result is None or isinstance(result, Analysis), (
                f"analyse({shown(text)}) gave {result!r}: give an Analysis, or None"
            )
            found = self.world.read(text, [])
            assert not found, f"read({shown(text)}) found {found!r} in no documents at all"

    def test_analysis_knows_the_right_answer(self) -> None:
        for question in self._questions():
            analysis = self.world.analyse(question.text)
            assert analysis is None or exact_match(question.answers[0], sorted(analysis.answers)), (
                f"analyse({question.text!r}) does not count {question.answers[0]!r} among the "
                f"right answers"
            )
            found = self.world.read(question.text, [])
            assert not found, f"read() found {found!r} in no documents: use them alone"

    def _questions(self) -> list[Question]:
        if not self.has_questions:
            skip("has_questions is False")
        return list(self.world.questions(0, self.per_group))
