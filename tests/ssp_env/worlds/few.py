"""Fifteen hundred passages of wiki-mini in place of all 27,197, and a cache of their own."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from ssp_env.worlds import wiki


@pytest.fixture(scope="module")
def few_passages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("few")
    file = folder / "passages.jsonl.gz"
    with gzip.open(wiki.PASSAGES_FILE, "rb") as whole, gzip.open(file, "wb") as few:
        few.writelines(islice(whole, 14_500, 16_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSP_CACHE", str(folder))
        patch.setattr(wiki, "PASSAGES_FILE", file)
        yield folder
