"""Questions that come with answers: reading the files that people have, drawing from them, and
what two sets have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field

from ssp_env.errors import DataError
from ssp_env.search.base import read_jsonl
from ssp_env.types import GroundTruth, Question
from ssp_env.wording.answers import normalise
from ssp_env.worlds.lines import Line, Text, identified, validated

_PARQUET = b"PAR1"
"""First bytes of a Parquet file."""
_CUE = "Question:"
"""Word that ends the instructions of a Search-R1 prompt; the question comes after it."""


# -- forms of a line -----------------------------------------------------------------------------


class _Row(Line):
    """What lines of all forms may have besides a question and its answers."""

    group: Text | None = None
    data_source: Text | None = None

    def wordings(self) -> list[str]:
        """Accepted wordings of the answer, the canonical one first."""
        raise NotImplementedError

    def asked(self) -> str:
        """The question."""
        raise NotImplementedError


class _Asking(_Row):
    question: Text

    def asked(self) -> str:
        return self.question


class _OwnRow(_Asking):
    answers: list[Text] = Field(min_length=1)

    def wordings(self) -> list[str]:
        return self.answers


class _LedgerRow(_Asking):
    answer: Text
    aliases: list[Text] = Field(default_factory=list)

    def wordings(self) -> list[str]:
        return [self.answer, *self.aliases]


class _FlashRAGRow(_Asking):
    golden_answers: list[Text] = Field(min_length=1)

    def wordings(self) -> list[str]:
        return self.golden_answers


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _targeted(value: Any) -> Any:
    return {"target": value} if isinstance(value, str | list) else value


class _Message(BaseModel, strict=True):
    role: str
    content: str


class _Truth(BaseModel, strict=True):
    target: Annotated[list[Text], BeforeValidator(_listed)] = Field(min_length=1)


class _Reward(BaseModel, strict=True):
    # Data sets with one right answer have it here, without a name.
    ground_truth: Annotated[_Truth, BeforeValidator(_targeted)]


class _Extra(BaseModel, strict=True):
    question: Text | None = None


class _VerlRow(_Row):
    reward_model: _Reward
    question: Text | None = None
    extra_info: _Extra = _Extra()
    prompt: Text | list[_Message] = ""

    def wordings(self) -> list[str]:
        return self.reward_model.ground_truth.target

    def asked(self) -> str:
        named = self.question or self.extra_info.question
        if named is not None:
            return named
        texts = [self.prompt] if isinstance(self.prompt, str) else []
        texts += [m.content for m in self.prompt if isinstance(m, _Message) and m.role == "user"]
        # One message, and of that what comes after the instructions, where there are any.
        return texts[0].rpartition(_CUE)[2].strip() if len(texts) == 1 else ""


FORMS: dict[str, type[_Row]] = {
    "answers": _OwnRow,
    "golden_answers": _FlashRAGRow,
    "reward_model": _VerlRow,
    "answer": _LedgerRow,
}
"""Form of a line, by the field that holds its answers; of several, the first counts."""
WANTED = (
    "question with answers (ours), answer and aliases (`ssp questions`) or golden_answers "
    "(FlashRAG), or question or prompt with reward_model.ground_truth.target (verl)"
)
"""Fields of all forms, in words."""


# -- reading -------------------------------------------------------------------------------------


def read_questions(path: str | Path, group: str = "all") -> tuple[Question, ...]:
    """Reads questions and their answers from JSON lines, plain or gzip, or from Parquet.

    The fields of each line say which form it has:

    - ``question`` and ``answers``, the canonical one first
    - ``question``, ``answer`` and ``aliases``, as `ssp questions` writes them
    - ``question`` and ``golden_answers``, as FlashRAG has them
    - ``reward_model.ground_truth.target`` with a ``question`` (of its own, or in ``extra_info``) or
      a ``prompt``, as verl has them; of a prompt, what follows its last ``Question:`` counts

    ``group``, or else ``data_source``, names the group; a line without either is in ``group``. A
    line without ``id`` is called ``q<line number>``. Parquet needs pyarrow.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp(), "mine.jsonl")
    >>> _ = file.write_text('{"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}')
    >>> read_questions(file)
    (Question(id='q1', text='Who wrote Emma?', answers=('Jane Austen',), group='all'),)
    """
    rows = identified(path, _rows(path), "q")
    return tuple(
        Question(name, row.asked(), tuple(row.wordings()), row.group or row.data_source or group)
        for name, row in rows
    )


def _rows(path: str | Path) -> Iterator[tuple[int, _Row]]:
    for line, given in _lines(path):
        # A table has a column where any of its rows has a value.
        fields = {name: value for name, value in given.items() if value is not None}
        form = next((kind for name, kind in FORMS.items() if name in fields), None)
        if form is None:
            has = f"the line has {', '.join(fields) or 'no fields'}"
            raise DataError(path, f"a question comes with its answers: {has}; give {WANTED}", line)
        row = validated(path, line, fields, form)
        if not row.asked().strip():
            has = f"no question in its prompt; the line has {', '.join(fields)}"
            raise DataError(path, f"{has}; give {WANTED}, the prompt as one user message", line)
        if row.data_source is not None and row.id is not None:
            # Files that join several data sets number each of them from 0.
            row = row.model_copy(update={"id": f"{row.data_source}/{row.id}"})
        yield line, row


def _lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered objects of JSON lines, or rows of a Parquet file, from 1."""
    table = False
    # What cannot be read is refused below; what a pipe holds comes once.
    with suppress(OSError):
        if Path(path).is_file():
            with open(path, "rb") as file:
                table = file.read(len(_PARQUET)) == _PARQUET
    if not table:
        yield from read_jsonl(path)
        return

    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        fix = "pip install pyarrow, or save it as JSON lines"
        raise DataError(path, f"is a Parquet file, which pyarrow reads: {fix}") from None
    try:
        line = 0
        for batch in ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                line += 1
                yield line, row
    except (ArrowException, OSError) as error:
        raise DataError(path, f"cannot be read as Parquet: {error}") from error


# -- sets of questions ---------------------------------------------------------------------------


def sample_questions(
    questions: Iterable[Question], seed: int, per_group: int | None
) -> list[Question]:
    """Draws up to ``per_group`` questions of each group; groups and questions keep their order.

    A group's sample depends on the seed and the group's own questions alone, and a larger sample
    contains every smaller one of the same seed."""
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
        asked = [evaluated[_key(w)] for w in truth.wordings if _key(w) in evaluated]
        if asked:
            yield truth, asked[0]


def shared_questions(
    questions: Iterable[Question], others: Sequence[Question]
) -> Iterator[Question]:
    """Yields every question whose text occurs among the others, by the same rule of wordings."""
    known = {_key(question.text) for question in others}
    return (question for question in questions if _key(question.text) in known)


def _key(text: str) -> str:
    return normalise(text).replace(" ", "")
