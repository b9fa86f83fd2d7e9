"""Indexes of many passages: what building and searching them takes in time, memory and disk.

The passages are generated: as long as wiki-mini's (a length drawn from its passages for each), of words as frequent as
wiki-mini's, and one word in a hundred from a long tail of others, so that the vocabulary grows with the corpus.
Queries are wiki-mini's questions. Every measurement is a process of its own, which does one thing. Peak memory is what
the kernel counted (VmHWM), mapped pages included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from experiments.provenance import git_commit, machine
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Index, BM25Retriever, tokenize
from ssp_env.search.index import KINDS, PASSAGES, build_index, load_kind, open_index
from ssp_env.search.store import PassageStore, build_store
from ssp_env.worlds.wiki_mini import WikiMini

TAIL_SHARE, TAIL = 0.01, 1.3
"""Share of words that are from the tail, and the exponent of their Zipf law."""
K = 3


def main() -> int:
    """Runs every measurement in a process of its own, and writes one document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=["bm25"], choices=list(KINDS), help="default: bm25")
    parser.add_argument("--encoder", help="for dense kinds: directory of a model")
    parser.add_argument("--work", type=Path, required=True, help="a folder for corpus and indexes; made, then deleted")
    parser.add_argument("--keep", action="store_true", help="leaves the work folder, and uses what is in it")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "KIND"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.measure is not None:
        name, kind = settings.measure
        print(json.dumps(MEASURES[name](settings, kind)))
        return 0
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.search_scale", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "passages": settings.passages,
        "seed": settings.seed,
    }
    settings.work.mkdir(parents=True, exist_ok=True)
    result["corpus"] = measured(settings, "generate", "-")
    result["store"] = measured(settings, "store", "-")
    for kind in settings.kinds:
        result[kind] = {name: measured(settings, name, kind) for name in ("build", "cold", "warm", "rate")}
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if settings.out is not None:
        settings.out.write_text(text)
    if not settings.keep:
        shutil.rmtree(settings.work)
    return 0


def measured(settings: argparse.Namespace, name: str, kind: str) -> Any:
    """One measurement in a fresh process."""
    options = ["--passages", str(settings.passages), "--work", str(settings.work), "--seed", str(settings.seed)]
    options += ["--encoder", settings.encoder] if settings.encoder else []
    command = [sys.executable, "-m", "benchmarks.search_scale", *options, "--measure", name, kind]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if run.returncode:
        raise SystemExit(f"{name} {kind} failed:\n{run.stderr}")
    print(f"{name} {kind}: {run.stdout.strip()}", file=sys.stderr)
    return json.loads(run.stdout)


def generate(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Writes the corpus, unless it is there."""
    path, begun = settings.work / "corpus.jsonl", perf_counter()
    if not path.exists():
        aside = path.with_suffix(".new")
        with open(aside, "w", encoding="utf-8") as file:
            for index, text in enumerate(passages(settings.passages, settings.seed)):
                head = " ".join(text[:3])
                file.write(json.dumps({"id": str(index), "contents": f'"{head}"\n{" ".join(text)}'}) + "\n")
        aside.rename(path)
    return {"bytes": path.stat().st_size, "seconds": round(perf_counter() - begun, 1)}


def passages(count: int, seed: int) -> Iterator[list[str]]:
    """The words of each passage."""
    frequencies: Counter[str] = Counter()
    lengths = []
    for document in WikiMini().corpus:
        words = tokenize(document.text)
        frequencies.update(words)
        lengths.append(len(words))
    words = list(frequencies)
    cumulated = np.cumsum(np.array(list(frequencies.values()), np.float64))
    cumulated /= cumulated[-1]
    rng = np.random.default_rng(seed)
    for first in range(0, count, 10_000):
        sizes = rng.choice(lengths, min(10_000, count - first))
        drawn = np.searchsorted(cumulated, rng.random(int(sizes.sum())), side="right")
        text = [words[word] for word in drawn.tolist()]
        rare = np.flatnonzero(rng.random(len(text)) < TAIL_SHARE).tolist()
        for place, word in zip(rare, rng.zipf(TAIL, len(rare)).tolist(), strict=True):
            text[place] = f"x{word}"
        at = 0
        for size in sizes.tolist():
            yield text[at : at + size]
            at += size


def store(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Builds the passage store."""
    return built(lambda: build_store(settings.work / "corpus.jsonl", settings.work / "index" / PASSAGES).folder)


def build(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Builds one index over the store. Making sure that the store is the corpus's is part of it."""
    encoder = encoder_of(settings, kind)
    return built(lambda: build_index(settings.work / "corpus.jsonl", settings.work / "index", kind, encoder=encoder))


def built(work: Callable[[], Path]) -> dict[str, Any]:
    """What a build takes; memory beside that of the imports."""
    imports, cpu, begun = memory(), process_time(), perf_counter()
    folder = work()
    return {
        "seconds": round(perf_counter() - begun, 1),
        "cpu_seconds": round(process_time() - cpu, 1),
        "peak_mb": memory()["VmHWM"],
        "imports_mb": imports["VmHWM"],
        "disk_mb": round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6, 1),
    }


def cold(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Opens an index and searches once, after the kernel was asked to drop its files from the page cache."""
    for path in (settings.work / "index").rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    return warm(settings, kind)


def warm(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Opens an index and searches once."""
    question, encoder = questions(1)[0], encoder_of(settings, kind)
    imports, begun = memory(), perf_counter()
    retriever = open_index(settings.work / "index", kind, encoder=encoder)
    opened = perf_counter()
    found = retriever.search([question], K)[0]
    ended = perf_counter()
    return {
        "open_seconds": round(opened - begun, 4),
        "first_query_seconds": round(ended - opened, 4),
        "documents": len(found),
        "imports_mb": imports["VmRSS"],
        **after(),
    }


def rate(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Searches with distinct questions in batches of 64, nothing cached, one thread."""
    asked, encoder = questions(1024), encoder_of(settings, kind)
    retriever: Retriever = open_index(settings.work / "index", kind, encoder=encoder)
    if kind == "bm25":
        opened = PassageStore(settings.work / "index" / PASSAGES)
        index = BM25Index.open(settings.work / "index" / kind, opened.digest())
        retriever = BM25Retriever(opened, index, cache_size=0)
    retriever.search(asked[:64], K)
    cpu, begun = process_time(), perf_counter()
    for first in range(64, len(asked), 64):
        retriever.search(asked[first : first + 64], K)
    count = len(asked) - 64
    return {
        "queries": count,
        "queries_per_second": round(count / (perf_counter() - begun), 1),
        "queries_per_cpu_second": round(count / (process_time() - cpu), 1),
        **after(),
    }


def questions(count: int) -> list[str]:
    """Distinct questions of wiki-mini's benchmarks."""
    return list(dict.fromkeys(question.text for question in WikiMini().questions(seed=0)))[:count]


def encoder_of(settings: argparse.Namespace, kind: str) -> Any:
    """The encoder, where the kind needs one."""
    if not load_kind(kind).needs_encoder:
        return None
    from ssp_env.search.encoder import SentenceTransformerEncoder

    return SentenceTransformerEncoder(settings.encoder)


def after() -> dict[str, float]:
    """Resident memory: all of it, and the part that is the process's own, not mapped files."""
    now = memory()
    return {"resident_mb": now["VmRSS"], "own_mb": now["RssAnon"], "mapped_mb": now["RssFile"]}


def memory() -> dict[str, float]:
    """Figures of /proc/self/status, in MB (Linux)."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {name[:-1]: round(int(rest[0]) * 1024 / 1e6, 1) for name, *rest in lines if rest[1:] == ["kB"]}


MEASURES: dict[str, Callable[[argparse.Namespace, str], dict[str, Any]]] = {
    "generate": generate,
    "store": store,
    "build": build,
    "cold": cold,
    "warm": warm,
    "rate": rate,
}

if __name__ == "__main__":
    sys.exit(main())
