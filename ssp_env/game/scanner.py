"""The tag parser: finds the first complete action of a turn, token by token."""

from __future__ import annotations

from dataclasses import dataclass

from ssp_env.game.protocol import ALLOWED, Action, Role, Tags


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
    """Reads the bytes of one turn as they come; each byte is looked at a bounded number of times.

    A tag counts wherever its last byte falls: at the end of a token, in the middle of one, or spread
    over several. Of several openings the last one before the closing tag counts; a closing tag
    without an opening is text.
    """

    __slots__ = ("_content_from", "_from", "_open", "_tags", "_text")

    def __init__(self, tags: ScannerTags) -> None:
        self._tags = tags
        self._text = bytearray()
        self._from = 0
        self._open: Action | None = None
        self._content_from = 0

    def feed(self, piece: bytes) -> Call | Forgery | None:
        """Takes the bytes of the next token; tells whether they completed something."""
        text = self._text
        text += piece
        while True:
            start = text.find(b"<", self._from)
            if start < 0:
                self._from = len(text)
                return None
            tag = self._tags.match(text, start)
            if tag is None:
                self._from = start + 1
                continue
            if tag == b"":
                self._from = start
                return None
            self._from = start + len(tag)
            found = self._take(tag, start)
            if found is not None:
                return found

    def mark(self) -> tuple[int, int, Action | None, int]:
        """Where it stands, for :meth:`back_to`."""
        return len(self._text), self._from, self._open, self._content_from

    def back_to(self, mark: tuple[int, int, Action | None, int]) -> None:
        """Forgets everything that it was fed since the mark was taken."""
        length, self._from, self._open, self._content_from = mark
        del self._text[length:]

    def _take(self, tag: bytes, start: int) -> Call | Forgery | None:
        if tag in self._tags.forbidden:
            return Forgery(tag.decode())
        opened = self._tags.openings.get(tag)
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
        self.forbidden = frozenset({tags.opening("information").encode(), tags.closing("information").encode()})
        self._all = (*self.openings, *self.closings, *self.forbidden)
        self._longest = max(map(len, self._all))

    def match(self, text: bytearray, start: int) -> bytes | None:
        """The tag at ``start``; ``b""`` if more bytes could still make one; ``None`` if there is none."""
        head = bytes(text[start : start + self._longest])
        for tag in self._all:
            if head.startswith(tag):
                return tag
        if len(head) < self._longest and any(tag.startswith(head) for tag in self._all):
            return b""
        return None

    def stops(self) -> tuple[str, ...]:
        """The tags that can end a turn: where an engine has to stop."""
        return tuple(tag.decode() for tag in (*self.closings, *self.forbidden))
