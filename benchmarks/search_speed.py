"""BM25 in memory: this checkout beside another one, over synthetic passages and over wiki-mini; and
on disk, beside tantivy as it comes.

    python -m benchmarks.search_speed ../before --passages 1000000 --out search_speed.json

Both build their index over the same passages, whose words are as unevenly frequent as in real text,
and answer the same new queries, one at a time. Each has a process of its own, and they take turns.
Times are CPU-seconds on one thread. With ``--side`` it is one of these processes. ``--one-by-one``
lets one end before the other begins, where memory is short.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

WORDS, SHORTEST, LONGEST = 200_000, 60, 140
"""Words that there are, and lengths of passages."""
QUERIES = 300


def passages(count: int) -> Iterator[str]:
    """Texts whose words follow Zipf's law."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield drawn(rng, int(rng.integers(SHORTEST, LONGEST)))


def queries(turn: int) -> list[str]:
    """Four to ten words each, drawn as those of the passages are."""
    rng = np.random.default_rng([2, turn])
    return [drawn(rng, int(rng.integers(4, 11))) for _ in range(QUERIES)]


_SHARES = np.cumsum(1 / np.arange(1, WORDS + 1) ** 1.07)


def drawn(rng: np.random.Generator, count: int) -> str:
    found = np.searchsorted(_SHARES, _SHARES[-1] * rng.random(count))
    return " ".join([f"w{word}" for word in found.tolist()])


def ranker(corpus: Sequence[Any]) -> tuple[Callable[[str], Any], float]:
    """This checkout's search in memory for three passages, and the seconds that its index took."""
    from ssp_env.search import bm25

    begun = process_time()
    index: Any = bm25.BM25Index(corpus)
    built = process_time() - begun
    tokenize = getattr(bm25, "tokenize", None)
    if hasattr(index, "describe"):
        return lambda query: index.best(query, 3), built
    return lambda query: index.best(list(dict.fromkeys(tokenize(query))), 3), built  # 0.2's


def side(count: int) -> None:
    """Answers each line of standard input with a turn's figures; ``count`` 0 is wiki-mini."""
    from ssp_env.types import Document
    from ssp_env.worlds.files import WikiMini

    wiki = WikiMini()
    corpus: Any = wiki.corpus
    if count:
        corpus = [Document(str(i), "", text) for i, text in enumerate(passages(count))]
    asked = [question.text for question in wiki.questions(0)]
    best, built = ranker(corpus)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    for turn, _ in enumerate(sys.stdin):
        texts = queries(turn) if count else asked
        begun = process_time()
        for text in texts:
            best(text)
        rate = len(texts) / (process_time() - begun)
        print(json.dumps({"rate": rate, "build": built, "megabytes": memory}), flush=True)


def on_disk(count: int, turns: int) -> dict[str, Any]:
    """Our index on disk and tantivy's own of the same passages: how long both take to build, and
    how many queries each answers in a CPU-second, with ten passages named."""
    import tantivy

    from ssp_env.search import bm25
    from ssp_env.search.base import Corpus
    from ssp_env.types import Document

    corpus = Corpus(Document(str(i), "", text) for i, text in enumerate(passages(count)))
    with TemporaryDirectory() as ours, TemporaryDirectory() as theirs:
        begun = process_time()
        bm25.build(Path(ours), corpus)
        built = {"this": process_time() - begun}
        begun = process_time()
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("text")
        schema.add_integer_field("place", fast=True)
        index = tantivy.Index(schema.build(), path=theirs)
        writer = index.writer(heap_size=256_000_000, num_threads=1)
        for place, document in enumerate(corpus):
            writer.add_document(tantivy.Document(text=document.text, place=place))
        writer.commit()
        writer.wait_merging_threads()
        built["tantivy"] = process_time() - begun
        index.reload()
        searcher, disk = index.searcher(), bm25.DiskIndex(Path(ours))

        def plain(query: str) -> Any:
            hits = searcher.search(index.parse_query(query, ["text"]), 10).hits
            return searcher.fast_field_values("place", [where for _, where in hits])

        rates: dict[str, list[float]] = {"this": [], "tantivy": []}
        best: dict[str, Callable[[str], Any]]
        best = {"this": lambda query: disk.best(query, 10), "tantivy": plain}
        for turn in range(1 + turns):
            for name in sorted(best, reverse=turn % 2 == 1):
                begun = process_time()
                for query in queries(turn):
                    best[name](query)
                rates[name].append(QUERIES / (process_time() - begun))
    median = {name: round(float(np.median(some[1:])), 1) for name, some in rates.items()}
    return {name: {"rate": median[name], "build": round(built[name], 1)} for name in median} | {
        "this_of_tantivy": round(median["this"] / median["tantivy"], 2)
    }


def main() -> None:
    """Measures both and writes the ratios."""
    from benchmarks.harness import in_turns, parser, write
    from benchmarks.speed import side as started

    options = parser(__doc__, seed=False)
    options.add_argument("other", type=Path, help="the other checkout")
    options.add_argument(
        "--passages", type=int, nargs="*", default=[1_000_000, 0], help="0: wiki-mini"
    )
    options.add_argument("--on-disk", type=int, nargs="*", default=[], help="passages, k=10")
    options.add_argument("--one-by-one", action="store_true")
    options.add_argument("--turns", type=int, default=3)
    settings = options.parse_args()
    found: dict[str, Any] = {}
    for count in settings.on_disk:
        found[f"on disk, {count:,} passages"] = on_disk(count, settings.turns)
    for count in settings.passages:
        answers: dict[str, list[Any]] = {}
        for names in [["this"], ["other"]] if settings.one_by_one else [["this", "other"]]:
            with ExitStack() as stack:
                sides = {}
                for name in names:
                    checkout = settings.other if name == "other" else Path(__file__).parents[1]
                    command = ["env", f"PYTHONPATH={checkout.absolute()}", sys.executable, "-P"]
                    command += [str(Path(__file__).absolute()), "--side", str(count)]
                    sides[name] = stack.enter_context(started(command))
                answers |= in_turns(sides, settings.turns)
        medians = {
            name: {key: round(float(np.median([each[key] for each in some])), 1) for key in some[0]}
            for name, some in answers.items()
        }
        ratios = [a["rate"] / b["rate"] for a, b in zip(*answers.values(), strict=True)]
        found[f"{count:,} passages" if count else "wiki-mini"] = {
            **medians, "this_of_other": round(float(np.median(ratios)), 2),
        }  # fmt: skip
    write(
        settings.out,
        {
            "unit": "queries per CPU-second; k=3 in memory, 10 on disk",
            "turns": settings.turns,
            **found,
        },
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        side(int(sys.argv[2]))
    else:
        main()
