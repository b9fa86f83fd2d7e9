"""A small reader of Wikipedia by rules: sentences, the facts they state, and questions about them.

It reads little of what a page says, but nearly all that it reads is so. That makes it a source of
demonstrations and of truth about questions in its own wording, and no reader of other questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

Facts = dict[tuple[str, str], set[str]]
"""Values by subject and name of a relation."""

# -- sentences ---------------------------------------------------------------------------------

_ABBREVIATED = re.compile(
    r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|vs|No|Inc|Ltd|Co|Rev|Gen|Col|Lt|Capt|Sgt|Prof|Hon|"
    r"Mt|Ft|ca|approx|est|etc|i\.e|e\.g|U\.S|U\.K|a\.k\.a))\.$"
)


def sentences(text: str) -> list[str]:
    """Sentences of a passage, without quotation marks and with punctuation apart from words, so
    that a name is spelled alike wherever it stands."""
    text = re.sub(r"[\"“”„]|''", " ", text).replace("–", "-").replace("—", " - ")
    text = re.sub(r"\s+([-])\s*(?=\d)", r" \1 ", text)

    parts: list[str] = []
    for piece in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9(])", " ".join(text.split())):
        if parts and _ABBREVIATED.search(parts[-1]):
            parts[-1] += f" {piece}"
        else:
            parts.append(piece)
    return [apart(part) for part in parts]


def apart(text: str) -> str:
    """The text with punctuation as words of its own, but for the point of an abbreviation."""
    text = re.sub(r"\b([A-Z])\.(?=[A-Z]\b|[A-Z][a-z])", r"\1. ", text)
    text = re.sub(r"([,;:!?()\[\]])(?!\d)", r" \1 ", text)
    words = (
        f"{word[:-1]} ." if word.endswith(".") and not _ABBREVIATED.search(word) else word
        for word in text.split()
    )
    return " ".join(" ".join(words).split())


@lru_cache(4096)
def subject_of(title: str) -> str:
    """Name of a page's subject: its title without what tells it from its namesakes."""
    return apart(re.sub(r"\s*\([^()]*\)$", "", title.replace('"', "")) or title)


_OCCUPATIONS = Path(__file__).parent / "data" / "occupations.txt"
_COUNTRIES = Path(__file__).parents[1] / "judge" / "data" / "countries.csv"
LISTS = (_OCCUPATIONS, _COUNTRIES)
"""Files of words that the rules know."""

# -- relations ---------------------------------------------------------------------------------

_UPPER = f"[{''.join(c for c in map(chr, range(0x180)) if c.isupper())}]"
_JOINING = r"(?:de|del|da|di|do|dos|du|van|von|der|den|la|le|of|the|bin|al|el|y)"
NAME = rf"{_UPPER}[\w.'’&/-]*(?: (?:{_JOINING} ){{0,2}}{_UPPER}[\w.'’&/-]*)*"
"""A run of capitalised words, with small ones such as "of the" between them."""
MONTHS = "January February March April May June July August September October November December"
_MONTH = "|".join(MONTHS.split())
DATE = rf"(?:\d{{1,2}} (?:{_MONTH}),? \d{{4}}|(?:{_MONTH}) \d{{1,2}} ?,? \d{{4}}|\d{{4}})"
_BY = r"by (?:(?:NATION[a-z-]*|[a-z][\w-]*) ){0,5}(?P<v>NAME)"
"""The person behind "by the American author" or "by"."""
_MARRIED = r"(?:married|wife of|husband of|consort of|wife was|husband was|wife ,|husband ,)"


@dataclass(frozen=True, slots=True)
class Relation:
    """What a fact says of its subject, and how it is asked for and stated."""

    name: str
    question: str
    """``{}`` stands for the subject."""
    patterns: tuple[re.Pattern[str], ...]
    """Each finds a value, as its group ``v``, in a sentence about the subject."""
    chains: bool = False
    """The value can be asked about further, as "the director of" the subject."""

    def ask(self, subject: str) -> str:
        return self.question.format(subject)


def _relation(name: str, question: str, *patterns: str, chains: bool = False) -> Relation:
    """A relation whose patterns may name the kinds of value in capitals."""
    kinds = {"NAME": NAME, "DATE": DATE} | _listed()
    spelled = [re.sub(r"NAME|DATE|JOB|NATION|COUNTRY", lambda m: kinds[m[0]], p) for p in patterns]
    return Relation(name, question, tuple(map(re.compile, spelled)), chains)


@cache
def _listed() -> dict[str, str]:
    """Alternatives of the names of countries and of their people, and of what people do."""
    jobs = _OCCUPATIONS.read_text("utf-8").split()
    job = f"(?:{'|'.join(jobs)})"
    nations = {
        kind: f"(?:{'|'.join(sorted(map(re.escape, names), key=len, reverse=True))})"
        for kind, names in (("COUNTRY", _names(0)), ("NATION", _people()))
    }
    return {"JOB": rf"(?:[a-z][a-z-]*,? ){{0,3}}?{job}(?: and {job})?", **nations}


@cache
def _people() -> frozenset[str]:
    return _names(1)


def _names(column: int) -> frozenset[str]:
    """Names of countries (column 0) or of their people (1), as they are spelled in a sentence."""
    small = {"Of": "of", "And": "and", "The": "the"}
    rows = (line.split(",")[column] for line in _COUNTRIES.read_text("utf-8").splitlines()[1:])
    return frozenset(
        " ".join(small.get(word, word) for word in row.title().split()) for row in rows if row
    )


_WORK = r"(?:novel|book|novella|play|poem|short story|memoir|comic|manga|essay|trilogy|story)"
_FILM = r"(?:film|movie|series|sitcom|documentary|drama|comedy|serial|musical|thriller|western)"
_SONG = r"(?:song|single|album|EP|ballad|record|mixtape|studio album|debut album)"
_TOWN = (
    r"(?:town|city|village|municipality|commune|hamlet|settlement|district|county|suburb|parish|"
    r"neighbou?rhood|river|lake|mountain|island|province|region|community|school|university|"
    r"station|airport|museum|church|college|building|bridge|stadium|park|castle)"
)
_SPORT = (
    r"(?:association football|American football|Australian rules football|football|soccer|"
    r"basketball|baseball|softball|tennis|ice hockey|field hockey|hockey|rugby union|rugby league|"
    r"rugby|golf|cricket|volleyball|handball|boxing|wrestling|swimming|cycling|chess|squash|"
    r"water polo|badminton|table tennis|judo|fencing|curling|lacrosse|athletics)"
)

RELATIONS: tuple[Relation, ...] = (
    _relation(
        "director",
        "Who was the director of {}?",
        r"\bdirected(?: and (?:\w+ )?(?:written|produced|edited))? by (?P<v>NAME)",
        r"\b(?:written|produced) (?:, )?and directed by (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "screenwriter",
        "Who was the screenwriter for {}?",
        rf"\b{_FILM}\b.*?\bwritten (?:, |and |directed |produced ){{0,3}}by (?P<v>NAME)",
        r"\b(?:screenplay|script|scripted|teleplay) (?:was )?(?:written )?by (?P<v>NAME)",
        rf"\b{_FILM} (?:directed |, |and ){{1,2}}written by (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "author",
        "Who is the author of {}?",
        rf"\bis an? [^,.;]*?{_WORK} (?:written )?{_BY}",
        rf"\b{_WORK} (?:was )?written {_BY}",
        chains=True,
    ),
    _relation(
        "producer",
        "Who was the producer of {}?",
        r"\bproduced by (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "composer",
        "Who was the composer of {}?",
        r"\bcomposed by (?P<v>NAME)",
        r"\b(?:music|score|soundtrack|songs) (?:is |was |were )?by (?P<v>NAME)",
        rf"\b(?:opera|symphony|oratorio|cantata|concerto|ballet)\b[^,.;]*? {_BY}",
        chains=True,
    ),
    _relation(
        "performer",
        "Who is the performer of {}?",
        rf"\bis an?\b[^.;]*?{_SONG} (?:recorded |performed )?{_BY}",
        rf"\bis the \w+ (?:\w+ )?{_SONG} {_BY}",
        chains=True,
    ),
    _relation(
        "born",
        "When was {} born?",
        r"^[^()]{3,60}\( (?:[^()]{0,40}; )?(?:born )?(?P<v>DATE)\b(?= (?:-|in |\)|,))",
        r"\bwas born (?:on )?(?P<v>DATE)\b",
    ),
    _relation(
        "died",
        "When did {} die?",
        r"^[^()]{3,60}\([^()]*?\d{4}[^()]{0,40}? - (?:[^()\d]{0,30} )?(?P<v>DATE) \)",
        r"\b[Hh]e died (?:on )?(?P<v>DATE)\b",
    ),
    _relation(
        "birthplace",
        "In what city was {} born?",
        r"\bborn (?:on )?(?:DATE ,? ?)?(?:in|at) (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "nationality",
        "What nationality is {}?",
        r"\b(?:is|was) an? (?:former |retired |professional )?(?P<v>NATION)\b",
    ),
    _relation(
        "occupation",
        "What is {}'s occupation?",
        r"\b(?:is|was) an? (?:former |retired |professional )?(?:NATION |NATION-NATION )?"
        r"(?P<v>JOB)\b",
    ),
    _relation(
        "sport",
        "What sport does {} play?",
        rf"\b(?:is|was) an?\b[^,.;]*?\b(?P<v>{_SPORT}) (?:player|club|team|forward|defender|"
        r"midfielder|goalkeeper|coach|manager|pitcher|guard|center|striker|wing)",
    ),
    _relation(
        "genre",
        "What genre is {}?",
        r"\b(?:is|was) an? (?:\d{4} )?(?:NATION )?(?:\w+-language )?(?P<v>(?:[a-z]+[- ]){0,2}"
        r"(?:comedy|drama|thriller|horror|western|romance|fantasy|crime|action|adventure|rock|pop|"
        r"jazz|fiction|documentary|romantic|science fiction|mystery|punk|metal|folk|country|"
        r"melodrama|noir|musical|war|soul|funk|blues|silent|biographical|sports|historical))"
        r" (?:film|novel|song|album|series|band|movie|book|group|magazine|play|game)\b",
    ),
    _relation(
        "released",
        "What year was {} released?",
        rf"\b(?:is|was) an? (?P<v>\d{{4}}) [^,.;]*?\b(?:{_FILM}|{_SONG}|video game)\b",
    ),
    _relation(
        "country",
        "In what country is {}?",
        rf"\b(?:is|was) an?\b[^.;]*?\b{_TOWN}\b[^.;]*? (?:in|of|,) (?:the )?(?P<v>COUNTRY)\b(?! ,)",
        chains=True,
    ),
    _relation(
        "located",
        "Where is {} located?",
        rf"\b(?:is|was) an?\b[^,.;]*?\b{_TOWN}\b(?: located| situated)? in (?P<v>NAME)",
        r"\b(?:is|was) (?:located|situated) in (?:the )?(?P<v>NAME)",
    ),
    _relation(
        "capital",
        "What is the capital of {}?",
        r"\b[Ii]ts (?:capital|county seat|administrative cent(?:er|re))(?: city)? is (?P<v>NAME)",
        r"\b[Tt]he (?:capital|county seat)(?: and largest city| city)? (?:of [^,.;]* )?is "
        r"(?:the city of )?(?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "father",
        "Who is the father of {}?",
        r"\b(?:son|daughter|child) of (?:the )?(?:late )?(?:[a-z]+ )?(?P<v>NAME)",
        r"\b(?:[Hh]is|[Hh]er) father (?:was|is|,) (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "mother",
        "Who is the mother of {}?",
        r"\b(?:son|daughter|child) of NAME(?: ,[^,.;]*,)? and (?:his (?:\w+ )?wife ,? ?)?"
        r"(?P<v>NAME)",
        r"\b(?:[Hh]is|[Hh]er) mother (?:was|is|,) (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "spouse",
        "Who is the spouse of {}?",
        rf"\b{_MARRIED} (?:to )?(?:the )?(?:[a-z]+ ){{0,2}}(?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "founder",
        "Who is the founder of {}?",
        r"\b(?:founded|established|formed)(?: in DATE)? by (?P<v>NAME)",
        chains=True,
    ),
    _relation(
        "founded",
        "When was {} founded?",
        r"\b(?:founded|established|formed)(?: by NAME)? (?:in|on) (?P<v>DATE)\b",
    ),
    _relation(
        "headquarters",
        "Where is the headquarters of {}?",
        r"\b(?:headquartered|based|headquarters (?:is|are)(?: located)?) in (?P<v>NAME)",
    ),
    _relation(
        "publisher",
        "Who is the publisher of {}?",
        r"\bpublished (?:in \d{4} )?by (?P<v>NAME)",
    ),
    _relation(
        "developer",
        "Who is the developer of {}?",
        r"\bdeveloped by (?P<v>NAME)",
    ),
    _relation(
        "label",
        "What is the record label of {}?",
        r"\b(?:on|by|through|via) (?P<v>(?:[A-Z][\w.'’&/-]* ){0,3}(?:Records|Recordings|Music))\b",
    ),
    _relation(
        "club",
        "What team does {} play for?",
        r"\bplays(?: as an?)?(?: \w+){0,3}? for (?:the )?"
        r"(?:(?:NATION|[a-z]+|[A-Z]{2,}[\w.]*) ){0,5}(?P<v>NAME)",
    ),
    _relation(
        "alma mater",
        "Where did {} study?",
        r"\b(?:studied(?: \w+){0,3} at|educated at|attended|graduated from) (?:the )?(?P<v>NAME)",
    ),
    _relation(
        "namesake",
        "What is {} named after?",
        r"\bnamed (?:after|for|in honou?r of) (?:the )?(?:[a-z]+ ){0,2}(?P<v>NAME)",
    ),
)

BY_NAME = {relation.name: relation for relation in RELATIONS}
CHAINED = frozenset(relation.name for relation in RELATIONS if relation.chains)
"""Names of the relations whose value can be asked about further."""
_PRONOUN = re.compile(r"(?:He|She|It|They|His|Her|Its|The (?:film|novel|song|album|book|play))\b")
_SHORT = 4
"""Letters of a first word that is not enough to name a subject."""
_TRIMMED = re.compile(r"(?: (?:and|of|the|in|on|for|to|a|Jr \.|\.|'s))+$")


@dataclass(frozen=True, slots=True)
class Stated:
    """A fact, and where in its sentence the value stands."""

    relation: str
    value: str
    place: int


def facts_of(title: str, sentence: str, first: bool = False) -> Iterator[Stated]:
    """Facts that a sentence of a page states about the page's subject.

    Args:
        title: of the page.
        sentence: as :func:`sentences` spells it.
        first: the page begins with it, so that it is about the subject whatever it begins with.
    """
    subject = subject_of(title)
    # A surname or a film's first word stands for it, but "The" and "Al" may begin anything.
    named = subject if len(subject.split(" ")[0]) <= _SHORT else subject.split(" ")[0]
    about = first or re.match(rf"{re.escape(named)}(?:'s)?(?: |$)", sentence)
    if not about and not _PRONOUN.match(sentence):
        return

    for relation in RELATIONS:
        for pattern in relation.patterns:
            found = pattern.search(sentence)
            if found is None:
                continue
            value = _TRIMMED.sub("", found["v"])
            own = value in subject or subject in value
            # "by American author ..." and the like: the nation is no person.
            if value and not own and (relation.name == "nationality" or value not in _people()):
                yield Stated(relation.name, value, found.start("v"))
                break


# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Relations to follow from a subject, the first one first, as a question asks."""

    subject: str
    path: tuple[Relation, ...]


def write_question(subject: str, path: Sequence[Relation]) -> str:
    """``Who is the spouse of the director of X?`` for the director, then the spouse."""
    inner = subject
    for relation in path[:-1]:
        inner = f"the {relation.name} of {inner}"
    return path[-1].ask(inner)


def parse_question(question: str) -> Asked | None:
    """Reads what :func:`write_question` writes, in any spelling of spaces; else ``None``."""
    text = " ".join(question.split())
    for relation in RELATIONS:
        before, _, after = relation.question.partition("{}")
        for ending in (after, apart(after)):
            if not (text.startswith(before) and text.endswith(ending)):
                continue
            inner, path = text[len(before) : len(text) - len(ending)].strip(), [relation]
            while (hop := re.match(r"the ([a-z ]+?) of ", inner)) and hop[1] in CHAINED:
                path.insert(0, BY_NAME[hop[1]])
                inner = inner[hop.end() :]
            return Asked(inner, tuple(path)) if inner else None
    return None


def follow(asked: Asked, facts: Facts) -> frozenset[str]:
    """All values at the end of a path."""
    places = {asked.subject}
    for relation in asked.path:
        places = {v for place in places for v in facts.get((place, relation.name), ())}
    return frozenset(places)
