"""``ssp search``, ``ssp index`` and ``ssp serve``. Nothing heavy is imported before one runs."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ssp_env.errors import ConfigError, MissingExtra, UsageError, nearest
from ssp_env.types import Document

if TYPE_CHECKING:
    from ssp_env.search.base import Retriever


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

    def check(self) -> None:
        """Refuses at once what is not there."""
        from ssp_env.search.index import one_kind
        from ssp_env.worlds import WORLDS, open_world

        if self.index is not None:
            one_kind(self.index, self.kind)
        elif self.corpus is None and self.world is not None and self.world not in WORLDS:
            open_world(self.world)  # raises, with the nearest names

    def open(self) -> tuple[Retriever, str]:
        """Opens the retriever; returns it and its passages in words."""
        from ssp_env.game.rules import own_retriever
        from ssp_env.search.bm25 import BM25Retriever
        from ssp_env.search.corpus import read_corpus
        from ssp_env.search.index import one_kind, open_index
        from ssp_env.worlds import open_world

        if self.index is not None:
            kind, name = one_kind(self.index, self.kind), self.index
            if kind != "bm25":
                _tell_loading()
            opened: Any = open_index(self.index, kind, encoder=self.encoder)
        elif self.corpus is not None:
            kind, name = "BM25", self.corpus
            opened = BM25Retriever(read_corpus(self.corpus))
        else:
            kind, name = "BM25", self.world or "wiki-mini"
            opened = own_retriever(open_world(name))
        return opened, f"{len(opened.corpus):,} passages in {name} ({kind})"


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
        retriever, passages = source.open()
        _show(text, retriever.search([text], k)[0], f"of {passages}")
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
    corpus: str,
    /,
    *,
    out: Path,
    kind: str | None = None,
    encoder: str | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    adopt: Path | None = None,
) -> int:
    """Indexes a corpus on disk, for `ssp search` and `ssp serve`.

    CORPUS is Search-R1's format: one JSON object a line, plain or gzip, with "id" and either
    "contents" (a title in double quotes, a newline, the text) or "title" and "text".

    A build that was stopped, killed or ran out of disk is finished when the same command runs
    again. To repair a damaged folder, delete it and run the same command.

    Args:
        corpus: The passages.
        out: The index directory, which may hold several kinds; created if need be.
        kind: bm25 (the default), dense-flat or dense-ivf-sq8.
        encoder: For a dense kind: directory of a sentence-transformers model.
        query_prefix: Text that the model needs before a query ('query: ').
        passage_prefix: Text that it needs before a passage ('passage: ').
        adopt: A FAISS file with the vectors of CORPUS, in its order: nothing is encoded again.
    """
    from ssp_env.search.index import KINDS, adopt_index, build_index
    from ssp_env.search.store import read_manifest

    if adopt is not None and kind is not None:
        raise UsageError("--adopt takes the kind from the file: omit --kind")
    kind = kind or ("bm25" if adopt is None else "dense-flat")
    if kind not in KINDS:
        raise ConfigError("kind", kind, nearest(kind, KINDS))

    prefixes = None
    if (query_prefix, passage_prefix) != (None, None):
        prefixes = (query_prefix or "", passage_prefix or "")
    model: Any = None
    if kind == "bm25" and (encoder or prefixes):
        raise UsageError("an encoder and its prefixes go with a dense kind: give --kind")
    if kind != "bm25":
        if encoder is None:
            raise ConfigError("encoder", None, f"give --encoder MODEL: {kind} needs one")
        from ssp_env.search.encoder import SentenceTransformerEncoder

        _tell_loading()
        model = SentenceTransformerEncoder(encoder, prefixes=prefixes)

    whole = adopt is None and (out / kind).exists()
    if adopt is None:
        folder = build_index(corpus, out, kind, encoder=model, progress=True)
    else:
        folder = adopt_index(corpus, out, adopt, model, progress=True)

    from rich.filesize import decimal

    manifest = read_manifest(folder)
    said = f"{manifest.passages:,} passages, {decimal(sum(manifest.files.values()))}"
    if adopt is not None:
        linked = any(adopt.samefile(path) for path in folder.iterdir())
        how = "linked (a hard link: change or cut neither)" if linked else "copied"
        said += f"; {adopt} is {how}"
    print(f"{folder}: {'already complete, ' if whole else ''}{said}")
    return 0


def _tell_loading() -> None:
    """Says what the user waits for: with the libraries around it, a model takes seconds to load."""
    from rich.console import Console

    Console(stderr=True).print("loading the encoder ...")


def serve(
    *,
    source: Source = Source(),
    host: str = "127.0.0.1",
    port: int = 8000,
    no_token: bool = False,
) -> int:
    """Serves search over HTTP: POST /retrieve, as Search-R1's retrieval server does.

    It listens once the index is loaded. SIGTERM or Ctrl-C stops it when the requests in progress
    are answered; a second Ctrl-C stops it at once. Also there: /healthz, /status, /openapi.json.

    Beyond this machine (--host 0.0.0.0) it wants a token, in the variable SSP_SERVE_TOKEN; clients
    send it as "Authorization: Bearer TOKEN". It speaks plain HTTP: across a network, put TLS in
    front.

    Args:
        host: Address to bind.
        port: Port to bind, 0 for a free one.
        no_token: Let anyone ask who can reach the address.
    """
    from ssp_env.search.config import TOKEN_VARIABLE, ServerConfig

    token = None if no_token else os.environ.get(TOKEN_VARIABLE)
    config = ServerConfig(host=host, port=port, token=token, no_token=no_token)
    source.check()
    try:
        from ssp_env.search.server import run_server
    except ModuleNotFoundError as error:
        what = f"ssp serve ({error.name} is missing)"
        raise MissingExtra(what, "pip install '.[serve]' in the checkout") from error

    passages = ""

    def load() -> Retriever:
        nonlocal passages
        retriever, passages = source.open()
        return retriever

    def ready(address: str) -> None:
        print(f"ssp serve: ready at {address} ({passages})", flush=True)

    run_server(load, config, ready)
    return 0
