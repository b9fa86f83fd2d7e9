"""``ssp index``: makes an index directory of a corpus."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ssp_env.commands.base import Command
from ssp_env.errors import ConfigError, UsageError
from ssp_env.search.base import Retriever
from ssp_env.search.corpus import Progress
from ssp_env.search.index import (
    KINDS,
    build_index,
    kinds_in,
    needs_encoder,
    one_kind,
    open_index,
)
from ssp_env.search.store import PASSAGES, Manifest, read_manifest

_DEFAULT_KIND = "bm25"
_OPTIONS = ("corpus", "out", "kind", "encoder", "query_prefix", "passage_prefix", "adopt")
_EPILOG = """\
CORPUS is Search-R1's format: one JSON object a line, plain or gzip, with "id" and
either "contents" (a title in double quotes, a newline, the text) or "title" and "text".

DIR holds the passages once, and beside them an index of each kind that you build.
A build that was stopped, killed or ran out of disk is finished when the same command
runs again; encoding continues where it was. What is whole is not built again: to repair
a damaged folder, delete it (rm -r DIR/bm25; the passages: rm -r DIR/passages) and run
the same command.

examples:
  ssp index wiki.jsonl.gz --out wiki
  ssp search --index wiki "who made the first telephone call?"
  ssp serve --index wiki
  ssp index --check wiki
  ssp index wiki-18.jsonl --adopt e5_Flat.index --encoder path/to/e5-base-v2 --out wiki-18
"""


def _configure(parser: ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("corpus", nargs="?", metavar="CORPUS", help="the passages")
    parser.add_argument("--out", metavar="DIR", help="the index directory; created if need be")
    parser.add_argument(
        "--kind",
        help=f"one of {', '.join(KINDS)} (default: {_DEFAULT_KIND})",
        metavar="KIND",
    )
    parser.add_argument(
        "--encoder",
        metavar="MODEL",
        help="for a dense kind: directory of a sentence-transformers model",
    )
    parser.add_argument(
        "--query-prefix", metavar="TEXT", help="what the model needs before a query ('query: ')"
    )
    parser.add_argument(
        "--passage-prefix", metavar="TEXT", help="what it needs before a passage ('passage: ')"
    )
    parser.add_argument(
        "--adopt",
        metavar="FILE",
        help="a FAISS file with the vectors of CORPUS, in its order: nothing is encoded again",
    )
    parser.add_argument(
        "--check", metavar="DIR", help="builds nothing: reads every byte of an index and compares"
    )


def _run(arguments: Namespace) -> int:
    console = Console()
    if arguments.check is not None:
        options = {key: value for key, value in vars(arguments).items() if key in _OPTIONS}
        if any(value is not None for value in options.values()):
            raise UsageError("ssp index --check takes a directory alone, and no other option")
        return _check(console, Path(arguments.check))

    if arguments.corpus is None or arguments.out is None:
        raise UsageError("ssp index needs CORPUS and --out DIR (ssp index --help says more)")
    if arguments.adopt is not None and arguments.kind is not None:
        raise UsageError("--adopt takes the kind from the file: omit --kind")
    kind = "dense-flat" if arguments.adopt else arguments.kind or _DEFAULT_KIND
    with_encoder = needs_encoder(kind)
    prefixes = (arguments.query_prefix, arguments.passage_prefix)
    if prefixes != (None, None) and not with_encoder:
        raise UsageError(f"--query-prefix and --passage-prefix go with an encoder; {kind} has none")
    if with_encoder and arguments.encoder is None:
        raise ConfigError("encoder", None, f"give --encoder MODEL: {kind} needs one")

    whole = not arguments.adopt and (Path(arguments.out) / kind).exists()
    folder = _built(arguments, kind, _encoder(arguments) if with_encoder else arguments.encoder)
    manifest = read_manifest(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    what = f"{manifest.passages:,} passages, {decimal(size)}{_recall(manifest)}"
    if arguments.adopt:
        what += _adopted(manifest, Path(arguments.adopt), folder)
    console.print(
        f"{folder}: {'already complete, ' if whole else ''}{what}", highlight=False, soft_wrap=True
    )
    return 0


def _built(arguments: Namespace, kind: str, encoder: Any) -> Path:
    source, out = arguments.corpus, arguments.out
    with _bars() as progress:
        if arguments.adopt is None:
            return build_index(source, out, kind, encoder=encoder, progress=progress)
        from ssp_env.search.dense import adopt_index

        return adopt_index(source, out, arguments.adopt, encoder, progress)


def _encoder(arguments: Namespace) -> Any:
    from ssp_env.search.encoder import SentenceTransformerEncoder

    Console(stderr=True).print("loading the encoder ...")
    given = (arguments.query_prefix, arguments.passage_prefix)
    prefixes = None if given == (None, None) else (given[0] or "", given[1] or "")
    return SentenceTransformerEncoder(arguments.encoder, prefixes=prefixes)


def _adopted(manifest: Manifest, file: Path, folder: Path) -> str:
    linked = any(file.samefile(path) for path in folder.iterdir())
    how = "linked (a hard link: change or cut neither)" if linked else "copied"
    cosine = manifest.parameters["lowest_cosine_checked"]
    return f"; {file} is {how}; vectors checked have a cosine of {cosine} or more"


def _recall(manifest: Manifest) -> str:
    found = manifest.parameters
    if "recall_at_3" not in found:
        return ""
    if "lists" in found:
        where = f"in {found['lists_probed']} of {found['lists']} lists"
    else:
        where = f"keeping {found['nodes_in_view']} nodes in view"
    asked = f"asked {found['recall_queries']} of its sentences"
    what = "the 3 nearest passages"
    if found.get("recall_against", "exact search") != "exact search":
        what = "what its greatest effort finds"
    return f"; {asked}, it finds {found['recall_at_3']:.1%} of {what}, {where}"


def add_index_options(parser: ArgumentParser) -> None:
    """What a command that reads ``--index DIR`` asks beside it."""
    parser.add_argument(
        "--kind", metavar="KIND", help="with --index: which, where DIR holds several"
    )
    parser.add_argument(
        "--encoder", metavar="MODEL", help="with --index: the model's directory, where it has moved"
    )


def check_index_options(arguments: Namespace) -> None:
    """
    Raises:
        UsageError: an option of :func:`add_index_options` without ``--index``.
    """
    if arguments.index is None and not (arguments.kind is None and arguments.encoder is None):
        raise UsageError("--kind and --encoder go with --index DIR")


def open_named(directory: str, kind: str | None, encoder: str | None) -> tuple[Retriever, int]:
    """A retriever as a user names it, and how many passages it searches.

    Args:
        directory: the index directory.
        kind: as for :func:`~ssp_env.search.index.one_kind`.
        encoder: directory of the model; ``None`` takes the name in the index's manifest.

    Raises:
        ConfigError: the kind is not there, or the model is not where the manifest says.
        DataError: the index cannot be used.
    """
    passages = read_manifest(Path(directory) / PASSAGES).passages
    one = one_kind(directory, kind)
    _tell_loading(one)
    return open_index(directory, one, encoder=encoder), passages


def _check(console: Console, directory: Path) -> int:
    """Raises :class:`~ssp_env.errors.DataError` for the first file that is not as it was
    written."""
    store = read_manifest(directory / PASSAGES, PASSAGES, check=True)
    kinds = kinds_in(directory)
    for kind in kinds:
        read_manifest(directory / kind, kind, corpus=store.corpus, check=True)
    what = ", ".join([f"{store.passages:,} passages", *kinds])
    console.print(
        f"{directory}: every byte as it was written ({what})", highlight=False, soft_wrap=True
    )
    return 0


def _tell_loading(kind: str) -> None:
    """Says what the user waits for: with the libraries around it, a model takes seconds to load."""
    if needs_encoder(kind):
        Console(stderr=True).print("loading the encoder ...")


@contextmanager
def _bars() -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def progress(stage: str, done: int, total: int) -> None:
        bars.start()
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total)
        bars.update(tasks[stage], completed=done)

    try:
        yield progress
    finally:
        # Bars without a stage would leave an empty line.
        if tasks:
            bars.stop()


COMMAND = Command(
    name="index",
    help="index a corpus on disk, for `ssp search` and `ssp serve`",
    configure=_configure,
    run=_run,
)
