"""The tag protocol: names of the tags, who may write them, how outside text is defused, and the
parser that finds the first complete action of a turn, token by token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import StringConstraints, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.game.calls import NO_OBJECTS, Call, Objects, objects_after, read_call
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Action, Immutable, Role
from ssp_env.wording.normal import skeleton


def actions_of(role: Role, tools: Sequence[str] = (Action.SEARCH.value,)) -> tuple[str, ...]:
    """The actions that a role has: tools, if it has any, then the one that ends its trajectory. Any
    other tag in its turns is plain text.

    >>> actions_of(Role.SOLVER, ("search", "open"))
    ('search', 'open', 'answer')
    """
    looks_up = role in (Role.PROPOSER, Role.SOLVER)
    last = Action.QUESTION if role is Role.PROPOSER else Action.ANSWER
    return (*(tools if looks_up else ()), last.value)


TagName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
_CALL = "a tool call"
"""Kind of what is open within the tags of tool calls; all others are actions."""


class Tags(Settings):
    """Names of the tags, without brackets."""

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
    call: TagName | None = None
    """Around a tool call in JSON, such as Qwen's ``tool_call``: ``{"name": "search", "arguments":
    {"query": "..."}}`` is a search, and so are the other actions by their names. A call without its
    tags counts too, bare or in a fence, and so do the tags of the actions themselves."""
    also: tuple[TagName, ...] = ()
    """Further tags that a prompt set speaks of, such as R-Search's ``original_evidence``:
    decoration to the game, but outside text cannot spell them."""
    tools: tuple[TagName, ...] = ()
    """Tools beside search, which come from ``game.tools``: a tool's name is its tag."""

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        # Two tags of one name could not be told apart.
        taken = type(self).model_fields.keys() & {*self.tools}
        if taken or len(set(self.names)) != len(self.names):
            raise ConfigError("tags", self.names, "give every tag a name of its own")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        # Their order is that of single-token vocabularies, by which policies were trained.
        called = () if self.call is None else (self.call,)
        five = (self.think, self.search, self.information, self.question, self.answer)
        return (*five, *called, *self.also, *self.tools)

    def opening(self, name: str) -> str:
        return f"<{name if name in self.tools else getattr(self, name)}>"

    def closing(self, name: str) -> str:
        return f"</{name if name in self.tools else getattr(self, name)}>"

    def all(self) -> tuple[str, ...]:
        """All tags, opening and closing, in a fixed order."""
        return tuple(tag for name in self.names for tag in (f"<{name}>", f"</{name}>"))

    def defuse(self, text: str) -> str:
        """Outside text with every look-alike of a tag made harmless: its brackets become ‹ and ›.

        Case, spaces, accents, wide letters, letters of other scripts, attributes and invisible
        characters do not matter. Half a tag at either end of the text is defused as well: with
        what stands next to it in a prompt, it could be a whole one.

        >>> Tags().defuse("1 < 2, </ Answer >, <b> and <sea")
        '1 < 2, ‹/ Answer ›, <b> and ‹sea'
        """
        if _BRACKET.search(text) is None:
            return text

        names = {name.casefold() for name in self.names}

        def whole(match: re.Match[str]) -> str:
            return f"‹{match[1]}›" if not names.isdisjoint(_names_in(match[1])) else match[0]

        def first_half(match: re.Match[str]) -> str:
            begun = _names_in(match[1])[-1]
            return f"‹{match[1]}" if any(name.startswith(begun) for name in names) else match[0]

        def second_half(match: re.Match[str]) -> str:
            ended = _names_in(match[1])[-1]
            return f"{match[1]}›" if any(name.endswith(ended) for name in names) else match[0]

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
class Forgery:
    """The policy wrote a tag that only the environment may write."""

    tag: str


class TurnScanner:
    """Reads the bytes of one turn as they come, in time proportional to their number.

    A tag counts wherever its last byte falls: at the end of a token, in the middle of one, or
    spread over several. Of several openings the last one before the closing tag counts; a closing
    tag without an opening is text.

    Tags inside a thought are text as well: it goes from an opening think tag to the first closing
    one. Whether a thought is ever closed cannot be known before the turn ends. An unclosed one
    counts as text: :meth:`end` then returns what it held back.

    Where the set has a tag for tool calls, the first JSON object that is a call counts wherever it
    stands, at its last brace. Within the tag it counts once the tag is closed, or at the end.

    >>> scanner = TurnScanner(ScannerTags(Tags(), ("search", "answer")))
    >>> scanner.feed(b"<think> <answer> Eve </answer> </think> <search> Em")
    >>> scanner.feed(b"ma </search> and more"), scanner.surplus
    (Call(action='search', content='Emma'), 9)
    """

    def __init__(self, tags: ScannerTags, thinking: bool = False) -> None:
        self.began_thinking = thinking
        """True if the turn began inside a thought, which its prompt has opened."""
        self._tags = tags
        self._text = bytearray()
        self._from = 0

        # In a thought, this follows its tags as if they counted, in case it is never closed.
        self._state = _State()
        self._outside: _State | None = self._state if thinking else None
        """While a thought is open: the state that returns once it is closed."""
        self._held: Call | Forgery | None = None
        """The call or forgery completed first in the open thought."""

    def feed(self, piece: bytes) -> Call | Forgery | None:
        """Takes the bytes of one token or more; returns what they completed first, if anything."""
        text, tags = self._text, self._tags
        text += piece
        # Each round reads the text up to the next bracket, then the tag that begins there, if any.
        while True:
            # Everything before this position has been looked at already.
            start = text.find(b"<", self._from)
            stop = len(text) if start < 0 else start
            action: Call | Forgery | None = self._read(stop) if tags.calls else None
            if action is None:
                self._from = stop
                if start < 0:
                    return None
                match = tags.pattern.match(text, start)
                if match is None:
                    # The rest of this tag may come with the next token.
                    if bytes(text[start : start + tags.longest]) in tags.beginnings:
                        return None
                    # It is no tag, but where actions may be JSON it may stand in a string.
                    self._from = start if tags.calls else start + 1
                    action = self._read(start + 1) if tags.calls else None
                else:
                    self._from = match.end()
                    action = self._handle_tag(match[0], start)
            if action is not None and self._outside is None:
                return action
            self._held = self._held or action

    def end(self) -> Call | Forgery | None:
        """The first call of a turn that ends here, which its open thought or tag held back."""
        return self._held or self._state.called

    @property
    def surplus(self) -> int:
        """Number of bytes that were fed after the end of what was found."""
        return len(self._text) - self._from

    def mark(self) -> tuple[Any, ...]:
        """The current position, for :meth:`rewind`."""
        return len(self._text), self._from, self._state, self._outside, self._held

    def rewind(self, mark: tuple[Any, ...]) -> None:
        """Forgets everything that was fed since the mark was taken."""
        length, self._from, self._state, self._outside, self._held = mark
        del self._text[length:]

    def _read(self, stop: int) -> Call | None:
        """Follows plain text up to ``stop``; returns a tool call that it completes by itself."""
        tags, state = self._tags, self._state
        if self._held is not None or state.called is not None:
            self._from = stop
            return None

        end, objects = objects_after(state.objects, self._text, self._from, stop)
        while end is not None:
            self._from, object_ = end, objects.closed
            call = read_call(self._plain(object_, end), tags.allowed)
            if call is not None:
                # Within its tags, a call waits for the closing one.
                within = state.kind == _CALL
                self._state = replace(state, objects=NO_OBJECTS, called=call if within else None)
                if not within:
                    return call
                self._from = stop
                return None
            end, objects = objects_after(objects, self._text, self._from, stop)
        self._from, self._state = stop, replace(state, objects=objects)
        return None

    def _handle_tag(self, tag: bytes, start: int) -> Call | Forgery | None:
        """Follows one tag, which begins at ``start``; returns what it completes."""
        tags, state = self._tags, self._state
        # In an open thought the first action is held back; if it counts, the turn ended there.
        if self._held is not None and tag != tags.think_closing:
            return None
        # Also in a thought, where :meth:`feed` holds it back until the thought turns out unclosed.
        if tag in tags.forbidden:
            return state.called or Forgery(tag.decode())

        # An opening inside a thought is text, and so is a closing outside of any.
        if tag == tags.think_opening:
            # A thought within a thought is text: what was open before the outer one counts.
            self._outside = self._outside or state
        elif tag == tags.think_closing:
            if self._outside is not None:
                self._state, self._outside, self._held = self._outside, None, None

        # A later opening replaces an earlier one: only the last before the closing tag counts.
        elif (opened := tags.openings.get(tag)) is not None:
            # Another call behind a complete one, whose tag is open, is not read.
            if state.called is not None:
                return state.called
            self._state = _State(opened, self._from)
        elif (kind := tags.closings[tag]) == state.kind:
            if kind == _CALL:
                return state.called
            return Call(kind, self._plain(state.begins, start))
        return None

    def _plain(self, start: int, stop: int) -> str:
        text = self._tags.without_thoughts(bytes(self._text[start:stop]))
        return text.decode("utf-8", "replace").strip()


@dataclass(frozen=True, slots=True)
class _State(Immutable):
    """What is open at a place of a turn."""

    kind: str | None = None
    """What the last opening tag that counts has opened."""
    begins: int = 0
    """Where its content begins."""
    objects: Objects = NO_OBJECTS
    """JSON objects that are open."""
    called: Call | None = None
    """The first tool call within its tags, until they are closed."""


class ScannerTags(Immutable):
    """The tags that matter in one role's turns, ready for matching."""

    def __init__(self, tags: Tags, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)
        kinds = dict(zip(allowed, allowed, strict=True))
        kinds |= {} if tags.call is None else {"call": _CALL}
        self.calls = tags.call is not None
        """True if actions may be tool calls in JSON."""
        self.openings = {tags.opening(name).encode(): kind for name, kind in kinds.items()}
        self.closings = {tags.closing(name).encode(): kind for name, kind in kinds.items()}
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
        """The texts at which an engine has to stop, and go on where the turn does: tags inside a
        thought end nothing, and a tool call may have braces within."""
        ends = tuple(tag.decode() for tag in (*self.closings, *self.forbidden))
        return (*ends, "}") if self.calls else ends
