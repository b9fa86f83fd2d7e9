"""Worlds from a user's files: formats, errors with file and line, samples, leaks, indexes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError, DataError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.search.index import build_index
from ssp_env.search.store import PassageStore
from ssp_env.types import GroundTruth, Question, World
from ssp_env.worlds.files import FileWorld, read_answers, sample_questions
from ssp_env.worlds.mini import SmallWorld


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    row = {"id": "1", "contents": '"Vienna"\nCapital of Austria.'}
    return write(tmp_path / "corpus.jsonl", row)


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    vienna = {"id": 7, "answer": "Vienna", "aliases": ["Wien", "Beč"]}
    return write(tmp_path / "answers.jsonl", vienna, {"answer": "Danube"})


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    hill = {"id": "x", "question": "Which hill?", "answers": ["Kahlenberg"], "group": "hills"}
    river = {"question": "Which river?", "answers": ["Inn", "the Inn"]}
    return write(tmp_path / "questions.jsonl", river, {**hill, "extra": 1})


def test_a_whole_world(corpus: Path, answers: Path, questions: Path) -> None:
    world: World = FileWorld("mine", corpus, answers, questions)
    assert (world.name, world.corpus[0].title) == ("mine", "Vienna")
    vienna, danube = GroundTruth("7", "Vienna", ("Wien", "Beč")), GroundTruth("a2", "Danube")
    assert list(world.answers) == [vienna, danube]
    assert world.questions(seed=0) == [
        Question("q1", "Which river?", ("Inn", "the Inn"), "all"),
        Question("x", "Which hill?", ("Kahlenberg",), "hills"),
    ]
    assert world.analyse("Which river?") is None
    assert world.read("Which river?", list(world.corpus)) is None


def test_files_that_are_missing_or_empty(tmp_path: Path, corpus: Path, answers: Path) -> None:
    with pytest.raises(ConfigError, match="questions_path"):
        FileWorld("mine", corpus, answers).questions(seed=0)
    with pytest.raises(DataError, match=r"no_corpus and .*no_questions: no such file"):
        FileWorld("mine", tmp_path / "no_corpus", answers, tmp_path / "no_questions")
    answers.write_text("\n \n")
    with pytest.raises(DataError, match="holds no line"):
        read_answers(answers)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"aliases": []}, "field 'answer'"),
        ({"answer": " \t"}, "field 'answer'"),
        ({"answer": "x", "aliases": ["y", ""]}, "field 'aliases.1'"),
        ({"answer": "x", "id": "a1"}, "id 'a1' occurs twice"),
    ],
)
def test_bad_answer_lines(tmp_path: Path, row: Any, what: str) -> None:
    path = write(tmp_path / "a.jsonl", {"answer": "fine"}, row)
    with pytest.raises(DataError) as caught:
        read_answers(path)
    assert str(caught.value).startswith(f"{path}:2: {what}")


@pytest.mark.parametrize("leak", ["the INN!", "Kahlen-berg"])
def test_an_evaluation_answer_may_not_be_played_from(
    tmp_path: Path, corpus: Path, questions: Path, leak: str
) -> None:
    for row in ({"answer": leak}, {"answer": "harmless", "aliases": ["also harmless", leak]}):
        answers = write(tmp_path / "a.jsonl", {"answer": "Vienna"}, row)
        with pytest.raises(DataError, match="also an answer of evaluation question"):
            FileWorld("mine", corpus, answers, questions)


QUESTIONS = [Question(f"{group}{i}", "?", ("x",), group) for i in range(40) for group in ("a", "b")]


def test_samples_are_seeded_nested_and_of_the_size_asked_for() -> None:
    small, large = (sample_questions(QUESTIONS, 3, n) for n in (5, 9))
    assert [q.group for q in small] == ["a"] * 5 + ["b"] * 5
    assert small == sample_questions(QUESTIONS, 3, 5)
    assert set(small) < set(large)
    assert small != sample_questions(QUESTIONS, 4, 5)
    assert {q.id[1:] for q in small[:5]} != {q.id[1:] for q in small[5:]}


def rules_of(world: World) -> Rules:
    return set_up({"world": world, "game": MINI_GAME, "tokenizer": "bytes"}).rules


def test_a_corpus_may_be_an_index_directory(tmp_path: Path) -> None:
    pages = [{"id": d.id, "title": d.title, "text": d.text} for d in SmallWorld().corpus]
    corpus, index = write(tmp_path / "pages.jsonl", *pages), tmp_path / "index"
    answers = write(tmp_path / "answers.jsonl", *({"answer": page["title"]} for page in pages))
    build_index(corpus, index, "bm25")
    mapped, read = (FileWorld("m", path, answers) for path in (index, corpus))
    assert isinstance(mapped.corpus, PassageStore)
    assert list(mapped.corpus) == list(read.corpus)

    first, second = rules_of(mapped), rules_of(read)
    query = [read.corpus[3].title]
    assert first.retriever.search(query, 3) == second.retriever.search(query, 3)
    assert fingerprint(first)["corpus"]["digest"] == fingerprint(second)["corpus"]["digest"]

    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "passages").symlink_to(index / "passages")
    with pytest.raises(ConfigError, match="ssp index"):
        rules_of(FileWorld("m", bare, answers))
