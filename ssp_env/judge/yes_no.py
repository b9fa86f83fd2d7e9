"""Answers to questions that are answered yes or no."""

from __future__ import annotations

import re

from ssp_env.judge.reading import Asked
from ssp_env.judge.vocabularies import LITTLE
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import keys, stem, words

_YES = vocabulary("yes correct true indeed right yeah yep affirmative absolutely y")
_NO = vocabulary("no nope false incorrect neither nay never negative n")
_DOUBT = vocabulary("or maybe perhaps possibly unclear unsure unknown depends might could")
_LAST = re.compile(r"\b(?:so|thus|hence|therefore|answer is|answer:),? (yes|no)\W*$", re.I)
_NOT = re.compile(r"\b(?:not|never|neither|cannot|none)\b|n['’]t\b", re.I)


def says_yes(about: Asked, text: str) -> bool | None:
    """Whether a text says yes, or no; ``None`` where that cannot be read off it.

    It says so with its first or last word, with a denial, or with the question's own words.
    """
    run = keys(words(text))
    if not run or _DOUBT & set(run):
        return None
    if last := _LAST.search(text):
        return last[1].lower() == "yes"
    if run[0] in _YES | _NO:
        turns = len(run) > 1 and run[1] in ("and", "or", "but")
        return None if turns else run[0] in _YES
    if len(run) < 2:
        return None

    denied = bool(_NOT.search(text))
    if "same" in about.run and {"same", "different"} & set(run):
        return ("same" in run) is not denied if "different" not in run else denied or False
    if "or" in about.run:
        return None
    if denied:
        return False
    if any(verb in about.stems and said in run for verb, said in _OPPOSITE):
        return False
    restated = all(key in LITTLE or stem(key) in about.stems or key in _ALL for key in run)
    return True if restated else None


_OPPOSITE = (
    ("win", "lost"), ("won", "lost"), ("survive", "died"), ("alive", "dead"), ("pass", "failed"),
    ("succeed", "failed"), ("true", "false"), ("open", "closed"), ("accept", "rejected"),
)  # fmt: skip
"""Words of questions, and of answers that say no to them."""
_ALL = vocabulary("both and all yes they each of does")
