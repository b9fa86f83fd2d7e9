"""Tool calls as models write them: JSON objects anywhere in a text, found as it comes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from ssp_env.types import Immutable


@dataclass(frozen=True, slots=True)
class Call:
    """A complete action, and what stood between its tags."""

    action: str
    content: str


def read_call(content: str, allowed: Collection[str]) -> Call | None:
    """The action of a tool call; ``None`` for text that is none of those allowed.

    >>> read_call('{"name": "search", "arguments": {"query": "Paris"}}', ["search"])
    Call(action='search', content='Paris')
    """
    try:
        said = json.loads(content)
        action = said["name"]
        # Every function has a single parameter, whatever the call names it.
        (text,) = said.get("arguments", said.get("parameters")).values()
        if action not in allowed or not isinstance(text, str):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    # JSON can spell halves of characters, which no tokenizer takes.
    return Call(action, text.encode("utf-8", "replace").decode("utf-8").strip())


_LEVELS = 2
"""A call is an object with its arguments in a second one. Of deeper ones, only the two inner levels
are followed, so that every byte is parsed twice at most."""
# What is passed over at once: outside of objects, all up to a brace; in a string, all up to its
# end, an escape or a line break; else in an object, blanks, numbers, true, false, null and the
# signs between them.
_OUTSIDE = re.compile(rb"[^{]*")
_IN_STRING = re.compile(rb'[^"\\\n]*')
_IN_OBJECT = re.compile(rb"[\s:,\[\]\-+.\deEtrufalsn]*")


@dataclass(frozen=True, slots=True)
class Objects(Immutable):
    """JSON objects that are open at a place of a text, and the one that was closed there."""

    starts: tuple[int, ...] = ()
    """Where the open ones begin, the innermost last."""
    quoted: bool = False
    """True inside a string."""
    escaped: bool = False
    """True behind a backslash."""
    closed: int = 0
    """Where the object that was closed here begins."""


NO_OBJECTS = Objects()


def objects_after(
    state: Objects, text: bytes | bytearray, start: int, stop: int
) -> tuple[int | None, Objects]:
    """Follows a text from ``start`` to the first end of an object that may be a call, or to
    ``stop``.

    Returns where that object ends, ``None`` if none does, and what is open there. What JSON cannot
    go on with closes all of them: prose has braces too. Time is proportional to the length.

    >>> text = b'I call {"name": "search", "arguments": {"query": "a {b} c"}} now.'
    >>> end, objects = objects_after(NO_OBJECTS, text, 0, len(text))
    >>> text[objects.closed : end]
    b'{"query": "a {b} c"}'
    >>> end, objects = objects_after(objects, text, end, len(text))
    >>> text[objects.closed : end]
    b'{"name": "search", "arguments": {"query": "a {b} c"}}'
    """
    starts, at = [*state.starts], start
    quoted, escaped = state.quoted, state.escaped
    # Each round passes over what changes nothing, and then looks at one byte.
    while at < stop:
        if escaped:
            escaped, at = False, at + 1
            continue
        skipped = _IN_STRING if quoted else _IN_OBJECT if starts else _OUTSIDE
        at = skipped.match(text, at, stop).end()  # type: ignore[union-attr]
        if at == stop:
            break

        byte, at = text[at : at + 1], at + 1
        if quoted:
            escaped = byte == b"\\"
            quoted = escaped
            if byte == b"\n":  # no string of JSON goes over the end of a line
                starts = []
        elif byte == b"{":
            # An outermost one beyond the levels is forgotten, and never closed.
            starts = [*starts, at - 1][-_LEVELS:]
        elif byte == b'"':
            quoted = True
        elif byte == b"}":
            # The innermost object ends here. Is it a call? Its reader decides, and the outer
            # one goes on.
            begun = starts.pop()
            return at, Objects((*starts,), closed=begun)
        else:
            starts = []
    return None, Objects((*starts,), quoted, escaped)
