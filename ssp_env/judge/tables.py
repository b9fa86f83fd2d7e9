"""The judge's tables: word lists, units, names, and rules that write a text in another way."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

_DATA = Path(__file__).parent / "data"


@cache
def read_table(name: str) -> list[dict[str, str]]:
    rows = (_DATA / f"{name}.csv").read_text("utf-8").splitlines()
    return list(csv.DictReader(rows))


# Endings as in colour, theatre and organised, and what American spelling has in their place.
_BRITISH = [
    (re.compile(r"(?<=\w{3})our(?=s?$|ed$|ite)"), "or"),
    (re.compile(r"(?<=\w{2})(?:tre)(?=s?$)"), "ter"),
    (re.compile(r"(?<=\w{3})is(?=e[sd]?$|ation|ing$)"), "iz"),
]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A word without a plural's ending, in American spelling."""
    for pattern, said in _BRITISH:
        word = pattern.sub(said, word)
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    # The s of "glass" and of "virus" is no plural's.
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


@cache
def vocabulary(*names: str) -> frozenset[str]:
    """The stems of lists in ``words.csv``."""
    rows = [row["words"] for row in read_table("words") if row["list"] in names]
    return frozenset(stem(word) for row in rows for word in row.split())


_Said = str | Callable[[re.Match[str]], str]


@cache
def rules(stage: str) -> list[tuple[list[str], re.Pattern[str], _Said]]:
    """The rules of a stage in ``rewrites.tsv``: in which texts, in small letters, one may have
    something to do, what it looks for, and what it writes, with ``_`` for a space or a function."""
    named: dict[str, _Said] = {
        "=state": lambda m: f", {_states().get(m[1].lower(), m[1])}",
        "=century": lambda m: f"{int(m[1]) + 1} century",
    }
    lines = (_DATA / "rewrites.tsv").read_text("utf-8").splitlines()
    # Quotes are a part of what the rules look for.
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [
        (
            r["signs"].split("|"),
            re.compile(r["found"]),
            named.get(r["said"], r["said"].replace("_", " ")),
        )
        for r in rows
        if r["stage"] == stage
    ]


@cache
def _states() -> dict[str, str]:
    rows = reversed(read_table("regions"))  # of two with one abbreviation, the first one has it
    return {row["short"]: row["name"].title() for row in rows if row["short"]}


def rewrite(text: str, *stages: str) -> str:
    """The text after the rules of these stages, in their order.

    >>> rewrite("C++ in the U.S.A.", "signs"), rewrite("US$5 or 1914-18", "figures")
    ('C plus plus in the USA', ' dollar 5 or 1914 to 18')
    """
    low = text.lower()
    for stage in stages:
        for signs, pattern, said in rules(stage):
            for sign in signs:
                if sign in low:
                    text = pattern.sub(said, text)
                    break
    return text
