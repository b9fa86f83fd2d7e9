"""Worlds from a user's files: formats, errors with file and line, samples, leaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ssp_env.errors import ConfigError, DataError
from ssp_env.types import GroundTruth, Question, World
from ssp_env.worlds.files import (
    FileWorld,
    read_answers,
    read_questions,
    sample_questions,
)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(
        tmp_path / "corpus.jsonl", {"id": "1", "contents": '"Vienna"\nCapital of Austria.'}
    )


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    return write(
        tmp_path / "answers.jsonl",
        {"id": 7, "answer": "Vienna", "aliases": ["Wien", "Beč"]},
        {"answer": "Danube"},
    )


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write(
        tmp_path / "questions.jsonl",
        {"question": "Which river?", "answers": ["Inn", "the Inn"]},
        {
            "id": "x",
            "question": "Which hill?",
            "answers": ["Kahlenberg"],
            "group": "hills",
            "extra": 1,
        },
    )


def test_a_whole_world(corpus: Path, answers: Path, questions: Path) -> None:
    world: World = FileWorld("mine", corpus, answers, questions)
    assert world.name == "mine"
    assert world.corpus[0].title == "Vienna"
    assert list(world.answers) == [
        GroundTruth("7", "Vienna", ("Wien", "Beč")),
        GroundTruth("a2", "Danube"),
    ]
    assert world.questions(seed=0) == [
        Question("q1", "Which river?", ("Inn", "the Inn"), "all"),
        Question("x", "Which hill?", ("Kahlenberg",), "hills"),
    ]
    assert world.analyse("Which river?") is None
    assert world.read("Which river?", list(world.corpus)) is None


def test_a_world_without_questions_says_so_when_asked(corpus: Path, answers: Path) -> None:
    with pytest.raises(ConfigError, match="questions_path"):
        FileWorld("mine", corpus, answers).questions(seed=0)


def test_missing_files_are_named_all_at_once(tmp_path: Path, answers: Path) -> None:
    with pytest.raises(DataError, match=r"no_corpus and .*no_questions: no such file"):
        FileWorld("mine", tmp_path / "no_corpus", answers, tmp_path / "no_questions")


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match="holds no answer"):
        read_answers(path)
    with pytest.raises(DataError, match="holds no question"):
        read_questions(path)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"aliases": []}, "field 'answer'"),
        ({"answer": 3}, "field 'answer'"),
        ({"answer": " \t"}, "field 'answer'"),
        ({"answer": "x", "aliases": "y"}, "field 'aliases'"),
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
