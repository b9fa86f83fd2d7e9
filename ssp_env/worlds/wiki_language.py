"""A small reader of Wikipedia by rules: sentences, the facts they state, and questions about them.

It reads little of what a page says, but nearly all that it reads is so. That makes it a source of
demonstrations and of truth about questions in its own wording, and no reader of other questions.
"""

from __future__ import annotations

import csv
import re
import tomllib
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
    """Name of a page's subject: its title without what tells it from its namesakes.

    >>> subject_of("Jaws (film)")
    'Jaws'
    """
    return apart(re.sub(r"\s*\([^()]*\)$", "", title.replace('"', "")) or title)


_DATA = Path(__file__).parent / "data"
_RELATIONS, _OCCUPATIONS = _DATA / "relations.toml", _DATA / "occupations.txt"
_COUNTRIES = Path(__file__).parents[1] / "judge" / "data" / "countries.csv"
LISTS = (_RELATIONS, _OCCUPATIONS, _COUNTRIES)
"""Files of what the rules know."""

# -- relations ---------------------------------------------------------------------------------

_UPPER = f"[{''.join(c for c in map(chr, range(0x180)) if c.isupper())}]"
_JOINING = r"(?:de|del|da|di|do|dos|du|van|von|der|den|la|le|of|the|bin|al|el|y)"
NAME = rf"{_UPPER}[\w.'’&/-]*(?: (?:{_JOINING} ){{0,2}}{_UPPER}[\w.'’&/-]*)*"
"""A run of capitalised words, with small ones such as "of the" between them."""
_MONTHS = "January February March April May June July August September October November December"
_MONTH = "|".join(_MONTHS.split())
DATE = rf"(?:\d{{1,2}} (?:{_MONTH}),? \d{{4}}|(?:{_MONTH}) \d{{1,2}} ?,? \d{{4}}|\d{{4}})"
_BY = r"by (?:(?:NATION[a-z-]*|[a-z][\w-]*) ){0,5}(?P<v>NAME)"
"""The person behind "by the American author" or "by"."""


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


def _read_relations() -> Iterator[Relation]:
    """The relations of the file, with kinds of text spelled out in their patterns."""
    table = tomllib.loads(_RELATIONS.read_text("utf-8"))
    jobs = f"(?:{'|'.join(_OCCUPATIONS.read_text('utf-8').split())})"
    job = rf"(?:[a-z][a-z-]*,? ){{0,3}}?{jobs}(?: and {jobs})?"
    kinds = {"NAME": NAME, "DATE": DATE, "JOB": job}

    listed = dict(table["kinds"])
    for kind, column in (("COUNTRY", "name"), ("NATION", "people")):
        # Longest first: of alternatives, the first that fits is taken ("Guinea-Bissau").
        listed[kind] = sorted(map(re.escape, names_of(column)), key=len, reverse=True)
    kinds |= {kind: f"(?:{'|'.join(words)})" for kind, words in listed.items()}
    for name, row in table["relations"].items():
        spelled = (pattern.replace("BY", _BY) for pattern in row["patterns"])
        patterns = (re.sub("|".join(kinds), lambda m: kinds[m[0]], each) for each in spelled)
        compiled = tuple(map(re.compile, patterns))
        yield Relation(name, row["question"], compiled, row.get("chains", False))


@cache
def names_of(column: str) -> frozenset[str]:
    """Names of countries, or of their ``people``, as they are spelled in a sentence."""
    small = {"Of": "of", "And": "and", "The": "the"}
    with open(_COUNTRIES, encoding="utf-8") as file:
        titles = [row[column].title().split() for row in csv.DictReader(file)]
    return frozenset(" ".join(small.get(word, word) for word in title) for title in titles if title)


RELATIONS = tuple(_read_relations())
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

    >>> [(f.relation, f.value) for f in facts_of("Jaws", "It was directed by Steven Spielberg .")]
    [('director', 'Steven Spielberg')]
    """
    subject = subject_of(title)
    # A surname or a film's first word stands for it, but "The" and "Al" may begin anything.
    named = subject if len(subject.split(" ")[0]) <= _SHORT else subject.split(" ")[0]
    about = first or re.match(rf"{re.escape(named)}(?:'s)?(?: |$)", sentence)
    if not about and not _PRONOUN.match(sentence):
        return

    for relation in RELATIONS:
        for pattern in relation.patterns:
            match = pattern.search(sentence)
            if match is None:
                continue
            value = _TRIMMED.sub("", match["v"])
            names_itself = value in subject or subject in value
            # "by American author ..." and the like: the nation is no person.
            if (
                value
                and not names_itself
                and (relation.name == "nationality" or value not in names_of("people"))
            ):
                yield Stated(relation.name, value, match.start("v"))
                break


# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """Relations to follow from a subject, the first one first, as a question asks."""

    subject: str
    path: tuple[Relation, ...]


def write_question(subject: str, path: Sequence[Relation]) -> str:
    """The question that follows a path of relations from a subject.

    >>> write_question("Jaws", [BY_NAME["director"], BY_NAME["spouse"]])
    'Who is the spouse of the director of Jaws?'
    """
    inner = subject
    for relation in path[:-1]:
        inner = f"the {relation.name} of {inner}"
    return path[-1].ask(inner)


def parse_question(question: str) -> Asked | None:
    """Reads what :func:`write_question` writes, in any spelling of spaces; else ``None``."""
    text = " ".join(question.split())
    for relation in RELATIONS:
        before, _, after = relation.question.partition("{}")
        # Policies write punctuation apart, as their passages have it.
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
