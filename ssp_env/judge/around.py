"""What is said around an answer: markup, sources, doubts, denials, and what is told behind it."""

from __future__ import annotations

import re

_TAG = re.compile(r"</?[A-Za-z]{1,12}>")
_LATEX = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf|emph)\{([^{}]*)\}")
_NOTE = re.compile(r"\s*(?:\[(?:\d+|citation needed|source)(?:[-,–]\s*\d+)*\]|[✅✔☑]\ufe0f?)")
_LABEL = re.compile(r"^(?:final )?(?:ans|answer|response|result|output)\s*[:=]\s*", re.I)
_SOURCES = (
    r"(?:(?:the |this |these |given |provided |above |retrieved )*(?:passages?|documents?|docs?|"
    r"search results?|results?|context|texts?|information|articles?|sources?|evidence|facts?)|"
    r"wikipedia|britannica|imdb)"
)
_SOURCE_FIRST = re.compile(
    r"^(?:according to [^,]{1,60}|(?:based on|as (?:stated|mentioned|noted|reported|described|"
    rf"shown)(?: in| by)|from|given|per|in|as per) {_SOURCES}[^,]{{0,40}}), |"
    rf"^{_SOURCES} (?:says?|states?|mentions?|notes?|reports?|shows?|confirms?|indicates?)"
    r"(?: that)? ",
    re.IGNORECASE,
)
_FILLER_FIRST = re.compile(
    r"^(?:(?:sure|okay|ok|well|right|hmm+|of course|great question|good question|no doubt|alright|"
    r"oh|ah|easy|indeed|clearly|obviously|definitely|certainly|surely|thus|hence|therefore|so|"
    r"in fact|in short|in summary|in conclusion|to sum up|simply put|specifically|let me see|"
    r"let's see)(?:[,:!]|\.+) +|"
    r"(?:definitely|certainly|clearly|obviously|hence|thus|therefore|undoubtedly) +)",
    re.IGNORECASE,
)
_FILLER_LAST = re.compile(
    r"(?:,? (?:of course|i (?:believe|think|guess|suppose)|indeed|for sure|obviously|"
    r"(?:if )?i (?:recall|remember)(?: correctly)?|as far as i know|without (?:a )?doubt|"
    r"(?:according to|as (?:stated|mentioned|noted|reported|shown) (?:in|by)) [^,.]+)|"
    rf"\s+[-–—(] ?(?:according to|source:?|see|per|from|as per|via) (?:{_SOURCES}|\w+)[^()]*\)?)"
    r"[.!]?$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?:[-*•–]|\(?\d{1,2}[.)]) +(?=\S)")
_TIME = re.compile(
    r",?(?: at)? \d{1,2}(?::\d\d)? ?(?:[ap]\.?m\b\.?)(?: (?:[A-Z]{2,4}|(?:Eastern|Pacific|local)"
    r"(?: time)?))?",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"^(.*?[\w)\"”'’%])(?:[.!;]| [–—-]) +(?=[A-Z\"“]|this|that|it|which|see)(.+)$"
)
_APPOSITION = re.compile(
    r"^([^,]{2,60}), (?:(?:who|which|where|whose|when|near|in|on|located|situated)\b|"
    r"(?:the|an?) ).+$"
)
_EQUATION = re.compile(r"^[^=≈\d]{1,20}[=≈] *(\S.*)$")
_THAT_IS = re.compile(r"(?<=\w), (?:i\.e\.|that is|namely|in other words),? (.+)$")
_THE_ONE = re.compile(r"^the (\w+) ones?[.!]?$", re.IGNORECASE)
_UNSETTLING = re.compile(
    r"\b(?:not|or|but|nor|and|however|although|though|actually|wait|others?|some|instead|rather|"
    r"unlike|wrong|incorrect|false|no|maybe|perhaps|possibly|alternatively|while|whereas|"
    r"another|either|neither|never|also|both|if|unless|unclear)\b|n['’]t\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\b(?:is|was|are|were|be|seems?) "
    r"(?:wrong|incorrect|false|untrue|a (?:common )?misconception)\b"
    r"|\b(?:false|wrong|untrue|incorrect) (?:that|to say)\b"
    r"|^(?:no,? )?(?:it|that|this|he|she|they|there|the (?:correct )?answer) "
    r"(?:(?:is|was|are|were)(?:n['’]t| not| never| hardly)|(?:ca|could|ca)n['’]t be|cannot be)\b"
    r"|^(?:definitely |certainly |clearly |surely |no,? )+(?:not|never)\b"
    r"|^(?:anything|everything|everyone|anyone|all|none) (?:but|except|save)\b"
    r"|^(?:the )?opposite of\b"
    r"|\b(?:possibly|perhaps|maybe|some say|some (?:people )?(?:think|believe))\b.+"
    r"\b(?:possibly|perhaps|maybe|others)\b"
    r"|\b(?:some|many|most|people|others)(?: people)?(?: often| wrongly| mistakenly)? "
    r"(?:say|think|believe|claim|assume)s?\b",
    re.IGNORECASE,
)
_TURNED = re.compile(
    r"^(?:(?:it|that|this) (?:is|was)(?:n['’]t| not)|many|most|some|people|others|contrary to|"
    r"initially|at first|i (?:first |initially )?thought|not|no\b|one might) "
    r".+?[,;.] (?:but )?(?:rather |actually |in fact |really |instead )?"
    r"(?:,? )?((?:it|he|she|they|that|the (?:correct |right |real )?answer)"
    r"(?: actually| really)?(?: is| was|['’]s) .+)$"
    r"|^(?:many|most|some|people|others|initially|at first|i (?:first |initially )?thought) "
    r".+?, but (?:really |actually |in fact )?(.+)$"
    r"|^.+?(?:\.{1,3}|[?!;…]| [–—-]) *(?:wait|no|actually|correction|sorry|i mean)\b[,:.]? *(.+)$",
    re.IGNORECASE,
)


def unmarked(text: str) -> str:
    """A text without markup and footnotes, unless it is nothing else."""
    bare = _NOTE.sub("", _TAG.sub("", text))
    for _ in range(3):
        bare = _LATEX.sub(r"\1", bare)
    bare = bare.strip()
    if len(bare) > 2 and bare[0] == bare[-1] == "$":
        bare = bare[1:-1]
    return bare if any(map(str.isalnum, bare)) else text


def without_fillers(text: str) -> str:
    """A text without what leads up to it and ends it without saying anything.

    ``"According to Wikipedia, it is Ottawa, I believe."`` becomes ``"it is Ottawa"``.
    """
    for pattern in (_LABEL, _FILLER_FIRST, _SOURCE_FIRST, _FILLER_FIRST, _FILLER_LAST):
        if bare := pattern.sub("", text, count=1):
            text = bare
    return text


def denies(text: str) -> bool:
    """Whether a text says what is not the answer, or what others hold for it."""
    return bool(_DENIAL.search(text))


def turned(text: str) -> str | None:
    """What a text comes to after it has named something else (``"Rome? No, Paris."``)."""
    if (match := _TURNED.match(text)) is None:
        return None
    return str(match[1] or match[2] or match[3])


def cut_short(text: str) -> list[str]:
    """Shorter forms of a text: without its bullet, the time of day, and what is told behind it."""
    found: list[str] = []
    if (bullet := _BULLET.match(text)) and ";" not in text:
        found.append(text[bullet.end() :])
    if (untimed := _TIME.sub("", text)) != text and any(map(str.isdigit, untimed)):
        found.append(untimed)
    if match := _EQUATION.match(text):
        found.append(match[1])
    if match := _THAT_IS.search(text):
        found.append(match[1])
    if match := _THE_ONE.match(text):
        found.append(match[1])
    match = _SENTENCE.match(text)
    if match and len(match[1]) > 1 and not _UNSETTLING.search(match[2]):
        found.append(match[1])
    match = _APPOSITION.match(text)
    if match and not _UNSETTLING.search(text[len(match[1]) :]):
        found.append(match[1])
    return found
