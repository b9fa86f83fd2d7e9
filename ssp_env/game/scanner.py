"""The tag parser: finds the first complete action of a turn, token by token."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ssp_env.game.protocol import ALLOWED, Tags
from ssp_env.types import Action, Role


@dataclass(frozen=True, slots=True)
class Call:
    """A complete action: what stood between an opening tag and the first closing tag after it."""

    action: Action
    content: str


@dataclass(frozen=True, slots=True)
class Forgery:
    """The policy wrote a tag that only the environment may write."""

    tag: str


class TurnScanner:
    """Reads the bytes of one turn as they come, in time proportional to their number.

    A tag counts wherever its last byte falls: at the end of a token, in the middle of one, or
    spread over several. Of several openings the last one before the closing tag counts; a closing
    tag without an opening is text."""

    __slots__ = ("_content_from", "_from", "_open", "_tags", "_text")

    def __init__(self, tags: ScannerTags) -> None:
        self._tags = tags
        self._text = bytearray()
        self._from = 0
        self._open: Action | None = None
        self._content_from = 0

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
            if found is not None:
                return found

    @property
    def surplus(self) -> int:
        """Bytes that were fed after the end of what was found."""
        return len(self._text) - self._from

    def mark(self) -> tuple[int, int, Action | None, int]:
        """The current position, for :meth:`rewind`."""
        return len(self._text), self._from, self._open, self._content_from

    def rewind(self, mark: tuple[int, int, Action | None, int]) -> None:
        """Forgets everything that was fed since the mark was taken."""
        length, self._from, self._open, self._content_from = mark
        del self._text[length:]

    def _take(self, tag: bytes, start: int) -> Call | Forgery | None:
        if tag in self._tags.forbidden:
            return Forgery(tag.decode())

        opened = self._tags.openings.get(tag)

        # A later opening replaces an earlier one: only the last before the closing tag counts.
        if opened is not None:
            self._open, self._content_from = opened, self._from
            return None

        closed = self._tags.closings.get(tag)
        if closed is not None and closed is self._open:
            content = bytes(self._text[self._content_from : start]).decode("utf-8", "replace")
            return Call(closed, content.strip())
        return None


class ScannerTags:
    """The tags that matter in one role's turns, ready for matching."""

    def __init__(self, tags: Tags, role: Role) -> None:
        actions = [action for action in Action if action in ALLOWED[role]]
        self.openings = {tags.opening(a.value).encode(): a for a in actions}
        self.closings = {tags.closing(a.value).encode(): a for a in actions}
        self.forbidden = frozenset(
            {tags.opening("information").encode(), tags.closing("information").encode()}
        )

        # Only the environment writes information tags, whatever the role.
        known = (*self.openings, *self.closings, *self.forbidden)
        self.pattern = re.compile(b"|".join(map(re.escape, known)))
        """Any of the tags. None is a prefix of another: each has its only ``>`` at the end."""
        self.longest = max(map(len, known))
        """Bytes of the longest tag."""
        self.beginnings = frozenset(tag[:length] for tag in known for length in range(1, len(tag)))
        """What could still become a tag."""

    def stops(self) -> tuple[str, ...]:
        """The tags that can end a turn: where an engine has to stop."""
        return tuple(tag.decode() for tag in (*self.closings, *self.forbidden))
