"""Words that may be left over around an answer, by what they do there."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.wording.places import CITY_COUNTRY, PEOPLES, REGIONS
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import compact, keys, words


def _keyed(names: Sequence[str] | frozenset[str]) -> frozenset[tuple[str, ...]]:
    return frozenset(keys(words(name)) for name in names)


CITY_KEYS = frozenset(compact(key) for key in _keyed(frozenset(CITY_COUNTRY)))
REGION_KEYS = _keyed(REGIONS)
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
    road: road | alloy: made metal material
"""
"""The same where the question asks for the kind: each with words of a question that do so."""

KINDS: dict[str, frozenset[str]] = dict.fromkeys(_FREE_KINDS, frozenset()) | {
    kind.strip(): vocabulary(cues)
    for kind, _, cues in (entry.partition(":") for entry in _ASKED_KINDS.split("|"))
}
FORMS = vocabulary(
    "kingdom republic state commonwealth city county province region duchy principality "
    "municipality town village dominion emirate sultanate islamic federal united "
    "grand river university lake mount island isle"
)
LITTLE = vocabulary(
    "is was are were be been being it its he she they his her their this that these those there i "
    "has had have did does do will would can could in on at by for from with to as who which what "
    "where when called named known also so just simply about probably likely maybe perhaps we you "
    "through via using one actually indeed became become famous located situated into during "
    "throughout aged age"
)
TURNS = vocabulary(
    "or not nor never neither except but either versus than without near nearby "
    "before after outside unlike besides alongside plus vs excluding hardly almost except "
    "opposite confused mistaken formerly previously until"
)
JOINS = TURNS | vocabulary("and of + anti non ex pre post neo under over")
LINKS = vocabulary("is was are were be by in at on called named from as to played won")
TELLS = vocabulary(
    "is was are were who which where born also known has had won wrote played from "
    "in at by on as that when did does died came during for s because since while "
    "located made directed written starring composed recorded founded"
)
CHANGES = vocabulary(
    "north south east west northern southern eastern western northeast central upper lower new old "
    "great little big former half step grand vice co non anti pre post deputy assistant fake "
    "junior "
    "total fixed ex sub pseudo public private"
)
ORGANISATIONS = vocabulary("university bank institute")
PLACE = vocabulary(
    "where city town place born birthplace located capital village burial headquartered"
)
CORPORATE = vocabulary("co inc ltd corp plc llc gmbh")
PRONOUNS = vocabulary("it he she they there this that i we")
FUNCTION = LITTLE | TURNS | vocabulary("no yes the a an of and")
ADJECTIVES = vocabulary("black white red yellow blue green dead north south east west high rocky")
TEAMS = vocabulary(
    "team club franchise win won beat play played series bowl cup champion championship "
    "nfl nba mlb nhl league baseball football basketball hockey"
)
BUILDINGS = vocabulary(
    "abbey cathedral church chapel palace castle hospital hotel museum university college school "
    "station airport stadium park cemetery theater hall tower prison library house"
)
CALLED = (("known", "as"), ("called", "as"), ("named", "as"), ("nicknamed", "as"))
KIN = vocabulary("son daughter father mother brother sister wife husband and")
TRADES = vocabulary("profession occupation job career")
STREETS = vocabulary("street road avenue square lane boulevard")
SORTS = vocabulary("type kind sort form breed variety species")
"""Words before "of" that say only what kind it is."""
MUSEUMS = vocabulary("musee museo museu museum")
EATEN = vocabulary("shoot leaf seed root bark fruit stem stalk flower")
"""Parts of plants."""
ADJECTIVES_OF = {
    "instrument": vocabulary("electric acoustic classical grand upright"),
    "animal": vocabulary("black white red yellow blue green brown grey golden"),
}
"""Adjectives before a thing that only tell more about it, by what is asked for."""
SHIPS = vocabulary("hms uss rms ss mv hmas hmcs hmnzs ins sms")
LINKING = vocabulary("of the and in for to at on de")
