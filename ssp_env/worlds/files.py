"""Worlds of a user's own files: a corpus, an answer set and, optionally, evaluation questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.base import Retriever
from ssp_env.search.corpus import read_corpus, read_jsonl, require
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
            name: what records call this world.
            corpus_path: the passages, or an index directory over them.
            answers_path: the answer set D that the proposer plays from.
            questions_path: evaluation questions; without them :meth:`questions` raises.

        Raises:
            DataError: a file is missing or empty, a line cannot be used (names file and line), or
                an answer of the answer set is also an answer of an evaluation question.
        """
        self.name = name
        self.answers: Sequence[GroundTruth] = read_answers(answers_path)
        self._questions = None if questions_path is None else read_questions(questions_path)
        if self._questions is not None:
            for truth, question in shared_answers(self.answers, self._questions):
                what = (
                    f"answer {truth.id!r} ({truth.answer!r}) is also an answer of evaluation "
                    f"question {question.id!r}"
                )
                raise DataError(answers_path, f"{what}; leave it out of one of the two files")

        self._index = Path(corpus_path) if Path(corpus_path).is_dir() else None
        self.corpus: Passages = (
            read_corpus(corpus_path) if self._index is None else _passages(self._index)
        )

    @cached_property
    def retriever(self) -> Retriever | None:
        """The index of a corpus that is an index directory: BM25 if it is there, else the only one.

        ``None`` for a corpus that is a file.

        Raises:
            ConfigError: the directory has no index, or several dense ones.
            ModelError: the encoder of a dense index cannot be loaded.
        """
        if self._index is None:
            return None

        from ssp_env.search.index import kinds_in, open_index

        kinds = kinds_in(self._index)
        if "bm25" not in kinds and len(kinds) != 1:
            held = ", ".join(kinds) or "no index"
            fix = f"it holds {held}: `ssp index` adds bm25, or name another retriever by search"
            raise ConfigError("world_options.corpus_path", str(self._index), fix)
        return open_index(self._index, "bm25" if "bm25" in kinds else kinds[0])

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """Evaluation questions; see :func:`sample_questions`.

        Raises:
            ConfigError: this world was opened without any, or a setting of the sample cannot work.
        """
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


def _passages(directory: Path) -> Passages:
    # Imported here: a corpus in a file needs no index.
    from ssp_env.search.index import open_passages

    return open_passages(directory)


def read_answers(path: str | Path) -> tuple[GroundTruth, ...]:
    """Reads an answer set. A line without ``id`` gets ``a<line number>``.

    Raises:
        DataError: no such file, no answer in it, a field missing, of the wrong type or blank, or an
            id twice.
    """
    answers = []
    for line, row in _unique_rows(path, "a"):
        answer = _text(path, line, "answer", require(path, line, row, "answer", str))
        aliases = _texts(path, line, row, "aliases") if "aliases" in row else ()
        answers.append(GroundTruth(row["id"], answer, aliases))
    if not answers:
        raise DataError(path, "holds no answer")

    return tuple(answers)


def read_questions(path: str | Path, group: str = "all") -> tuple[Question, ...]:
    """Reads evaluation questions. A line without ``id`` gets ``q<line number>``.

    Args:
        path: the file.
        group: the group of lines that name none.

    Raises:
        DataError: no such file, no question in it, a field missing, of the wrong type or blank, or
            an id twice.
    """
    questions = []
    for line, row in _unique_rows(path, "q"):
        text = _text(path, line, "question", require(path, line, row, "question", str))
        answers = _texts(path, line, row, "answers")
        if not answers:
            raise DataError(
                path, "field 'answers' is empty: a question needs at least one right answer", line
            )

        own_group = (
            _text(path, line, "group", require(path, line, row, "group", str))
            if "group" in row
            else group
        )
        questions.append(Question(row["id"], text, answers, own_group))

    if not questions:
        raise DataError(path, "holds no question")

    return tuple(questions)


def sample_questions(
    questions: Iterable[Question], seed: int, per_group: int | None
) -> list[Question]:
    """Draws questions of each group without replacement; groups and questions keep their order.

    A group's sample depends on the seed and the group's own questions alone, and a larger sample
    contains every smaller one of the same seed.

    Args:
        questions: all there are.
        seed: of the draw, 0 or more.
        per_group: how many of each group; a group that holds fewer gives all it has. ``None``: all.

    Raises:
        ConfigError: ``per_group`` below 1 or a negative seed.
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


def _unique_rows(path: str | Path, prefix: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a JSONL file with ``id`` filled in, as a string, and never the same twice."""
    seen: set[str] = set()
    for line, row in read_jsonl(path):
        row_id = (
            str(require(path, line, row, "id", (str, int))) if "id" in row else f"{prefix}{line}"
        )

        if row_id in seen:
            raise DataError(path, f"id {row_id!r} occurs twice", line)

        seen.add(row_id)
        yield line, {**row, "id": row_id}


def _text(path: str | Path, line: int, field: str, value: str) -> str:
    if not value.strip():
        raise DataError(path, f"field {field!r} is blank", line)
    return value


def _texts(path: str | Path, line: int, row: dict[str, Any], field: str) -> tuple[str, ...]:
    values = require(path, line, row, field, list)
    for value in values:
        if not isinstance(value, str):
            raise DataError(
                path, f"field {field!r} holds {value!r} where a string was expected", line
            )
        _text(path, line, field, value)
    return tuple(values)
