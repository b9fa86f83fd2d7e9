"""The tag protocol: names of the tags, who may write them, how outside text is defused, and the
parser that finds the first complete action of a turn, token by token."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import StringConstraints, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Action, Immutable, Role
from ssp_env.wording.answers import skeleton

ALLOWED: dict[Role, frozenset[Action]] = {
    Role.PROPOSER: frozenset({Action.SEARCH, Action.QUESTION}),
    Role.SOLVER: frozenset({Action.SEARCH, Action.ANSWER}),
    Role.VERIFIER: frozenset({Action.ANSWER}),
    Role.CLOSED_BOOK: frozenset({Action.ANSWER}),
}
"""The actions that each role has. Any other tag in a role's turn is plain text."""


TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
TokenName = Annotated[str, StringConstraints(pattern=r"^<\|[a-z_]+\|>$")]
_Kind = Action | Literal["call"]
"""An action by its own tags, or in a tool call."""


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
    call: TagName | tuple[TokenName, TokenName] | None = None
    """Around a tool call in JSON, such as Qwen's ``tool_call``: ``{"name": "search", "arguments":
    {"query": "..."}}`` is a search, and so are the other actions by their names. The tags of the
    actions themselves count beside it. Two tokens, such as Llama's ``<|python_tag|>`` and
    ``<|eom_id|>``, are written out; the end of the turn closes such a call as well."""
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
        pair = self.call if isinstance(self.call, tuple) else ()
        called = (self.call,) if isinstance(self.call, str) else tuple(t[1:-1] for t in pair)
        five = (self.think, self.search, self.information, self.question, self.answer)
        return (*five, *called, *self.also)

    def opening(self, name: str) -> str:
        named = getattr(self, name)
        return f"<{named}>" if isinstance(named, str) else str(named[0])

    def closing(self, name: str) -> str:
        named = getattr(self, name)
        return f"</{named}>" if isinstance(named, str) else str(named[1])

    def all(self) -> tuple[str, ...]:
        """All tags, opening and closing, in a fixed order."""
        tags = (tag for name in self.names for tag in (f"<{name}>", f"</{name}>"))
        return tuple(tag for tag in tags if not tag.startswith("</|"))

    def defuse(self, text: str) -> str:
        """Outside text with every look-alike of a tag made harmless: its brackets become ‹ and ›.

        Case, spaces, accents, wide letters, letters of other scripts, attributes and invisible
        characters do not matter. Half a tag at either end of the text is defused as well: with
        what stands next to it in a prompt, it could be a whole one."""
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


# The wide, small and struck-out ones are ``<`` and ``>`` to tokenizers that normalise.
_LEFT, _RIGHT = "<＜﹤≮˂ᐸ❮", ">＞﹥≯˃ᐳ❯"
_INSIDE = f"[^{_LEFT}{_RIGHT}‹›]*"
_BRACKET = re.compile(f"[{_LEFT}{_RIGHT}]")
_WHOLE = re.compile(f"[{_LEFT}]({_INSIDE})[{_RIGHT}]")
_FIRST_HALF = re.compile(rf"[{_LEFT}]({_INSIDE})\Z")
_SECOND_HALF = re.compile(rf"\A({_INSIDE})[{_RIGHT}]")
_SMALL_CAPITALS = str.maketrans("внχωᎶ", "bhxwg")
"""Letters that look like small capitals, which Unicode's table of look-alikes lacks."""


def _names_in(bracketed: str) -> tuple[str, str]:
    """What a reader could take for the tag's name: the first word, since attributes may follow, or
    all of it without spaces."""
    words = skeleton(bracketed.translate(_SMALL_CAPITALS)).casefold().replace("/", " ").split()
    return (words[0] if words else ""), "".join(words)


def check_tokenizer(tokenizer: Tokenizer, tags: Tags) -> None:
    """Refuses a tokenizer that cannot spell every tag; names the tag and what it became."""
    for tag in tags.all():
        ids = tokenizer.encode(tag)
        spelled = b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace").strip()
        if spelled != tag:
            raise TokenizerError(
                f"the tokenizer cannot spell the tag {tag}: it becomes {spelled!r}; "
                "add the tag to its vocabulary, or choose other tags"
            )


# -- the parser of turns ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """A complete action, and what stood between its tags."""

    action: Action
    content: str


@dataclass(frozen=True, slots=True)
class Forgery:
    """The policy wrote a tag that only the environment may write."""

    tag: str


def read_call(content: str, allowed: Collection[Action]) -> Call | None:
    """The action of a tool call; ``None`` for text that is none of those allowed."""
    try:
        said = json.loads(content)
        action = Action(said["name"])
        (text,) = said.get("arguments", said.get("parameters")).values()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if action not in allowed or not isinstance(text, str):
        return None
    # JSON can spell halves of characters, which no tokenizer takes.
    return Call(action, text.encode("utf-8", "replace").decode("utf-8").strip())


class TurnScanner:
    """Reads the bytes of one turn as they come, in time proportional to their number.

    A tag counts wherever its last byte falls: at the end of a token, in the middle of one, or
    spread over several. Of several openings the last one before the closing tag counts; a closing
    tag without an opening is text.

    Tags inside a thought are text as well: it goes from an opening think tag to the first closing
    one. Whether a thought is ever closed cannot be known before the turn ends. An unclosed one
    counts as text: :meth:`end` then returns what it held back."""

    def __init__(self, tags: ScannerTags, thinking: bool = False) -> None:
        self.began_thinking = thinking
        """True if the turn began inside a thought, which its prompt has opened."""
        self._tags = tags
        self._text = bytearray()
        self._from = 0

        # In a thought, this follows its tags as if they counted, in case it is never closed.
        self._open: tuple[_Kind | None, int] = (None, 0)
        """The last opening tag that counts, and where its content begins."""
        self._outside: tuple[_Kind | None, int] | None = self._open if thinking else None
        """While a thought is open: the state that returns once it is closed."""
        self._held: Call | Forgery | None = None
        """The call or forgery completed first in the open thought."""

    def feed(self, piece: bytes) -> Call | Forgery | None:
        """Takes the bytes of one token or more; returns what they completed first, if anything."""
        text, tags = self._text, self._tags
        text += piece
        while True:
            # Everything before this position has been looked at already.
            start = text.find(b"<", self._from)
            if start < 0:
                self._from = len(text)
                return None

            match = tags.pattern.match(text, start)
            if match is None:
                # The rest of this tag may come with the next token.
                if bytes(text[start : start + tags.longest]) in tags.beginnings:
                    self._from = start
                    return None
                self._from = start + 1
                continue

            self._from = match.end()
            found = self._take(match[0], start)
            if found is not None and self._outside is None:
                return found
            self._held = found or self._held

    def end(self) -> Call | Forgery | None:
        """The first call of a turn that ends here: one that its unclosed thought held back, or that
        the end closes."""
        kind, start = self._open
        if self._held is None and kind == "call" and self._tags.end_closes:
            return self._completed(kind, bytes(self._text[start:]))
        return self._held

    @property
    def surplus(self) -> int:
        """Number of bytes that were fed after the end of what was found."""
        return len(self._text) - self._from

    def mark(self) -> tuple[Any, ...]:
        """The current position, for :meth:`rewind`."""
        return len(self._text), self._from, self._open, self._outside, self._held

    def rewind(self, mark: tuple[Any, ...]) -> None:
        """Forgets everything that was fed since the mark was taken."""
        length, self._from, self._open, self._outside, self._held = mark
        del self._text[length:]

    def _take(self, tag: bytes, start: int) -> Call | Forgery | None:
        """Follows one tag, which begins at ``start``; returns what it completes."""
        tags = self._tags
        # In an open thought the first action is held back; if it counts, the turn ended there.
        if self._held is not None and tag != tags.think_closing:
            return None
        # Also in a thought, where :meth:`feed` holds it back until the thought turns out unclosed.
        if tag in tags.forbidden:
            return Forgery(tag.decode())

        # An opening inside a thought is text, and so is a closing outside of any.
        if tag == tags.think_opening:
            self._outside = self._outside or self._open
        elif tag == tags.think_closing:
            if self._outside is not None:
                self._open, self._outside, self._held = self._outside, None, None

        # A later opening replaces an earlier one: only the last before the closing tag counts.
        elif (opened := tags.openings.get(tag)) is not None:
            self._open = opened, self._from
        elif (kind := tags.closings[tag]) == self._open[0]:
            return self._completed(kind, bytes(self._text[self._open[1] : start]))
        return None

    def _completed(self, kind: _Kind, content: bytes) -> Call | None:
        tags = self._tags
        text = tags.without_thoughts(content).decode("utf-8", "replace").strip()
        return Call(kind, text) if isinstance(kind, Action) else read_call(text, tags.allowed)


class ScannerTags(Immutable):
    """The tags that matter in one role's turns, ready for matching."""

    def __init__(self, tags: Tags, allowed: Collection[Action]) -> None:
        self.allowed = frozenset(allowed)
        kinds: list[_Kind] = [action for action in Action if action in allowed]
        kinds += [] if tags.call is None else ["call"]
        self.end_closes = isinstance(tags.call, tuple)
        """True if the end of a turn closes a tool call."""
        self.openings = {tags.opening(kind).encode(): kind for kind in kinds}
        self.closings = {tags.closing(kind).encode(): kind for kind in kinds}
        thought, information = (
            (tags.opening(name).encode(), tags.closing(name).encode())
            for name in ("think", "information")
        )
        self.think_opening, self.think_closing = thought

        # Only the environment writes information tags, whatever the role.
        self.forbidden = frozenset(information)
        known = (*self.openings, *self.closings, *self.forbidden, *thought)
        self.pattern = re.compile(b"|".join(map(re.escape, known)))
        """Any of the tags. None is a prefix of another: each has its only ``>`` at the end."""
        self.longest = max(map(len, known))
        self.beginnings = frozenset(tag[:length] for tag in known for length in range(1, len(tag)))

    def without_thoughts(self, content: bytes) -> bytes:
        """The content of a call with a space for every complete thought in it."""
        kept: list[bytes] = []
        while True:
            before, _, inside = content.partition(self.think_opening)
            _, closed, after = inside.partition(self.think_closing)
            if not closed:
                return b" ".join([*kept, content])
            kept.append(before)
            content = after

    def stops(self) -> tuple[str, ...]:
        """The tags at which an engine has to stop, and go on where a thought is open: tags inside a
        thought end nothing."""
        return tuple(tag.decode() for tag in (*self.closings, *self.forbidden))
