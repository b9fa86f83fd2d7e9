"""What a question asks for, and what an answer in words comes down to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ssp_env.judge.around import cut_short, denies, turned, unmarked, without_fillers
from ssp_env.wording.names import TITLES
from ssp_env.wording.places import COUNTRY
from ssp_env.wording.places import PEOPLES as _PEOPLES
from ssp_env.wording.unicode import compatible
from ssp_env.wording.units import UNITS, Unit
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import compact, keys, stem, words

_PEOPLE_NAMES = (
    "actor actress author writer novelist poet playwright singer songwriter musician composer "
    "conductor guitarist drummer rapper painter artist sculptor architect director producer "
    "screenwriter filmmaker president minister king queen emperor pope monarch ruler politician "
    "senator governor mayor general admiral commander officer soldier scientist physicist chemist "
    "biologist mathematician philosopher economist psychologist historian inventor explorer "
    "astronaut footballer player golfer boxer jockey swimmer runner cyclist coach manager captain "
    "journalist presenter host comedian dancer model designer founder entrepreneur businessman "
    "person man woman wife husband mother father son daughter brother sister character detective "
    "hero villain star celebrity leader chancellor dictator lawyer judge saint prophet god goddess "
    "spouse child sibling grandfather grandmother prince princess engineer doctor surgeon chef "
    "celebrity illustrator cartoonist critic scholar linguist theologian missionary dramatist"
)
# Words are compared by their keys ("gen" for "general").
PEOPLE = frozenset(map(stem, keys(words(_PEOPLE_NAMES))))
"""What people are called by what they do or are."""
_NO_AGENTS = vocabulary(
    "river tower water power letter color center theater weather border winter summer order number "
    "member computer quarter paper newspaper chapter other either corner border layer flower motor "
    "sector factor floor door list mountain ocean artist woman man letter master under over after "
    "december november october september matter mother father brother sister sweater silver"
)
_AGENT = re.compile(r"\w{3,}(?:er|or|ist|ian|ess|man)")
"""What someone who does something is called: surfer, sculptor, soloist."""
_OTHER_THINGS = vocabulary(
    "city town country state county river place birthplace film movie book novel song album band "
    "group team company year date day month century nationality language university school college "
    "profession occupation job genre sport instrument award war battle name title island lake "
    "mountain continent street building museum church airport number percentage kind type club "
    "region province village district capital series show play opera magazine newspaper"
)
_ORIGIN = vocabulary(
    "nationality country nation citizen citizenship origin ethnicity from heritage"
)
_DEEDS = vocabulary("wrote sang directed painted invented discovered composed married said starred")
_WH = vocabulary("who whom whose which what where when how why")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question asks for, as far as its words show."""

    run: tuple[str, ...]
    """Its words, in order."""
    stems: frozenset[str]
    """The same, without endings of plurals."""
    person: bool
    """A person."""
    is_year: bool
    """A year, not a day."""
    is_count: bool
    """How many or how much."""
    is_origin: bool
    """A country or nationality, which answer each other."""
    possessive: bool
    """Whose something is."""
    units: frozenset[Unit]
    """Units that it names."""


@lru_cache(maxsize=4096)
def asked(question: str) -> Asked:
    """Reads a question."""
    run = keys(words(question))
    stems = frozenset(stem(key) for key in run)
    text = " ".join(run)
    return Asked(
        run=run,
        stems=stems,
        person=_asks_for_person(run),
        is_year=bool(re.search(r"\b(what|which|in|the) year\b", text)),
        is_count=bool(re.search(r"\bhow (many|much|tall|long|high|deep|old|large|big|far)\b", text))
        or bool(stems & {"number", "population", "percentage", "amount", "height", "length"}),
        is_origin=bool(stems & _ORIGIN) and "language" not in stems,
        possessive="whose" in run,
        units=frozenset(
            UNITS[key] for key in stems if len(key) > 1 and key in UNITS and key != "in"
        ),
    )


def _asks_for_person(run: tuple[str, ...]) -> bool:
    for at, key in enumerate(run):
        if key in ("who", "whom", "whose", "whos"):
            return True
        if key in ("where", "when", "how", "why"):
            return False
        if key in ("which", "what", "name"):
            # "Which Beatle wrote ...".
            if run[at + 2 : at + 3] and run[at + 2] in _DEEDS and run[at + 1] not in _OTHER_THINGS:
                return True
            # "Which 19th-century German philosopher ...", but not "which city is the actor from".
            for word in run[at + 1 : at + 8]:
                if stem(word) in PEOPLE:
                    return True
                if _AGENT.fullmatch(word) and word not in _NO_AGENTS and word not in _PEOPLES:
                    return True
                if word in ("who", "whom", "whose"):
                    return True
                if stem(word) in _OTHER_THINGS and word != "name":
                    return False
            return False
    return False


_LEAD = re.compile(
    r"(?:(?:so|well|thus|therefore|hence|based on [^,]+|according to [^,]+),? )?"
    r"(?:(?:i (?:think|believe|guess|would say)|it seems)(?: that)?,? )?"
    r"(?:(?:the |my |final |short |correct )*answer(?: to (?:the|this) question)?"
    r"(?: is|:| would be)"
    r"|answer:|\Aa:)[: ]*(?:that )?|i (?:think|believe|would say)(?: that)?,? ",
    re.IGNORECASE,
)
_EVASIVE = re.compile(
    r"\b(?:i (?:do not|don't|cannot|can't|am not|'m not)|"
    r"not (?:sure|known|certain|mentioned|enough|specified|available|provided|clear)|"
    r"unclear|unknown|cannot be|can't be|no (?:information|answer|idea)|"
    r"n/a|impossible to|insufficient|neither of)\b",
    re.IGNORECASE,
)
_CONTRAST = re.compile(
    r"^(.*?\S),? (?:\(?not|but not|rather than|instead of|and not|as opposed to) (.+)$", re.I
)
_CORRECTED = re.compile(r"^not .+?,? but (?:rather )?(.+)$", re.IGNORECASE)
_OWNED = re.compile(
    r"^(?:[A-Z]\w+ )?[A-Z]\w+['’]s (?:(?:novel|play|film|movie|book|song|album|opera|poem|painting|"
    r"series|short story) )?[\"“]?([A-Z0-9].*?)[\"”]?$"
)
_KNOWN_AS = re.compile(
    r"^(.+?),? (?:(?:better|also|commonly|popularly|otherwise|best|usually) )?known as (.+)$"
)
_LINES = re.compile(r"(?<=\w)[ \t]*\n\s*(?:[-*•]\s*)?(?=[A-Z])")
"""The end of a line that is no end of a sentence: what follows is another answer."""
_DECORATION = re.compile(r"\*\*|__|`|^[\s\"“«]+(?=[^\"“”«»]*$)|^#+ ")


@lru_cache(maxsize=16384)
def readings(prediction: str) -> tuple[str, ...]:
    """What a prediction says, without what is said about it; nothing where it evades.

    ``"The answer is Paris."`` comes down to ``"Paris"``, ``"Paris, not London"`` too.
    """
    plain = unmarked(_DECORATION.sub("", compatible(prediction)).strip())
    text = without_fillers(" ".join(_LINES.sub(" ; ", plain).split()))
    # Quotes round the whole of it.
    if len(text) > 2 and text[0] in "\"'“‘«" and text[-1] in "\"'”’»." and text.count(text[0]) < 3:
        inside = text.rstrip(".")[1:-1]
        text = inside if not any(mark in inside for mark in '"“”«»') else text
    text = _LEAD.sub("", text, count=1) if text[:1].isalpha() else text
    if not text:
        return ()
    if (settled := turned(text)) is not None:
        text = _LEAD.sub("", settled, count=1)
    evades = " " in text and (_EVASIVE.search(text) or denies(text))
    found: list[str] = [] if evades else [text]
    # "No, they were not" is no.
    if evades and text.partition(",")[0].lower() in ("yes", "no"):
        return (text.partition(",")[0],)
    if " not " in text or " rather " in text or " instead " in text or text[:4].lower() == "not ":
        if match := _CORRECTED.match(text):
            found = [match[1]]
        elif match := _CONTRAST.match(text):
            found = [match[1].rstrip(",")] if " or " not in match[2] and len(match[1]) > 1 else []
            if match[1].lower().split()[-1] in ("is", "was", "are", "were", "does", "did", "but"):
                found = []
    # "Vladimir Ulyanov, better known as Lenin" is either.
    if found and " known as " in found[0] and (called := _KNOWN_AS.match(found[0])):
        found += [called[2], called[1]]
    # "Shakespeare's Hamlet" is Hamlet.
    if found and (owned := _OWNED.match(found[0])):
        found.append(owned[1])
    if found:
        found += cut_short(found[0])
    return tuple(found)


_SUBJECT = re.compile(
    r"^((?!(?:It|He|She|They|This|That|There|The answer|We|In|On|At|By)\b)[\"“]?[A-Z0-9].*?),? "
    r"(?:is|was|are|were|has|had|wrote|directed|composed|painted|discovered|invented|founded|won|"
    r"played|plays|produced|created|became|sang|sings|designed|built|recorded|who|which) (.+)$"
)
_OBJECT = re.compile(r"^(.*\b(?:is|was|are|were|by|from|called|named)) ([^,]+)$", re.DOTALL)
_QUOTED = re.compile(r"^[^\"“”]*[ ,(][\"“]([^\"“”]{2,80})[\"”][.)]*$")
_QUOTED_KINDS = vocabulary("nickname nicknamed called title song slogan motto album film book poem")
_PLACED = re.compile(r"^[A-Z][\w .'-]{2,40}, ([A-Z][^,]+)$")
_COMPANY = re.compile(
    r"^((?:[A-Z][\w.'’-]*|[dvl][aeo]n?) (?:[\w.'’-]+ )*?[A-Z][\w.'’-]*) "
    r"(?:(?:featuring|feat\.?|ft\.?|and (?:the|his|her)|in) .+|of (?:the )?[A-Z][\w.]* .+)$"
)
"""A full name, and with whom, where or of what they are."""
_POSSESSED = re.compile(r"^([^,]+?)['’]s? (\w+)$")
_COUNTRIES = frozenset(compact(keys(words(name))) for name in COUNTRY)
_UNSETTLED = vocabulary("or not but than either neither nor while whereas although however and")


def told(about: Asked, text: str) -> list[str]:
    """The subject of a sentence that says about it what was asked, and what one ends with.

    ``"J.R.R. Tolkien wrote it in 1937."`` is about Tolkien; ``"It was written by J.R.R. Tolkien."``
    ends with him.
    """
    found: list[str] = []
    sentence = text.rstrip(". ")
    if " " not in sentence:
        return found
    if (match := _SUBJECT.match(sentence)) and len(match[1].split()) <= 6:
        rest = keys(words(match[2]))
        if not _UNSETTLED & set(rest):
            found.append(match[1])
    if (match := _OBJECT.match(sentence)) and "," not in match[1]:
        before = words(match[1])
        new = [w for w in before[1:] if w.is_capital and stem(w.key) not in about.stems]
        if not new and not _UNSETTLED & {word.key for word in before}:
            found.append(match[2])
    # "The Knight's tale", where it is asked whose tale.
    if (match := _POSSESSED.match(sentence)) and stem(words(match[2])[0].key) in about.stems:
        found.append(match[1])
    # "Karnataka, India", where a country is asked for.
    behind = text.rpartition(",")[2].strip(" .")
    if about.stems & {"country", "nation"} and compact(keys(words(behind))) in _COUNTRIES:
        first = words(text.partition(",")[0])
        found += [behind] if compact(keys(first)) not in _COUNTRIES and "," in text else []
    # "Frankie Valli and the Four Seasons", "Brian Moynihan of Bank of America".
    company = _COMPANY.match(sentence) if about.person else None
    if company and TITLES.isdisjoint(keys(words(company[1]))):
        found.append(company[1])
    # "Manhattan, New York City", where it is asked where.
    if "where" in about.run and not about.person and (placed := _PLACED.match(sentence)):
        found.append(placed[1])
    found += _part_of_name(about, sentence)
    # 'Maine, "The Pine Tree State"', where a nickname is asked for.
    if about.stems & _QUOTED_KINDS and (match := _QUOTED.match(text)):
        found.append(match[1])
    return found


def _part_of_name(about: Asked, text: str) -> list[str]:
    """The first, middle or last word of a full name, where the question asks for it."""
    names = text.split()
    if not 2 <= len(names) <= 4 or not all(name[:1].isupper() for name in names):
        return []
    asked_for = " ".join(about.run)
    if "middle name" in asked_for:
        return [" ".join(names[1:-1])] if len(names) > 2 else []
    if "first name" in asked_for:
        return names[:1]
    return names[-1:] if "surname" in about.run or "last name" in asked_for else []
