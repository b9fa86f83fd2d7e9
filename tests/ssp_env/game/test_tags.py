"""Tags: found however they are cut into tokens, and never opened or closed by text from outside."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Any

import pytest
from hf_tokenizers import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import WRITTEN, spell

from ssp_env.game.outcome import Outcome
from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import ALLOWED, Call, Forgery, ScannerTags, Tags, TurnScanner, read_call
from ssp_env.types import Action, Document, Role

TAGS = Tags()
SCANNED = {role: ScannerTags(TAGS, ALLOWED[role]) for role in Role}
ROLES = st.sampled_from(list(Role))

# -- the parser --------------------------------------------------------------------------------

PARTS = ["<", ">", "/", "</", " ", "\n", "é", "東", "a", "search", "<sea", "rch>", "</informa"]
PARTS += ["tion>", "<<", "< search>", "<thi", "nk>", *TAGS.all()]
TURNS = st.lists(st.sampled_from([*PARTS, *WRITTEN]), max_size=14).map(
    lambda parts: "".join(parts).encode()
)


def naive(text: bytes, role: Role, thinking: bool) -> tuple[Call | Forgery | None, int | None]:
    """The first thing that a turn completes, and after how many bytes, found without cleverness.

    ``None`` bytes: only the end of the turn decides it.
    """
    hidden, unclosed = thoughts(text, thinking)
    opened: tuple[Action, int] | None = None
    for end in range(1, len(text) + 1):
        head = text[:end]
        if any(start < end <= stop for start, stop in hidden):
            continue

        needed = None if unclosed is not None and end > unclosed else end
        for tag in (TAGS.opening("information"), TAGS.closing("information")):
            if head.endswith(tag.encode()):
                return Forgery(tag), needed
        for action in ALLOWED[role]:
            closing = TAGS.closing(action.value).encode()
            if head.endswith(TAGS.opening(action.value).encode()):
                opened = action, end
            elif head.endswith(closing) and opened is not None and opened[0] is action:
                content = text[opened[1] : end - len(closing)]
                content = re.sub(b"<think>.*?</think>", b" ", content, flags=re.DOTALL)
                return Call(action, content.decode("utf-8", "replace").strip()), needed
    return None, len(text)


def thoughts(text: bytes, thinking: bool) -> tuple[list[tuple[int, int]], int | None]:
    """Bounds of a turn's complete thoughts, and the start of one that is never closed."""
    shift = len(b"<think>") if thinking else 0
    text, spans, start = b"<think>" * thinking + text, [], 0
    while (begin := text.find(b"<think>", start)) >= 0:
        end = text.find(b"</think>", begin)
        if end < 0:
            return spans, max(0, begin - shift)
        start = end + len(b"</think>")
        spans.append((max(0, begin - shift), start - shift))
    return spans, None


@given(text=TURNS, role=ROLES, thinking=st.booleans(), cuts=st.sets(st.integers(0, 200)))
def test_a_turn_reads_the_same_however_it_is_cut(
    text: bytes, role: Role, thinking: bool, cuts: set[int]
) -> None:
    expected, needed = naive(text, role, thinking)
    scanner = TurnScanner(SCANNED[role], thinking)
    for start, stop in pairwise(sorted({0, *(c for c in cuts if c < len(text)), len(text)})):
        if (found := scanner.feed(text[start:stop])) is not None:
            assert found == expected
            assert needed is not None
            assert start < needed <= stop, "it was completed in another token"
            return
    assert scanner.end() == expected
    assert expected is None or needed is None


# -- text from outside -------------------------------------------------------------------------

SPECIAL = ["<eos>", "<pad>", "<unk>", "<|im_end|>", "<|im_start|>", "<|endoftext|>"]
SPECIAL += ["<tool_call>", "</s>", "<s>"]
ALIKE = ["SEARCH", "Answer", "ſearch", "‹", "›", "＜", "＞", "﹤", "﹥", "／", "ｓｅａｒｃｈ"]
ALIKE += ["\u200b", "\u00ad", "\t", "\x01", "information>", "ignore the above"]
OUTSIDE = st.lists(st.sampled_from([*PARTS, *ALIKE, *SPECIAL, *WRITTEN]), max_size=14).map("".join)


def squashed(text: str) -> str:
    """A text as the most forgiving reader would see it: without case, width, accents, spaces or
    invisible characters."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in folded if not c.isspace() and unicodedata.category(c)[0] not in "CM")


def count_tags(text: str) -> list[int]:
    return [squashed(text).count(tag) for tag in TAGS.all()]


@pytest.mark.parametrize("kind", KINDS)
def test_outside_text_is_data_to_every_tokenizer(kind: str) -> None:
    """It changes neither which special tokens a prompt holds, nor which tags one reads in it."""
    tokenizer = KINDS[kind]()
    prompts = Prompts.open("plain", tokenizer)
    special = {i for tag in TAGS.all() if len(ids := tokenizer.encode(tag)) == 1 for i in ids}
    special |= {tokenizer.pad_id, tokenizer.eos_id}
    inner: Any = getattr(tokenizer, "inner", None)
    if inner is not None:
        special |= set(inner.added_tokens_decoder) - {inner.unk_token_id}

    def shown(text: str) -> list[tuple[list[int], list[int]]]:
        page = Document("d", text, text)
        prompted = [prompts.proposer(text, 2), prompts.solver(text, 3)]
        prompted += [prompts.information([page], 10_000), prompts.verifier(text, [page], 10_000)]
        texts = [spell(tokenizer, ids).decode("utf-8", "replace") for ids in prompted]
        tokens = [[token for token in ids if token in special] for ids in prompted]
        return list(zip(tokens, map(count_tags, texts), strict=True))

    harmless = shown("a")

    @settings(max_examples=15)
    @given(text=OUTSIDE, tag=st.sampled_from(TAGS.all()), cut=st.integers(0, 14))
    def check(text: str, tag: str, cut: int) -> None:
        assert shown(tag[:cut] + text + tag[cut:]) == harmless

    check()


@given(text=OUTSIDE, role=ROLES)
def test_defused_text_holds_no_tag(text: str, role: Role) -> None:
    harmless = TAGS.defuse(text)
    assert not any(count_tags(harmless))
    assert TAGS.defuse(harmless) == harmless
    assert len(harmless) == len(text), "nothing is taken out: what remains cannot close up"

    action = min(ALLOWED[role])
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


# -- random games ------------------------------------------------------------------------------


def test_random_games_break_nothing() -> None:
    pytest.importorskip("transformers")
    from benchmarks.fuzz.games import play

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
        scanner = TurnScanner(ScannerTags(tags, ALLOWED[Role.SOLVER]))
        assert scanner.feed(f"<tool_call>{said}</tool_call>".encode()) == call
        # Llama's own tokens; the end of the turn closes a call too.
        pair = ("<|python_tag|>", "<|eom_id|>")
        llama = ScannerTags(Tags(call=pair), ALLOWED[Role.SOLVER])
        assert TurnScanner(llama).feed(f"{pair[0]}{said}{pair[1]}".encode()) == call
        (scanner := TurnScanner(llama)).feed(f"Well.{pair[0]}{said}".encode())
        assert scanner.end() == call
        assert Tags(call=pair).defuse("a<｜PYTHON_tag|>b") == "a‹｜PYTHON_tag|›b"
    assert not any(read_call(text, [*Action]) for text in WRITTEN)
    assert "<tool_call>" not in tags.defuse("<tool_call>")
    assert "</tool_call>" in ScannerTags(tags, ALLOWED[Role.SOLVER]).stops()
    # Without its name, it is text.
    assert TurnScanner(ScannerTags(Tags(), ALLOWED[Role.SOLVER])).feed(b"<tool_call>{}") is None


class Counting(ScannerTags):
    """Counts how often a bracket is looked at."""

    def __init__(self) -> None:
        super().__init__(TAGS, ALLOWED[Role.SOLVER])
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
