"""Indexes of many passages: what building and searching them takes in time, memory and disk.

The passages are generated: as long as wiki-mini's (a length drawn from its passages for each), of
words as frequent as wiki-mini's, and one word in a hundred from a long tail of others, so that the
vocabulary grows with the corpus. Queries are wiki-mini's questions. Every measurement is a process
of its own, which does one thing, with one thread. Peak memory is what the kernel counted (VmHWM),
mapped pages included.

``--encoder generated`` stands for a model: :mod:`benchmarks.clustered`. Then the figures of dense
indexes hold no encoding worth the name, and recall is that of generated vectors, under both
assumptions about what a larger corpus
adds: more passages on the same 600 subjects, or as many more subjects (a cluster for 30 passages).
``dense-flat`` is built before the other dense kinds, which then use its vectors."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.clustered import ClusteredEncoder
from benchmarks.origin import origin
from benchmarks.recall import recall
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Retriever, DiskIndex, tokenize
from ssp_env.search.corpus import Progress, passage_text
from ssp_env.search.dense import FLAT
from ssp_env.search.encoder import SentenceTransformerEncoder
from ssp_env.search.index import KINDS, PASSAGES, build_index, needs_encoder, open_index
from ssp_env.search.store import PassageStore, build_store
from ssp_env.worlds.wiki import WikiMini

TAIL_SHARE, TAIL = 0.01, 1.3
"""Share of words that are from the tail, and the exponent of their Zipf law."""
K = 3
FIXED, GROWING = "generated", "generated-growing"
"""Names of generated encoders: of 600 clusters, and of one for so many passages."""
PASSAGES_A_CLUSTER = 30
OPENED = 3
"""How often an index is opened; the opening of the middle duration counts."""
NOTES = {
    "passages": "generated: lengths and word frequencies of wiki-mini's passages, one word in "
    "100 from a long tail",
    "build": "the index alone, over a store that is there; peak_mb contains imports_mb and "
    "mapped pages. stages: CPU "
    "seconds from the start to the first and the last report of each stage's progress",
    "cold, warm": "a fresh process opens the index and answers one query; the middle of 3. cold: "
    "after its files were "
    "dropped from the page cache (posix_fadvise). For dense kinds, opening contains the import "
    "of FAISS",
    "rate": "960 distinct questions in batches of 64; memory after the last of them. No ranking "
    "is cached. For dense "
    "kinds, drawing the query's vector is in it",
    "dense kinds, generated": "vectors are drawn around 600 centres (benchmarks/clustered.py), "
    "not encoded by a model; "
    "encoding by a model comes on top. dense-flat's build is the drawing of vectors",
    "recall": "of dense-flat's first 3, for queries at a cosine of about .6 to one of 500 "
    "passages. With 600 clusters "
    "at any size, a larger corpus is a denser one; recall_if_clusters_grow is of a set with a "
    "cluster for 30 passages, "
    "which gets wider instead. Neither is a model's; real vectors may lie between or outside. "
    "the_index_says: what "
    "the build chose, by queries near 512 other passages",
}


def main() -> int:
    """Runs every measurement in a process of its own, and writes one document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument(
        "--kinds", nargs="+", default=["bm25"], choices=list(KINDS), help="default: bm25"
    )
    parser.add_argument("--encoder", help=f"for dense kinds: directory of a model, or {FIXED!r}")
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="a folder for corpus and indexes; made, then deleted",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leaves the work folder, and uses what is in it"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "KIND"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.measure is not None:
        name, kind = settings.measure
        print(json.dumps(MEASURES[name](settings, kind)))
        return 0
    result: dict[str, Any] = {
        **origin("search_scale"),
        "passages": settings.passages,
        "seed": settings.seed,
    }
    settings.work.mkdir(parents=True, exist_ok=True)
    result["notes"] = NOTES
    result["corpus"] = measured(settings, "generate", "-")
    result["store"] = measured(settings, "store", "-")
    kinds = [kind for kind in KINDS if kind in settings.kinds]
    for kind in kinds:
        result[kind] = {"build": measured(settings, "build", kind)}
        if kind != FLAT:
            result[kind] |= {name: openings(settings, name, kind) for name in ("cold", "warm")}
            result[kind]["rate"] = measured(settings, "rate", kind)
    result |= recalls(settings, kinds)
    result["load_average_at_end"] = os.getloadavg()[0]
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if settings.out is not None:
        settings.out.write_text(text)
    if not settings.keep:
        shutil.rmtree(settings.work)
    return 0


def openings(settings: argparse.Namespace, name: str, kind: str) -> Any:
    """The middle one of several openings, by the time until the first answer, and all these
    times."""
    times = [measured(settings, name, kind) for _ in range(OPENED)]
    times.sort(key=lambda seen: seen["seconds"])
    return {**times[OPENED // 2], "all_seconds": [seen["seconds"] for seen in times]}


def recalls(settings: argparse.Namespace, kinds: list[str]) -> dict[str, Any]:
    """Recall of approximate indexes, where there is an exact one; of generated vectors, under both
    assumptions."""
    approximate = [kind for kind in kinds if FLAT in kinds and kind not in ("bm25", FLAT)]
    found = {"recall": {kind: measured(settings, "recall", kind) for kind in approximate}}
    if settings.encoder == FIXED:
        growing = argparse.Namespace(**{**vars(settings), "encoder": GROWING})
        for kind in [FLAT, *approximate] if approximate else []:
            measured(growing, "build", kind)
        found["recall_if_clusters_grow"] = {
            kind: measured(growing, "recall", kind) for kind in approximate
        }
    return found


def measured(settings: argparse.Namespace, name: str, kind: str) -> Any:
    """One measurement in a fresh process."""
    options = [
        "--passages",
        str(settings.passages),
        "--work",
        str(settings.work),
        "--seed",
        str(settings.seed),
    ]
    options += ["--encoder", settings.encoder] if settings.encoder else []
    command = [sys.executable, "-m", "benchmarks.search_scale", *options, "--measure", name, kind]
    run = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
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
                file.write(
                    json.dumps({"id": str(index), "contents": f'"{head}"\n{" ".join(text)}'}) + "\n"
                )
        aside.rename(path)
    return {"bytes": path.stat().st_size, "seconds": round(perf_counter() - begun, 1)}


@cache
def _statistics() -> tuple[list[str], np.ndarray, list[int]]:
    """Words of wiki-mini, their frequencies summed up, and the lengths of its passages."""
    frequencies: Counter[str] = Counter()
    lengths = []
    for document in WikiMini().corpus:
        words = tokenize(document.text)
        frequencies.update(words)
        lengths.append(len(words))
    words = list(frequencies)
    cumulated = np.cumsum(np.array(list(frequencies.values()), np.float64))
    cumulated /= cumulated[-1]
    return words, cumulated, lengths


def passages(count: int, seed: int) -> Iterator[list[str]]:
    """The words of each passage."""
    words, cumulated, lengths = _statistics()
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
    target = settings.work / "index" / PASSAGES
    return built(
        lambda progress: build_store(settings.work / "corpus.jsonl", target, progress).folder
    )


def build(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Builds one index over the store. Making sure that the store is the corpus's is part of it."""
    encoder, directory, corpus = (
        encoder_of(settings, kind),
        directory_of(settings),
        settings.work / "corpus.jsonl",
    )
    if not (directory / PASSAGES).exists():
        directory.mkdir(exist_ok=True)
        (directory / PASSAGES).symlink_to(settings.work.resolve() / "index" / PASSAGES)
    return built(
        lambda progress: build_index(corpus, directory, kind, encoder=encoder, progress=progress)
    )


def built(work: Callable[[Progress], Path]) -> dict[str, Any]:
    """What a build takes; memory beside that of the imports."""
    stages: dict[str, list[float]] = {}

    def progress(task: str, done: int, total: int) -> None:
        now = round(process_time() - cpu, 1)
        stages[task] = [stages.get(task, [now])[0], now]

    imports, cpu, begun = memory(), process_time(), perf_counter()
    folder = work(progress)
    return {
        "seconds": round(perf_counter() - begun, 1),
        "cpu_seconds": round(process_time() - cpu, 1),
        "stages": stages,
        "peak_mb": memory()["VmHWM"],
        "imports_mb": imports["VmHWM"],
        "disk_mb": round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6, 1),
    }


def cold(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Opens an index and searches once, after the kernel was asked to drop its files from the page
    cache."""
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
        "seconds": round(ended - begun, 4),
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
        corpus = PassageStore(settings.work / "index" / PASSAGES)
        index = DiskIndex(settings.work / "index" / kind)
        retriever = BM25Retriever(corpus, index, cache_size=0)
    retriever.search(asked[:64], K)
    cpu, begun = process_time(), perf_counter()
    for first in range(64, len(asked), 64):
        retriever.search(asked[first : first + 64], K)
    count = len(asked) - 64
    return {
        "queries": count,
        "queries_per_second": round(count / (perf_counter() - begun), 1),
        "cpu_ms_a_query": round(1000 * (process_time() - cpu) / count, 3),
        **after(),
    }


def recall_of(settings: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Recall for queries near 500 passages."""
    directory = directory_of(settings)
    corpus = PassageStore(directory / PASSAGES)
    asked = [passage_text(corpus[at]) for at in range(0, len(corpus), max(1, len(corpus) // 500))]
    return recall(directory, kind, encoder_of(settings, kind), asked)


def questions(count: int) -> list[str]:
    """Distinct questions of wiki-mini's benchmarks."""
    return list(dict.fromkeys(question.text for question in WikiMini().questions(seed=0)))[:count]


def directory_of(settings: argparse.Namespace) -> Path:
    """The index directory: a second set of vectors lies in one of its own."""
    work: Path = settings.work
    return work / ("growing" if settings.encoder == GROWING else "index")


def encoder_of(settings: argparse.Namespace, kind: str) -> Any:
    """The encoder, where the kind needs one."""
    if not needs_encoder(kind):
        return None
    if settings.encoder == FIXED:
        return ClusteredEncoder()
    if settings.encoder == GROWING:
        return ClusteredEncoder(clusters=max(1, settings.passages // PASSAGES_A_CLUSTER))
    return SentenceTransformerEncoder(settings.encoder)


def after() -> dict[str, float]:
    """Resident memory: all of it, and the part that is the process's own, not mapped files."""
    now = memory()
    return {"resident_mb": now["VmRSS"], "own_mb": now["RssAnon"], "mapped_mb": now["RssFile"]}


def memory() -> dict[str, float]:
    """Figures of /proc/self/status, in MB (Linux)."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name[:-1]: round(int(rest[0]) * 1024 / 1e6, 1)
        for name, *rest in lines
        if rest[1:] == ["kB"]
    }


MEASURES: dict[str, Callable[[argparse.Namespace, str], dict[str, Any]]] = {
    "generate": generate,
    "store": store,
    "build": build,
    "cold": cold,
    "warm": warm,
    "rate": rate,
    "recall": recall_of,
}

if __name__ == "__main__":
    sys.exit(main())
