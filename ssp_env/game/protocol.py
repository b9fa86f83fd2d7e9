"""The tag protocol: which tags there are, who may write them, and how outside text is defused."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Self

from pydantic import StringConstraints, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Action, Role
from ssp_env.wording.answers import skeleton

ALLOWED: dict[Role, frozenset[Action]] = {
    Role.PROPOSER: frozenset({Action.SEARCH, Action.QUESTION}),
    Role.SOLVER: frozenset({Action.SEARCH, Action.ANSWER}),
    Role.VERIFIER: frozenset({Action.ANSWER}),
    Role.CLOSED_BOOK: frozenset({Action.ANSWER}),
}
"""The actions that each role has. Any other tag in a role's turn is plain text."""


TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]


class Tags(Settings):
    """Names of the five tags, without brackets."""

    section: ClassVar[str] = "tags"

    think: TagName = "think"
    """Reasoning; decoration to the game."""
    search: TagName = "search"
    """A query."""
    information: TagName = "information"
    """Around what a search returned. Only the environment writes it."""
    question: TagName = "question"
    """The proposer's question."""
    answer: TagName = "answer"
    """The solver's answer."""
    also: tuple[TagName, ...] = ()
    """Further tags that a prompt set speaks of, such as R-Search's ``original_evidence``:
    decoration to the game, but outside text cannot spell them."""

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        # Two tags of one name could not be told apart.
        if len(set(self.names)) != len(self.names):
            raise ConfigError("tags", self.names, "give every tag a name of its own")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in a fixed order."""
        return (self.think, self.search, self.information, self.question, self.answer, *self.also)

    def opening(self, name: str) -> str:
        """``<name>`` of the tag with this field name."""
        return f"<{getattr(self, name)}>"

    def closing(self, name: str) -> str:
        """``</name>`` of the tag with this field name."""
        return f"</{getattr(self, name)}>"

    def all(self) -> tuple[str, ...]:
        """All tags, opening and closing, in a fixed order."""
        return tuple(tag for name in self.names for tag in (f"<{name}>", f"</{name}>"))

    def defuse(self, text: str) -> str:
        """Outside text with every look-alike of a tag made harmless: its brackets become ‹ and ›.

        Case, spaces, accents, wide letters, letters of other scripts, attributes and invisible
        characters do not matter, so that neither the parser nor a model can take it for a tag,
        whatever a tokenizer normalises away. Half a tag at either end of the text is defused as
        well, since together with what stands next to it in a prompt, it could be a whole one.
        """
        if _BRACKET.search(text) is None:
            return text

        names = {name.casefold() for name in self.names}

        def whole(found: re.Match[str]) -> str:
            return f"‹{found[1]}›" if not names.isdisjoint(_names_in(found[1])) else found[0]

        def first_half(found: re.Match[str]) -> str:
            begun = _names_in(found[1])[-1]
            return f"‹{found[1]}" if any(name.startswith(begun) for name in names) else found[0]

        def second_half(found: re.Match[str]) -> str:
            ended = _names_in(found[1])[-1]
            return f"{found[1]}›" if any(name.endswith(ended) for name in names) else found[0]

        # Halves come last, so that they see only what no whole tag took.
        return _SECOND_HALF.sub(second_half, _FIRST_HALF.sub(first_half, _WHOLE.sub(whole, text)))


_LEFT, _RIGHT = "<＜﹤≮˂ᐸ❮", ">＞﹥≯˃ᐳ❯"
"""Angle brackets: the wide, small and struck-out ones are ``<`` and ``>`` to tokenizers that
normalise."""
_INSIDE = f"[^{_LEFT}{_RIGHT}‹›]*"
_BRACKET = re.compile(f"[{_LEFT}{_RIGHT}]")
_WHOLE = re.compile(f"[{_LEFT}]({_INSIDE})[{_RIGHT}]")
_FIRST_HALF = re.compile(rf"[{_LEFT}]({_INSIDE})\Z")
_SECOND_HALF = re.compile(rf"\A({_INSIDE})[{_RIGHT}]")


_SMALL_CAPITALS = str.maketrans("внχωᎶ", "bhxwg")
"""Letters that look like small capitals, which Unicode's table of look-alikes lacks."""


def _names_in(bracketed: str) -> tuple[str, str]:
    """Words that a reader could take for the tag's name.

    The first word, since attributes may follow, or all of it without spaces.
    """
    words = skeleton(bracketed.translate(_SMALL_CAPITALS)).casefold().replace("/", " ").split()
    return (words[0] if words else ""), "".join(words)


def check_tokenizer(tokenizer: Tokenizer, tags: Tags) -> None:
    """Checks that a tokenizer can spell every tag.

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
