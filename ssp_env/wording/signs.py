"""Signs in a text: those that carry meaning become words or stay, those that decorate go.

What a sign means depends on what stands beside it: ``-`` is a minus in ``-5``, a range in
``1914-18``, a mere join in ``Jean-Paul``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_MONTHS = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\b\.?"
_GLUED = "[KMGT]B|kg|km|cm|mm|mg|ml|[kMG]W|Hz|[kMG]Hz|mph|ft|lbs?"
_DECADES = ("twen", "thir", "for", "fif", "six", "seven", "eigh", "nine")
_TENS = {f"{word}ties": tens for tens, word in enumerate(_DECADES, start=2)}


class _Step(NamedTuple):
    mark: str
    """What a text has to hold for the step to matter; nothing: any text."""
    figures: bool
    """Whether it matters only beside digits."""
    found: re.Pattern[str]
    read: str | Callable[[re.Match[str]], str]


def _on_24_hours(time: re.Match[str]) -> str:
    hour = int(time[1]) % 12 + (12 if time[3] in "pP" else 0)
    return f"{hour}h{time[2] or '00'} "


def _decade(found: re.Match[str]) -> str:
    tens = found[1].lower()
    return f"{int(found[2]) - 1}{_TENS[tens]}0s" if tens in _TENS else found[0]


def _steps() -> tuple[_Step, ...]:
    steps: list[_Step] = []

    def step(
        mark: str, found: str, read: str | Callable[[re.Match[str]], str], figures: bool = False
    ) -> None:
        steps.append(_Step(mark, figures, re.compile(found), read))

    # Music, and fractions as NFKC writes them: 3½ is 31⁄2.
    step("\u266f", "\u266f", "#")
    step("\u266d", "\u266d", " flat ")
    step("sharp", r"(?i)\b([a-g])[- ]sharp\b", r"\1#")
    step("\u2044", "(?<=\\d)([1-9]\u2044\\d)", r" and \1")
    step("\u2044", "\u2044", "/")

    step("\u00b1", "\u00b1", " plus or minus ")
    step("^", r"(?<![\d.])10\^(\d{1,2})\b", lambda found: f"1{'0' * int(found[1])}", True)
    step("", rf"(?<=\d)({_GLUED})\b", r" \1", True)
    # "5 °C below zero", "$1.5M".
    step(
        "below",
        r"(?i)(?<![\w.-])(\d[\d.,]*(?: ?°[cf]?| degrees?(?: (?:celsius|fahrenheit|c|f))?)?) "
        r"below (?:zero|freezing)\b",
        r"-\1",
        True,
    )
    step(
        "below sea level",
        r"(?i)(?<![\w.-])(\d[\d.,]* ?(?:m|met(?:er|re)s?|ft|feet)) below sea level\b",
        r"-\1",
        True,
    )
    step("M", r"(?<=\d)M\b(?![/.])", " million", True)
    step("B", r"([$€£¥]\s?[\d.,]+)(?:B|bn)\b", r"\1 billion", True)

    # One sign for every dash. Between digits it is a date's, or a range or score.
    step("", "[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]", "-")
    step("-", r"(?<![\w.-])(\d{1,4})-(\d{1,2})-(\d{1,4})(?![\w-])", r"\1.\2.\3", True)
    step("-", r"(?<=\d)\s?-\s?(?=\d)", " to ", True)
    step(" ", r"(?i)(?<=\d) (?:until|till|through|thru) (?=\d)", " to ", True)
    step(" to ", r"\b(\d\d)(\d\d) to (\d\d)\b", r"\1\2 to \1\3", True)
    step("etween ", r"(?i)\bbetween (.*?\d\w*) and (?=.*\d)", r"\1 to ", True)

    step("-", rf"(?i)\b({_MONTHS})\s?-\s?(?={_MONTHS})", r"\1 to ")
    step("/", r"(?<=[A-Za-z])/(?=\d)", " ", True)

    # Codes: "B-12" is "B12", "Interstate 95" is "I-95".
    step("nterstate ", r"\bInterstate (?:Highway )?(\d+)\b", r"I\1", True)
    step("-", r"\b([A-Z])-(\d+)\b", r"\1\2", True)

    # "An hour and a half", "the eighties of the 19th century".
    step(" and a half", r"(?i)\b(?:an?|one) (\w+) and a half\b", r"1.5 \1s")
    step("ties ", r"(?i)\b(\w+ties) of the (\d\d)th century\b", _decade, True)

    # "2:20 in the morning".
    step("in the ", r"(?i)(\d{1,2}[:.]\d\d|\d{1,2}) in the morning\b", r"\1 a.m.", True)
    step(
        "in the ", r"(?i)(\d{1,2}[:.]\d\d|\d{1,2}) in the (?:afternoon|evening)\b", r"\1 p.m.", True
    )

    # Times of day, ratios, offsets from Greenwich.
    step("", r"(?i)\b(utc|gmt)\s?([+-])\s?0?(\d+)(?::00)?(?![\d:])", r"\1\2\3", True)
    step(":", r"(?i)\b(utc|gmt)\s?([+-])\s?0?(\d+):(\d\d)", r"\1\2\3z\4", True)
    step("", r"(?i)\b(\d{1,2})(?:[:.](\d\d))?\s?([ap])\.?m\b\.?", _on_24_hours, True)
    step(":", r"(?<![\d:])0?(\d|1\d|2[0-3]):([0-5]\d)(?![\d:])", r"\1h\2", True)
    step(":", r"(?<![\d:])(\d+):(\d)(?!\d)", r"\1 to \2", True)

    # Numbers: separators, scales, centuries ("the 1700s"), "No. 1", feet and inches.
    step(",", r"(?<![\d,.])(\d+),(\d{1,2})(?![\d,])", r"\1.\2", True)
    step(" ", r"(?<![\d.,])(\d{1,3}) (\d{3})(?: (\d{3}))?(?![\d.,])", r"\1\2\3", True)
    step("", r"(?i)(?<=\d)k\b", " thousand", True)
    step("m", "(?<=[$\u20ac\u00a3])([\\d.]+)m\\b", r"\1 million", True)
    step("00", r"\b(1?\d|20)00'?s\b", lambda found: f"{int(found[1]) + 1} century", True)
    step("", r"(?i)\bno(?:\.\s?|\s)(?=\d)", "number ", True)
    step("#", r"(?<!\w)#\s?(?=\d)", " number ", True)
    step("'", r"(?<=\d)'\s?(\d+)(?:\"|'')", r" feet \1 inches", True)
    step("~", r"~\s?(?=\d)", " about ", True)
    step(">", r">\s?(?=\d)", " over ", True)
    step("<", r"<\s?(?=\d)", " under ", True)

    # Units and currencies.
    step("h", r"(?i)\b(\d+)\s?h\s?(\d+)\s?m(?:in)?\b", r"\1 hours \2 minutes", True)
    step("%", "%", " percent ")
    step("\u00b0", "\u00b0", " degrees ")
    step("$", r"(?i)(?:\bUS|\bU\.S\.)?\s?\$\s?(?=[\d.])", " dollars ", True)
    step("\u20ac", "\u20ac", " euros ")
    step("\u00a3", "\u00a3", " gbp ")
    step("\u00a5", "\u00a5", " yen ")
    step("\u20b9", "\u20b9", " rupees ")
    step("/", r"(?i)\b(km|mi|m)/(h|hr|s)\b", r"\1 per \2")

    # Inside a word signs decorate: Guns N' Roses, rock 'n' roll, Ke$ha, P!nk, M*A*S*H, U.S.A.
    step(" ", r"(?<=[^\W\d]\s)'?[nN]'?(?=\s)", "and")
    step("'", r"(?<=\w)'(?=\w)|(?<=s)'(?=\s|$)", "")
    step("&", "&", " and ")
    step("$", r"(?<=\w)\$(?=\w)", "s")
    step("!", r"(?<=[^\W\d])!(?=[^\W\d])", "i")
    step("*", r"(?<=\w)\*(?=\w)", "")
    step(".", r"(?<![^\W\d_])([^\W\d_])\.(?=[^\W\d_](?:\.|$|\W))", r"\1")
    return tuple(steps)


_STEPS = _steps()
_NOTHING_TO_DO = re.compile(r"(?!.* [nN] |.*sharp|.* and a half)[A-Za-z ,]*")
_DIGIT = re.compile(r"\d")


def settle_signs(text: str) -> str:
    """The text with its signs read.

    Args:
        text: without accents, see :func:`~ssp_env.wording.unicode.plain`.
    """
    if _NOTHING_TO_DO.fullmatch(text):
        return text
    figures = _DIGIT.search(text) is not None
    for mark, needs_figures, found, read in _STEPS:
        if (figures or not needs_figures) and mark in text:
            text = found.sub(read, text)
    return text
