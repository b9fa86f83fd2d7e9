"""Words that are left over where one text holds another: which of them change nothing.

A prediction may lead up to the answer and tell more about it; it may leave out what only says what
kind of thing the answer is, or where. Every other word makes it another answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.judge.reading import Asked
from ssp_env.wording.names import PARTICLES, TITLES
from ssp_env.wording.places import PEOPLES, REGIONS
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, compact, keys, stem, words


def _keyed(names: Sequence[str] | frozenset[str]) -> frozenset[tuple[str, ...]]:
    return frozenset(keys(words(name)) for name in names)


_REGIONS = _keyed(REGIONS)
PEOPLES_KEYS = frozenset(compact(key) for key in _keyed(PEOPLES))
_FREE_KINDS = vocabulary(
    "ocean desert band film movie novel book song album series show magazine newspaper play opera "
    "singer actor network language rocket spacecraft planet mission season club team company co "
    "inc ltd corp plc llc gmbh cf fc afc framework colour color brand species genus tv television "
    "website programming computer type era religion tribe family video degree"
)
"""What a thing is, in words that may come and go: they never tell two things apart."""

_ASKED_KINDS = """
    river: river stream body | mount: mountain peak volcano summit | lake: lake | mountain:
    mountain peak range summit | island: island | sea: sea | county: county | province: province
    | department: department capital | district: district | state: state | region: region
    community | city: city town | town: town city | village: village | university: university
    college school attend attended studied graduate | college: college university school attend
    | stadium: stadium play home | airport: airport | museum: museum | street: street road |
    building: building | bridge: bridge | church: church | channel: channel network | century:
    century | conference: conference | party: party | number: number position rank chart rate |
    group: group | act: act | award: award | prize: prize | palace: palace | castle: castle |
    park: park | game: game | dynasty: dynasty | empire: empire | war: war | court: court |
    vitamin: vitamin | gulf: gulf | music: genre style music kind | place: place rank finish |
    road: road
"""
"""The same where the question asks for the kind: each with words of a question that do so."""

KINDS: dict[str, frozenset[str]] = dict.fromkeys(_FREE_KINDS, frozenset()) | {
    kind.strip(): vocabulary(cues)
    for kind, _, cues in (entry.partition(":") for entry in _ASKED_KINDS.split("|"))
}
_FORMS = vocabulary(
    "kingdom republic state commonwealth city county province region duchy principality "
    "municipality town village dominion emirate sultanate islamic federal united "
    "grand river university lake mount island"
)
LITTLE = vocabulary(
    "is was are were be been being it its he she they his her their this that these those there i "
    "has had have did does do will would can could in on at by for from with to as who which what "
    "where when called named known also so just simply about probably likely maybe perhaps we you "
    "one actually indeed became become famous located situated into during throughout aged age"
)
TURNS = vocabulary(
    "or not nor never neither except but either versus than without near nearby "
    "before after outside unlike besides alongside plus vs excluding"
)
_JOINS = TURNS | vocabulary("and of + anti non ex pre post neo under over")
_LINKS = vocabulary("is was are were be by in at on called named from as to played won")
_TELLS = vocabulary(
    "is was are were who which where born also known has had won wrote played from "
    "in at by on as that when did does died came during for s because since while "
    "located made directed written starring composed recorded founded"
)
_CHANGES = vocabulary(
    "north south east west northern southern eastern western northeast central upper lower new old "
    "great little big former half step grand vice co non anti pre post deputy assistant fake "
    "junior "
    "total fixed ex sub pseudo public private"
)
_ORGANISATIONS = vocabulary("university bank institute")
_PLACE = vocabulary("where city town place born birthplace located capital village burial")
CORPORATE = vocabulary("co inc ltd corp plc llc gmbh")
_PRONOUNS = vocabulary("it he she they there this that i we")
FUNCTION = LITTLE | TURNS | vocabulary("no yes the a an of and")
_ADJECTIVES = vocabulary("black white red yellow blue green dead north south east west high rocky")
_TEAMS = vocabulary(
    "team club franchise win won beat play played series bowl cup champion championship "
    "nfl nba mlb nhl league baseball football basketball hockey"
)
_BUILDINGS = vocabulary(
    "abbey cathedral church chapel palace castle hospital hotel museum university college school "
    "station airport stadium park cemetery theater hall tower prison library house"
)
_CALLED = (("known", "as"), ("called", "as"), ("named", "as"), ("nicknamed", "as"))
_MUSEUMS = vocabulary("musee museo museu museum")
_EATEN = vocabulary("shoot leaf seed root bark fruit stem stalk flower")
"""Parts of plants."""
_ADJECTIVES_OF = {
    "instrument": vocabulary("electric acoustic classical"),
    "animal": vocabulary("black white red yellow blue green brown grey golden"),
}
"""Adjectives before a thing that only tell more about it, by what is asked for."""
_SHIPS = vocabulary("hms uss rms ss mv hmas hmcs hmnzs ins sms")
LINKING = vocabulary("of the and in for to at on de")


def may_lead(about: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words before the answer only lead up to it."""
    if not before:
        return True
    if _is_ship(before, answer) or keys(before)[-2:] in _CALLED or before[-1].key == "aka":
        return True
    if "currency" in about.stems and all(word.key in PEOPLES_KEYS for word in before):
        return True
    for asked, adjectives in _ADJECTIVES_OF.items():
        if asked in about.stems and all(word.key in adjectives for word in before):
            return True
    last = before[-1]
    if keys(before) == ("university", "of"):
        return bool(KINDS["university"] & about.stems)
    if last.key == "of" and len(before) > 1 and before[-2].key in ("made", "died", "consists"):
        return not any(word.key in TURNS or word.is_capital for word in before[1:])
    if any(word.key in TURNS for word in before) or last.key in _JOINS or "/" in answer[0].gap:
        return _is_form(before, answer)
    # Airports go with and without their town.
    if answer[-1].key == "airport" and len(before) < 3 and all(w.is_capital for w in before):
        return True
    if _all_kinds(before):
        return _kinds_fit(about, before, answer)
    if all(word.key in TITLES for word in before):
        return about.person or any(word.is_capital for word in answer)
    # Numbers change an answer unless the question has them ("the 2016 film ...").
    if any(_is_figure(word) and word.key not in about.stems for word in before):
        return False
    links = last.key in _LINKS or last.key in LITTLE
    named = [word for at, word in enumerate(before) if word.is_capital and at]
    strangers = [
        w
        for w in named
        if stem(w.key) not in about.stems and w.key not in LITTLE and not _is_known(about, w)
    ]
    if links:
        return not strangers and not (
            last.key in ("in", "at", "on", "from", "to") and "university" in keys(before)
        )
    if "," in answer[0].gap or any(w.key in _CHANGES for w in before):
        return False
    # "It happened 22 times", "there were about 50".
    if before[0].key in _PRONOUNS and not any(word.is_capital for word in before[1:]):
        return True
    # Words in front of a name that say what it is: "the American singer", "German composer".
    if (
        answer[0].is_capital
        and not strangers
        and not (before[0].is_capital and not _is_known(about, before[0]))
    ):
        return not last.is_capital or (_is_known(about, last) and stem(last.key) not in about.stems)
    return all(_is_plain(about, word) for word in before)


def _is_known(about: Asked, word: Word) -> bool:
    return (
        word.key in TITLES
        or word.key in PEOPLES_KEYS
        or word.key == "usa"
        or word.key in KINDS
        or word.key in LITTLE
    )


def _is_plain(about: Asked, word: Word) -> bool:
    return word.key in LITTLE or (stem(word.key) in about.stems and not word.is_capital)


def may_trail(about: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words after the answer only tell more about it."""
    if not after:
        return True
    first = after[0]
    if "," in first.gap and _region_run(after) is not None:
        return answer[-1].is_capital and not is_organisation(answer)
    # "Westminster Abbey, London": where a building stands.
    if "," in first.gap and len(answer) > 1 and answer[-1].key in _BUILDINGS and len(after) <= 2:
        return all(word.is_capital for word in after) and bool(_PLACE & about.stems)
    # "A pride of lions", where lions are asked about.
    if first.key == "of" and len(after) > 1 and not any(word.is_capital for word in after[1:]):
        return all(stem(word.key) in about.stems for word in after[1:])
    if any(word.key in ("or", "nor", "maybe", "perhaps", "possibly") for word in after):
        return False
    if "eat" in about.stems and all(stem(word.key) in _EATEN for word in after):
        return True
    if first.key in _JOINS or "/" in first.gap or ";" in first.gap:
        return False
    if _all_kinds(after):
        return _kinds_fit(about, after, answer)
    if first.key in ("jr", "sr") or (_is_figure(first) and not _is_figure(answer[-1])):
        return False
    if _is_figure(answer[-1]):
        # After a number, words may only repeat the question or be a sentence's rest.
        rest = [w for w in after if stem(w.key) not in about.stems]
        if first.key in _TELLS or all(w.key in LITTLE for w in rest):
            return True
        # "206 bones in an adult body", where bones are asked about.
        return rest[0].key in ("in", "on", "at") and not any(map(_is_figure, rest))
    if first.key == "by" and all(word.is_capital for word in after[1:]) and not about.person:
        return len(after) > 1
    if (
        "," in first.gap
        or "-" in first.gap
        or ":" in first.gap
        or "." in first.gap
        or "(" in first.gap
    ):
        # An apposition: "a French engineer", "which is in ...", "directed by ...".
        told = not first.is_capital or first.key in PEOPLES_KEYS
        return told and not _is_figure(first) and len(after) > 1
    if first.key in _TELLS and not first.is_capital:
        return not (
            first.key in ("in", "at", "on")
            and not _places(after, about)
            and not about.person
            and len(after) > 3
        )
    return all(_is_plain(about, word) for word in after)


def _places(after: Sequence[Word], about: Asked) -> bool:
    return any(word.is_capital for word in after)


def _region_run(after: Sequence[Word]) -> tuple[str, ...] | None:
    """The region that stands behind a town's name, possibly with its country."""
    parts = at_commas(after)
    return keys(parts[0]) if all(is_region(part) for part in parts) else None


def is_region(part: Sequence[Word]) -> bool:
    return keys(part) in _REGIONS or keys(part) in (("usa",), ("uk",), ("us",))


def at_commas(run: Sequence[Word]) -> list[list[Word]]:
    """Cuts a run at its commas."""
    parts: list[list[Word]] = []
    for at, word in enumerate(run):
        if at == 0 or "," in word.gap:
            parts.append([])
        parts[-1].append(word)
    return parts


def _all_kinds(run: Sequence[Word]) -> bool:
    return all(stem(word.key) in KINDS for word in run)


def _kinds_fit(about: Asked, run: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words that say what kind of thing it is may come and go: those that name the kind
    asked for, and those that never tell two things apart."""
    for word in run:
        kind = stem(word.key)
        cues = KINDS[kind]
        if kind == "state":
            if "state" not in about.stems:
                return False
        elif cues and not cues & about.stems:
            return False
        if kind == "city" and keys(answer) != ("new", "york"):
            return False
        if "," in word.gap and kind not in ("inc", "ltd", "corp", "co", "llc", "plc"):
            return False
    return not (keys(answer) == ("new", "york") and "city" in keys(run) and "state" in about.stems)


def _is_ship(before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """``HMS`` before a name: a ship goes with and without it."""
    only = len(before) == 1 and before[0].key in _SHIPS and before[0].cased.isupper()
    return only and answer[0].is_capital


def _is_form(before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """``Kingdom of`` before a country, ``University of`` before a town that stands for it."""
    head = keys(before)
    return (
        len(head) >= 2
        and head[-1] == "of"
        and all(key in _FORMS for key in head[:-1])
        and keys(answer) != ("china",)
        and "university" not in head
    )


def may_miss_lead(about: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether a prediction may leave out these words before what it says of the answer."""
    if not before:
        return True
    if _is_ship(before, answer):
        return True
    if keys(before) == ("usa",) and answer[0].key in ("route", "highway"):
        return True
    if before[0].key in _MUSEUMS and all(word.key in PARTICLES for word in before[1:]):
        return True
    last = before[-1]
    # A team goes by its nickname.
    nickname = len(answer) == 1 and answer[0].key.endswith("s") and answer[0].is_capital
    if nickname and all(word.is_capital for word in before) and _TEAMS & about.stems:
        return True
    if _is_form(before, answer) or _all_kinds(before):
        return _is_form(before, answer) or _kinds_fit(about, before, answer)
    if keys(before) == ("university", "of"):
        return bool(KINDS["university"] & about.stems)
    if any(word.key in TURNS or _is_figure(word) for word in before):
        return False
    if last.key == "of" and not before[0].is_capital and before[0].key in ("summit", "top", "city"):
        return True
    # "The Prisoner of Azkaban", where a Harry Potter book is asked for.
    series = last.key == "and" and len(before) > 2 and len(answer) > 1
    if series and all(stem(word.key) in about.stems for word in before[:-1]):
        return True
    if last.key in _JOINS or any(word.key in _CHANGES for word in before):
        return False
    if all(word.key in LITTLE and not word.is_capital for word in before):
        return True
    # Words that only say what the name is.
    if answer[0].is_capital and all(
        not word.is_capital or word.key in PEOPLES_KEYS or word.key in TITLES for word in before
    ):
        return about.person or not all(word.key in TITLES for word in before)
    return False


def may_miss_trail(about: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether a prediction may leave out these words behind what it says of the answer."""
    if not after:
        return True
    first = after[0]
    if "," in first.gap and not is_organisation(answer):
        if _region_run(after) is not None:
            return True
        listed = len(at_commas(after)) > 1 or any(word.key in ("and", "or") for word in after)
        placed = about.person or first.key == "by" or bool(_PLACE & about.stems)
        return not listed and placed and answer[0].is_capital
    if keys(after) == ("dc",) and keys(answer) == ("washington",):
        return "state" not in about.stems
    # "Burj Khalifa in Dubai", but "The Catcher in the Rye".
    if first.key in ("in", "at") and len(answer) > 1 and _all_capital((*answer, after[-1])):
        return True
    if keys(answer) == ("new", "york") and keys(after) == ("city",):
        return "state" not in about.stems
    if _all_kinds(after) and answer[-1].key not in _ADJECTIVES:
        return _kinds_fit(about, after, answer) and (len(answer) > 1 or _is_named(about, after))
    return keys(after) == ("motor", "co")


def _all_capital(run: Sequence[Word]) -> bool:
    return all(word.is_capital for word in run)


def _is_named(about: Asked, after: Sequence[Word]) -> bool:
    """Whether the question or custom makes clear what a single word stands for."""
    return any(
        KINDS[stem(w.key)] & about.stems
        or stem(w.key) in about.stems
        or stem(w.key) in ("inc", "ltd", "corp", "ocean", "desert", "co", "language")
        or not w.is_capital
        for w in after
    )


def is_organisation(run: Sequence[Word]) -> bool:
    """Whether what follows a comma is part of the name ("University of California, Berkeley")."""
    return run[-1].key in ("college", "school") or not _ORGANISATIONS.isdisjoint(keys(run))


def _is_figure(word: Word) -> bool:
    return word.key[0].isdigit() or word.key[-1].isdigit()
