"""Mixins for what a game is made of: a world with its corpus, and a tokenizer."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar
from unittest import SkipTest

from ssp_env.game.config import GameConfig
from ssp_env.game.protocol import Tags, check_tokenizer
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.testing.material import AWKWARD, SCRIPTS, check_unique, missing, same_twice
from ssp_env.tokenizers import Tokenizer
from ssp_env.tokenizers.base import encode_parts, end_ids
from ssp_env.types import Question, Role, World
from ssp_env.wording.normal import exact_match
from ssp_env.worlds.questions import shared_answers


class WorldTests:
    """Tests a :class:`~ssp_env.types.World`. ``make_world`` is called twice in all."""

    has_questions = True
    """``False`` for a world without evaluation questions."""
    per_group: int = 2
    """Number of evaluation questions of each group that are looked at."""
    _opened: ClassVar[World]

    def make_world(self) -> World:
        """The world to be tested, always with the same settings."""
        missing("make_world(self)")

    @property
    def world(self) -> World:
        """One that was made for all tests of the class."""
        if "_opened" not in vars(type(self)):
            type(self)._opened = self.make_world()
        return self._opened

    def test_the_corpus_can_be_walked_through(self) -> None:
        assert self.world.name, "name is not empty: records use it"
        corpus = self.world.corpus
        documents = list(corpus)
        assert documents, "the corpus holds no passage"
        assert len(corpus) == len(documents), (
            f"len(corpus) is {len(corpus)}, but it gives {len(documents)} passages"
        )
        assert corpus[len(corpus) - 1] == documents[-1], "corpus[i] is not its i-th passage"
        check_unique("passage", [document.id for document in documents])

    def test_answers_can_be_played_from_and_found(self) -> None:
        from ssp_env.search.words import tokenize

        answers, words = self.world.answers, set[str]()
        for document in self.world.corpus:
            words.update(tokenize(f"{document.title} {document.text}"))

        assert len(answers) > 0, "the answer set is empty: there is nothing to play from"
        for truth in answers:
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
            self.world.analyse(text)
            answers = self.world.read(text, [])
            assert not answers, f"read({text!r:.100}) found {answers!r} in no documents at all"

    def test_analysis_knows_the_right_answer(self) -> None:
        for question in self._questions():
            analysis = self.world.analyse(question.text)
            assert analysis is None or exact_match(question.answers[0], sorted(analysis.answers)), (
                f"analyse({question.text!r}) does not count {question.answers[0]!r} among the "
                f"right answers"
            )
            answers = self.world.read(question.text, [])
            assert not answers, f"read() found {answers!r} in no documents: use them alone"

    def _questions(self) -> list[Question]:
        if not self.has_questions:
            raise SkipTest("has_questions is False")
        return list(self.world.questions(0, self.per_group))


class TokenizerTests:
    """Tests a :class:`~ssp_env.tokenizers.base.Tokenizer`."""

    tags = Tags()

    def make_tokenizer(self) -> Tokenizer:
        missing("make_tokenizer(self)")

    def test_ids_and_pieces(self) -> None:
        tokenizer = self.make_tokenizer()
        size = tokenizer.vocab_size
        assert len(tokenizer.pieces) == size, (
            f"one piece per id: {len(tokenizer.pieces)} pieces for vocab_size = {size}"
        )
        ends = [] if tokenizer.eos_id is None else [("eos_id", tokenizer.eos_id)]
        beyond = sorted(token for token in end_ids(tokenizer) if not 0 <= token < size)
        assert not beyond, f"end_ids holds {beyond}, which are outside the ids 0 .. {size - 1}"
        for name, token in (("pad_id", tokenizer.pad_id), *ends):
            assert 0 <= token < size, f"{name} = {token} is outside the ids 0 .. {size - 1}"
            assert tokenizer.pieces[token] == b"", f"{name} stands for no text: its piece is b''"

    def test_any_text_becomes_ids_and_nothing_is_added(self) -> None:
        tokenizer = self.make_tokenizer()
        for encode in (tokenizer.encode, tokenizer.encode_data):
            assert encode("") == [], "'' has no ids: prompts are put together from parts"
            for text in (*AWKWARD, *SCRIPTS, "\ud800 half a pair"):
                ids = encode(text)
                wrong = [i for i in ids if type(i) is not int or not 0 <= i < tokenizer.vocab_size]
                assert not wrong, f"{text!r:.100} became {wrong[0]!r}, which is not an id"

        same_twice("encode_data", lambda: [tokenizer.encode_data(text) for text in SCRIPTS])

    def test_pieces_spell_what_decode_says(self) -> None:
        tokenizer = self.make_tokenizer()
        for text in (*SCRIPTS, "what is it , and who ?", *self.tags.all()):
            ids = tokenizer.encode(text)
            spelled = b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace")

            said = tokenizer.decode(ids)
            assert "".join(spelled.split()) == "".join(said.split()), (
                f"pieces and decode() disagree about {text!r}: {spelled!r} and {said!r}; give each "
                f"id the very bytes that it adds to a text"
            )

    def test_data_never_becomes_a_special_token(self) -> None:
        tokenizer = self.make_tokenizer()
        special = {tokenizer.pad_id, tokenizer.eos_id} - {None}
        # What each special token looks like, which outside text may spell.
        texts = {tokenizer.decode([i]): i for i in special if i is not None}
        for tag in self.tags.all():
            ids = tokenizer.encode(tag)
            if len(ids) == 1:
                texts[tag] = ids[0]

        for text, token in texts.items():
            assert token not in tokenizer.encode_data(f"a {text}{text} b"), (
                f"encode_data takes the text {text!r} for the token {token}: spell it out as text"
            )

    def test_parts_join_to_their_text(self) -> None:
        tokenizer = self.make_tokenizer()
        tag = self.tags.opening("search")
        for text in (*SCRIPTS, "what is it , and who ?"):
            ids = encode_parts(tokenizer, [("a ", True), (text, False), (f" {tag}", True)])
            spelled = _spell(tokenizer, ids)
            each = tokenizer.encode("a "), tokenizer.encode_data(text), tokenizer.encode(tag)
            said = "".join(_spell(tokenizer, part) for part in each)
            assert "".join(spelled.split()) == "".join(said.split()), (
                f"the parts 'a ', {text!r} and ' {tag}' became {spelled!r}"
            )

        single = [i for i in tokenizer.encode(tag) if len(tokenizer.encode(tag)) == 1]
        for parts in ([(tag, False)], [(tag[:-1], False), (tag[-1:], False)]):
            ids = encode_parts(tokenizer, parts)
            assert not {*single, *end_ids(tokenizer)} & {*ids}, (
                f"encode_parts takes the outside text {tag!r} for a token of its own: spell it out"
            )

    def test_a_turn_is_read(self) -> None:
        tokenizer = self.make_tokenizer()
        check_tokenizer(tokenizer, self.tags)
        limits = Limits.of(Role.SOLVER, GameConfig(), tokenizer, self.tags)

        ids = tokenizer.encode(f"{self.tags.opening('search')} what {self.tags.closing('search')}")
        trajectory = Trajectory(limits, [])
        trajectory.feed(ids)
        assert trajectory.waiting is Waiting.SEARCH, (
            f"a search call was not found in the ids {ids}: their pieces have to spell its tags"
        )
        for token in end_ids(tokenizer):
            assert Trajectory(limits, []).feed([token]), f"the end token {token} ended no turn"


def _spell(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text that ids stand for."""
    return b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace")
