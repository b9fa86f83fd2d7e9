"""Queries a second of BM25 over wiki-mini, beside bm25s's own: one core, batches of 64, every
question once.

Rates are medians over repetitions, in each of which everything is measured once. Rankings are not
cached. bm25s gets the words that ours are split into, ranks with its numpy back-end, and gives
positions; ours give documents."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import bm25s
import numpy as np

from benchmarks.env_speed import stay_on_one_core
from experiments.run.provenance import git_commit, machine
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Retriever, DiskIndex, tokenize, words_of
from ssp_env.search.index import build_index, open_passages
from ssp_env.worlds.wiki import WikiMini, packaged

K, BATCH = 3, 64
Search = Callable[[Sequence[str]], object]


def main() -> int:
    """Measures and writes one document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repetitions", type=int, default=7)
    settings = parser.parse_args()
    host = machine()
    stay_on_one_core()
    world = WikiMini()
    questions = list(dict.fromkeys(question.text for question in world.questions(seed=0)))
    memory = BM25Retriever(world.corpus, cache_size=0)
    with tempfile.TemporaryDirectory() as directory, packaged("passages.jsonl.gz") as corpus:
        build_index(corpus, directory, "bm25")
        index = DiskIndex(Path(directory) / "bm25")
        disk = BM25Retriever(open_passages(directory), index, cache_size=0)
        searches: dict[str, Search] = {
            "bm25s": theirs(world),
            "memory": search(memory),
            "disk": search(disk),
        }
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in searches}
        for _ in range(settings.repetitions):
            for name, each in searches.items():
                seen[name].append(rates(each, questions))
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.bm25_speed", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": host,
        "passages": len(world.corpus),
        "questions": len(questions),
        "k": K,
        "batch": BATCH,
        "repetitions": settings.repetitions,
    }
    for name, pairs in seen.items():
        cpu, wall = zip(*pairs, strict=True)
        result[name] = {
            "queries_per_cpu_second": round(median(cpu)),
            "queries_per_second": round(median(wall)),
            "lowest_and_highest_per_cpu_second": [round(min(cpu)), round(max(cpu))],
        }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if settings.out is not None:
        settings.out.write_text(text)
    return 0


def theirs(world: WikiMini) -> Search:
    """bm25s as its README uses it, over our words."""
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene", backend="numpy")
    index.index([words_of(document) for document in world.corpus], show_progress=False)

    def ask(batch: Sequence[str]) -> object:
        words = [
            [word for word in dict.fromkeys(tokenize(query)) if word in index.vocab_dict]
            for query in batch
        ]
        return index.retrieve(words, k=K, show_progress=False)

    return ask


def search(retriever: Retriever) -> Search:
    """Ours."""
    return lambda batch: retriever.search(batch, K)


def rates(ask: Search, questions: Sequence[str]) -> tuple[float, float]:
    """Queries a CPU-second and a second, all questions once, in one random order."""
    order = np.random.default_rng(0).permutation(len(questions)).tolist()
    batches = [
        [questions[i] for i in order[first : first + BATCH]]
        for first in range(0, len(order), BATCH)
    ]
    cpu, wall = process_time(), perf_counter()
    for batch in batches:
        ask(batch)
    return len(questions) / (process_time() - cpu), len(questions) / (perf_counter() - wall)


if __name__ == "__main__":
    sys.exit(main())
