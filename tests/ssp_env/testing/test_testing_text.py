"""The test mixins of tokenizers and prompt sets: what ships passes, and what breaks a promise is
told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hf_tokenizers
import pytest
from broken import fails_as
from scripted import word_tokenizer

from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.prompts import SHIPPED
from ssp_env.game.protocol import Tags
from ssp_env.testing import PromptsTests, TokenizerTests
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, WordTokenizer
from ssp_env.worlds.mini import SmallWorld

# -- tokenizers --------------------------------------------------------------------------------


class TestBytes(TokenizerTests):
    def make_tokenizer(self) -> Tokenizer:
        return ByteTokenizer()


class TestWords(TokenizerTests):
    def make_tokenizer(self) -> Tokenizer:
        return word_tokenizer(self.tags)


class TestWordsOfTheSmallWorld(TokenizerTests):
    tags = Tags(information="observation", also=("original_evidence",))

    def make_tokenizer(self) -> Tokenizer:
        return WordTokenizer(SmallWorld().vocabulary, self.tags.all())


HUGGING_FACE = {
    "byte-level BPE": HuggingFaceTokenizer(hf_tokenizers.byte_level()),
    "byte-level BPE with tags and chat": HuggingFaceTokenizer(
        hf_tokenizers.byte_level(tags=True, chat=True)
    ),
    "BPE with byte fallback": HuggingFaceTokenizer(hf_tokenizers.metaspace()),
    "unigram": HuggingFaceTokenizer(hf_tokenizers.unigram()),
    "word-level": HuggingFaceTokenizer(hf_tokenizers.word_level()),
}


@pytest.mark.parametrize("kind", HUGGING_FACE)
class TestHuggingFace(TokenizerTests):
    @pytest.fixture(autouse=True)
    def _kind(self, kind: str) -> None:
        self.kind = kind

    def make_tokenizer(self) -> Tokenizer:
        return HUGGING_FACE[self.kind]


class Twisted(WordTokenizer):
    """Words as tokens, with something wrong."""

    def __init__(self, twist: str) -> None:
        super().__init__(("what", "is", "it"), Tags().all())
        self.twist = twist
        match twist:
            case "short":
                self.pieces = self.pieces[:-1]
            case "text":
                self.pieces = [piece.decode() for piece in self.pieces]  # type: ignore[misc]
            case "end is text":
                self.pieces = (b"", b"</s>", *self.pieces[2:])
            case "shifted":
                self.pieces = (*self.pieces[:-3], *self.pieces[-2:], self.pieces[-3])
            case "deaf":
                self.pieces = tuple(piece.replace(b"search", b"sea rch") for piece in self.pieces)
            case "no pad":
                self.pad_id = None  # type: ignore[assignment]

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        return [self.eos_id, *ids] if self.twist == "begins" and self.eos_id else ids

    def encode_data(self, text: str) -> list[int]:
        match self.twist:
            case "trusting":
                return self.encode(text)
            case "obeys the end":
                return [
                    1 if word == "<eos>" else 2 for word in text.replace("<eos>", " <eos> ").split()
                ]
            case "escapes":
                return [self.vocab_size + 5] if text else []
            case "arrays":
                return tuple(super().encode_data(text))  # type: ignore[return-value]
        return super().encode_data(text)


def twisted(twist: str) -> TokenizerTests:
    class Broken(TokenizerTests):
        def make_tokenizer(self) -> Tokenizer:
            return Twisted(twist)

    return Broken()


@pytest.mark.parametrize(
    ("twist", "test", "message"),
    [
        ("short", "ids_and_pieces", "one piece an id"),
        ("text", "ids_and_pieces", "pieces are bytes"),
        ("end is text", "ids_and_pieces", "eos_id stands for no text"),
        ("no pad", "ids_and_pieces", "without a pad token, take the end token"),
        ("deaf", "tags_are_spelled", "cannot spell the tag <search>"),
        ("begins", "encoding_adds_nothing", "add no special token"),
        ("shifted", "pieces_spell_what_decode_says", "pieces and decode.. disagree"),
        (
            "trusting",
            "data_never_becomes_a_special_token",
            "takes the text '<think>' for the tag's token",
        ),
        (
            "obeys the end",
            "data_never_becomes_a_special_token",
            "takes the text '<eos>' for the special token 1",
        ),
        ("escapes", "any_text_becomes_ids", "is no id of the vocabulary"),
        ("arrays", "any_text_becomes_ids", "a list of ids, not tuple"),
        ("deaf", "a_turn_is_read", "a search call was not found"),
    ],
)
def test_broken_tokenizers(twist: str, test: str, message: str) -> None:
    fails_as(twisted(twist), test, message)


# -- prompts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
class TestShippedPrompts(PromptsTests):
    @pytest.fixture(autouse=True)
    def _name(self, name: str) -> None:
        self.name = name

    def make_game(self) -> GameConfig:
        return GameConfig(prompts=self.name, closed_book=True)


class TestMiniPromptsInWords(PromptsTests):
    def make_game(self) -> GameConfig:
        return MINI_GAME

    def make_tokenizer(self) -> Tokenizer:
        return word_tokenizer()


class TestPlainPromptsWithOtherTags(PromptsTests):
    def make_game(self) -> GameConfig:
        return GameConfig(prompts="plain", tags=Tags(search="find", information="observation"))


OWN = {
    "proposer": "Ask for {answer} in {searches}.",
    "solver": "Solve {question} in {searches}. <original_evidence>",
    "verifier": "{documents} Q: {question}",
    "document": "({title}) {text}",
    "nothing": "none",
}


class OwnPrompts(PromptsTests):
    """A set that was written to a folder, with some of its files changed."""

    def __init__(self, folder: Path, files: dict[str, str], **settings: Any) -> None:
        for name, text in {**OWN, **files}.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        self.config = GameConfig(prompts=str(folder), **settings)

    def make_game(self) -> GameConfig:
        return self.config


EVIDENCE = Tags(also=("original_evidence",))


def test_an_own_set(tmp_path: Path) -> None:
    tests = OwnPrompts(tmp_path, {}, tags=EVIDENCE)
    for name in dir(tests):
        if name.startswith("test_"):
            getattr(tests, name)()


@pytest.mark.parametrize(
    ("files", "settings", "test", "message"),
    [
        ({}, {}, "every_tag_is_known", r"solver.txt speaks of <original_evidence>.*'also'"),
        (
            {"solver": "{question} in {Searches}"},
            {},
            "no_placeholder_is_left",
            "solver.txt shows {Searches}",
        ),
        ({"nothing": " "}, {}, "finding_nothing_says_so", "nothing.txt is empty"),
        (
            {"solver": "{question}" + "x" * 5000},
            {},
            "they_leave_room",
            "solver.txt takes .* tokens",
        ),
    ],
)
def test_broken_prompts(
    tmp_path: Path, files: dict[str, str], settings: dict[str, Any], test: str, message: str
) -> None:
    fails_as(OwnPrompts(tmp_path, files, **settings), test, message)


class Gullible(ByteTokenizer):
    """Undoes the defusing."""

    def encode_data(self, text: str) -> list[int]:
        return self.encode(text.replace("‹", "<").replace("›", ">"))


def test_a_tokenizer_that_undoes_the_defusing(tmp_path: Path) -> None:
    tests = OwnPrompts(tmp_path, {}, tags=EVIDENCE)
    tests.make_tokenizer = Gullible  # type: ignore[method-assign]
    fails_as(
        tests,
        "outside_text_opens_and_closes_nothing",
        "proposer.txt lets outside text spell <think>",
    )
