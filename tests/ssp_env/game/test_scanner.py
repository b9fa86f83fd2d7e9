"""The tag parser: which call completes first, however its bytes are cut into tokens, and at which
cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.game.protocol import ALLOWED, Tags
from ssp_env.game.scanner import Call, Forgery, ScannerTags, TurnScanner
from ssp_env.types import Action, Role

TAGS = {role: ScannerTags(Tags(), ALLOWED[role]) for role in Role}
FRAGMENTS = [
    *Tags().all(),
    *(
        "<",
        ">",
        "/",
        "</",
        " ",
        "\n",
        "é",
        "東",
        "a",
        "search",
        "<sea",
        "rch>",
        "</informa",
        "tion>",
        "<<",
        "< search>",
        "<thi",
        "nk>",
    ),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map(lambda parts: "".join(parts).encode())
ROLES = st.sampled_from(list(Role))


def scan(
    pieces: Sequence[bytes], role: Role = Role.SOLVER, tags: Tags | None = None
) -> Call | Forgery | None:
    """What the pieces complete. Nothing may follow the completing piece."""
    scanner = TurnScanner(TAGS[role] if tags is None else ScannerTags(tags, ALLOWED[role]))
    for i, piece in enumerate(pieces):
        found = scanner.feed(piece)
        if found is not None:
            assert i == len(pieces) - 1, f"piece {i} completed {found}"
            return found
    return None


def naive(
    text: bytes, role: Role, thinking: bool = False
) -> tuple[Call | Forgery | None, int | None]:
    """What a turn with this text completes first, and after how many bytes, found without any
    cleverness. ``None`` bytes: only the end of the turn decides it."""
    tags = Tags()
    hidden, unclosed = thoughts(text, thinking)
    opened: tuple[Action, int] | None = None
    for end in range(1, len(text) + 1):
        head = text[:end]
        if any(start < end <= stop for start, stop in hidden):
            continue
        needed = None if unclosed is not None and end > unclosed else end
        for tag in (tags.opening("information"), tags.closing("information")):
            if head.endswith(tag.encode()):
                return Forgery(tag), needed
        for action in ALLOWED[role]:
            closing = tags.closing(action.value).encode()
            if head.endswith(tags.opening(action.value).encode()):
                opened = action, end
            elif head.endswith(closing) and opened is not None and opened[0] is action:
                content = text[opened[1] : end - len(closing)]
                content = re.sub(b"<think>.*?</think>", b" ", content, flags=re.DOTALL)
                return Call(action, content.decode("utf-8", "replace").strip()), needed
    return None, len(text)


def thoughts(text: bytes, thinking: bool = False) -> tuple[list[tuple[int, int]], int | None]:
    """Where the complete thoughts of a turn are, and where one begins that is never closed."""
    spans, start = [], 0
    text = b"<think>" + text if thinking else text
    while True:
        begin = text.find(b"<think>", start)
        end = text.find(b"</think>", begin) + len(b"</think>")
        shift = len(b"<think>") if thinking else 0
        if begin < 0:
            return spans, None
        if end < len(b"</think>") or end < begin:
            return spans, max(0, begin - shift)
        spans.append((max(0, begin - shift), end - shift))
        start = end


@pytest.mark.parametrize(
    "pieces",
    [
        [b"<search>", b" red", b" kites", b"</search>"],
        [b"<", b"search", b">", b" red kites", b" </", b"search", b">"],
        [bytes([b]) for b in b"<search>red kites</search>"],
        [b"I think.<sea", b"rch> red k", b"ites </sea", b"rch>\n\nMore"],
        [b"<search> red kites </search>"],
        [b"", b"<search>", b"", b"red kites", b"</search", b"", b">"],
    ],
)
def test_tags_however_they_are_cut(pieces: list[bytes]) -> None:
    assert scan(pieces) == Call(Action.SEARCH, "red kites")


def test_the_first_complete_call_counts() -> None:
    assert scan([b"<search>a</search> <search>b</search>"]) == Call(Action.SEARCH, "a")
    assert scan([b"<search>a</search><answer>b</answer>"]) == Call(Action.SEARCH, "a")
    assert scan([b"<search>a</search><information>"]) == Call(Action.SEARCH, "a")


@pytest.mark.parametrize("tag", ["<information>", "</information>"])
@pytest.mark.parametrize("role", list(Role))
def test_forged_information(role: Role, tag: str) -> None:
    assert scan([b"so ", tag[:6].encode(), tag[6:].encode() + b" more"], role) == Forgery(tag)
    assert scan([f"<answer> {tag} </answer>".encode()], role) == Forgery(tag)


@given(text=TEXTS, role=ROLES, thinking=st.booleans())
def test_agrees_with_a_naive_parser(text: bytes, role: Role, thinking: bool) -> None:
    scanner = TurnScanner(TAGS[role], thinking)
    assert (scanner.feed(text) or scanner.end()) == naive(text, role, thinking)[0]


@given(text=TEXTS, role=ROLES, cuts=st.lists(st.integers(0, 200), max_size=30))
def test_cutting_changes_nothing(text: bytes, role: Role, cuts: list[int]) -> None:
    expected, needed = naive(text, role)
    bounds = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    scanner = TurnScanner(TAGS[role])
    for start, stop in pairwise(bounds):
        found = scanner.feed(text[start:stop])
        if found is not None:
            assert found == expected
            assert needed is not None
            assert start < needed <= stop, "it was completed in another token"
            return
    assert scanner.end() == expected
    assert expected is None or needed is None


@given(before=TEXTS, between=TEXTS, after=TEXTS, role=ROLES)
def test_going_back_forgets_everything_since(
    before: bytes, between: bytes, after: bytes, role: Role
) -> None:
    scanner = TurnScanner(TAGS[role])
    if scanner.feed(before) is not None:
        return
    mark = scanner.mark()
    scanner.feed(between)
    scanner.rewind(mark)
    assert (scanner.feed(after) or scanner.end()) == naive(before + after, role)[0]


# -- thoughts ----------------------------------------------------------------------------------


THOUGHTS = TEXTS.filter(lambda text: b"</think>" not in text)


@given(thought=THOUGHTS, role=ROLES)
def test_thinking_is_free(thought: bytes, role: Role) -> None:
    """Whatever stands in a complete thought, the turn goes on as if there had been none."""
    action = min(ALLOWED[role])
    call = f"<{action}> a </{action}>".encode()
    scanner = TurnScanner(TAGS[role])
    assert scanner.feed(b"<think>" + thought + b"</think>") is None
    assert not scanner.thinking
    assert scanner.end() is None
    assert scanner.feed(call) == Call(action, "a")


@given(thought=THOUGHTS, role=ROLES)
def test_a_thought_that_is_never_closed_was_none(thought: bytes, role: Role) -> None:
    """Nothing ends the turn early, and at its end it reads as if the tag were not there."""
    scanner = TurnScanner(TAGS[role])
    assert scanner.feed(b"<think>" + thought) is None
    assert scanner.thinking
    assert scanner.end() == naive(b" " + thought, role)[0]


# -- cost --------------------------------------------------------------------------------------


class Counting(ScannerTags):
    """Counts how often a bracket is looked at."""

    def __init__(self, tags: Tags, role: Role) -> None:
        super().__init__(tags, role)
        self.asked, self._real = 0, self.pattern
        self.pattern = self  # type: ignore[assignment]

    def match(self, text: bytearray, start: int) -> re.Match[bytes] | None:
        self.asked += 1
        return self._real.match(text, start)


@given(
    text=st.lists(st.sampled_from(FRAGMENTS[-18:]), max_size=60).map(
        lambda parts: "".join(parts).encode()
    )
)
def test_cost_is_linear(text: bytes) -> None:
    """Byte by byte, the worst case: each byte asks once at most for an open bracket, and once for
    its own."""
    tags = Counting(Tags(), ALLOWED[Role.SOLVER])
    scanner = TurnScanner(tags)
    longest = len("</information>")
    for i in range(len(text)):
        asked = tags.asked
        if scanner.feed(text[i : i + 1]) is not None:
            return
        assert tags.asked - asked <= 2
        mark = scanner.mark()
        assert mark.length - mark.looked_at < longest, "bytes long past would be looked at again"


def test_cost_does_not_grow_with_the_transcript() -> None:
    """The same token costs the same at the beginning and after 200,000 bytes full of brackets."""
    tags = Counting(Tags(), ALLOWED[Role.SOLVER])
    scanner = TurnScanner(tags)

    def cost(piece: bytes) -> int:
        before = tags.asked
        assert scanner.feed(piece) is None
        return tags.asked - before

    early = cost(b"<sea < </answer> rch>")
    assert early > 0
    for _ in range(20_000):
        cost(b"<search> <")
    assert cost(b" ") <= 1
    assert cost(b"<sea < </answer> rch>") == early
    assert tags.asked < 2 * 20_000 * 3
