"""Files of questions and of answers: whose fields are read, and what is refused by its line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted import begin

from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError, DataError
from ssp_env.game.rules import Rules
from ssp_env.types import GroundTruth, Question
from ssp_env.worlds.files import FileWorld
from ssp_env.worlds.questions import read_answers, read_questions, shared_questions

VERL = {
    "data_source": "nq",
    "prompt": [
        {"role": "system", "content": "You can search."},
        {"role": "user", "content": "Answer the question: in tags. Question: who wrote it?\n"},
    ],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Jane", "J."]}},
    "extra_info": {"index": 0, "split": "train"},
}
"""A row as Search-R1 makes it for verl."""
ANSWERED = Question("q1", "who wrote it?", ("Jane", "J."))


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"question": "who wrote it?", "answers": ["Jane", "J."]}, ANSWERED),
        ({"question": "who wrote it?", "answer": "Jane", "aliases": ["J."], "games": []}, ANSWERED),
        ({"question": "who wrote it?", "golden_answers": ["Jane", "J."]}, ANSWERED),
        (VERL, Question("q1", "who wrote it?", ("Jane", "J."), "nq")),
        ({"question": "who wrote it?", "answer": ["Jane", "J."]}, ANSWERED),
        (
            {"question": "who wrote it?", "answer": {"value": "Jane", "aliases": ["Jane", "J."]}},
            ANSWERED,
        ),
        ({"question": "who wrote it?", "answer": "Jane", "answer_aliases": ["J."]}, ANSWERED),
        (
            {"_id": "5a8b", "text": "who?", "metadata": {"answer": "Jane", "facts": ["x"]}},
            Question("5a8b", "who?", ("Jane",)),
        ),
        # Search-R1's own files have all of it, and count each data set from 0.
        (
            {**VERL, "id": "train_0", "question": "who?", "golden_answers": ["Jane"]},
            Question("nq/train_0", "who?", ("Jane",), "nq"),
        ),
        (
            {**VERL, "extra_info": {"question": "and who?"}, "data_source": None},
            Question("q1", "and who?", ("Jane", "J.")),
        ),
        (
            {"prompt": "who?", "reward_model": {"ground_truth": {"target": "Jane"}}},
            Question("q1", "who?", ("Jane",)),
        ),
        (
            {"question": "who?", "reward_model": {"ground_truth": "Jane"}, "group": "mine"},
            Question("q1", "who?", ("Jane",), "mine"),
        ),
    ],
)
def test_the_fields_of_a_line_say_which_form_it_has(
    row: dict[str, Any], found: Question, tmp_path: Path
) -> None:
    assert read_questions(write(tmp_path / "lines.jsonl", row)) == (found,)
    from pyarrow import Table
    from pyarrow.parquet import write_table

    # In a table, every row has the columns of all others.
    other = {"id": "other", "question": "what?", "golden_answers": ["this"]}
    table = tmp_path / "rows.parquet"
    nothing = dict.fromkeys({**row, **other})
    write_table(Table.from_pylist([{**nothing, **row}, {**nothing, **other}]), table)
    assert read_questions(table) == (found, Question("other", "what?", ("this",)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # DPR's qas have no line of names; NQ's are quoted as a table wants it.
        ("who wrote it?\t['Jane', \"J.\"]\nand \"this\"?\t\"[\"\"O'Hara\"\"]\"\n",
         [ANSWERED, Question("q2", 'and "this"?', ("O'Hara",))]),
        ("question\tanswers\nwho wrote it?\t[\"Jane\", \"J.\"]\n",
         [Question("q2", "who wrote it?", ("Jane", "J."))]),
        # HotpotQA, 2Wiki and DPR's training data are one array.
        ('[{"question": "who wrote it?",\n "answer": ["Jane", "J."]},\n'
         '{"_id": "x", "question": "what?", "answer": "y"}]',
         [ANSWERED, Question("x", "what?", ("y",))]),
    ],
)  # fmt: skip
def test_tables_without_names_and_arrays_are_read(
    text: str, found: list[Question], tmp_path: Path
) -> None:
    file = tmp_path / "nq-test.csv"
    file.write_text(text, encoding="utf-8")
    assert read_questions(file) == tuple(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("query-id\tcorpus-id\tscore\n1\t2\t1\n", "the line has query-id, corpus-id, score"),
        ("0\tThe Manhattan Project was.\n", "the line has id, text"),
        ("who?\t['Jane'\n", "field 'answers': .*not \"\\['Jane'\""),
        ('[{"question": "who?"}, 3]', "int in place of an object"),
        ("[null]", "NoneType in place of an object"),
        ('[{"question": "who?"}', "one JSON array of objects"),
    ],
)
def test_tables_and_arrays_without_answers_are_refused(
    text: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "qrels.tsv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        read_questions(file)


SEEN = "the line has query, reply"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query": "who?", "reply": "Jane"}, rf"{SEEN}; give question, and answers \(ours"),
        ({"query": "who?", "reply": "Jane"}, r"golden_answers \(FlashRAG\).*target \(verl"),
        ({"_id": "1", "text": "who?", "metadata": {}}, "no answer in it: the line has .*text, met"),
        ({"answers": ["Jane"]}, "no question in it: the line has answers"),
        ({"question": " ", "answers": ["Jane"]}, "field 'question'"),
        ({"question": "who?", "golden_answers": []}, "field 'golden_answers': .*; not "),
        ({"question": "who?", "golden_answers": "Jane"}, r"'golden_answers': .*say \[.Jane.\]"),
        ({**VERL, "reward_model": {"style": "rule"}}, "field 'reward_model.ground_truth'"),
        (
            {**VERL, "reward_model": {"ground_truth": {"goal": 3}}},
            "field 'reward_model.ground_truth.target': Field required",
        ),
        ({**VERL, "prompt": None}, "no question in it"),
        ({**VERL, "prompt": VERL["prompt"][1:] * 2}, "no question in it.*one message of the user"),
        ({"id": 1, "question": "what?", "answers": ["x"]}, "id '1' occurs twice"),
    ],
)
def test_what_is_not_known_is_refused_by_its_line(
    row: dict[str, Any], says: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "q.jsonl", {"id": 1, "question": "who?", "answers": ["Jane"]}, row)
    with pytest.raises(DataError, match=f"q.jsonl:2: .*{says}"):
        read_questions(file)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": 7, "answer": "Vienna", "aliases": ["Wien"]}, ("7", "Vienna", ("Wien",))),
        ({"answer": "Vienna"}, ("a1", "Vienna", ())),
        ({"golden_answers": ["Jane", "J."], "question": "who?"}, ("a1", "Jane", ("J.",))),
        (VERL, ("a1", "Jane", ("J.",))),
        ({"ground_truth": "Jane", "sys_question_example": "..."}, ("a1", "Jane", ())),
    ],
)
def test_answers_have_the_forms_of_questions(
    row: dict[str, Any], found: tuple[Any, ...], tmp_path: Path
) -> None:
    assert read_answers(write(tmp_path / "a.jsonl", row)) == ((GroundTruth(*found),), {})


def test_the_papers_answers_ask_for_a_number_of_searches(tmp_path: Path) -> None:
    rows = [{"ground_truth": name, "search_turns": n} for n, name in enumerate(("A", "B", "C"), 2)]
    corpus = write(tmp_path / "c.jsonl", {"_id": "1", "text": "A, B and C."})
    world = FileWorld("mine", corpus, write(tmp_path / "a.jsonl", *rows, {"answer": "D"}))
    assert world.asked_searches == {"a1": 2, "a2": 3, "a3": 4}
    config = {"max_searches": 4, "asked_searches": [1, 1]}
    played = begin(rules(world, config), 12)
    wanted = world.asked_searches
    assert {g.truth.id: g.initial_state.asked_searches for g in played.games} == {**wanted, "a4": 1}
    with pytest.raises(ConfigError, match="ask for up to 4 searches; allow as many"):
        rules(world, {"max_searches": 3, "asked_searches": [1, 1]})


def rules(world: FileWorld, game: dict[str, Any]) -> Rules:
    return set_up({"world": world, "tokenizer": "bytes", "game": game}).rules


def test_parquet_is_refused_by_name_where_nothing_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "rows.parquet"
    table.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_questions(table)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="pip install pyarrow, or save it as JSON lines"):
        read_questions(table)


def test_questions_are_shared_whatever_their_spelling() -> None:
    ours = [Question("a", "Who wrote Emma?", ("x",)), Question("b", "Who else?", ("y",))]
    theirs = [Question("c", "who  wrote the Emma", ("z",))]
    assert [question.id for question in shared_questions(ours, theirs)] == ["a"]
