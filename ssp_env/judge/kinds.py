"""Names that follow from another one where the question asks for that kind of thing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp_env.judge.reading import Asked
from ssp_env.judge.vocabularies import LITTLE
from ssp_env.wording.nicknames import FIRST_NAMES
from ssp_env.wording.places import COUNTRY, STATE
from ssp_env.wording.vocabulary import vocabulary
from ssp_env.wording.words import Word, compact, keys, stem, words

_FAITH = vocabulary("religion religiou faith belief denomination")
_PARTY = vocabulary("party politic")
_PLACES = vocabulary("state province")

_FAITHS = (
    "buddhism buddhist,hinduism hindu,islam muslim islamic moslem,christianity christian,"
    "judaism jewish jew,sikhism sikh,jainism jain,catholicism catholic,protestantism protestant,"
    "anglicanism anglican,lutheranism lutheran,methodism methodist,calvinism calvinist,"
    "mormonism mormon,zoroastrianism zoroastrian,taoism taoist daoism daoist,shinto shintoism,"
    "atheism atheist,presbyterianism presbyterian,orthodoxy orthodox,quakerism quaker"
)
_PARTIES = (
    "democratic democrat,republican gop,conservative tory,communist communism,socialist socialism"
)
_MEMBER_WORDS = vocabulary("party parties church roman faith religion of america")
_MEMBERS = {
    kind: {
        word: names.split()[0] for names in listed.split(",") for word in map(stem, names.split())
    }
    for kind, listed in (("faith", _FAITHS), ("party", _PARTIES))
}
_STATE = {compact(keys(words(name))): compact(keys(words(of))) for name, of in STATE.items()}
_COUNTRY = {compact(keys(words(name))): of for name, of in COUNTRY.items()}
_SIDES = vocabulary("team side nation squad won win champion")
_SIDE_WORDS = vocabulary(
    "national team side squad football soccer cricket rugby hockey basketball volleyball men women"
)
_TEACHINGS = vocabulary("government ideology movement philosophy doctrine style school system")
_ELEMENTS = (
    "hydrogen h,helium he,lithium li,beryllium be,boron b,carbon c,nitrogen n,oxygen o,fluorine f,"
    "neon ne,sodium na,magnesium mg,aluminum al,silicon si,phosphorus p,sulfur s,chlorine cl,"
    "argon ar,potassium k,calcium ca,titanium ti,chromium cr,manganese mn,iron fe,cobalt co,"
    "nickel ni,copper cu,zinc zn,arsenic as,selenium se,bromine br,krypton kr,silver ag,cadmium cd,"
    "tin sn,iodine i,xenon xe,cesium cs,barium ba,tungsten w,osmium os,iridium ir,platinum pt,"
    "gold au,mercury hg,lead pb,bismuth bi,radon rn,radium ra,thorium th,uranium u,plutonium pu"
)
_ELEMENT = {symbol: name for name, symbol in (entry.split() for entry in _ELEMENTS.split(","))}
_TAUGHT = vocabulary("government movement state system style art period school ideology")
_ISM = re.compile(r"(?:ism|ist|istic)$")
_COMPANY = vocabulary("co corp inc firm manufacturer studio label publisher airline brand")
"""Words of questions, as they are compared ("co" for "company")."""
_COMPANY_WORDS = vocabulary(
    "aeroplane aircraft motor shipping brewing railway electric steel oil car co inc ltd corp "
    "platform technology holding industry airline airway picture studio entertainment record group"
)
_INSTRUMENT = vocabulary("instrument play")
_FIRMS = vocabulary("co inc ltd corp holdings group")
_PLAYER = re.compile(r"(?:m?er|ist|o|s)$")
_COMMON = vocabulary("general universal national standard united")
_RANGES = vocabulary("mountain island hill")


def same_in_kind(about: Asked, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """Whether two names are one in what the question asks for.

    ``Buddhist`` is ``Buddhism`` where a religion is asked for, ``Democrat`` is ``Democratic Party``
    where a party is, ``CA`` is ``California`` where a state is; ``the Rockies`` are the ``Rocky
    Mountains`` everywhere.
    """
    if about.stems & _FAITH and _one_of("faith", mine, other):
        return True
    if about.stems & _PARTY and _one_of("party", mine, other):
        return True
    left, right = compact(keys(mine)), compact(keys(other))
    if about.stems & _TEACHINGS and _one_teaching(mine, other):
        return True
    if about.stems & _SIDES and _one_side(mine, other):
        return True
    if "element" in about.stems and "symbol" not in about.stems and _one_element(mine, other):
        return True
    if "season" in about.stems and {left, right} == {"autumn", "fall"}:
        return True
    if about.stems & _PLACES and left in _STATE and _STATE[left] == _STATE.get(right):
        return True
    if about.stems & _COMPANY and _same_company(mine, other):
        return True
    if _is_firm(mine, other) or (about.stems >= _INSTRUMENT and _one_player(mine, other)):
        return True
    return _same_range(mine, other) or _same_range(other, mine)


def _one_of(kind: str, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    left, right = (
        [stem(word.key) for word in run if word.key not in _MEMBER_WORDS] for run in (mine, other)
    )
    members = _MEMBERS[kind]
    if len(left) != 1 or len(right) != 1:
        return False
    return members.get(left[0], left[0]) == members.get(right[0], right[0])


def _one_teaching(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``communism`` is ``a communist government`` where a form of government is asked for."""
    left, right = (
        [stem(w.key) for w in run if stem(w.key) not in _TAUGHT] for run in (mine, other)
    )
    return len(left) == len(right) == 1 and _ISM.sub("", left[0]) == _ISM.sub("", right[0])


def _one_element(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``Fe`` is ``iron`` where an element is asked for."""
    left, right = (
        _ELEMENT.get(run[0].cased.lower(), run[0].key) if len(run) == 1 else ""
        for run in (mine, other)
    )
    return left == right != ""


def _one_side(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``the South Korean national team`` is ``South Korea`` where a team is asked for."""
    left, right = (
        compact([w.key for w in run if w.key not in _SIDE_WORDS]) for run in (mine, other)
    )
    return left in _COUNTRY and _COUNTRY[left] == _COUNTRY.get(right)


def _same_company(full: Sequence[Word], short: Sequence[Word]) -> bool:
    """``Meta`` for ``Meta Platforms``, ``Disney`` for ``Walt Disney Company``."""
    if len(short) != 1 or len(full) < 2 or not short[0].is_capital:
        return False
    name = [word for word in full if stem(word.key) not in _COMPANY_WORDS]
    if len(name) == 2 and name[0].key in FIRST_NAMES:
        name = name[1:]
    return len(name) == 1 and name[0].key == short[0].key and name[0].key not in _COMMON


def _is_firm(short: Sequence[Word], full: Sequence[Word]) -> bool:
    """``Lehman Brothers Holdings Inc.`` for ``Lehman Brothers``."""
    name = list(full)
    while len(name) > 1 and stem(name[-1].key) in _COMPANY_WORDS:
        name.pop()
    firm = full[-1].key in _FIRMS and len(name) < len(full) and short[0].is_capital
    return firm and keys(name) == keys(short) and short[-1].key not in _COMMON


def _one_player(mine: Sequence[Word], other: Sequence[Word]) -> bool:
    """``trumpeter`` for ``trumpet``."""
    left, right = (
        [
            _PLAYER.sub("", word.key)
            for word in run
            if word.key not in LITTLE and word.key != "player"
        ]
        for run in (mine, other)
    )
    return len(left) == 1 and left == right


def _same_range(full: Sequence[Word], short: Sequence[Word]) -> bool:
    """``Rockies`` for ``Rocky Mountains``, ``Falklands`` for ``Falkland Islands``."""
    # "Sierra Nevada" for "Sierra Nevada Mountains".
    if keys(full[:-1]) == keys(short) and full[-1].key in ("mountains", "islands", "hills"):
        return len(short) > 1 or (full[-1].key == "mountains" and short[0].is_capital)
    if len(full) != 2 or len(short) != 1 or stem(full[1].key) not in _RANGES:
        return False
    plural = short[0].key.endswith("s") and short[0].is_capital
    return plural and stem(short[0].key) == stem(full[0].key)
