"""Prompts have the ids that the tokenizer gives their whole text, and outside text stays text.

Real tokenizers take part where ``SSP_TOKENIZERS`` names a folder of directories with them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hf_tokenizers as hf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import spell, word_tokenizer

from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.game.prompts import FIELDS, SHIPPED, Prompts
from ssp_env.game.prompts.sets import authored, read_text
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers import BPETokenizer, ByteTokenizer, HuggingFaceTokenizer, Tokenizer
from ssp_env.tokenizers.base import decode_rest, encode_parts, first_tokens
from ssp_env.types import Document

MADE: dict[str, Any] = {
    "bytes": ByteTokenizer,
    "bpe": BPETokenizer,
    "byte-level": lambda: HuggingFaceTokenizer(hf.byte_level()),
    "tags and chat": lambda: HuggingFaceTokenizer(hf.byte_level(tags=True, chat=True)),
    "prepended": lambda: HuggingFaceTokenizer(hf.metaspace()),
    "space before": lambda: HuggingFaceTokenizer(hf.sentencepiece()),
    "wordpiece": lambda: HuggingFaceTokenizer(hf.wordpiece()),
}
REAL = sorted(
    file.parent
    for file in Path(os.environ.get("SSP_TOKENIZERS", "/nowhere")).glob("*/tokenizer_config.json")
)
NAMES = [*MADE, *(str(folder) for folder in REAL)]
ASKED = ('Which city lies "on" the Mur, in 1990?', "Vltava (river)")
PAGES = [
    Document("1", "Vienna", "Vienna is the capital of Austria. 12,345 people\n\n1990 came."),
    Document("2", "Graz (city)", "  The second city, on the Mur; it is so."),
]


@cache
def opened(name: str) -> Tokenizer:
    made: Tokenizer = MADE[name]() if name in MADE else HuggingFaceTokenizer.load(name)
    return made


def opened_sets(tokenizer: Tokenizer, names: tuple[str, ...] = SHIPPED) -> Iterator[Prompts]:
    for name in names:
        if name != "mini":
            try:
                yield Prompts.open(name, tokenizer)
            except TokenizerError:
                continue  # a template that does not take the set's messages


def prompts_of(prompts: Prompts, question: str, answer: str, pages: list[Document]) -> Any:
    yield "proposer", prompts.proposer(answer, 2)
    yield "solver", prompts.solver(question, 3)
    yield "closed_book", prompts.closed_book(question)
    yield "verifier", prompts.verifier(question, pages, 200)
    yield "information", prompts.information(pages, 200)
    yield "information", prompts.information(pages, 7)
    yield "information", prompts.information([], 7)


def check(
    sets: Iterable[Prompts], tokenizer: Tokenizer, question: str, answer: str, pages: list[Document]
) -> None:
    for prompts in sets:
        for name, ids in prompts_of(prompts, question, answer, pages):
            goes_on = name == "information"
            text = decode_rest(tokenizer, ids) if goes_on else tokenizer.decode(ids)
            assert encode_parts(tokenizer, [(text, True)], goes_on) == ids, name
            assert goes_on or tokenizer.encode(text) == ids, name


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_what_the_tokenizer_gives_the_whole_text(name: str) -> None:
    tokenizer = opened(name)
    check(opened_sets(tokenizer), tokenizer, *ASKED, PAGES)


@cache
def some_sets(name: str) -> list[Prompts]:
    return [*opened_sets(opened(name), ("plain", "search-r1"))]


TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="▁<>[]"), max_size=30
)


@pytest.mark.parametrize("name", ["bytes", "bpe", "byte-level", "tags and chat"])
@settings(max_examples=20, deadline=None)
@given(question=TEXT, title=TEXT, text=TEXT)
def test_whatever_the_texts_are(name: str, question: str, title: str, text: str) -> None:
    pages = [Document("1", title, text), *PAGES]
    check(some_sets(name), opened(name), question, title, pages)


@pytest.mark.skipif(not REAL, reason="SSP_TOKENIZERS names no folder of real tokenizers")
@pytest.mark.parametrize("folder", REAL, ids=lambda folder: folder.name)
def test_real_tokenizers_and_their_templates(folder: Path) -> None:
    """The ids of ``apply_chat_template`` for the same messages."""
    tokenizer: Any = opened(str(folder))
    if not tokenizer.inner.chat_template:
        pytest.skip("it has no chat template")
    for name in SHIPPED:
        if name in ("mini", "tools"):
            continue
        prompts, question = Prompts.open(name, tokenizer), ASKED[0]
        told = read_text(name, "solver.txt") or ""
        for field, value in (("question", question), ("searches", "3"), ("tools", "")):
            told = told.replace(f"{{{field}}}", value)
        messages = [{"role": a, "content": text} for a, text in authored("solver", told)]
        ids = tokenizer.inner.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        assert prompts.solver(question, 3) == ids, name


@pytest.mark.parametrize("name", ["tags and chat", "space before", *map(str, REAL)])
def test_a_result_is_what_the_template_makes_of_it(name: str) -> None:
    """The end of the ids that ``apply_chat_template`` gives the whole conversation."""
    tokenizer: Any = opened(name)
    if not tokenizer.inner.chat_template:
        pytest.skip("it has no chat template")
    prompts, turn = Prompts.open("plain", tokenizer), "<search> the Mur </search>"
    shown = prompts.information(PAGES, 200, "Who?")
    said = prompts.unframed(decode_rest(tokenizer, shown))
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": turn}]
    ids = tokenizer.inner.apply_chat_template(
        [*messages, {"role": "user", "content": said}],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert ids[-len(shown) :] == shown


def test_a_space_is_put_only_where_the_template_has_one() -> None:
    """Decoded prompts are the template's text; an observation goes on, so none is before it."""
    tokenizer = HuggingFaceTokenizer(hf.sentencepiece())
    prompts = Prompts.open("search-r1", tokenizer)
    text = tokenizer.decode(prompts.solver("What is it?", 3))
    assert text.startswith("<s>[INST] Answer the question")
    assert text.endswith("Question: What is it?\n [/INST]")
    observed = prompts.information([Document("1", "A", "b")], 9)
    found = '\n\n<information>Doc 1(Title: "A") b</information>\n\n'
    assert tokenizer.decode(observed) == spell(tokenizer, observed).decode() == found
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    ids = tokenizer.inner.apply_chat_template([*messages, messages[0]], return_dict=False)
    assert tokenizer.decode(ids) == "<s>[INST] a [/INST] b </s><s>[INST] a [/INST]"
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


def test_a_template_that_trims_messages_finds_them_trimmed() -> None:
    inner = hf.byte_level(chat=True)
    assert not HuggingFaceTokenizer(inner).trims_messages
    inner.chat_template = hf.TRIMMING_CHAT
    tokenizer = HuggingFaceTokenizer(inner)
    text = tokenizer.decode(Prompts.open("search-r1", tokenizer).solver("What is it?", 3))
    assert text.endswith("What is it?<|im_end|>\n<|im_start|>assistant\n")


MARKUP = (*Tags().all(), "<|im_end|>", "<|im_start|>", "<tool_call>", "</s>", "<s>", "[SEP]", "<|")
PART = st.lists(st.sampled_from([*MARKUP, "im_end|>", "a", " ", "\n", "what is", ">", "<"])).map(
    "".join
)


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=60, deadline=None)
@given(before=PART, text=PART, after=st.sampled_from(["</answer>", "x", "\n<|im_start|>", " |>"]))
def test_nothing_from_outside_becomes_markup(name: str, before: str, text: str, after: str) -> None:
    """Alone, or with what we wrote around it; and what we wrote stays what it is."""
    tokenizer: Any = opened(name)
    joiner = getattr(tokenizer, "_joiner", None)
    if joiner is None:
        return
    parts = [("<answer>", True), (before, False), ("<search> ", True), (text, False), (after, True)]
    ids = encode_parts(tokenizer, parts)
    ours = [i for part, own in parts if own for i in tokenizer.encode(part)]
    assert [i for i in ids if i in joiner._reserved] == [i for i in ours if i in joiner._reserved]
    if name != "wordpiece":  # which knows no white space
        spelled = spell(tokenizer, ids).decode("utf-8", "replace")
        whole = "".join(part for part, _ in parts)
        assert re.sub(r"\s", "", spelled) == re.sub(r"\s", "", whole)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(text=st.one_of(TEXT, st.just("東京 is 😀, né" * 3)), limit=st.integers(0, 9))
def test_a_text_is_cut_at_a_letter(name: str, text: str, limit: int) -> None:
    tokenizer = opened(name)
    cut = first_tokens(tokenizer, text, limit)
    assert text.startswith(cut)
    assert len(tokenizer.encode_data(cut)) <= limit or not cut
    assert first_tokens(tokenizer, cut, limit) == cut
    if len(tokenizer.encode_data(text)) <= limit:
        assert cut == text


def test_documents_are_shown_within_their_budgets() -> None:
    """Cut by their own tokens, then joined; ``as_shown`` says what is left."""
    for tokenizer in (BPETokenizer(), HuggingFaceTokenizer(hf.byte_level(tags=True, chat=True))):
        prompts = Prompts.open("plain", tokenizer)
        page = Document("1", "Vienna " * 9, "The capital of Austria " * 9)
        shown = prompts.as_shown(page, 7)
        assert prompts.information([page], 7) == prompts.information([shown], 999)
        assert len(tokenizer.encode_data(shown.text)) <= 7 < len(tokenizer.encode_data(page.text))
        assert shown == prompts.as_shown(shown, 7)
        assert abs(prompts.listed(page, 7) - len(tokenizer.encode(f"[{shown.title}] "))) < 14


def test_a_set_says_how_it_is_encoded(tmp_path: Path) -> None:
    """``mini`` keeps its pieces, and so do the records of earlier versions."""
    tokenizer = BPETokenizer()
    whole = Prompts.open("plain", tokenizer)
    old = Prompts({k: v for k, v in whole.texts.items() if k != "encoding"}, whole.frame, tokenizer)
    question = "Which city is it?"
    ids, pieces = whole.solver(question, 3), old.solver(question, 3)
    assert ids == tokenizer.encode(tokenizer.decode(pieces)) != pieces
    told = (read_text("plain", "solver.txt") or "").replace("{tools}", "").split("{question}")[0]
    spelled = [*tokenizer.encode(told.split("{searches}")[1]), *tokenizer.encode_data(question)]
    assert pieces[-len(spelled) :] == spelled

    mini = Prompts.open("mini", word_tokenizer())
    assert "encoding" not in mini.texts, "its fingerprint is what it was"
    (tmp_path / "set.json").write_text('{"encodings": "whole"}')
    for name in FIELDS:
        (tmp_path / f"{name}.txt").write_text(read_text("plain", f"{name}.txt") or "{documents}")
    with pytest.raises(ConfigError, match="encoding"):
        Prompts.open(str(tmp_path), tokenizer)
    (tmp_path / "set.json").write_text('{"encoding": "pieces"}')
    assert Prompts.open(str(tmp_path), tokenizer).solver(question, 3) == pieces
