"""wiki-mini: the packaged files are the ones of the manifest, whole, disjoint, and searchable."""

from __future__ import annotations

import gzip
import hashlib
import re
import string
from pathlib import Path

import pytest

from ssp_env.errors import DataError
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.testing import WorldTests
from ssp_env.types import World
from ssp_env.worlds.files import _WIKI, WikiMini


@pytest.fixture(scope="module")
def world() -> WikiMini:
    return WikiMini()


def squad(text: str) -> str:
    """SQuAD's normal form, written out here so that the package's own is not taken on trust."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def test_files_are_those_of_the_manifest(world: WikiMini) -> None:
    for name, entry in world.manifest["files"].items():
        raw = (_WIKI / name).read_bytes()
        content = gzip.decompress(raw) if name.endswith(".gz") else raw
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], name
        assert content.count(b"\n") == entry["records"], name


def test_search_finds_answers(world: WikiMini) -> None:
    """The collectors measured 79% for NQ in the top 3, and 93% for an answer as its own query."""
    retriever = BM25Retriever(world.corpus)
    nq = [q for q in world.questions(0, per_group=100) if q.group == "nq"]
    assert found(retriever, [(q.text, q.answers) for q in nq]) > 0.7
    assert found(retriever, [(t.answer, t.wordings) for t in world.answers[::13]]) > 0.88


def found(retriever: BM25Retriever, asked: list[tuple[str, tuple[str, ...]]]) -> float:
    rankings = retriever.search([query for query, _ in asked], 3)
    hits = 0
    for (_, wordings), ranking in zip(asked, rankings, strict=True):
        text = squad(" ".join(f"{d.title} {d.text}" for d in ranking))
        hits += any(squad(w) in text for w in wordings)
    return hits / len(asked)


class TestWikiMini(WorldTests):
    def make_world(self) -> World:
        return WikiMini()


def test_its_index_is_built_once_and_kept(
    world: WikiMini, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSP_CACHE", str(tmp_path))
    query = [world.answers[0].answer]
    first = WikiMini().retriever.search(query, 5)
    (folder,) = tmp_path.iterdir()
    built = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    assert WikiMini().retriever.search(query, 5) == first
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == built

    monkeypatch.setenv("SSP_CACHE", "/proc/nowhere")
    with pytest.raises(DataError, match="SSP_CACHE"):
        _ = WikiMini().retriever
