"""Builds the packaged data of the world wiki-mini from a folder of collected open-domain QA data.

    python -m experiments.wiki_mini.build --source FOLDER            # builds and writes
    python -m experiments.wiki_mini.build --source FOLDER --check    # rebuilds and compares only

The source folder holds ``wiki_passages.jsonl.gz``, ``passage_origins.tsv.gz``,
``answer_set.jsonl``, ``eval/<benchmark>.jsonl`` and a ``manifest.json`` with sources and digests.
The build makes no choices and reads no clock: the same folder gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ssp_env.errors import DataError, SSPError
from ssp_env.search.corpus import read_corpus, read_jsonl, require
from ssp_env.worlds.files import read_answers, read_questions, shared_answers

DATA = Path(__file__).resolve().parents[2] / "ssp_env" / "worlds" / "data"
NOTICE = "NOTICE-wiki_mini.md"
TEMPLATE = Path(__file__).with_name("notice.md")


@dataclass(frozen=True)
class DataSet:
    """Where a benchmark's questions come from."""

    title: str
    licence: str
    """SPDX identifier."""
    authors: str
    url: str


DATA_SETS = {
    "2wiki": DataSet(
        "2WikiMultiHopQA (dev)",
        "Apache-2.0",
        "Ho, Duong Nguyen, Sugawara, Aizawa (COLING 2020)",
        "https://github.com/Alab-NII/2wikimultihop",
    ),
    "bamboogle": DataSet(
        "Bamboogle",
        "MIT",
        "Press, Zhang, Min, Schmidt, Smith, Lewis (Findings of EMNLP 2023)",
        "https://github.com/ofirpress/self-ask",
    ),
    "hotpotqa": DataSet(
        "HotpotQA (dev, distractor)",
        "CC-BY-SA-4.0",
        "Yang, Qi, Zhang, Bengio, Cohen, Salakhutdinov, Manning (EMNLP 2018)",
        "https://hotpotqa.github.io",
    ),
    "musique": DataSet(
        "MuSiQue-Ans (dev)",
        "CC-BY-4.0",
        "Trivedi, Balasubramanian, Khot, Sabharwal (TACL 2022)",
        "https://github.com/StonyBrookNLP/musique",
    ),
    "nq": DataSet(
        "NQ-open (dev)",
        "CC-BY-SA-3.0",
        "Kwiatkowski et al. (TACL 2019); Lee, Chang, Toutanova (ACL 2019)",
        "https://github.com/google-research-datasets/natural-questions",
    ),
    "popqa": DataSet(
        "PopQA",
        "MIT",
        "Mallen, Asai, Zhong, Das, Khashabi, Hajishirzi (ACL 2023)",
        "https://github.com/AlexTMallen/adaptive-retrieval",
    ),
    "triviaqa": DataSet(
        "TriviaQA",
        "Apache-2.0",
        "Joshi, Choi, Weld, Zettlemoyer (ACL 2017)",
        "https://nlp.cs.washington.edu/triviaqa",
    ),
}


def build(source: Path, target: Path) -> None:
    """Writes the data folder's content, notice included, to ``target``.

    Raises:
        DataError: a source file is missing, damaged or not the one its manifest describes.
    """
    collected = read_manifest(source)
    folder = target / "wiki_mini"
    files: dict[str, dict[str, Any]] = {}

    def add(name: str, rows: Sequence[dict[str, Any]]) -> None:
        content = "".join(
            json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows
        ).encode()
        write(folder / name, zipped(content) if name.endswith(".gz") else content)
        files[name] = {"records": len(rows), "sha256": hashlib.sha256(content).hexdigest()}

    add("passages.jsonl.gz", pick(source / "wiki_passages.jsonl.gz", {"id": str, "contents": str}))
    answers = unshared_answers(source)
    add("answers.jsonl", answers)
    evidence = {}

    for benchmark in DATA_SETS:
        path = source / "eval" / f"{benchmark}.jsonl"
        add(
            f"questions/{benchmark}.jsonl",
            pick(path, {"id": str, "question": str, "answers": list}),
        )
        evidence[benchmark] = count(row["evidence"] for row in pick(path, {"evidence": str}))

    manifest = {
        "name": "wiki-mini",
        "passages": files["passages.jsonl.gz"]["records"],
        "answers": files["answers.jsonl"]["records"],
        "questions": {
            benchmark: files[f"questions/{benchmark}.jsonl"]["records"] for benchmark in DATA_SETS
        },
        "evidence": evidence,
        "passage_origins": origins(source / "passage_origins.tsv.gz"),
        "answer_origins": count(row["source"] for row in answers),
        "sha256_of": "the uncompressed content",
        "files": files,
        "data_sets": {benchmark: asdict(data_set) for benchmark, data_set in DATA_SETS.items()},
        "passage_licence": "CC-BY-SA-3.0 or later (Wikipedia); CC-BY-SA-4.0 where taken from "
        "HotpotQA",
        "sources": collected["sources"],
    }
    write(
        folder / "manifest.json",
        (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode(),
    )
    write(target / NOTICE, notice(manifest).encode())
    validate(folder)


def read_manifest(source: Path) -> dict[str, Any]:
    """The source folder's manifest, after checking the files that it has digests of.

    The evaluation files are samples of the ones that the manifest describes, so theirs do not
    apply.

    Raises:
        DataError: no readable manifest, or a file that is not the one it describes.
    """
    path = source / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        expected = {
            name: manifest["outputs"][entry]["sha256"]
            for name, entry in (
                ("wiki_passages.jsonl.gz", "corpus/wiki_passages.jsonl.gz"),
                ("passage_origins.tsv.gz", "corpus/passage_origins.tsv.gz"),
                ("answer_set.jsonl", "answers/answer_set.jsonl"),
            )
        }

        for name, digest in expected.items():
            found = hashlib.sha256((source / name).read_bytes()).hexdigest()
            if found != digest:
                raise DataError(
                    source / name,
                    f"is not the file of the manifest: SHA-256 {found}, expected {digest}",
                )
    except (OSError, json.JSONDecodeError) as error:
        raise DataError(path, f"cannot be read or checked: {error}") from error
    except KeyError as error:
        raise DataError(path, f"has no entry {error}") from error

    return manifest


def pick(path: Path, fields: Mapping[str, type]) -> list[dict[str, Any]]:
    """Rows of a JSONL file, cut down to the given fields.

    Raises:
        DataError: no such file, or a field missing or of another type.
    """
    rows = []
    for line, row in read_jsonl(path):
        rows.append(
            {field: require(path, line, row, field, kind) for field, kind in fields.items()}
        )

    return rows


def unshared_answers(source: Path) -> list[dict[str, Any]]:
    """The answer set without answers that an evaluation question accepts in another spelling."""
    path = source / "answer_set.jsonl"
    questions = [
        q for name in DATA_SETS for q in read_questions(source / "eval" / f"{name}.jsonl", name)
    ]
    shared = {
        truth.id: question for truth, question in shared_answers(read_answers(path), questions)
    }

    rows = []
    for row in pick(path, {"id": str, "answer": str, "aliases": list, "source": str}):
        if row["id"] in shared:
            print(f"left out: {row['answer']!r} also answers {shared[row['id']].id}")
        else:
            rows.append(
                {field: value for field, value in row.items() if field != "aliases" or value}
            )

    return rows


def origins(path: Path) -> dict[str, int]:
    """How many passages each source contributed; a passage with several sources counts for each."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be read: {error}") from error

    return count(origin for line in lines for origin in line.split("\t")[1].split(","))


def count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def notice(manifest: dict[str, Any]) -> str:
    """The notice's text, with the counts and the table of data sets filled in."""
    rows = [
        f"| `{benchmark}` | {manifest['questions'][benchmark]} | {d.title} | {d.licence} | "
        f"{d.authors} | <{d.url}> |"
        for benchmark, d in DATA_SETS.items()
    ]
    return TEMPLATE.read_text(encoding="utf-8").format(
        passages=f"{manifest['passages']:,}",
        answers=f"{manifest['answers']:,}",
        questions=f"{sum(manifest['questions'].values()):,}",
        table="\n".join(
            [
                "| file | questions | from | licence | authors | home |",
                "|---|---|---|---|---|---|",
                *rows,
            ]
        ),
    )


def validate(folder: Path) -> None:
    """Reads everything back as a user would.

    Raises:
        DataError: a file that the package cannot read, or an answer that is also an evaluation
            answer.
    """
    read_corpus(folder / "passages.jsonl.gz")
    answers = read_answers(folder / "answers.jsonl")
    questions = [
        q
        for name in DATA_SETS
        for q in read_questions(folder / "questions" / f"{name}.jsonl", name)
    ]

    for truth, question in shared_answers(answers, questions):
        raise DataError(
            folder / "answers.jsonl",
            f"{truth.answer!r} is also an answer of question {question.id!r}",
        )


def zipped(content: bytes) -> bytes:
    """gzip without a file name or time in its header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def contents(target: Path) -> dict[str, bytes]:
    """The uncompressed content of each file: another zlib may pack the same text differently."""
    paths = [
        target / NOTICE,
        *sorted(path for path in (target / "wiki_mini").rglob("*") if path.is_file()),
    ]

    found = {}
    for path in paths:
        if path.is_file():
            raw = path.read_bytes()
            found[path.relative_to(target).as_posix()] = (
                gzip.decompress(raw) if path.suffix == ".gz" else raw
            )

    return found


def differences(built: Path, target: Path) -> list[str]:
    """Names of files that are missing, superfluous or different in ``target``."""
    ours, theirs = contents(built), contents(target)
    return sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Builds the packaged data of the world wiki-mini.")
    parser.add_argument("--source", type=Path, required=True, help="folder of collected data")
    parser.add_argument(
        "--target", type=Path, default=DATA, help="the package's data folder (default: %(default)s)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the target folder instead of writing to it",
    )
    arguments = parser.parse_args(argv)

    try:
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder)
            build(arguments.source, built)
            if arguments.check:
                return report(differences(built, arguments.target))

            for path in sorted(path for path in built.rglob("*") if path.is_file()):
                write(arguments.target / path.relative_to(built), path.read_bytes())
                print(f"{path.stat().st_size:>9,}  {path.relative_to(built)}")
    except SSPError as error:
        print(error, file=sys.stderr)
        return 2

    return 0


def report(differing: Sequence[str]) -> int:
    for name in differing:
        print(f"differs: {name}")
    if not differing:
        print("the packaged data is what this source gives")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
