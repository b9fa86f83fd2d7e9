"""Tools: actions of proposer and solver that look something up, each by a declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ssp_env.search.base import Retriever
from ssp_env.search.pages import Pages, pages_of
from ssp_env.types import Action, Immutable, World


@dataclass(frozen=True, slots=True)
class Tool(Immutable):
    """An action that looks something up: ``<name> argument </name>``, or a call of a function."""

    name: str
    """Its tag, and the function's name in tool calls."""
    argument: str
    """The function's only parameter, a string."""
    purpose: str
    """A sentence that begins with a verb, for prompts and declarations: "Reads the page ..."."""
    meaning: str
    """What the argument is, in a sentence: "The title of a page."."""
    make: Callable[[World, Retriever], Retriever]
    """Makes what answers its calls, from the world and what ``search`` asks. ``search(queries, k)``
    of it takes the arguments of many calls, and returns the documents that each is shown.

    With an attribute ``reads_on = True``, a trajectory is shown what it has not been shown yet, as
    long as there is any."""

    def in_words(self, opening: str, closing: str) -> str:
        """The sentence that tells of it in a prompt."""
        # The sentence goes on behind the call: "<open> title </open> reads the page ...".
        does = self.purpose[:1].lower() + self.purpose[1:]
        return f" Besides, {opening} {self.argument} {closing} {does}"


def _searched(world: World, retriever: Retriever) -> Retriever:
    return retriever


def _pages(world: World, retriever: Retriever) -> Retriever:
    return pages_of(retriever) or Pages(world.corpus)


SEARCH = Tool(
    Action.SEARCH.value,
    "query",
    "Looks something up in an encyclopedia.",
    "What to look up.",
    _searched,
)
OPEN = Tool(
    "open",
    "title",
    "Reads the page of this title, and reads on when called again.",
    "The title of a page.",
    _pages,
)
TOOLS = {tool.name: tool for tool in (SEARCH, OPEN)}
"""Tools that ``game.tools`` can name without more."""
