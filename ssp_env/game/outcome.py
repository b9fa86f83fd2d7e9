"""Ends of games and trajectories: three outcomes, and a reason code for each way to fail."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Outcome of a game. The three endings are never mixed."""

    PENDING = "pending"
    VALID = "valid"
    """The question passed every check; both roles are rewarded."""
    INVALID = "invalid"
    """The proposer failed, for a reason; it earns ``invalid_reward``."""
    VOID = "void"
    """Search, judge, verifier or engine failed after retries, and too few attempts remain: no
    reward, nothing is trained on."""


class Ending(StrEnum):
    """End of a trajectory; all but ``ACTION`` and ``OUTAGE`` are the policy's own fault."""

    ACTION = "action"
    """With the question or the answer that it was to give."""
    FORMAT = "format"
    """A turn ended without a complete action."""
    FORGED = "forged_information"
    """The policy wrote a tag that only the environment may write."""
    BUDGET_TOKENS = "budget_tokens"
    """No room for another token."""
    BUDGET_SEARCHES = "budget_searches"
    BUDGET_QUERY = "budget_query"
    BUDGET_ANSWER = "budget_answer"
    REFUSED = "refused"
    """A query that the search server will not answer, however often it is asked."""
    OUTAGE = "outage"
    """A service failed; the attempt is void, or the game."""


@dataclass(frozen=True)
class Outage:
    """Failure that made a game or an attempt void."""

    service: str
    """``search``, ``judge``, ``verifier``, ``engine``, or the name that your own part gave."""
    what: str
    """The service's own text, which may differ between two identical runs."""
    calls: int | None = None
    """Number of calls before giving up; ``None`` if unknown."""


UNVERIFIED = "unverified"
"""Reason of a game whose question was not answerable from its documents."""
BUDGET_PROMPT = "budget_prompt"
"""Reason of a game whose answer or question does not fit into a prompt."""
CLOSED_BOOK = "closed_book"
"""Reason of a game whose question the solver could answer from memory, with no documents at all."""

RESERVED = frozenset({*(ending.value for ending in Ending), UNVERIFIED, BUDGET_PROMPT, CLOSED_BOOK})
"""Reason codes that a filter of your own cannot have."""
