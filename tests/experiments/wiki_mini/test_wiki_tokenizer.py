"""The command that fits the packaged tokenizer, on a few passages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.wiki_mini import tokenizer
from ssp_env.types import Document


def test_it_writes_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = [Document(str(i), f"River {i}", "A river in the north of the land.") for i in range(9)]
    monkeypatch.setattr(tokenizer, "FOLDER", tmp_path / "bpe")
    monkeypatch.setattr(tokenizer, "wiki_mini", lambda: SimpleNamespace(corpus=corpus))

    assert tokenizer.main(["--check"]) == 1, "there is nothing yet"
    assert tokenizer.main([]) == 0
    assert tokenizer.main(["--check"]) == 0

    corpus.append(Document("9", "Lake", "Some lakes in the south."))
    assert tokenizer.main(["--check"]) == 1
