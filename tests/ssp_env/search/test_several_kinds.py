"""Several kinds of index in one directory, by the command line and from Python."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from corpus_files import jsonl
from small_models import bert_encoder

from ssp_env.cli import main
from ssp_env.search.index.directory import open_index
from ssp_env.types import Document

# Not imported here: that takes seconds, in every process that collects the tests.
pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="needs the extra 'dense'"
)


def test_with_several_kinds_the_one_that_is_meant_has_to_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [Document("p1", "Danube", "A river."), Document("p2", "Hill", "Not wet.")]
    corpus, index = str(jsonl(tmp_path / "corpus.jsonl", documents)), str(tmp_path / "i")
    assert main(["index", corpus, "--out", index]) == 0
    model = bert_encoder(tmp_path / "model")
    dense = ["--kind", "dense-flat", "--encoder", str(model)]
    assert main(["index", corpus, "--out", index, *dense]) == 0
    capsys.readouterr()
    for command in (["search", "--index", index, "river"], ["serve", "--index", index]):
        assert main([*command, "--encoder", str(tmp_path / "absent")]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "give --kind (or kind=), one of bm25, dense-flat" in said
    for kind, waits_for in (("bm25", ""), ("dense-flat", "loading the encoder ...\n")):
        assert main(["search", "--index", index, "--kind", kind, "river"]) == 0
        out, err = capsys.readouterr()
        assert "Danube" in out
        assert err == waits_for  # no bar of transformers either
    assert [len(ranking) for ranking in open_index(index, "dense-flat").search(["river"], 2)] == [2]
    assert open_index(index, "dense-flat", encoder=model).search(["river"], 1)
