"""``ssp search``, ``ssp index`` and ``ssp serve``. Nothing heavy is imported before one runs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ssp_env.errors import ConfigError, MissingExtra, UsageError
from ssp_env.types import Document

if TYPE_CHECKING:
    from ssp_env.search.base import Retriever
    from ssp_env.search.corpus import Progress
    from ssp_env.search.store import Manifest


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Passages that are searched: of a world, a corpus, or an index."""

    world: str | None = None
    """A packaged world: wiki-mini, mini or small (default: wiki-mini)."""
    corpus: str | None = None
    """A corpus of your own, by BM25: JSON lines, plain or gzip."""
    index: str | None = None
    """An index directory that `ssp index` made."""
    kind: str | None = None
    """With --index: which, where the directory holds several."""
    encoder: str | None = None
    """With --index: the model's directory, where it has moved."""

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.world, self.corpus, self.index)) > 1:
            raise UsageError("--world, --corpus and --index exclude each other; give one")
        if self.index is None and (self.kind or self.encoder):
            raise UsageError("--kind and --encoder go with --index DIR")

    @property
    def name(self) -> str:
        """The retriever in words; raises at once for one that is not there."""
        from ssp_env.search.index import one_kind
        from ssp_env.worlds import WORLDS, open_world

        if self.index is not None:
            return f"{one_kind(self.index, self.kind)} of {self.index}"
        if self.corpus is not None:
            return f"BM25 over {self.corpus}"
        world = self.world or "wiki-mini"
        if world not in WORLDS:
            open_world(world)  # raises, with the nearest names
        return f"BM25 over the world {world}"

    def open(self) -> tuple[Retriever, int, str]:
        """Opens the retriever; returns it, its number of passages, and their name.

        Raises:
            SSPError: it cannot be opened.
        """
        from ssp_env.game.rules import own_retriever
        from ssp_env.search.bm25 import BM25Retriever
        from ssp_env.search.corpus import read_corpus
        from ssp_env.search.index import needs_encoder, one_kind, open_index
        from ssp_env.worlds import open_world

        if self.index is not None:
            kind = one_kind(self.index, self.kind)
            if needs_encoder(kind):
                _tell_loading()
            opened: Any = open_index(self.index, kind, encoder=self.encoder)
            return opened, len(opened.corpus), self.index
        if self.corpus is not None:
            opened = BM25Retriever(read_corpus(self.corpus))
        else:
            opened = own_retriever(open_world(self.world or "wiki-mini"))
        return opened, len(opened.corpus), opened.corpus.name


def search(
    *query: str,
    source: Source = Source(),
    url: str | None = None,
    token_env: str | None = None,
    k: Annotated[int, Parameter(name="-k", validator=Number(gte=1))] = 3,
) -> int:
    """Looks a query up, as a player's search would.

    Args:
        query: What to look for; several words make one query.
        url: A server that speaks Search-R1's protocol, such as http://127.0.0.1:8000.
        token_env: With --url: environment variable that holds the server's token.
        k: Documents to show.
    """
    text = " ".join(query)
    if not query:
        raise UsageError("ssp search needs a query")
    if url is None:
        if token_env is not None:
            raise UsageError("--token-env goes with --url")
        retriever, passages, name = source.open()
        _show(text, retriever.search([text], k)[0], f"of {passages:,} passages in {name}")
        return 0

    from ssp_env.search.client import HTTPRetriever
    from ssp_env.search.config import HTTPConfig

    if source != Source():
        raise UsageError("--url excludes --world, --corpus and --index")
    # Someone waits for this one answer, with less patience than a round of games has.
    with HTTPRetriever(HTTPConfig(url=url, token_env=token_env, attempts=4)) as server:
        _show(text, server.search([text], k)[0], f"from {url}")
    return 0


def _show(query: str, ranking: Sequence[Document], where: str) -> None:
    """Prints a ranking. Titles and texts are shown as they are, never read as rich's markup."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    def printable(text: str) -> str:
        """The text without characters that a terminal would obey or cannot encode."""
        return "".join(
            c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd"
            for c in text
        )

    console = Console()
    console.print(Text(printable(f"{len(ranking)} {where} for: {query}")), style="dim")
    if not ranking:
        console.print("No passage was found for this query.")
    for rank, document in enumerate(ranking, start=1):
        console.print()
        heading = Text.assemble(
            (f"{rank}. ", "bold cyan"),
            (printable(document.title or "(no title)"), "bold"),
            (f"  score {document.score:.2f}, id {printable(document.id)}", "dim"),
        )
        console.print(heading)
        console.print(Padding(Text(printable(document.text)), (0, 0, 0, 3), expand=False))


def index(
    corpus: str | None = None,
    /,
    *,
    out: Path | None = None,
    kind: str | None = None,
    encoder: str | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    adopt: Path | None = None,
    check: Path | None = None,
) -> int:
    """Indexes a corpus on disk, for `ssp search` and `ssp serve`.

    CORPUS is Search-R1's format: one JSON object a line, plain or gzip, with "id" and either
    "contents" (a title in double quotes, a newline, the text) or "title" and "text".

    A build that was stopped, killed or ran out of disk is finished when the same command runs
    again. To repair a damaged folder, delete it and run the same command.

    Args:
        corpus: The passages.
        out: The index directory, which may hold several kinds; created if need be.
        kind: bm25 (the default), dense-flat, dense-hnsw or dense-ivf-sq8.
        encoder: For a dense kind: directory of a sentence-transformers model.
        query_prefix: Text that the model needs before a query ('query: ').
        passage_prefix: Text that it needs before a passage ('passage: ').
        adopt: A FAISS file with the vectors of CORPUS, in its order: nothing is encoded again.
        check: Build nothing: read every byte of this index directory and compare.
    """
    prefixes = (query_prefix, passage_prefix)
    if check is not None:
        if any(given is not None for given in (corpus, out, kind, encoder, adopt, *prefixes)):
            raise UsageError("ssp index --check takes a directory alone, and no other option")
        return _check(check)

    from ssp_env.search.index import adopt_index, build_index, needs_encoder
    from ssp_env.search.store import read_manifest

    if corpus is None or out is None:
        raise UsageError("ssp index needs CORPUS and --out DIR (ssp index --help says more)")
    if adopt is not None and kind is not None:
        raise UsageError("--adopt takes the kind from the file: omit --kind")
    kind = kind or ("bm25" if adopt is None else "dense-flat")

    model: Any = encoder
    if not needs_encoder(kind):
        if prefixes != (None, None):
            raise UsageError(f"prefixes go with an encoder; {kind} has none")
    elif encoder is None:
        raise ConfigError("encoder", None, f"give --encoder MODEL: {kind} needs one")
    else:
        from ssp_env.search.encoder import SentenceTransformerEncoder

        _tell_loading()
        given = None if prefixes == (None, None) else (query_prefix or "", passage_prefix or "")
        model = SentenceTransformerEncoder(encoder, prefixes=given)

    whole = adopt is None and (out / kind).exists()
    with _bars() as progress:
        if adopt is None:
            folder = build_index(corpus, out, kind, encoder=model, progress=progress)
        else:
            folder = adopt_index(corpus, out, adopt, model, progress)

    said = _summary(folder, read_manifest(folder), adopt)
    print(f"{folder}: {'already complete, ' if whole else ''}{said}")
    return 0


def _summary(folder: Path, manifest: Manifest, adopted: Path | None) -> str:
    from rich.filesize import decimal

    found = manifest.parameters
    size = sum(size for size, _ in manifest.files.values())
    said = f"{manifest.passages:,} passages, {decimal(size)}"
    if "recall_at_3" in found:
        effort = {name: found[name] for name in ("lists_probed", "nodes_in_view") if name in found}
        where = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in effort.items())
        said += (
            f"; asked {found['recall_queries']} of its sentences, it finds "
            f"{found['recall_at_3']:.1%} of the first 3 of {found['recall_against']} ({where})"
        )
    if adopted is not None:
        linked = any(adopted.samefile(path) for path in folder.iterdir())
        how = "linked (a hard link: change or cut neither)" if linked else "copied"
        cosine = found["lowest_cosine_checked"]
        said += f"; {adopted} is {how}; vectors checked have a cosine of {cosine} or more"
    return said


def _check(directory: Path) -> int:
    """Raises :class:`~ssp_env.errors.DataError` for the first file that is not as written."""
    from ssp_env.search.index import kinds_in
    from ssp_env.search.store import PASSAGES, read_manifest

    store = read_manifest(directory / PASSAGES, PASSAGES, check=True)
    kinds = kinds_in(directory)
    for kind in kinds:
        read_manifest(directory / kind, kind, corpus=store.corpus, check=True)
    what = ", ".join([f"{store.passages:,} passages", *kinds])
    print(f"{directory}: every byte as it was written ({what})")
    return 0


def _tell_loading() -> None:
    """Says what the user waits for: with the libraries around it, a model takes seconds to load."""
    from rich.console import Console

    Console(stderr=True).print("loading the encoder ...")


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
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


def serve(
    *,
    source: Source = Source(),
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    no_token: bool = False,
    max_k: int = 100,
    max_queries: int = 4096,
    max_waiting: int = 16_384,
) -> int:
    """Serves search over HTTP: POST /retrieve, as Search-R1's retrieval server does.

    It listens once the index is loaded. SIGTERM or Ctrl-C stops it when the requests in progress
    are answered; a second Ctrl-C stops it at once. Also there: /healthz, /status, /openapi.json.

    Beyond this machine (--host 0.0.0.0) it wants a token, in the variable SSP_SERVE_TOKEN or in a
    --token-file; clients send it as "Authorization: Bearer TOKEN". It speaks plain HTTP: across a
    network, put TLS in front.

    Args:
        host: Address to bind.
        port: Port to bind, 0 for a free one.
        token_file: File with the token (default: the variable SSP_SERVE_TOKEN).
        no_token: Let anyone ask who can reach the address.
        max_k: Largest topk of a request.
        max_queries: Most queries per request.
        max_waiting: Most queries that wait; a request beyond gets 503.
    """
    from ssp_env.search.config import ServerConfig, read_token

    if no_token and token_file is not None:
        raise UsageError("--no-token and --token-file exclude each other")
    config = ServerConfig(
        host=host,
        port=port,
        token=None if no_token else read_token(token_file),
        no_token=no_token,
        max_k=max_k,
        max_queries=max_queries,
        max_waiting=max_waiting,
    )
    name = source.name
    try:
        from ssp_env.search.server import run_server
    except ModuleNotFoundError as error:
        what = f"ssp serve ({error.name} is missing)"
        raise MissingExtra(what, "pip install '.[serve]' in the checkout") from error

    passages = 0

    def load() -> Retriever:
        nonlocal passages
        retriever, passages, _ = source.open()
        return retriever

    def ready(address: str) -> None:
        print(f"ssp serve: ready at {address} ({name}, {passages:,} passages)", flush=True)

    run_server(load, config, ready)
    return 0
