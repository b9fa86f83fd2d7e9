"""The scale benchmark's corpus and its measurements, small."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_scale import FIXED, GROWING, MEASURES, passages
from ssp_env.search.bm25 import tokenize
from ssp_env.worlds.wiki import WikiMini


def test_generated_passages_are_as_long_as_real_ones_and_follow_the_seed() -> None:
    made = list(passages(2000, 0))
    real = [len(tokenize(document.text)) for document in WikiMini().corpus[::9]]
    again, others = (list(islice(passages(2000, seed), 50)) for seed in (0, 1))
    assert made[:50] == again != others
    for percentile in (5, 25, 50, 75, 95):
        assert (
            abs(
                np.percentile([len(text) for text in made], percentile)
                - np.percentile(real, percentile)
            )
            < 8
        )
    words = Counter(word for text in made for word in text)
    assert words.most_common(1)[0][0] == "the"
    assert (
        0.005
        < sum(n for word, n in words.items() if word[0] == "x" and word[1:].isdigit())
        / words.total()
        < 0.02
    )


def test_every_measurement_gives_figures(tmp_path: Path) -> None:
    settings = Namespace(work=tmp_path, passages=300, seed=0, encoder=None)
    results = {
        name: MEASURES[name](settings, "bm25")
        for name in ("generate", "store", "build", "cold", "warm", "rate")
    }
    assert results["build"]["disk_mb"] > 0
    assert results["build"]["peak_mb"] > 0
    assert set(results["build"]["stages"]) == {"reading passages", "indexing words"}
    assert results["warm"]["documents"] == 3
    assert results["rate"]["queries"] == 960
    assert results["rate"]["cpu_ms_a_query"] > 0
    assert results["cold"]["own_mb"] > 0


@pytest.mark.parametrize("encoder", [FIXED, GROWING])
def test_recall_is_that_of_an_approximate_index_beside_the_exact_one(
    tmp_path: Path, encoder: str
) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    settings = Namespace(work=tmp_path, passages=300, seed=0, encoder=encoder)
    for name, kind in (
        ("generate", "-"),
        ("store", "-"),
        ("build", "dense-flat"),
        ("build", "dense-ivf-sq8"),
    ):
        MEASURES[name](settings, kind)
    found = MEASURES["recall"](settings, "dense-ivf-sq8")
    assert found["queries"] == 300
    # All of the few lists of 300 vectors are searched, so that only the rounding to 8 bits can cost
    # anything.
    assert 0.95 < found["recall_at_3"] <= 1
    assert found["the_index_says"]["lists_probed"] == found["the_index_says"]["lists"] == 6
    assert found["cpu_ms_a_query"] > 0
    assert found["encoder"].startswith(f"generated: {600 if encoder == FIXED else 10} clusters")
    assert (tmp_path / ("index" if encoder == FIXED else "growing") / "dense-ivf-sq8").is_dir()
