"""Judges and verifiers that need no model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ssp_env.errors import ConfigError
from ssp_env.game.rules import own_judge
from ssp_env.judge.base import Judge, JudgeTask, Verdict, VerifyTask
from ssp_env.judge.judges import F1Judge, NoVerifier, WorldVerifier
from ssp_env.judge.lenient import LenientJudge
from ssp_env.search.base import Corpus
from ssp_env.types import Analysis, Document, GroundTruth, Question
from ssp_env.worlds import open_world

TRUTH = GroundTruth("g", "New York City", ("NYC", "The Big Apple"))
FACTS = {
    "Which city hosts it?": {"New York City", "Geneva"},
    "Which city is big?": {"New York City"},
    "Where?": set(),
}


class CityWorld:
    """Reads a question by looking for its answers in the documents."""

    name = "cities"
    corpus = Corpus([Document("0", "", "text")])
    answers = (TRUTH,)

    def __init__(self, can_read: bool = True) -> None:
        self.can_read = can_read

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        return []

    def analyse(self, question: str) -> Analysis | None:
        return Analysis(1, frozenset(FACTS[question])) if question in FACTS else None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        if question not in FACTS:
            return None
        return frozenset(
            a for a in FACTS[question] if any(a in document.text for document in documents)
        )


def judged(judge: Judge, *predictions: str, question: str = "Which city is big?") -> list[bool]:
    results = judge.judge([JudgeTask(question, prediction, TRUTH) for prediction in predictions])
    assert all(isinstance(result, Verdict) for result in results)
    return [result.correct for result in results if isinstance(result, Verdict)]


def test_f1_compares_with_its_threshold() -> None:
    # "New York" shares 2 of 2 and 3 words with the answer: F1 = 2 * 2 / (2 + 3) = 0.8.
    assert judged(F1Judge(), "New York", "York", "") == [True, False, False]
    assert judged(F1Judge(0.81), "New York", "NYC") == [False, True]
    assert F1Judge().judge([JudgeTask("?", "New York", TRUTH)]) == [Verdict(True, "F1 0.800")]


@pytest.mark.parametrize(
    ("question", "texts", "right", "detail"),
    [
        ("Which city hosts it?", ("It is in New York City.", "Rome"), True, "New York City"),
        ("Which city hosts it?", ("In Geneva.",), False, "the documents support: Geneva"),
        ("Which city hosts it?", ("Geneva", "New York City"), False, "2 answers: Geneva; New York"),
        ("Which city hosts it?", ("Rome",), False, "support no answer"),
        ("Which city hosts it?", (), False, "support no answer"),
        ("Unheard of?", ("New York City",), False, "cannot be read"),
    ],
)
def test_world_verifier_accepts_one_answer_that_is_the_truth(
    question: str, texts: tuple[str, ...], right: bool, detail: str
) -> None:
    documents = tuple(Document(str(i), "", text) for i, text in enumerate(texts))
    (result,) = WorldVerifier(CityWorld()).verify([VerifyTask(question, TRUTH, documents)])
    assert isinstance(result, Verdict)
    assert result.correct is right
    assert detail in result.detail


def test_world_verifier_needs_a_world_that_reads() -> None:
    with pytest.raises(ConfigError, match="policy, openai or none"):
        WorldVerifier(CityWorld(can_read=False))


def test_no_verifier_accepts_everything() -> None:
    task = VerifyTask("Unheard of?", TRUTH, ())
    results = NoVerifier().verify([task, task])
    assert [isinstance(result, Verdict) and result.correct for result in results] == [True, True]


def test_generated_names_have_one_spelling_and_real_text_has_many() -> None:
    judge = own_judge(open_world("mini"))
    truth = GroundTruth("g", "Heganes")
    right = [judge.judge([JudgeTask("?", said, truth)])[0] for said in ("heganes .", "Hegan")]
    assert right == [Verdict(True), Verdict(False)]
    assert isinstance(own_judge(CityWorld()), LenientJudge)
