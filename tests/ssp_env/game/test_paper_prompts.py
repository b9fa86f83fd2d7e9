"""The prompt set ``paper`` holds every element of the paper's prompts (its appendix), by prompt."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import ByteTokenizer

THINK = r"<think>.*</think>"
SEARCH = r"<search>.*</search>"
INFORMATION = r"<information>.*</information>"

ELEMENTS: dict[str, dict[str, str]] = {
    "proposer": {
        "role": r"expert.*question",
        "from the answer backwards": r"[Ww]ork backwards from the answer",
        "n searches, one after the other": r"n searches, each one building on",
        "first looks at answer and n": r"1\. Look at the answer and at n",
        "not by searching for the answer": r"not search for the answer itself",
        "an associated concept, with kinds of it": r"an event, a person.*property.*kind of",
        "a search for what links the two": r"Search for what links the two",
        "a fact, unique and checkable": r"fact that is unique, can be\s+checked",
        "which is what search n-1 finds": r"search n-1 has to find",
        "the fact becomes the target": r"is your new target",
        "which may be searched directly": r"may search for it directly",
        "which is what search n-2 finds": r"search n-2 has to find",
        "until there are n links": r"until the chain has n links",
        "the beginning is the first clue": r"beginning is the clue",
        "thinks whenever something is new": rf"Each time.*new.*{THINK}",
        "how to search, and what comes back": rf"{SEARCH}.*{INFORMATION}",
        "as often as wanted": r"as often as you want",
        "the question alone, in its tags": r"<question>.*</question>, without any explanation",
        "three example questions": r"Question 1: \w.+Question 2: \w.+Question 3: \w",
        "rule 1, facts only": r"Facts only",
        "rule 2, neither answer nor steps": r"No spoilers.*answer or a step",
        "rule 3, general knowledge is not enough": r"[Gg]eneral knowledge alone must not",
        "rule 4, searches matched precisely": r"precisely n searches",
        "rule 5, a single answer": r"One answer.*clue is so precise",
        "the answer": r"\{answer\}",
        "the number of searches": r"n: \{searches\}",
        "a last check, also of difficulty": r"first check.*every requirement.*too easy",
        "then the final question": r"final\s+question, as <question>.*</question>",
    },
    "solver": {
        "role": r"helps and does no harm",
        "thinks whenever something is new": rf"Each time.*new.*{THINK}",
        "how to search, and what comes back": rf"{SEARCH}.*{INFORMATION}",
        "as often as wanted, within the limit": r"as often as you want, \{searches\} times",
        "the answer alone, in its tags": r"<answer> and </answer>, without any explanation",
        "an example of an answer": r"such as <answer> \w+ </answer>",
        "the question": r"\{question\}",
    },
    "verifier": {
        "from the materials": r"from the materials",
        "fifty words of reasoning": r"fifty words at most",
        "then the answer alone": r"<answer>.*straight away, without any explanation",
        "materials, then question": r"\{documents\}.*\{question\}",
    },
    "verify": {
        "from the materials": r"from the materials",
        "fifty words of reasoning": r"fifty words at most",
        "then the answer alone": r"straight away, without any explanation",
        "materials, then question": r"\{documents\}.*\{question\}",
    },
    "solve": {
        "role": r"helps and does no harm",
        "thinks whenever something is new": r"Each time.*new, reason first",
        "how to search, and what comes back": r"<search> and\s+</search>.*<information>",
        "the answer alone, in its tags": r"without any explanation, such as <answer>\w+</answer>",
        "the question": r"\{question\}",
    },
    "judge": {
        "role": r"professional judge",
        "agreement with a reference": r"agrees with a reference answer",
        "question, answer, references": r"\{question\}.*\{prediction\}.*\{answers\}",
        "criterion 1, the question, the same meaning": r"answer the question, and to mean the same",
        "criterion 2, numbers": r"equal or very close",
        "criterion 3, words": r"in essence has to be right",
        "criterion 4, wording and language": r"[Aa]nother wording or another language",
        "criterion 5, more than the answer": r"holds the right one.*unless.*contradicts",
        "one word": r"single word Correct or Wrong",
    },
    "document": {"title in quotation marks, then text": r'\(Title: "\{title\}"\) \{text\}'},
}
"""What each of the paper's prompts asks for or shows, and where ours does."""


@pytest.mark.parametrize(
    ("prompt", "element"), [(name, part) for name, parts in ELEMENTS.items() for part in parts]
)
def test_element(prompt: str, element: str) -> None:
    text = files("ssp_env.game.prompts").joinpath("paper", f"{prompt}.txt").read_text("utf-8")
    assert re.search(ELEMENTS[prompt][element], text, re.DOTALL)


def test_it_fits_the_paper_s_budget_even_in_bytes() -> None:
    prompts = Prompts("paper", ByteTokenizer(), Tags())
    assert len(prompts.proposer("x" * 200, 10)) < 4096
