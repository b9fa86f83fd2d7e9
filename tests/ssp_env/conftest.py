"""Small worlds that the tests of the game share."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hf_tokenizers import byte_level
from scripted import mixed_games, rules_of, word_tokenizer

from ssp_env.replay import SavedGame
from ssp_env.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import World
from ssp_env.worlds.files import FileWorld, WikiMini
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="session")
def mini() -> MiniWorld:
    """A small mini world."""
    return MiniWorld(seed=3, entities=60)


@pytest.fixture(scope="session")
def words() -> WordTokenizer:
    """The mini world's vocabulary, with the usual tags."""
    return word_tokenizer()


@pytest.fixture(params=["bytes", "words", "bpe"])
def tokenizer(request: pytest.FixtureRequest, words: WordTokenizer) -> Tokenizer:
    """One of each kind."""
    bpe = HuggingFaceTokenizer(byte_level(tags=True))
    return {"bytes": ByteTokenizer(), "words": words, "bpe": bpe}[request.param]


@pytest.fixture(scope="session")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WikiMini]:
    """wiki-mini, with a cache of its own, where its index is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield WikiMini()


@pytest.fixture(scope="session")
def games(mini: MiniWorld, words: WordTokenizer) -> list[SavedGame]:
    """Two valid games, an invalid and a void one, as they come back from a file."""
    return mixed_games(rules_of(mini, words, attempts=3, invalid_reward=-0.5))


@pytest.fixture(scope="session")
def cities(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two passages of real text, and one answer."""
    folder = tmp_path_factory.mktemp("cities")
    texts = {"Paris": "Paris lies on the river Seine.", "Rome": "Rome lies on the Tiber."}
    rows = [{"id": name, "title": name, "text": text} for name, text in texts.items()]
    (folder / "corpus").write_text("\n".join(map(json.dumps, rows)))
    (folder / "answers").write_text(json.dumps({"answer": "Paris"}))
    return FileWorld("cities", folder / "corpus", folder / "answers")
