"""The tag protocol: which tags there are, who may write them, and how outside text is defused."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import StrEnum

from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.judge.unicode import fold
from ssp_env.tokenizers.base import Tokenizer


class Role(StrEnum):
    """Who writes a trajectory."""

    PROPOSER = "proposer"
    SOLVER = "solver"
    VERIFIER = "verifier"
    """The solver reading documents without search (RAG verification with the policy itself)."""


class Action(StrEnum):
    """What ends a turn."""

    SEARCH = "search"
    QUESTION = "question"
    ANSWER = "answer"


ALLOWED: dict[Role, frozenset[Action]] = {
    Role.PROPOSER: frozenset({Action.SEARCH, Action.QUESTION}),
    Role.SOLVER: frozenset({Action.SEARCH, Action.ANSWER}),
    Role.VERIFIER: frozenset({Action.ANSWER}),
}
"""The actions that each role has. Any other tag in a role's turn is plain text."""


@dataclass(frozen=True)
class Tags:
    """Names of the five tags, without brackets."""

    think: str = "think"
    """Reasoning; decoration to the game."""
    search: str = "search"
    """A query."""
    information: str = "information"
    """Around what a search returned. Only the environment writes it."""
    question: str = "question"
    """The proposer's question."""
    answer: str = "answer"
    """The solver's answer."""

    def __post_init__(self) -> None:
        names = [getattr(self, f.name) for f in fields(self)]
        for f, name in zip(fields(self), names, strict=True):
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
                raise ConfigError(f"tags.{f.name}", name, "use a letter, then letters, digits, '_' or '-'")
        if len(set(names)) != len(names):
            raise ConfigError("tags", names, "give every tag a name of its own")

    def opening(self, name: str) -> str:
        """``<name>`` of the tag with this field name."""
        return f"<{getattr(self, name)}>"

    def closing(self, name: str) -> str:
        """``</name>`` of the tag with this field name."""
        return f"</{getattr(self, name)}>"

    def all(self) -> tuple[str, ...]:
        """All tags, opening and closing, in a fixed order."""
        return tuple(t for f in fields(self) for t in (self.opening(f.name), self.closing(f.name)))

    def defuse(self, text: str) -> str:
        """Outside text with every look-alike of a tag made harmless: its brackets become ‹ and ›.

        Case, spaces, wide letters and invisible characters do not matter, so that neither the parser nor a model
        can take it for a tag, whatever a tokenizer normalises away.
        """
        names = {getattr(self, f.name).casefold() for f in fields(self)}

        def harmless(found: re.Match[str]) -> str:
            name = "".join(fold(found[1]).split()).removeprefix("/")
            return f"‹{found[1]}›" if name in names else found[0]

        return _BRACKETED.sub(harmless, text)


_BRACKETED = re.compile("[<＜﹤]([^<>＜＞﹤﹥]*)[>＞﹥]")
"""Brackets around anything; the wide and the small ones are ``<`` and ``>`` to tokenizers that normalise."""


def check_tokenizer(tokenizer: Tokenizer, tags: Tags) -> None:
    """Makes sure that a tokenizer can spell every tag.

    Raises:
        TokenizerError: a tag that does not survive encoding (names it and what it became).
    """
    for tag in tags.all():
        ids = tokenizer.encode(tag)
        spelled = b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace").strip()
        if spelled != tag:
            raise TokenizerError(
                f"the tokenizer cannot spell the tag {tag}: it becomes {spelled!r}; "
                "add the tag to its vocabulary, or choose other tags"
            )
