#!/usr/bin/env bash
# rank-bm25 0.2.2, BM25Plus: BM25 with a bonus, delta, for every word of a query that a passage has, so that long passages
# are not punished too much (Lv and Zhai, 2011).
#
# One would guess: the bonus goes to passages that have the word, so rankings move with delta, as they do with BM25L of
# the same package.
# Seen: every passage gets it, with the word or without. One without any word of the query scores above zero, and
# delta = 0 and delta = 100 rank alike, query by query: BM25Plus ranks as it would without its plus.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check rank-bm25==0.2.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from rank_bm25 import BM25L, BM25Plus

rng = np.random.default_rng(0)


def words(count):
    """Words as unevenly frequent as in a text."""
    return [f"w{number}" for number in rng.zipf(1.3, size=count) % 500]


passages = [words(int(rng.integers(5, 200))) for _ in range(300)]
queries = [words(4) for _ in range(100)]


def top_tens(kind, delta):
    index = kind(passages, delta=delta)
    # Rounded, so that the last bits of a sum break no tie.
    return [np.argsort(-index.get_scores(query).round(9), kind="stable")[:10].tolist() for query in queries]


without = BM25Plus(["the cat sat here".split(), "the dog ran here".split(), "a bird flew".split()])
scores = without.get_scores(["cat"])
print("scores of three passages for cat, which the first one has:", scores.round(3).tolist())
assert scores[0] > scores[1] == scores[2] > 0
equal = {}
for kind in (BM25Plus, BM25L):
    equal[kind] = sum(a == b for a, b in zip(top_tens(kind, 0), top_tens(kind, 100)))
    print(f"{kind.__name__}: equal top tens of 100 queries, delta = 0 and delta = 100:", equal[kind])
assert equal[BM25Plus] == 100 and equal[BM25L] < 50
PY
echo "seen: BM25Plus ranks alike for every delta, and scores passages that have no word of the query"
