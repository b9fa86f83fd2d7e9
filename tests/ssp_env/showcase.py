"""The three games that the paper prints (its appendix "Self-play Examples"), as scripts.

Answers, questions, queries and the solver's answers are as printed. Thoughts and passages are
filler of about the printed length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from scripted import Script

from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Analysis, Document, GroundTruth, Question, Role

FILLER = "The rest of this page speaks of other times and people, and has no part in the matter."

THOUGHT = "What was found so far leads me one step on, so let me see what I should look for next."


@dataclass(frozen=True)
class Showcase:
    """One printed game."""

    answer: str
    question: str
    proposer: tuple[str, ...]
    """Queries of the proposer, in order."""
    solver: tuple[str, ...]
    """Queries of the solver, in order."""
    reply: str
    """What the solver answers."""


GAMES = (
    Showcase(
        "Roger (alien)",
        "Who is the grey alien character from American Dad! that was involved in the Roswell "
        "incident in 1947?",
        ("Roger alien", "Roger alien american dad!"),
        ("Grey alien character from American Dad! Roswell incident 1947",),
        "Roger",
    ),
    Showcase(
        "Castle Drogo",
        "What is the name of the 20th-century castle in Devon, England, designed by the architect "
        "who, alongside Gertrude Jekyll, created the famous Edwardian garden at Hestercombe House, "
        "known for its listed orangery?",
        (
            "Sir Edwin Lutyens and Castle Drogo",
            "Edwin Lutyens and Gertrude Jekyll",
            "Hestercombe Garden architect",
        ),
        (
            "architect who collaborated with Gertrude Jekyll on Hestercombe House gardens",
            "20th-century castle in Devon, England designed by Edwin Lutyens",
        ),
        "Castle Drogo",
    ),
    Showcase(
        "George Smith",
        "What was the name of the politician who established a crucial trading store in the early "
        "20th century, which transformed a small community into an important trading hub for fur "
        "and developed strong relationships with the indigenous peoples in Alberta?",
        (
            "Who is George Smith and what is he known for?",
            "What significant role did George P. Smith play in the community of Duhamel, Alberta?",
            "What role did trading stores play in the development of settlements like Duhamel, "
            "Alberta, in the early 20th century?",
            "Which early 20th-century Alberta town was a key trading center due to the presence of "
            "a significant fur-trading activity?",
        ),
        (
            "politician who established a trading store in Alberta early 20th century",
            "politician from Alberta early 20th century established fur trading store",
            "politician who established a fur trading store in Alberta early 1900s",
        ),
        "George P. Smith",
    ),
)

ROGER, DROGO, GEORGE = "Roger (American Dad!)", "Castle Drogo", "George P. Smith (politician)"
JEKYLL, HESTERCOMBE = "Gertrude Jekyll", "Hestercombe House"
RIVALS = ["Alexander Livingstone (Alberta politician)", "Cornelius Hiebert"]
FOUND = [
    [ROGER, "Big O (mecha)", "Roger (Hellboy)"],
    [ROGER, ROGER, "American Dad!"],
    ["Grey alien", "Grey alien", ROGER],
    [DROGO, DROGO, DROGO],
    [JEKYLL, JEKYLL, HESTERCOMBE],
    [HESTERCOMBE, HESTERCOMBE, HESTERCOMBE],
    [HESTERCOMBE, "Hascombe Court", JEKYLL],
    [DROGO, "Devon County War Memorial", "Devon County War Memorial"],
    [GEORGE, "George Smith (historian)", "George Smith (artist)"],
    [GEORGE, GEORGE, "George Wilbert Smith"],
    ["Duhamel, Alberta", "Duhamel, Alberta", "Exchange District"],
    ["History of Alberta", "Lamson & Hubbard Trading Company", "Northern Traders Company"],
    ["James Ramsey (politician)", *RIVALS],
    ["James Ramsey (politician)", *RIVALS],
    [GEORGE, *RIVALS],
]
"""The titles that each query found, in the order of the queries."""
TITLES = dict(zip((q for g in GAMES for q in (*g.proposer, *g.solver)), FOUND, strict=True))


def passage(title: str, part: int) -> Document:
    """One of the passages of a page; 100 words, as in the paper's corpus."""
    words = f"A page about {title}. {' '.join([FILLER] * 6)}".split()[:100]
    return Document(f"{title}/{part}", title, " ".join(words))


class PrintedRetriever:
    """Finds what the transcripts show."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return [[passage(title, i) for i, title in enumerate(TITLES[q])][:k] for q in queries]


class PrintedWorld:
    """A world with one answer, whose corpus is what is found in all three games."""

    name = "printed"
    can_read = False

    def __init__(self, showcase: Showcase) -> None:
        self.answers = [GroundTruth("0", showcase.answer)]
        self.corpus = [passage(title, 0) for title in sorted({*chain.from_iterable(FOUND)})]

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        return []

    def analyse(self, question: str) -> Analysis | None:
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        return None


def script_of(showcase: Showcase) -> Script:
    """Both players of one game; who verifies reads the answer out."""

    def script(trajectory: Trajectory) -> str:
        proposes = trajectory.role is Role.PROPOSER
        queries = showcase.proposer if proposes else showcase.solver
        done = len(trajectory.searches)

        thought = f"<think> {' '.join([THOUGHT] * 8)} </think>"
        if trajectory.role in (Role.PROPOSER, Role.SOLVER) and done < len(queries):
            return f"{thought}\n<search>{queries[done]}</search>"
        if proposes:
            return f"{thought}\n<question>{showcase.question}</question>"
        return f"{thought}\n<answer>{showcase.reply}</answer>"

    return script
