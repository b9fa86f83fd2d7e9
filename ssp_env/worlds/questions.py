"""Questions that come with answers, and answers alone: reading the files that people have, drawing
from them, and what two sets have in common."""

from __future__ import annotations

from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, PositiveInt

from ssp_env.errors import DataError
from ssp_env.tables import Text, fields_of, read_table, validated
from ssp_env.types import GroundTruth, Question
from ssp_env.wording.normal import normalise

_CUE = "Question:"
"""Word that ends the instructions of a Search-R1 prompt; the question comes after it."""


# -- forms of a line -----------------------------------------------------------------------------


class _Row(BaseModel, strict=True):
    """What lines of all forms may have besides a question and its answers; further fields are
    ignored."""

    id: str | int | None = None
    group: Text | None = None
    data_source: Text | None = None

    def wordings(self) -> list[str]:
        """Accepted wordings of the answer, the canonical one first."""
        raise NotImplementedError

    def asked(self) -> str:
        """The question."""
        raise NotImplementedError


class _Asking(_Row):
    question: Text | None = None

    def asked(self) -> str:
        return self.question or ""


def _written_list(value: Any) -> Any:
    """A list, also where a table has it as Python or JSON writes it."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, SyntaxError):
            return literal_eval(value.strip())
    return value


class _ListedRow(_Asking):
    answers: Annotated[list[Text], BeforeValidator(_written_list)] = Field(
        min_length=1, validation_alias=AliasChoices("answers", "golden_answers")
    )

    def wordings(self) -> list[str]:
        return self.answers


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _worded(value: Any) -> Any:
    """Wordings of an answer: one, several, or TriviaQA's value with its aliases."""
    if isinstance(value, dict) and "value" in value:
        return [value["value"], *value.get("aliases", ())]
    return _listed(value)


class _NamedRow(_Asking):
    answer: Annotated[list[Text], BeforeValidator(_worded)] = Field(
        min_length=1, validation_alias=AliasChoices("answer", "ground_truth")
    )
    aliases: list[Text] = Field(default_factory=list)
    answer_aliases: list[Text] = Field(default_factory=list)
    search_turns: PositiveInt | None = None

    def wordings(self) -> list[str]:
        return [*dict.fromkeys([*self.answer, *self.aliases, *self.answer_aliases])]


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
    "answers": _ListedRow,
    "golden_answers": _ListedRow,
    "reward_model": _VerlRow,
    "answer": _NamedRow,
    "ground_truth": _NamedRow,
}
"""Form of a line, by the field that holds its answers; of several, the first counts."""
ANSWERS = (
    "answers (ours, DPR), answer and aliases (`ssp questions`, NQ-open, HotpotQA, TriviaQA, "
    "MuSiQue), golden_answers (FlashRAG), "
    "reward_model.ground_truth.target (verl) or ground_truth (the paper)"
)
WANTED = f"question, and {ANSWERS}; verl's rows have a prompt in place of question"
"""Fields of all forms, in words."""


# -- reading -------------------------------------------------------------------------------------


def read_questions(path: str | Path, group: str = "all") -> tuple[Question, ...]:
    """Reads questions and their answers from a file that :func:`~ssp_env.tables.read_table` reads.

    The fields of each line say which form it has:

    - ``question`` and ``answers``, the canonical one first
    - ``question``, ``answer`` and ``aliases``, as `ssp questions` writes them; ``answer`` may be a
      list (NQ-open) or have a ``value`` and ``aliases`` (TriviaQA), or ``answer_aliases`` beside it
      (MuSiQue)
    - ``text`` and ``metadata.answer``, as BEIR has HotpotQA
    - ``question`` and ``golden_answers``, as FlashRAG has them
    - ``reward_model.ground_truth.target`` with a ``question`` (of its own, or in ``extra_info``) or
      a ``prompt``, as verl has them; of a prompt, what follows its last ``Question:`` counts
    - ``question`` and ``ground_truth``, as the paper's answers have it

    ``group``, or else ``data_source``, names the group; a line without either is in ``group``. A
    line without ``id`` or ``_id`` is called ``q<line number>``.

    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp(), "mine.jsonl")
    >>> _ = file.write_text('{"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}')
    >>> read_questions(file)
    (Question(id='q1', text='Who wrote Emma?', answers=('Jane Austen',), group='all'),)
    """
    rows = _identified(path, _rows(path, asking=True), "q")
    return tuple(
        Question(name, row.asked(), tuple(row.wordings()), row.group or row.data_source or group)
        for name, row in rows
    )


def check_first_question(path: str | Path) -> None:
    """Raises what :func:`read_questions` would raise for the first row of a file, at once."""
    next(_rows(path, asking=True), None)


def read_answers(path: str | Path) -> tuple[tuple[GroundTruth, ...], dict[str, int]]:
    """Reads an answer set, from rows of any form that :func:`read_questions` reads; they need no
    question.

    Also returns, by the answer's id, the number of searches that a row asks for (the paper's
    ``search_turns``). A line without ``id`` gets ``a<line number>``."""
    truths, searches = list[GroundTruth](), dict[str, int]()
    for name, row in _identified(path, _rows(path), "a"):
        answer, *aliases = row.wordings()
        truths.append(GroundTruth(name, answer, tuple(aliases)))
        if (count := getattr(row, "search_turns", None)) is not None:
            searches[name] = count
    return tuple(truths), searches


def _rows(path: str | Path, *, asking: bool = False) -> Iterator[tuple[int, _Row]]:
    for line, row_fields in read_table(path):
        fields = _unfolded(row_fields)
        form = next((kind for name, kind in FORMS.items() if name in fields), None)
        if form is None:
            raise DataError(path, f"no answer in it: {fields_of(fields)}; give {WANTED}", line)
        row = validated(path, line, fields, form)
        if asking and not row.asked().strip():
            has = f"no question in it: {fields_of(fields)}"
            raise DataError(path, f"{has}; give {WANTED}, as one message of the user", line)
        if row.data_source is not None and row.id is not None:
            # Files that join several data sets number each of them from 0.
            row = row.model_copy(update={"id": f"{row.data_source}/{row.id}"})
        yield line, row


def _unfolded(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with those of BEIR under our names."""
    if "_id" in fields:
        fields = {"id": fields["_id"], **fields}
    about = fields.get("metadata")
    if isinstance(about, dict) and "answer" in about and "text" in fields:
        fields = {"question": fields["text"], "answer": about["answer"], **fields}
    return fields


def _identified(
    path: str | Path, rows: Iterable[tuple[int, _Row]], prefix: str
) -> Iterator[tuple[str, _Row]]:
    """Rows with their ids, no id twice, one row at least; a row without one is named after its
    line, such as ``a3``."""
    known: set[str] = set()
    for line, row in rows:
        name = f"{prefix}{line}" if row.id is None else str(row.id)
        if name in known:
            raise DataError(path, f"id {name!r} occurs twice", line)
        known.add(name)
        yield name, row
    if not known:
        raise DataError(path, "holds no line")


# -- sets of questions ---------------------------------------------------------------------------


def sample_questions(
    questions: Iterable[Question], seed: int, per_group: int | None
) -> list[Question]:
    """Draws up to ``per_group`` questions of each group; groups and questions keep their order.

    A group's sample depends on the seed and the group's own questions alone, and a larger sample
    contains every smaller one of the same seed.

    >>> questions = [Question(str(i), "who?", ("Eve",), "ab"[i % 2]) for i in range(8)]
    >>> [[q.id for q in sample_questions(questions, 0, most)] for most in (1, 2)]
    [['6', '1'], ['2', '6', '1', '5']]
    """
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
    # By wording, so that each answer is one look-up.
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
