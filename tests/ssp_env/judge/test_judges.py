"""Judges and verifiers that need no model: by words, by the world, and by rules."""

from __future__ import annotations

import csv
import gzip
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import WRITTEN

from ssp_env import judge as judge_package
from ssp_env.game.rules import own_judge
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.judge.judges import Pair, WorldVerifier, measure
from ssp_env.judge.lenient import LenientJudge, verdict
from ssp_env.judge.tables import rules
from ssp_env.types import GroundTruth, World
from ssp_env.wording.normal import normalise
from ssp_env.worlds import open_world

TRUTH = GroundTruth("g", "New York City", ("NYC", "The Big Apple"))


@pytest.mark.parametrize(
    "read", [{"New York City"}, {"Geneva"}, {"Geneva", "New York City"}, set(), None]
)
def test_world_verifier_accepts_one_answer_that_is_the_truth(read: set[str] | None) -> None:
    world: Any = SimpleNamespace(name="w", can_read=True, read=lambda question, documents: read)
    (result,) = WorldVerifier(world).verify([VerifyTask("Which city?", TRUTH, ())])
    assert isinstance(result, Verdict)
    assert result.correct is (read == {"New York City"})


def test_generated_names_have_one_spelling_and_real_text_has_many(cities: World) -> None:
    judge = own_judge(open_world("mini"))
    truth = GroundTruth("g", "Heganes")
    right = [judge.judge([JudgeTask("?", said, truth)])[0] for said in ("heganes .", "Hegan")]
    assert right == [Verdict(True), Verdict(False)]
    assert isinstance(own_judge(cities), LenientJudge)


PAIRS = Path(__file__).parents[3] / "benchmarks" / "data" / "judge_pairs.jsonl.gz"


@cache
def pairs() -> list[Pair]:
    """Labelled answers to questions of seven benchmarks."""
    rows = map(json.loads, gzip.decompress(PAIRS.read_bytes()).decode().splitlines())
    return [
        Pair(**{f: row[f] for f in Pair.model_fields}) for row in rows if row["set"] == "held_out"
    ]


def says(gold: str, given: str, question: str = "") -> bool:
    return verdict(question, given, (gold,)).correct


def test_the_rules_agree_with_people() -> None:
    result = measure(LenientJudge(), pairs())
    assert len(pairs()) == 336
    assert (result.precision or 0) >= 0.98
    assert (result.recall or 0) >= 0.9


KINDS = list(
    csv.DictReader(
        (Path(__file__).parent / "kinds.tsv").read_text("utf-8").splitlines(),
        delimiter="\t",
        quoting=csv.QUOTE_NONE,
    )
)


@pytest.mark.parametrize("kind", dict.fromkeys(row["kind"] for row in KINDS))
def test_the_rules_know_what_they_compare(kind: str) -> None:
    """Units, fractions, powers, first names, scripts, ...: each verdict and its reason."""
    rows = [row for row in KINDS if row["kind"] == kind]
    said = [verdict(row["question"], row["given"], (row["answer"],)) for row in rows]
    found = [
        {**row, "right": "right" if each.correct else "wrong", "reason": each.detail}
        for row, each in zip(rows, said, strict=True)
    ]
    assert found == rows


def test_each_rule_that_rewrites_has_an_example_that_it_rewrites() -> None:
    path = Path(judge_package.__path__[0]) / "data" / "rewrites.tsv"
    lines = path.read_text("utf-8").splitlines()
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        alone = [rule for rule in rules(row["stage"]) if rule[1].pattern == row["found"]]
        ((signs, found, becomes),) = alone
        assert any(sign in row["example"].lower() for sign in signs), row
        assert found.sub(becomes, row["example"]) == row["becomes"].replace("_", " "), row


def test_letters_that_are_only_compared_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    judge, truth = LenientJudge(), GroundTruth("g", "Москва")
    tasks = [JudgeTask("?", "Moskva", truth), JudgeTask("?", "Paris", TRUTH)]
    for _ in range(2):
        results = judge.judge(tasks)
    assert "1 of 2 answers" in caplog.text
    assert caplog.text.count("judge=openai") == 1
    assert isinstance(results[0], Verdict)
    assert results[0].detail == "other words in Cyrillic letters: the judge openai reads them"


SCRAPS = ["(?)", "()", " (", ")", "[", '"', "'", "...", "-", "–", "/", "½", "²", "٣", "VII", "1/2"]
SCRAPS += ["$", "%", "°C", "0", "9" * 400, "million", "BC", "May", "Jan.", "Jr.", "of", ",", "\x00"]
SCRAPS += ["点", "万", "百", "三", "1.2.3", "分之", "年", "月", "^", "'", "half", "and", "point"]


@settings(max_examples=100)
@given(st.data())
def test_it_raises_on_no_mutated_answer(data: st.DataObject) -> None:
    pair = data.draw(st.sampled_from(pairs()))
    text = data.draw(st.sampled_from([pair.prediction, *pair.answers, *WRITTEN]))
    for scrap in data.draw(st.lists(st.sampled_from(SCRAPS) | st.text(max_size=3), max_size=4)):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + scrap + text[at:]
    verdict(pair.question, text, tuple(pair.answers))
    assert says(text, text, pair.question) is (normalise(text) != "")
    verdict(pair.question, pair.prediction, (text,))


SEVERAL = [
    "{} or {}", "{}, also known as {}", "{} ({})", "{} - {}", "{}: {}", "{}; {}", "{} / {}",
    "{}\n{}", "{}, {}", "{} and {}", "{}. {}", "The answer is {}. The answer is {}.",
    "{} is followed by {}", "{} by {}", "{} is {}", "{} (formerly {})", '{} "{}"', "{} {}",
    "It is {}. It may be {}.", "{} called {}", "{}, who is {}",
]  # fmt: skip
GUESSES = [
    ("Who composed it?", "Wolfgang Amadeus Mozart", "Joseph Haydn"),
    ("What is the capital of France?", "Paris", "Lyon"),
    ("Where was she born?", "Ohio", "Texas"),
    ("Where was she born?", "Portland, Oregon", "Salem"),
    ("When was it?", "1985", "1986"),
    ("How many are there?", "42", "43"),
    ("Which film came out earlier, Moner Manush or Dear Child?", "Moner Manush", "Dear Child"),
    ("Between Moner Manush and Dear Child, which is older?", "Moner Manush", "Dear Child"),
    ("which of paris and lyon is larger?", "Paris", "Lyon"),
    ("Are both in one country?", "no", "yes"),
    ("Who was the president?", "John F. Kennedy", "Robert F. Kennedy"),
]


@pytest.mark.parametrize("several", SEVERAL)
def test_several_guesses_are_wrong(several: str) -> None:
    for question, gold, other in GUESSES:
        for text in (several.format(gold, other), several.format(other, gold)):
            assert not says(gold, text, question), text
            assert not says(gold, text.lower(), question), text.lower()


@pytest.mark.parametrize(
    ("gold", "given", "question", "right"),
    [
        # The paper's showcase games.
        ("Roger (alien)", "Roger", "Which grey alien crashed in Roswell?", True),
        ("George Smith", "George P. Smith", "Who bought a store in Duhamel?", True),
        # Names and places.
        ("George W. Bush", "George H. W. Bush", "Who was it?", False),
        ("Edward VII", "Edward the Seventh", "Who was it?", True),
        ("Bill Clinton", "William Jefferson Clinton", "Who was it?", True),
        ("Portland, Oregon", "Portland", "Where was it?", True),
        ("Portland, Oregon", "Portland, Maine", "Where was it?", False),
        # Numbers and dates.
        ("1934", "2 May 1934", "When was it?", True),
        ("2 May 1934", "1934", "When was it?", False),
        ("8,849 metres", "8849 m", "How high is it?", True),
        ("8,849 metres", "8,849 feet", "How high is it?", False),
        ("5.7 million", "5.7 billion", "How many?", False),
        # Signs.
        ("C++", "C", "", False), ("C", "C#", "", False), ("O negative", "O-", "", True),
        ("3.5", "35", "", False), ("-5", "5", "", False),
        # What is said around an answer.
        ("Paris", "The answer is Paris.", "Which city?", True),
        ("Paris", "It was not Paris.", "Which city?", False),
        ("no", "No, they are in different countries.", "Are both in one country?", True),
        ("France and Spain", "Spain", "Which countries?", False),
    ],
)  # fmt: skip
def test_what_is_the_same_answer(gold: str, given: str, question: str, right: bool) -> None:
    assert says(gold, given, question) is right
