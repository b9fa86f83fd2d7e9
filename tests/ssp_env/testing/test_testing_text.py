"""The test mixins of tokenizers and prompt sets: what ships passes them, a broken part does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hf_tokenizers
import pytest
from broken import fails_as
from scripted import word_tokenizer

from ssp_env.game.config import MINI_GAME, GameConfig
from ssp_env.game.prompts import SHIPPED
from ssp_env.game.prompts.formats import FORMATS
from ssp_env.game.protocol import Tags
from ssp_env.testing import PromptsTests, TokenizerTests
from ssp_env.tokenizers import (
    BPETokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    Tokenizer,
    WordTokenizer,
)
from ssp_env.worlds.mini import SmallWorld

# -- tokenizers --------------------------------------------------------------------------------


class TestBytes(TokenizerTests):
    def make_tokenizer(self) -> Tokenizer:
        return ByteTokenizer()


class TestBPE(TokenizerTests):
    def make_tokenizer(self) -> Tokenizer:
        return BPETokenizer()


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


class Trusting(WordTokenizer):
    """Takes outside text for its special tokens."""

    def encode_data(self, text: str) -> list[int]:
        return self.encode(text)


@pytest.mark.parametrize(
    ("tokenizer", "test", "message"),
    [
        (
            Trusting(["what"], Tags().all()),
            "data_never_becomes_a_special_token",
            "takes the text '<think>' for the tag's token",
        ),
        (WordTokenizer(["what"], ["<think>"]), "tags_are_spelled", "cannot spell the tag </think>"),
    ],
)
def test_broken_tokenizers(tokenizer: Tokenizer, test: str, message: str) -> None:
    class Broken(TokenizerTests):
        def make_tokenizer(self) -> Tokenizer:
            return tokenizer

    fails_as(Broken(), test, message)


# -- prompts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
class TestShippedPrompts(PromptsTests):
    @pytest.fixture(autouse=True)
    def _name(self, name: str) -> None:
        self.name = name

    def make_game(self) -> GameConfig:
        tags = FORMATS[self.name].tags if self.name in FORMATS else Tags()
        return GameConfig(prompts=self.name, closed_book=True, tags=tags)


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


def test_a_broken_set(tmp_path: Path) -> None:
    tests = OwnPrompts(tmp_path, {"solver": "{question} in {Searches}"})
    fails_as(tests, "no_placeholder_is_left", "solver.txt shows {Searches}")
