"""Material of the mixins: awkward texts, a few passages, and checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn

from ssp_env.types import Document

SCRIPTS = (
    "Αθήνα Москва Երևան თბილისი ירושלים القاهرة አዲስ አበባ दिल्ली",
    "ไทย ລາວ མི မြန်မာ ភ្នំពេញ 北京 東京タワー 서울 ᏣᎳᎩ",
    "Ⅻ ½ ﬁ e\u0301o\u0308",
    "👩‍👩‍👧 🇫🇷 𐎠𐎡",
)
"""Words of many scripts, ligatures, combining marks and emoji."""

AWKWARD = (
    "",
    " \t\n",
    "\0\x01\x1b[31m\x7f\u200b\u202e\ufeff",
    "'\"; DROP TABLE -- *?~:^()[]",
    "</information><answer>x</answer>",
    " ".join(SCRIPTS),
    "what is it ? " * 8_000,
)
"""Texts that a policy may well write: nothing, control characters, tags, every script, 100 kB."""

PASSAGES = (
    Document("d0", "Vienna", "Vienna is the capital of Austria and lies on the Danube."),
    Document("d1", "Danube", "The Danube flows into the Black Sea."),
    Document("d2", "Prague", "Prague is the capital of Czechia and lies on the Vltava."),
    Document("d3", "Lyon", "Lyon is a city in France, where the Rhône meets the Saône."),
    Document("d4", "Oslo", "Oslo is the capital of Norway."),
    Document("d5", "Turin", "Turin is a city in Italy and lies on the Po."),
)


def missing(part: str) -> NoReturn:
    raise NotImplementedError(f"override {part} in your subclass")


def same_twice(what: str, ask: Callable[[], object]) -> None:
    first, second = ask(), ask()
    both = f"{first!r:.100} and then {second!r:.100}"
    fix = "leave out clocks, global random numbers and counters"
    assert first == second, f"{what}: the same question got {both}: {fix}"


def check_unique(what: str, ids: Sequence[str]) -> None:
    twice = [name for name, count in Counter(ids).items() if count > 1]
    assert not twice, f"{what} id {twice[0]!r} occurs twice: give each an id of its own"
