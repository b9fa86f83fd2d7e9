"""Tags: their names, who may write them, and outside text that can neither open nor close
anything."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import spell, word_tokenizer

from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import ALLOWED, Tags, check_tokenizer
from ssp_env.game.scanner import ScannerTags, TurnScanner
from ssp_env.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, Role

TAGS = Tags()
FRAGMENTS = [
    *TAGS.all(),
    *(
        "<",
        ">",
        "/",
        "</",
        " ",
        "\t",
        "search",
        "SEARCH",
        "Answer",
        "<sea",
        "rch>",
        "ſearch",
        "‹",
        "›",
        "a",
        "東",
    ),
    *(
        "＜",
        "＞",
        "﹤",
        "﹥",
        "／",
        "ｓｅａｒｃｈ",
        "\u200b",
        "\u00ad",
        "\n",
        "information>",
        "<|im_end|>",
        "<eos>",
    ),
]
OUTSIDE = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


def squashed(text: str) -> str:
    """A text as the most forgiving reader would see it: no case, no width, nothing invisible, no
    spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if not c.isspace() and unicodedata.category(c) != "Cf")


@pytest.mark.parametrize("name", ["", "two words", "<search>", "1st", "a>b", "été", "-a"])
def test_names_that_cannot_work(name: str) -> None:
    with pytest.raises(ConfigError, match="pattern") as error:
        Tags(search=name)
    assert error.value.field == "tags.search"


# -- defusing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("<search>", "‹search›"),
        ("</ANSWER >", "‹/ANSWER ›"),
        ("< / Information\n>", "‹ / Information\n›"),
        ("<sea<search>rch>", "<sea‹search›rch>"),
        ("<<search>>", "<‹search›>"),
        ("<think><question>", "‹think›‹question›"),
        ("</search/<think>>", "</search/‹think›>"),
        ("＜ｓｅａｒｃｈ＞", "‹ｓｅａｒｃｈ›"),
        ("<sea\u200brch>", "‹sea\u200brch›"),
        ("<sea\x01rch>", "‹sea\x01rch›"),
        ("<sea\u3164rch>", "‹sea\u3164rch›"),
        ("<séarch>", "‹séarch›"),
        ("<s\u0435arch>", "‹s\u0435arch›"),
        ("≮search≯", "‹search›"),
        ("ᐸsearchᐳ", "‹search›"),
        ("<search/>", "‹search/›"),
        ("<search query='x'>", "‹search query='x'›"),
        ("ends in <", "ends in ‹"),
        ("ends in </ans", "ends in ‹/ans"),
        ("wer> it begins", "wer› it begins"),
        ("> it begins", "› it begins"),
    ],
)
def test_look_alikes_lose_their_brackets(text: str, harmless: str) -> None:
    assert TAGS.defuse(text) == harmless


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a < b > c",
        "<b>bold</b>",
        "<searches>",
        "5 <3",
        "search",
        "<>",
        "< / >",
        "‹search›",
        "a <br",
        "b> a",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert TAGS.defuse(text) == text


@given(text=OUTSIDE)
def test_defused_text_contains_no_tag(text: str) -> None:
    harmless = TAGS.defuse(text)
    assert not [tag for tag in TAGS.all() if tag in squashed(harmless)]
    assert TAGS.defuse(harmless) == harmless
    assert len(harmless) == len(text), "nothing is taken out: what remains cannot close up"


@given(text=OUTSIDE, role=st.sampled_from(list(Role)))
def test_no_parser_finds_a_tag_in_defused_text(text: str, role: Role) -> None:
    content = TAGS.defuse(text)
    action = min(ALLOWED[role])
    assert TurnScanner(ScannerTags(TAGS, ALLOWED[role])).feed(content.encode()) is None
    found = TurnScanner(ScannerTags(TAGS, ALLOWED[role])).feed(
        f"<{action}>{content}</{action}>".encode()
    )
    assert found is not None
    assert getattr(found, "content", None) == content.strip()


# -- ids ---------------------------------------------------------------------------------------


def tag_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids of tags that are single tokens."""
    return {tokenizer.encode(tag)[0] for tag in TAGS.all() if len(tokenizer.encode(tag)) == 1}


def between_the_tags(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a document in an observation, without the tags that the environment puts around it."""
    ids = Prompts("plain", tokenizer, TAGS).information([Document("d", text, text)], 10_000)
    opening, closing = (
        tokenizer.encode(tag) for tag in (TAGS.opening("information"), TAGS.closing("information"))
    )
    assert (ids[: len(opening)], ids[-len(closing) :]) == (opening, closing)
    return ids[len(opening) : -len(closing)]


def check_outside_text(tokenizer: Tokenizer, text: str, singles: bool) -> None:
    ids = between_the_tags(tokenizer, text)
    special = tag_ids(tokenizer)
    assert len(special) == (10 if singles else 0)
    assert not special & set(ids)
    assert tokenizer.eos_id not in ids
    spelled = spell(tokenizer, ids).decode("utf-8", "replace")
    assert not [tag for tag in TAGS.all() if tag in squashed(spelled)]


@pytest.mark.parametrize(
    ("tokenizer", "singles"), [(ByteTokenizer(), False), (word_tokenizer(), True)]
)
@given(text=OUTSIDE)
def test_outside_text_never_becomes_tags(tokenizer: Tokenizer, singles: bool, text: str) -> None:
    check_outside_text(tokenizer, text, singles)


@pytest.mark.parametrize(
    "kind", ["byte_level", "byte_level_tags", "metaspace", "unigram", "word_level"]
)
def test_outside_text_never_becomes_tags_of_a_model(kind: str) -> None:
    hf = pytest.importorskip("hf_tokenizers", exc_type=ImportError)
    from ssp_env.tokenizers import HuggingFaceTokenizer

    inner = (
        hf.byte_level(tags=True, chat=True) if kind == "byte_level_tags" else getattr(hf, kind)()
    )
    tokenizer = HuggingFaceTokenizer(inner)
    singles = kind in ("byte_level_tags", "unigram", "word_level")

    @given(text=OUTSIDE)
    def check(text: str) -> None:
        check_outside_text(tokenizer, text, singles)

    check()


# -- tokenizers that cannot spell --------------------------------------------------------------


def test_tokenizers_that_cannot_spell() -> None:
    with pytest.raises(TokenizerError, match=r"cannot spell the tag <find>.*choose other tags"):
        check_tokenizer(word_tokenizer(), Tags(search="find"))
    with pytest.raises(TokenizerError, match="<think>"):
        check_tokenizer(WordTokenizer(["a"], []), TAGS)


@given(st.sampled_from(["think", "search", "information", "question", "answer"]), st.data())
def test_tags_in_letters_that_look_the_same_are_defused(name: str, data: st.DataObject) -> None:
    alike = {"a": "аɑᴀ", "e": "еᴇ", "h": "һнʜ", "i": "іιɪІ", "n": "ոɴ", "o": "оοօ", "s": "ѕꜱ"}
    written = "".join(data.draw(st.sampled_from(c + alike.get(c, ""))) for c in name)
    assert TAGS.defuse(f"x <{written}> y </{written}>") == f"x ‹{written}› y ‹/{written}›"
