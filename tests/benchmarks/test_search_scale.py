"""The scale benchmark's corpus and its measurements, small."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.search_scale import MEASURES, passages
from ssp_env.search.bm25 import tokenize
from ssp_env.worlds.wiki_mini import WikiMini


def test_generated_passages_are_as_long_as_real_ones_and_follow_the_seed() -> None:
    made = list(passages(2000, 0))
    real = [len(tokenize(document.text)) for document in WikiMini().corpus]
    assert [len(text) for text in made] != [len(text) for text in passages(2000, 1)]
    assert made[:50] == list(passages(2000, 0))[:50]
    for percentile in (5, 25, 50, 75, 95):
        assert abs(np.percentile([len(text) for text in made], percentile) - np.percentile(real, percentile)) < 8
    words = Counter(word for text in made for word in text)
    assert words.most_common(1)[0][0] == "the"
    assert 0.005 < sum(n for word, n in words.items() if word[0] == "x" and word[1:].isdigit()) / words.total() < 0.02


def test_every_measurement_gives_figures(tmp_path: Path) -> None:
    settings = Namespace(work=tmp_path, passages=300, seed=0, encoder=None)
    results = {name: measure(settings, "bm25") for name, measure in MEASURES.items()}
    assert results["build"]["disk_mb"] > 0
    assert results["build"]["peak_mb"] > 0
    assert results["warm"]["documents"] == 3
    assert results["rate"]["queries"] == 960
    assert results["rate"]["queries_per_second"] > 0
    assert results["cold"]["own_mb"] > 0
