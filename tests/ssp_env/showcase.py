"""A game that the paper prints (its appendix "Self-play Examples"), as a script.

Answer, question, queries and the solver's answer are as printed. Thoughts and passages are filler
of about the printed length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Analysis, Document, GroundTruth, Question, Role

FILLER = "The rest of this page speaks of other times and people, and has no part in the matter."
THOUGHT = "What was found so far leads me one step on, so let me see what I should look for next."

ANSWER, REPLY = "George Smith", "George P. Smith"
QUESTION = (
    "What was the name of the politician who established a crucial trading store in the early "
    "20th century, which transformed a small community into an important trading hub for fur "
    "and developed strong relationships with the indigenous peoples in Alberta?"
)

GEORGE = "George P. Smith (politician)"
RIVALS = ["Alexander Livingstone (Alberta politician)", "Cornelius Hiebert"]
PROPOSER = {
    "Who is George Smith and what is he known for?": [
        GEORGE,
        "George Smith (historian)",
        "George Smith (artist)",
    ],
    "What significant role did George P. Smith play in the community of Duhamel, Alberta?": [
        GEORGE,
        GEORGE,
        "George Wilbert Smith",
    ],
    "What role did trading stores play in the development of settlements like Duhamel, "
    "Alberta, in the early 20th century?": [
        "Duhamel, Alberta",
        "Duhamel, Alberta",
        "Exchange District",
    ],
    "Which early 20th-century Alberta town was a key trading center due to the presence of "
    "a significant fur-trading activity?": [
        "History of Alberta",
        "Lamson & Hubbard Trading Company",
        "Northern Traders Company",
    ],
}
SOLVER = {
    "politician who established a trading store in Alberta early 20th century": [
        "James Ramsey (politician)",
        *RIVALS,
    ],
    "politician from Alberta early 20th century established fur trading store": [
        "James Ramsey (politician)",
        *RIVALS,
    ],
    "politician who established a fur trading store in Alberta early 1900s": [GEORGE, *RIVALS],
}
FOUND = PROPOSER | SOLVER
"""Titles that each query of either role found, in order."""


def passage(title: str, part: int) -> Document:
    """One of the passages of a page; 100 words, as in the paper's corpus."""
    words = f"A page about {title}. {' '.join([FILLER] * 6)}".split()[:100]
    return Document(f"{title}/{part}", title, " ".join(words))


class PrintedRetriever:
    """Finds what the transcripts show."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return [[passage(title, i) for i, title in enumerate(FOUND[q])][:k] for q in queries]


class PrintedWorld:
    """A world with one answer, whose corpus is what is found in the game."""

    name = "printed"
    can_read = False
    answers = (GroundTruth("0", ANSWER),)
    corpus = tuple(passage(title, 0) for title in sorted({*chain.from_iterable(FOUND.values())}))

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        return []

    def analyse(self, question: str) -> Analysis | None:
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        return None


def script(trajectory: Trajectory) -> str:
    """Both players; who verifies reads the answer out."""
    proposes = trajectory.role is Role.PROPOSER
    queries = [*(PROPOSER if proposes else SOLVER)]
    done = len(trajectory.searches)

    thought = f"<think> {' '.join([THOUGHT] * 8)} </think>"
    if trajectory.role in (Role.PROPOSER, Role.SOLVER) and done < len(queries):
        return f"{thought}\n<search>{queries[done]}</search>"
    if proposes:
        return f"{thought}\n<question>{QUESTION}</question>"
    return f"{thought}\n<answer>{REPLY}</answer>"
