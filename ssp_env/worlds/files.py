"""Worlds of a user's own files: a corpus, an answer set and, optionally, evaluation questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar
from zlib import crc32

import numpy as np
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.base import Retriever
from ssp_env.search.corpus import read_corpus, read_jsonl
from ssp_env.types import Analysis, Document, GroundTruth, Passages, Question
from ssp_env.wording.answers import normalise


class FileWorld:
    """A :class:`~ssp_env.types.World` made of files, all of them read and checked at once.

    The three formats are JSON lines, plain or gzip:

    ========= ================================================ ==============================
    file      a line has                                       it may have
    ========= ================================================ ==============================
    corpus    ``id`` and ``contents``, or ``title`` and        see
              ``text``                                         :mod:`ssp_env.search.corpus`
    answers   ``answer``                                       ``id``, ``aliases`` (strings)
    questions ``question``, ``answers`` (canonical one first)  ``id``, ``group``
    ========= ================================================ ==============================

    The corpus may also be an index directory that ``ssp index`` made. Its passages are mapped, not
    read, so a corpus may have any size, and its own index is what is searched by default."""

    can_read = False

    def __init__(
        self,
        name: str,
        corpus_path: str | Path,
        answers_path: str | Path,
        questions_path: str | Path | None = None,
    ) -> None:
        """
        Args:
            name: of this world, in records.
            corpus_path: the passages, or an index directory over them.
            answers_path: the answer set D that the proposer plays from.
            questions_path: evaluation questions; without them :meth:`questions` raises.

        Raises:
            DataError: files are missing (names all of them) or empty, a line cannot be used (names
                file and line), or an answer of the answer set is also an answer of an evaluation
                question.
        """
        paths = [path for path in (corpus_path, answers_path, questions_path) if path is not None]
        missing = [str(path) for path in paths if not Path(path).exists()]
        if missing:
            raise DataError(" and ".join(missing), "no such file")

        self.name = name
        self.answers: Sequence[GroundTruth] = read_answers(answers_path)
        self._questions = None if questions_path is None else read_questions(questions_path)
        if self._questions is not None:
            for truth, question in shared_answers(self.answers, self._questions):
                what = f"answer {truth.answer!r} is also an answer of evaluation question"
                fix = "leave it out of one of the two files"
                raise DataError(answers_path, f"{what} {question.id!r}; {fix}")

        self._index = Path(corpus_path) if Path(corpus_path).is_dir() else None
        if self._index is None:
            self.corpus: Passages = read_corpus(corpus_path)
        else:
            # Imported here: a corpus in a file needs no index.
            from ssp_env.search.store import PASSAGES, PassageStore

            self.corpus = PassageStore(self._index / PASSAGES)

    @cached_property
    def retriever(self) -> Retriever | None:
        """The index of a corpus that is an index directory: BM25 if it is there, else the only one.

        ``None`` for a corpus that is a file.
        """
        if self._index is None:
            return None

        from ssp_env.search.index import open_index

        return open_index(self._index, "bm25" if (self._index / "bm25").exists() else None)

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """Evaluation questions; see :func:`sample_questions`."""
        if self._questions is None:
            raise ConfigError(
                "questions_path",
                None,
                f"world {self.name!r} needs a question file to be evaluated in",
            )
        return sample_questions(self._questions, seed, per_group)

    def analyse(self, question: str) -> Analysis | None:
        """``None``: nothing is known about free text."""
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """``None``: this world has no reader."""
        return None


_Text = Annotated[str, StringConstraints(pattern=r"\S")]


class _Row(BaseModel, strict=True):
    """A line of an answer or question file; further fields are ignored."""

    id: str | int | None = None


class _AnswerRow(_Row):
    answer: _Text
    aliases: list[_Text] = []


class _QuestionRow(_Row):
    question: _Text
    answers: list[_Text] = Field(min_length=1)
    group: _Text | None = None


R = TypeVar("R", bound=_Row)
M = TypeVar("M", bound=BaseModel)


def read_answers(path: str | Path) -> tuple[GroundTruth, ...]:
    """Reads an answer set. A line without ``id`` gets ``a<line number>``."""
    rows = _read(path, _AnswerRow, "a")
    answers = tuple(GroundTruth(name, row.answer, tuple(row.aliases)) for name, row in rows)
    if not answers:
        raise DataError(path, "holds no answer")
    return answers


def read_questions(path: str | Path, group: str = "all") -> tuple[Question, ...]:
    """Reads evaluation questions. A line without ``id`` gets ``q<line number>``.

    Args:
        path: the file.
        group: the group of lines that name none.
    """
    questions = tuple(
        Question(name, row.question, tuple(row.answers), row.group or group)
        for name, row in _read(path, _QuestionRow, "q")
    )
    if not questions:
        raise DataError(path, "holds no question")
    return questions


def _read(path: str | Path, kind: type[R], prefix: str) -> Iterator[tuple[str, R]]:
    """Ids and rows of a JSONL file, no id twice."""
    seen: set[str] = set()
    for line, row in read_rows(path, kind):
        name = f"{prefix}{line}" if row.id is None else str(row.id)
        if name in seen:
            raise DataError(path, f"id {name!r} occurs twice", line)
        seen.add(name)
        yield name, row


def read_rows(path: str | Path, kind: type[M]) -> Iterator[tuple[int, M]]:
    """Lines of a JSONL file, numbered from 1, as models of this kind.

    Raises:
        DataError: no such file, or a line that is none (names file and line).
    """
    for line, fields in read_jsonl(path):
        try:
            yield line, kind.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            what = f"field {'.'.join(map(str, first['loc']))!r}: {first['msg']}"
            raise DataError(path, what, line) from None


def sample_questions(
    questions: Iterable[Question], seed: int, per_group: int | None
) -> list[Question]:
    """Draws questions of each group without replacement; groups and questions keep their order.

    A group's sample depends on the seed and the group's own questions alone, and a larger sample
    contains every smaller one of the same seed.

    Args:
        questions: all of them.
        seed: of the draw, 0 or more.
        per_group: number of each group; a group that holds fewer gives all it has. ``None``: all.
    """
    if seed < 0:
        raise ConfigError("seed", seed, "give a whole number, 0 or more")
    if per_group is not None and per_group < 1:
        raise ConfigError("per_group", per_group, "give at least 1, or None for all questions")

    groups: defaultdict[str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[question.group].append(question)

    drawn: list[Question] = []
    for group, members in groups.items():
        # A stream of its own, so that a group does not depend on the others.
        rng = np.random.default_rng([seed, crc32(group.encode("utf-8", "surrogatepass"))])

        chosen = sorted(rng.permutation(len(members))[:per_group].tolist())
        drawn += [members[index] for index in chosen]
    return drawn


def shared_answers(
    answers: Iterable[GroundTruth], questions: Iterable[Question]
) -> Iterator[tuple[GroundTruth, Question]]:
    """Yields every answer that occurs, in any of its wordings, among the evaluation answers.

    Stricter than exact match: besides case, accents, punctuation and articles, spaces do not tell
    two wordings apart either ("H.W." is "H. W.")."""
    evaluated = {_key(wording): question for question in questions for wording in question.answers}

    for truth in answers:
        for wording in truth.wordings:
            question = evaluated.get(_key(wording))
            if question is not None:
                yield truth, question
                break


def _key(wording: str) -> str:
    return normalise(wording).replace(" ", "")
