"""The mini world (disjoint graphs, reachable answers, a grammar that reads what it writes, an
honest reader), worlds from a user's files, and wiki-mini."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError, DataError, MissingExtra
from ssp_env.game.config import MINI_GAME
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.search.index import build_index
from ssp_env.search.store import PassageStore
from ssp_env.testing import WorldTests
from ssp_env.types import Document, GroundTruth, Question, World
from ssp_env.wording import normal
from ssp_env.worlds import TEXT, open_world
from ssp_env.worlds.files import FileWorld, WikiMini
from ssp_env.worlds.mini import Graph, MiniWorld, SmallWorld
from ssp_env.worlds.mini_language import (
    NATION,
    RELATIONS,
    Hop,
    Relation,
    names,
    parse_question,
    vocabulary,
    write_question,
)

HOPS = st.sampled_from([*map(Hop, (*RELATIONS, NATION)), Hop(NATION, inverted=True)])
NAMES = st.sampled_from(names())


def facts_of(*graphs: Graph) -> list[tuple[str, Relation, str]]:
    return [
        (entity, relation, value)
        for graph in graphs
        for entity, facts in graph.facts.items()
        for relation, value in facts.items()
    ]


def brute_force(world: MiniWorld, start: str, hops: Iterable[Hop]) -> set[str]:
    """All entities that a chain of hops leads to, looked up fact by fact."""
    reached = {start}
    for hop in hops:
        ends = [
            (value, entity) if hop.inverted else (entity, value)
            for entity, relation, value in facts_of(world.train_graph, world.eval_graph)
            if relation == hop.relation
        ]
        reached = {after for before, after in ends if before in reached}
    return reached


def test_worlds_stay_as_they_are() -> None:
    """The tiny policy that ships was trained in these very worlds. Another digest makes it
    worthless."""
    sha = hashlib.sha256()
    for world in (MiniWorld(), MiniWorld(1, one_to_many=False), MiniWorld(seed=7, entities=50)):
        sha.update(world.corpus.digest().encode())
        sha.update(repr([(truth.id, truth.answer) for truth in world.answers]).encode())
        sha.update(repr([question.text for question in world.questions(0, 10)]).encode())
        assert world.questions(0, 0) == []
    sha.update(" ".join(vocabulary()).encode())
    assert sha.hexdigest() == "73ee2b62721f5e80120e90bf563cd68bc90da0f441083015746e41fd177cc034"


@given(start=NAMES, hops=st.lists(HOPS, min_size=1, max_size=6))
def test_a_question_reads_as_it_was_written(start: str, hops: list[Hop]) -> None:
    text = write_question(start, hops)
    assert parse_question(text) == (start, tuple(hops))
    assert set(text.split()) <= set(vocabulary())


@given(
    start=NAMES,
    hops=st.lists(HOPS, min_size=1, max_size=6),
    place=st.integers(0, 19),
    instead=st.sampled_from([[], ["zebra"], ["the", "the"]]),
)
def test_an_ill_formed_question_is_none(
    mini: MiniWorld, start: str, hops: list[Hop], place: int, instead: list[str]
) -> None:
    words = write_question(start, hops).split()
    words[place % len(words)] = " ".join(instead)
    text = " ".join(words)
    assert parse_question(text) is mini.analyse(text) is mini.read(text, []) is None


# -- what the world knows ----------------------------------------------------------------------


@given(one_to_many=st.booleans(), data=st.data())
def test_analysis_agrees_with_brute_force(one_to_many: bool, data: st.DataObject) -> None:
    world = MiniWorld(seed=3, entities=60, one_to_many=one_to_many)
    start = data.draw(
        st.sampled_from([*world.train_graph.entities, *world.eval_graph.entities, "Nobody"])
    )
    hops = data.draw(st.lists(HOPS, min_size=1, max_size=3))
    analysis = world.analyse(write_question(start, hops))
    if not one_to_many and any(hop.relation is NATION for hop in hops):
        assert analysis is None, "this world knows nothing of nations"
        return
    assert analysis is not None
    assert analysis.answers == brute_force(world, start, hops)

    stages = [brute_force(world, start, hops[:done]) for done in range(len(hops) + 1)]
    comes_back = all(stages) and any(stage in stages[:i] for i, stage in enumerate(stages))
    assert (analysis.hops < len(hops)) is comes_back


def test_reading_sees_only_the_documents(mini: MiniWorld) -> None:
    entity, relation, value = facts_of(mini.train_graph)[0]
    question = write_question(entity, [Hop(relation)])
    (page,) = (page for page in mini.corpus if page.id == entity)
    lie = Document("lie", "", f"{entity} {relation.noun} Nobody .")
    other_way = Document("back", "", f"Nobody {relation.noun} of {entity} .")
    assert mini.read(question, []) == frozenset()
    assert mini.read(question, [page]) == {value}
    assert mini.read(question, [lie]) == mini.read(question, [other_way]) == {"Nobody"}
    assert mini.read(question, [lie, page]) == {"Nobody", value}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_world_of_files_in_which_no_evaluation_answer_may_be_played_from(tmp_path: Path) -> None:
    page = {"id": "1", "contents": '"Vienna"\nCapital of Austria.'}
    corpus = write(tmp_path / "corpus.jsonl", page)
    vienna = {"id": 7, "answer": "Vienna", "aliases": ["Wien", "Beč"]}
    answers = write(tmp_path / "answers.jsonl", vienna, {"answer": "Danube"})
    hill = {"id": "x", "question": "Which hill?", "answers": ["Kahlenberg"], "group": "hills"}
    river = {"question": "Which river?", "answers": ["Inn", "the Inn"], "extra": 1}
    questions = write(tmp_path / "questions.jsonl", river, hill)

    world: World = FileWorld("mine", corpus, answers, questions)
    assert (world.name, world.corpus[0].title) == ("mine", "Vienna")
    truths = [GroundTruth("7", "Vienna", ("Wien", "Beč")), GroundTruth("a2", "Danube")]
    assert list(world.answers) == truths
    assert world.questions(seed=0) == [
        Question("q1", "Which river?", ("Inn", "the Inn"), "all"),
        Question("x", "Which hill?", ("Kahlenberg",), "hills"),
    ]
    for row in ({"answer": "the INN!"}, {"answer": "harmless", "aliases": ["Kahlen-berg"]}):
        shared = write(tmp_path / "a.jsonl", vienna, row)
        with pytest.raises(DataError, match="also an answer of evaluation question"):
            FileWorld("mine", corpus, shared, questions)
    with pytest.raises(DataError, match=rf"^{Path.cwd()}/nowhere: no such file"):
        FileWorld("mine", "nowhere", answers)


def test_an_empty_path_is_refused_by_its_option(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "1", "title": "Graz", "text": "On the Mur."}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"answers_path = ''.*leave it out"):
        open_world("files", name="rivers", corpus_path=corpus, answers_path="")


def rules_of(world: World) -> Rules:
    return set_up({"world": world, "game": MINI_GAME, "tokenizer": "bytes"}).rules


def test_a_corpus_may_be_an_index_directory(tmp_path: Path) -> None:
    pages = [{"id": d.id, "title": d.title, "text": d.text} for d in SmallWorld().corpus]
    corpus, index = write(tmp_path / "pages.jsonl", *pages), tmp_path / "index"
    answers = write(tmp_path / "answers.jsonl", *({"answer": page["title"]} for page in pages))
    build_index(corpus, index, "bm25")
    mapped, named, read = (
        FileWorld("m", path, answers) for path in (index, index / "bm25", corpus)
    )
    assert isinstance(mapped.corpus, PassageStore)
    assert list(mapped.corpus) == list(named.corpus) == list(read.corpus)

    first, second = rules_of(mapped), rules_of(read)
    query = [read.corpus[3].title]
    assert first.retriever.search(query, 3) == second.retriever.search(query, 3)
    assert rules_of(named).retriever.search(query, 3) == second.retriever.search(query, 3)
    assert fingerprint(first)["corpus"]["digest"] == fingerprint(second)["corpus"]["digest"]

    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "passages").symlink_to(index / "passages")
    with pytest.raises(ConfigError, match="ssp index"):
        rules_of(FileWorld("m", bare, answers))


@pytest.mark.parametrize("package", TEXT)
def test_a_text_world_names_the_extra_that_it_needs(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.worlds.find_spec", lambda name: name != package or None)
    with pytest.raises(MissingExtra, match=rf"world=wiki-mini \({package} .*ssp-env\[text\]"):
        open_world("wiki-mini")
    assert open_world("mini").name


def test_text_beyond_ascii_names_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anyascii", None)
    normal._transliteration.cache_clear()
    with pytest.raises(MissingExtra, match=r"ssp-env\[text\]"):
        normal.skeleton("Dvořák Жук")
    monkeypatch.undo()
    assert normal.skeleton("Dvořák") == "Dvorak"


class TestWikiMini(WorldTests):
    def make_world(self) -> World:
        return WikiMini()


def test_its_index_is_built_once_and_kept(wiki: WikiMini, monkeypatch: pytest.MonkeyPatch) -> None:
    def built() -> dict[Path, int]:
        (folder,) = Path(os.environ["SSP_CACHE"]).iterdir()
        return {file: file.stat().st_mtime_ns for file in folder.rglob("*")}

    query = [wiki.answers[0].answer]
    first, kept = wiki.retriever.search(query, 5), built()
    assert WikiMini().retriever.search(query, 5) == first
    assert built() == kept

    monkeypatch.setenv("SSP_CACHE", "/proc/nowhere")
    with pytest.raises(DataError, match="SSP_CACHE"):
        _ = WikiMini().retriever
