"""Filters: cheap checks of a proposed question, each with a reason code (Section 3.4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ssp_env.game.config import GameConfig
from ssp_env.game.trajectory import Trajectory
from ssp_env.types import GroundTruth
from ssp_env.wording.answers import compatible, fold, nearly_same
from ssp_env.wording.mention import mentions


@dataclass(frozen=True)
class Proposal:
    """A question with all that a filter looks at."""

    question: str
    truth: GroundTruth
    trajectory: Trajectory
    config: GameConfig
    past: tuple[str, ...] = ()
    """Questions about this answer that earlier steps asked, as far as they are remembered."""


Filter = Callable[[Proposal], bool]
"""True when the proposal *fails*; the filter's name is the reason code."""


def empty_question(proposal: Proposal) -> bool:
    """Nothing to read between the question tags."""
    return re.search(r"\w", compatible(proposal.question)) is None


def no_search(proposal: Proposal) -> bool:
    """Fewer searches than ``min_searches``, or none that found anything to rest a question on."""
    searches = proposal.trajectory.searches
    enough = len(searches) >= proposal.config.min_searches
    return not (enough and any(search.documents for search in searches))


def short_question(proposal: Proposal) -> bool:
    """Fewer characters than ``question_chars`` asks for; padding does not count."""
    words = compatible(proposal.question).split()
    return len(" ".join(words)) < proposal.config.question_chars[0]


def long_question(proposal: Proposal) -> bool:
    """More characters than ``question_chars`` allows."""
    return len(proposal.question) > proposal.config.question_chars[1]


def spoiler(proposal: Proposal) -> bool:
    """A reader would see the answer or an alias in the question, in whatever spelling.

    Clues that have to be worked out are left to verification and to the solvers' rewards."""
    return mentions(proposal.question, proposal.truth.wordings) is not None


def few_words(proposal: Proposal) -> bool:
    """Fewer than ten words, as in the paper's released code."""
    return len(compatible(proposal.question).split()) < 10


def repeated_query(proposal: Proposal) -> bool:
    """The same query was sent twice, up to case, width, spacing and invisible characters."""
    queries = [" ".join(fold(search.query).split()) for search in proposal.trajectory.searches]
    return len(set(queries)) < len(queries)


def past_question(proposal: Proposal) -> bool:
    """An earlier step asked nearly the same about this answer, so that it may be known by heart.

    Questions are remembered by the strategies of training, see
    :class:`~ssp_env.game.strategies.Remembering`; those of the same step are not compared."""
    return any(nearly_same(proposal.question, past) for past in proposal.past)


FILTERS: dict[str, Filter] = {
    rule.__name__: rule
    for rule in (
        empty_question,
        no_search,
        short_question,
        long_question,
        spoiler,
        few_words,
        repeated_query,
        past_question,
    )
}
"""All filters that ship, by reason code."""
