"""Worlds of files: a corpus, an answer set and, optionally, evaluation questions; and wiki-mini."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast
from zlib import crc32

import numpy as np
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from ssp_env.disk import cache_folder, made_once
from ssp_env.errors import ConfigError, DataError
from ssp_env.search.base import Corpus, Retriever, read_corpus, read_jsonl, read_passages
from ssp_env.types import Analysis, Document, GroundTruth, Passages, Question
from ssp_env.wording.answers import normalise

_WIKI = Path(__file__).parent / "data" / "wiki_mini"
PASSAGES_FILE = _WIKI / "passages.jsonl.gz"


class RealText:
    """Base of worlds of real text: nothing is known about their questions."""

    can_read = False

    def analyse(self, question: str) -> Analysis | None:
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        return None


class FileWorld(RealText):
    """A :class:`~ssp_env.types.World` made of files, all of them read and checked at once.

    They are JSON lines, plain or gzip. An answer has ``answer``, and may have ``id`` and
    ``aliases``; a question ``question`` and ``answers`` (the canonical one first), and may have
    ``id`` and ``group``; :func:`~ssp_env.search.base.read_corpus` says what a passage has.

    The corpus may also be an index directory that ``ssp index`` made, or one index of it. Its
    passages are mapped, not read, so a corpus may have any size, and its own index is what is
    searched by default."""

    def __init__(
        self,
        name: str,
        corpus_path: str | Path,
        answers_path: str | Path,
        questions_path: str | Path | None = None,
    ) -> None:
        """``name`` is for records. The answer set is D, which the proposer plays from; without
        ``questions_path``, :meth:`questions` raises."""
        given = [path for path in (corpus_path, answers_path, questions_path) if path is not None]
        paths = [Path(path).absolute() for path in given]  # for the message
        if missing := [str(path) for path in paths if not path.exists()]:
            raise DataError(" and ".join(missing), "no such file")

        self.name = name
        self.answers: Sequence[GroundTruth] = read_answers(answers_path)
        self._questions = () if questions_path is None else read_questions(questions_path)
        for truth, question in shared_answers(self.answers, self._questions):
            what = f"answer {truth.answer!r} is also an answer of evaluation question"
            fix = "leave it out of one of the two files"
            raise DataError(answers_path, f"{what} {question.id!r}; {fix}")

        self._index = Path(corpus_path) if Path(corpus_path).is_dir() else None
        if self._index is None:
            self.corpus: Passages = read_corpus(corpus_path)
        else:
            # Imported here: a corpus in a file needs no index.
            from ssp_env.search.index import KINDS
            from ssp_env.search.store import PASSAGES, PassageStore

            root = self._index.parent if self._index.name in KINDS else self._index
            self.corpus = PassageStore(root / PASSAGES)

    @cached_property
    def retriever(self) -> Retriever | None:
        """The index of a corpus that is an index directory: BM25 if it is there, else all."""
        if self._index is None:
            return None
        from ssp_env.search.index import open_index

        bm25 = self._index / "bm25"
        return open_index(bm25 if bm25.exists() else self._index)

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        if not self._questions:
            fix = f"world {self.name!r} needs a question file to be evaluated in"
            raise ConfigError("questions_path", None, fix)
        return sample_questions(self._questions, seed, per_group)


class WikiMini(RealText):
    """wiki-mini, the packaged :class:`~ssp_env.types.World` of real text: 27,197 passages of
    Wikipedia and 1,306 answers, read part by part when asked for.

    Questions are grouped by benchmark: ``2wiki``, ``bamboogle``, ``hotpotqa``, ``musique``, ``nq``,
    ``popqa``, ``triviaqa``. No wording of the answer set answers any of them.
    ``data/NOTICE-wiki_mini.md`` and ``data/wiki_mini/manifest.json`` say where every record comes
    from and under which licence. A pickle holds no passages: where it is loaded, the world is
    opened again, once per process."""

    name = "wiki-mini"

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Counts, digests, licences and sources of the packaged files."""
        return cast(dict[str, Any], json.loads((_WIKI / "manifest.json").read_text("utf-8")))

    @cached_property
    def corpus(self) -> Corpus:
        """The passages, at most 180 words each."""
        return Corpus(read_passages(PASSAGES_FILE), name=self.name)

    @cached_property
    def retriever(self) -> Retriever:
        """BM25 over the passages, from an index that is built once (seconds) and then mapped, in
        :func:`ssp_env.disk.cache_folder`."""
        # Imported here: reading questions needs no search.
        from ssp_env.search.index import build_index
        from ssp_env.search.store import FORMAT

        # Names the folder, so that an index of other passages is never taken for this one.
        digest = self.manifest["files"]["passages.jsonl.gz"]["sha256"]
        folder = made_once(
            cache_folder() / f"wiki-mini-{digest[:16]}-{FORMAT}",
            lambda made: build_index(PASSAGES_FILE, made, "bm25"),
        )
        return open_kept(folder, self.name)

    @cached_property
    def answers(self) -> Sequence[GroundTruth]:
        """The answer set D, from the training splits of HotpotQA, 2WikiMultiHopQA and MuSiQue."""
        return read_answers(_WIKI / "answers.jsonl")

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        return sample_questions(self._questions, seed, per_group)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, ()

    @cached_property
    def _questions(self) -> list[Question]:
        files = sorted((_WIKI / "questions").glob("*.jsonl"))
        return [question for path in files for question in read_questions(path, path.stem)]


@cache
def _opened_again() -> WikiMini:
    return WikiMini()


def open_kept(folder: Path, name: str) -> Retriever:
    """The BM25 index that a world keeps in the cache folder, over passages of the world's name."""
    from ssp_env.search.bm25 import BM25Retriever
    from ssp_env.search.index import open_index

    retriever = open_index(folder / "bm25")
    assert isinstance(retriever, BM25Retriever)
    retriever.corpus.name = name
    return retriever


# -- lines of files ------------------------------------------------------------------------------

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
    return tuple(GroundTruth(name, row.answer, tuple(row.aliases)) for name, row in rows)


def read_questions(path: str | Path, group: str = "all") -> tuple[Question, ...]:
    """Reads evaluation questions. A line without ``id`` gets ``q<line number>``, one without
    group ``group``."""
    rows = _read(path, _QuestionRow, "q")
    return tuple(Question(n, r.question, tuple(r.answers), r.group or group) for n, r in rows)


def _read(path: str | Path, kind: type[R], prefix: str) -> list[tuple[str, R]]:
    """Ids and rows of a JSONL file, no id twice."""
    found: dict[str, R] = {}
    for line, row in read_rows(path, kind):
        name = f"{prefix}{line}" if row.id is None else str(row.id)
        if name in found:
            raise DataError(path, f"id {name!r} occurs twice", line)
        found[name] = row
    if not found:
        raise DataError(path, "holds no line")
    return list(found.items())


def read_rows(path: str | Path, kind: type[M]) -> Iterator[tuple[int, M]]:
    """Lines of a JSONL file, numbered from 1, as models of this kind."""
    for line, fields in read_jsonl(path):
        try:
            yield line, kind.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            missing = first["type"] == "missing"
            has = f"the line has {', '.join(fields)}" if missing else f"not {first['input']!r:.100}"
            what = f"field {'.'.join(map(str, first['loc']))!r}: {first['msg']}; {has}"
            raise DataError(path, what, line) from None


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

    def key(wording: str) -> str:
        return normalise(wording).replace(" ", "")

    evaluated = {key(wording): question for question in questions for wording in question.answers}
    for truth in answers:
        asked = [evaluated[key(w)] for w in truth.wordings if key(w) in evaluated]
        if asked:
            yield truth, asked[0]
