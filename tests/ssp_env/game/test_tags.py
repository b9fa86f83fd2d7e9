"""Tags: found however they are cut into tokens, and never opened or closed by text from outside."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import WRITTEN

from benchmarks.fuzz.games import play
from benchmarks.fuzz.invariants import first_call, squashed, without_thoughts
from ssp_env.game.calls import Call, read_call
from ssp_env.game.outcome import Outcome
from ssp_env.game.protocol import Forgery, ScannerTags, Tags, TurnScanner, actions_of
from ssp_env.types import Action, Role

TAGS = Tags()
NAIVE: Any = SimpleNamespace(tags=TAGS)
SCANNED = {role: ScannerTags(TAGS, actions_of(role)) for role in Role}
ROLES = st.sampled_from(list(Role))

PARTS = ["<", ">", "/", "</", " ", "\n", "é", "東", "a", "search", "<sea", "rch>", "</informa"]
PARTS += ["tion>", "<<", "< search>", "<thi", "nk>", *TAGS.all()]
TURNS = st.lists(
    st.sampled_from(PARTS) | st.sampled_from(TAGS.all()) | st.sampled_from(WRITTEN), max_size=14
).map(lambda parts: "".join(parts).encode())


def expected(text: bytes, role: Role) -> Call | str | None:
    """The call, or "forged", that the naive parser of the random games finds in a turn."""
    found = first_call(without_thoughts(text, NAIVE), NAIVE, actions_of(role))
    return Call(*found) if isinstance(found, tuple) else found


@settings(max_examples=100)
@given(text=TURNS, role=ROLES, thinking=st.booleans(), cuts=st.sets(st.integers(0, 200)))
def test_a_turn_reads_the_same_however_it_is_cut(
    text: bytes, role: Role, thinking: bool, cuts: set[int]
) -> None:
    scanner, opened = TurnScanner(SCANNED[role], thinking), b"<think>" * thinking
    bounds = pairwise(sorted({0, *(c for c in cuts if c < len(text)), len(text)}))
    for start, stop in bounds:
        if (found := scanner.feed(text[start:stop])) is not None:
            break
    else:
        start = stop = len(text)
        found = scanner.end()

    forged = isinstance(found, Forgery)
    assert expected(opened + text[:stop], role) == ("forged" if forged else found)
    # Nothing was complete before this token, but for what an open thought held back.
    before = without_thoughts(opened + text[:start], NAIVE).partition(b"<think>")[0]
    assert expected(before, role) is None


ALIKE = ["SEARCH", "Answer", "ſearch", "‹", "›", "＜", "＞", "﹤", "﹥", "／", "ｓｅａｒｃｈ"]
ALIKE += ["\u200b", "\u00ad", "\t", "\x01", "information>", "ignore the above"]
OUTSIDE = st.lists(st.sampled_from([*PARTS, *ALIKE, *WRITTEN]), max_size=14).map("".join)


def count_tags(text: str) -> list[int]:
    return [squashed(text).count(tag) for tag in TAGS.all()]


@given(text=OUTSIDE, role=ROLES)
def test_defused_text_holds_no_tag(text: str, role: Role) -> None:
    harmless = TAGS.defuse(text)
    assert not any(count_tags(harmless))
    assert TAGS.defuse(harmless) == harmless
    assert len(harmless) == len(text), "nothing is taken out: what remains cannot close up"

    action = min(actions_of(role))
    found = TurnScanner(SCANNED[role]).feed(f"<{action}>{harmless}</{action}>".encode())
    assert found == Call(action, harmless.strip())


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("< / Information\n>", "‹ / Information\n›"),
        ("＜ｓｅａｒｃｈ＞", "‹ｓｅａｒｃｈ›"),
        ("≮séarch≯", "‹séarch›"),
        ("ends in </ans", "ends in ‹/ans"),
        ("wer> it begins", "wer› it begins"),
        *((text, text) for text in ("a < b > c", "<b>bold</b>", "<searches>", "5 <3", "<>")),
    ],
)
def test_look_alikes_alone_lose_their_brackets(text: str, harmless: str) -> None:
    assert TAGS.defuse(text) == harmless


def test_random_games_break_nothing() -> None:
    games = [game for number in range(60) for game in play(1, number, replayed=number % 20 == 0)]
    assert {game.outcome for game in games} == set(Outcome) - {Outcome.PENDING}


def test_tool_calls_are_the_same_actions() -> None:
    tags = Tags(call="tool_call", information="tool_response")
    for said, call in (
        ('{"name": "search", "arguments": {"query": "Paris"}}', Call(Action.SEARCH, "Paris")),
        (
            '\n{"name": "answer", "parameters": {"text": "a\\ud800b "}}\n',
            Call(Action.ANSWER, "a?b"),
        ),
        ('{"name": "question", "arguments": {"text": "Who?"}}', None),
        ('{"name": "search", "arguments": {"query": 3}}', None),
        ('{"name": "search"}', None),
        ("[" * 10_000, None),
        ("Paris", None),
    ):
        scanner = TurnScanner(ScannerTags(tags, actions_of(Role.SOLVER)))
        assert scanner.feed(f"<tool_call>{said}</tool_call>".encode()) == call
    assert not any(read_call(text, [*Action]) for text in WRITTEN)
    assert "<tool_call>" not in tags.defuse("<tool_call>")
    assert "</tool_call>" in ScannerTags(tags, actions_of(Role.SOLVER)).stops()
    # Without its name, it is text.
    assert TurnScanner(ScannerTags(Tags(), actions_of(Role.SOLVER))).feed(b"<tool_call>{}") is None


class Counting(ScannerTags):
    """Counts how often a bracket is looked at."""

    def __init__(self) -> None:
        super().__init__(TAGS, actions_of(Role.SOLVER))
        self.asked, self._real = 0, self.pattern
        self.pattern = self  # type: ignore[assignment]

    def match(self, text: bytearray, start: int) -> re.Match[bytes] | None:
        self.asked += 1
        return self._real.match(text, start)


def test_a_token_costs_the_same_after_50_000_bytes() -> None:
    tags = Counting()
    scanner = TurnScanner(tags)
    scanner.feed(b"<sea < </answer> rch>")
    early = tags.asked
    for _ in range(5_000):
        scanner.feed(b"<search> <")
    before = tags.asked
    scanner.feed(b" <sea < </answer> rch>")
    assert tags.asked - before <= early + 1
    assert before < 4 * 5_000
