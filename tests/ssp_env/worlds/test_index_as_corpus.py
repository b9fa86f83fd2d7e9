"""An index directory as the corpus of a world from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.parts import fingerprint
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.index import build_index
from ssp_env.search.store import PassageStore
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "mini.jsonl"
    rows = [{"id": d.id, "title": d.title, "text": d.text} for d in MiniWorld().corpus]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def index(corpus: Path) -> Path:
    directory = corpus.parent / "index"
    build_index(corpus, directory, "bm25")
    return directory


@pytest.fixture(scope="module")
def answers(corpus: Path) -> Path:
    path = corpus.parent / "answers.jsonl"
    titles = [document.title for document in MiniWorld().corpus][:20]
    path.write_text("".join(f"{json.dumps({'answer': title})}\n" for title in titles))
    return path


def test_a_corpus_may_be_an_index_directory(index: Path, answers: Path, corpus: Path) -> None:
    mapped = open_world("files", name="m", corpus_path=index, answers_path=answers)
    read = open_world("files", name="m", corpus_path=corpus, answers_path=answers)
    assert isinstance(mapped.corpus, PassageStore)
    assert list(mapped.corpus) == list(read.corpus)

    rules = [
        set_up({"world": world, "game": MINI_GAME, "tokenizer": "bytes"}).rules
        for world in (mapped, read)
    ]
    query = [read.corpus[3].title]
    assert rules[0].retriever.search(query, 3) == rules[1].retriever.search(query, 3)
    first, second = (fingerprint(each) for each in rules)
    assert first["corpus"]["digest"] == second["corpus"]["digest"]


def test_a_directory_without_an_index_asks_for_one(
    index: Path, answers: Path, tmp_path: Path
) -> None:
    (tmp_path / "passages").symlink_to(index / "passages")
    world = open_world("files", name="m", corpus_path=tmp_path, answers_path=answers)
    with pytest.raises(ConfigError, match="ssp index") as raised:
        set_up({"world": world, "tokenizer": "bytes"})
    assert raised.value.field == "kind"
    named = set_up({"world": world, "tokenizer": "bytes", "search": str(index)}).rules
    assert isinstance(named.retriever, BM25Retriever)
