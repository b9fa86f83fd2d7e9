#!/usr/bin/env bash
# faiss-cpu 1.15.1 (IndexHNSWFlat) and usearch 2.26.6, graph indexes over a corpus in which one passage stands often: an
# empty page, a notice of copyright, a stub.
#
# One would guess: copies cost places among the hits of queries that they match; a query that equals another passage
# finds that passage, nearly always, as before.
# Seen: copies link to copies, all at distance 0, and leave no links for anything else. With 2,000 copies of one vector
# put in first, 200 others, each searched for by its own vector, are found by none (faiss) or a quarter (usearch) of the
# queries; without copies, by all. What comes back instead is the copy. Searching wider does not cure it where the graph
# has no way across.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check faiss-cpu==1.15.1 usearch==2.26.6 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np
from usearch.index import Index

faiss.omp_set_num_threads(1)
generator = np.random.default_rng(0)
others = generator.normal(size=(200, 32)).astype(np.float32)
copy = generator.normal(size=32).astype(np.float32)


def with_faiss(vectors):
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32)
    index.add(vectors)
    index.hnsw.efSearch = 64
    return index.search(others, 1)[1][:, 0]


def with_usearch(vectors):
    index = Index(ndim=vectors.shape[1], metric="l2sq", dtype="f32")
    index.add(np.arange(len(vectors)), vectors, threads=1)
    return index.search(others, 1, threads=1).keys[:, 0]


for search in (with_faiss, with_usearch):
    found = {}
    for copies in (0, 2000):
        hits = search(np.concatenate([np.tile(copy, (copies, 1)), others]))
        found[copies] = float((hits.astype(int) == np.arange(len(others)) + copies).mean())
    print(f"{search.__name__}: vectors that find themselves, by number of copies of another one: {found}")
    assert found[0] > 0.99 and found[2000] < 0.5
PY
echo "seen: beside 2,000 copies of one vector, other vectors are not found by themselves"
