"""Numbers, dates and shares of Chinese texts, in the figures that the judge reads."""

from __future__ import annotations

import re

from ssp_env.judge.tables import rewrite

_DIGITS = dict(zip("〇零一二三四五六七八九两兩", [0, *range(10), 2, 2], strict=True))
_TENS = {"十": 10, "百": 100, "千": 1000}
_SCALES = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_SIGN = f"[{''.join([*_DIGITS, *_TENS])}]"
_NUMBER = re.compile(
    rf"(?:\d+(?:[.,]\d+)*|{_SIGN}+(?:点{_SIGN}+)?)(?:{_SIGN}|[{''.join(_SCALES)}])*"
)


def from_chinese(text: str) -> str:
    """The text with numbers, dates and shares in figures.

    >>> from_chinese("一九四九年十月一日"), from_chinese("三百二十万"), from_chinese("百分之五")
    ('1949-10-1', '3200000', '5%')
    """
    return rewrite(_NUMBER.sub(_figures, text), "chinese")


def _figures(match: re.Match[str]) -> str:
    """A number in Chinese numerals, or in figures before a scale, in figures."""
    written = match[0]
    if not set(written) - set(_DIGITS) - set("0123456789.,"):
        return "".join(str(_DIGITS.get(sign, sign)) for sign in written)
    total, section, digit = 0.0, 0.0, ""
    for sign in written.replace(",", ""):
        if sign in _TENS:
            section, digit = section + float(digit or 1) * _TENS[sign], ""
        elif sign in _SCALES:
            total = (total + section + float(digit or 0)) * _SCALES[sign]
            section, digit = 0.0, ""
        else:
            digit += "." if sign in "点." else str(_DIGITS.get(sign, sign))
    return f"{total + section + float(digit or 0):.15g}"
