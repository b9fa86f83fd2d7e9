"""Worlds of files: a corpus, an answer set and, optionally, evaluation questions; and wiki-mini."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from ssp_env.disk import cache_folder, made_once
from ssp_env.errors import ConfigError, DataError
from ssp_env.search.base import Corpus, Retriever, read_corpus, read_passages
from ssp_env.types import Analysis, Document, GroundTruth, Passages, Question
from ssp_env.worlds.questions import read_answers, read_questions, sample_questions, shared_answers

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

    They are JSON lines, plain or gzip, Parquet, or tables with tabs, in the forms of the field:
    :func:`~ssp_env.worlds.questions.read_questions` says what a question has,
    :func:`~ssp_env.worlds.questions.read_answers` what an answer has (a file of questions is one of
    answers too), and :func:`~ssp_env.search.base.read_passages` what a passage has.

    The corpus may also be an index directory that ``ssp index`` made, or one index of it. Its
    passages are mapped, not read, so a corpus may have any size, and its own index is what is
    searched by default."""

    def __init__(
        self,
        name: str,
        corpus_path: str | Path,
        answers_path: str | Path | None = None,
        questions_path: str | Path | None = None,
    ) -> None:
        """``name`` is for records. The answer set is D, which the proposer plays from: without it,
        questions can be solved, but none proposed. Without ``questions_path``, :meth:`questions`
        raises."""
        given = {
            "corpus_path": corpus_path,
            "answers_path": answers_path,
            "questions_path": questions_path,
        }
        for field, value in given.items():
            if value is not None and not str(value):
                raise ConfigError(f"world_options.{field}", value, "name a file, or leave it out")
        # Absolute for the message.
        paths = [Path(path).absolute() for path in given.values() if path is not None]
        if missing := [str(path) for path in paths if not path.exists()]:
            raise DataError(" and ".join(missing), "no such file")

        self.name = name
        known = ((), {}) if answers_path is None else read_answers(answers_path)
        self.answers: Sequence[GroundTruth] = known[0]
        self.asked_searches: Mapping[str, int] = known[1]
        """Number of searches that a proposer is asked for, by the id of its answer."""
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
        from ssp_env.search.words import VERSION

        # Names the folder, so that an index of other passages is never taken for this one.
        digest = self.manifest["files"]["passages.jsonl.gz"]["sha256"]
        folder = made_once(
            cache_folder() / f"wiki-mini-{digest[:16]}-{FORMAT}.{VERSION}",
            lambda made: build_index(PASSAGES_FILE, made, "bm25"),
        )
        return open_kept(folder, self.name)

    @cached_property
    def answers(self) -> Sequence[GroundTruth]:
        """The answer set D, from the training splits of HotpotQA, 2WikiMultiHopQA and MuSiQue."""
        return read_answers(_WIKI / "answers.jsonl")[0]

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
