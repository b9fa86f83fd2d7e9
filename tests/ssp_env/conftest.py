"""What the tests of the game share: small worlds, and a hypothesis profile without deadlines."""

from __future__ import annotations

import pytest
from hypothesis import settings
from scripted import word_tokenizer

from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld

settings.register_profile("ssp", deadline=None, max_examples=50)
settings.load_profile("ssp")


@pytest.fixture(scope="session")
def mini() -> MiniWorld:
    """A small mini-wiki."""
    return MiniWorld(seed=3, entities=60)


@pytest.fixture(scope="session")
def words() -> WordTokenizer:
    """The mini-wiki's vocabulary, with the usual tags."""
    return word_tokenizer()
