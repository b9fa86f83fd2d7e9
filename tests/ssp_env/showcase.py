"""A game that the paper prints (its appendix "Self-play Examples"), as a script.

Answer, question, queries and the solver's answer are as printed. Thoughts and passages are filler
of about the printed length."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from ssp_env.game.trajectory import Trajectory
from ssp_env.types import Document, GroundTruth, Role

FILLER = "The rest of this page speaks of other times and people, and has no part in the matter."
THOUGHT = "What was found so far leads me one step on, so let me see what I should look for next."

ANSWER, REPLY = "George Smith", "George P. Smith"
QUESTION = (
    "What was the name of the politician who established a crucial trading store in the early "
    "20th century, which transformed a small community into an important trading hub for fur "
    "and developed strong relationships with the indigenous peoples in Alberta?"
)

PROPOSER = [
    "Who is George Smith and what is he known for?",
    "What significant role did George P. Smith play in the community of Duhamel, Alberta?",
    "What role did trading stores play in the development of settlements like Duhamel, "
    "Alberta, in the early 20th century?",
    "Which early 20th-century Alberta town was a key trading center due to the presence of "
    "a significant fur-trading activity?",
]
SOLVER = [
    "politician who established a trading store in Alberta early 20th century",
    "politician from Alberta early 20th century established fur trading store",
    "politician who established a fur trading store in Alberta early 1900s",
]


def passage(query: str, rank: int) -> Document:
    """A passage that a query finds; 100 words, as in the paper's corpus."""
    words = f"A page about {query}. {' '.join([FILLER] * 6)}".split()[:100]
    return Document(f"{query}/{rank}", query[:30], " ".join(words))


class PrintedRetriever:
    """Finds passages for any query."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        return [[passage(query, rank) for rank in range(k)] for query in queries]


WORLD = SimpleNamespace(
    name="printed",
    can_read=False,
    answers=(GroundTruth("0", ANSWER),),
    corpus=tuple(passage(query, 0) for query in (*PROPOSER, *SOLVER)),
    questions=lambda seed, per_group=None: [],
    analyse=lambda question: None,
    read=lambda question, documents: None,
)
"""A world with one answer."""


def script(trajectory: Trajectory) -> str:
    """Both players; who verifies reads the answer out."""
    proposes = trajectory.role is Role.PROPOSER
    queries = PROPOSER if proposes else SOLVER
    done = len(trajectory.searches)

    thought = f"<think> {' '.join([THOUGHT] * 8)} </think>"
    if trajectory.role in (Role.PROPOSER, Role.SOLVER) and done < len(queries):
        return f"{thought}\n<search>{queries[done]}</search>"
    if proposes:
        return f"{thought}\n<question>{QUESTION}</question>"
    return f"{thought}\n<answer>{REPLY}</answer>"
