"""wiki-mini: real Wikipedia passages, real answers and seven open-domain QA benchmarks, packaged.

27,197 passages and 1,306 answers. ``data/NOTICE-wiki_mini.md`` and ``data/wiki_mini/manifest.json``
say where every record comes from and under which licence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssp_env.errors import DataError
from ssp_env.search.corpus import Corpus, read_corpus
from ssp_env.types import Analysis, Document, GroundTruth, Question
from ssp_env.worlds.files import read_answers, read_questions, sample_questions

if TYPE_CHECKING:
    from ssp_env.search.bm25 import BM25Retriever


class WikiMini:
    """The packaged :class:`~ssp_env.types.World` of real text, read part by part when asked for.

    Questions are grouped by benchmark: ``2wiki``, ``bamboogle``, ``hotpotqa``, ``musique``, ``nq``,
    ``popqa``, ``triviaqa``. No wording of the answer set answers any of them. A pickle holds no
    passages: where it is loaded, the world is opened again, once per process."""

    name = "wiki-mini"
    can_read = False

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Counts, digests, licences and sources of the packaged files."""
        with packaged("manifest.json") as path:
            manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return manifest

    @cached_property
    def corpus(self) -> Corpus:
        """The passages, at most 180 words each."""
        with packaged("passages.jsonl.gz") as path:
            return Corpus(read_corpus(path), name=self.name)

    @cached_property
    def retriever(self) -> BM25Retriever:
        """BM25 over the passages, from an index that is built once (seconds) and then mapped.

        It is kept in ``~/.cache/ssp-env``, or in the folder that ``SSP_CACHE`` names.

        Raises:
            DataError: no index can be written there.
        """
        # Imported here: reading questions needs no search.
        from ssp_env.search.bm25 import BM25Retriever
        from ssp_env.search.index import build_index, open_index
        from ssp_env.search.store import FORMAT

        # Names the folder, so that an index of other passages is never taken for this one.
        digest = self.manifest["files"]["passages.jsonl.gz"]["sha256"]
        kept = Path(os.environ.get("SSP_CACHE") or "~/.cache/ssp-env").expanduser()
        folder = kept / f"wiki-mini-{digest[:16]}-{FORMAT}"
        if not (folder / "bm25").exists():
            try:
                with packaged("passages.jsonl.gz") as path:
                    build_index(path, folder, "bm25")
            except DataError as error:
                fix = "let the environment variable SSP_CACHE name a folder that can be written"
                raise DataError(kept, f"holds no index of wiki-mini ({error}); {fix}") from error
        retriever = open_index(folder, "bm25")
        assert isinstance(retriever, BM25Retriever)
        retriever.corpus.name = self.name
        return retriever

    @cached_property
    def answers(self) -> Sequence[GroundTruth]:
        """The answer set D, from the training splits of HotpotQA, 2WikiMultiHopQA and MuSiQue."""
        with packaged("answers.jsonl") as path:
            return read_answers(path)

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """Evaluation questions by benchmark: see :func:`~ssp_env.worlds.files.sample_questions`."""
        return sample_questions(self._questions, seed, per_group)

    def analyse(self, question: str) -> Analysis | None:
        """``None``: nothing is known about free text."""
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """``None``: this world has no reader."""
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, ()

    @cached_property
    def _questions(self) -> tuple[Question, ...]:
        questions: list[Question] = []
        for benchmark in sorted(self.manifest["questions"]):
            with packaged(f"questions/{benchmark}.jsonl") as path:
                questions += read_questions(path, group=benchmark)
        return tuple(questions)


@cache
def _opened_again() -> WikiMini:
    return WikiMini()


def packaged(name: str) -> AbstractContextManager[Path]:
    """A packaged file of wiki-mini as a path, for as long as the context is open.

    Args:
        name: relative to the data folder, such as ``"passages.jsonl.gz"``.
    """
    return as_file(files("ssp_env.worlds").joinpath("data", "wiki_mini", *name.split("/")))
