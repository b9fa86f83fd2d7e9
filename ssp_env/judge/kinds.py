"""Names that follow from another one where the question asks for that kind of thing."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.judge.reading import Asked
from ssp_env.wording.names import FIRST_NAMES
from ssp_env.wording.places import STATE
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
    "atheism atheist,presbyterianism presbyterian,quakerism quaker"
)
_PARTIES = (
    "democratic democrat,republican gop,conservative tory,communist communism,socialist socialism"
)
_MEMBERS = {
    kind: {
        word: names.split()[0] for names in listed.split(",") for word in map(stem, names.split())
    }
    for kind, listed in (("faith", _FAITHS), ("party", _PARTIES))
}
_STATE = {compact(keys(words(name))): compact(keys(words(of))) for name, of in STATE.items()}
_COMPANY = vocabulary("co corp inc firm manufacturer studio label publisher airline brand")
"""Words of questions, as they are compared ("co" for "company")."""
_COMPANY_WORDS = vocabulary(
    "co inc ltd corp platform technology holding industry airline airway picture studio "
    "entertainment record group"
)
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
    if "season" in about.stems and {left, right} == {"autumn", "fall"}:
        return True
    if about.stems & _PLACES and left in _STATE and _STATE[left] == _STATE.get(right):
        return True
    if about.stems & _COMPANY and _same_company(mine, other):
        return True
    return _same_range(mine, other) or _same_range(other, mine)


def _one_of(kind: str, mine: Sequence[Word], other: Sequence[Word]) -> bool:
    left, right = (
        [stem(word.key) for word in run if word.key not in ("party", "parties")]
        for run in (mine, other)
    )
    members = _MEMBERS[kind]
    if len(left) != 1 or len(right) != 1:
        return False
    return members.get(left[0], left[0]) == members.get(right[0], right[0])


def _same_company(full: Sequence[Word], short: Sequence[Word]) -> bool:
    """``Meta`` for ``Meta Platforms``, ``Disney`` for ``Walt Disney Company``."""
    if len(short) != 1 or len(full) < 2 or not short[0].is_capital:
        return False
    name = [word for word in full if stem(word.key) not in _COMPANY_WORDS]
    if len(name) == 2 and name[0].key in FIRST_NAMES:
        name = name[1:]
    return len(name) == 1 and name[0].key == short[0].key and name[0].key not in _COMMON


def _same_range(full: Sequence[Word], short: Sequence[Word]) -> bool:
    """``Rockies`` for ``Rocky Mountains``, ``Falklands`` for ``Falkland Islands``."""
    if len(full) != 2 or len(short) != 1 or stem(full[1].key) not in _RANGES:
        return False
    plural = short[0].key.endswith("s") and short[0].is_capital
    return plural and stem(short[0].key) == stem(full[0].key)
