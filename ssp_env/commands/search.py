"""``ssp search``, ``ssp index`` and ``ssp serve``. Nothing heavy is imported before one runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ssp_env.errors import ConfigError, UsageError, nearest
from ssp_env.game.rules import own_retriever
from ssp_env.game.transcript import Line
from ssp_env.search.base import Retriever, read_corpus
from ssp_env.worlds import WORLDS, open_world

TOKEN_VARIABLE = "SSP_SERVE_TOKEN"
"""Environment variable that may hold the server's bearer token."""


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Passages that are searched."""

    place: Annotated[str, Parameter(name="--in")] = "wiki-mini"
    """A packaged world (wiki-mini, wiki-sentences, mini, small), a corpus of your own (a file of
    passages; by BM25), an index directory that `ssp index` made (all indexes in it, fused) or
    one index in it (DIR/bm25), or the address of a server that speaks Search-R1's protocol."""
    encoder: str = ""
    """With an index directory: the model's directory, where it has moved."""
    token_env: str | None = None
    """With a server: environment variable that holds its token."""
    k1: float | None = None
    """With a corpus or a world: BM25's k1 (1.2)."""
    b: float | None = None
    """With a corpus or a world: BM25's b (.75)."""

    def open(self) -> Retriever:
        from ssp_env.search.client import HTTPRetriever
        from ssp_env.search.index import PATIENCE, SearchConfig, in_memory, open_search

        # A world's name comes first: a folder of that name is ./NAME.
        folder = self.place not in WORLDS and Path(self.place).is_dir()
        source = self.place if folder or "://" in self.place else ""
        config = SearchConfig(
            source=source, encoder=self.encoder, token_env=self.token_env, k1=self.k1, b=self.b
        )
        if config.is_server:
            return HTTPRetriever(source, config.token_env, PATIENCE)
        if (retriever := open_search(config)) is not None:
            return retriever

        if self.place not in WORLDS and Path(self.place).exists():
            return in_memory(read_corpus(self.place), config)
        if self.place not in WORLDS:
            worlds = nearest(self.place, {*WORLDS} - {"files"})
            fix = f"there is no such file, directory or world; {worlds}"
            raise ConfigError("--in", self.place, fix)
        world = open_world(self.place)
        return open_search(config, world) or own_retriever(world)


def search(
    *query: str,
    source: Source = Source(),
    k: Annotated[int, Parameter(name="-k", validator=Number(gte=1))] = 3,
) -> int:
    """Looks a query up, as a player's search would.

    Args:
        query: What to look for; several words make one query.
        k: Documents to show.
    """
    if not query:
        raise UsageError("ssp search needs a query")
    from rich.console import Console

    text, console = " ".join(query), Console()
    (ranking,) = source.open().search([text], k)
    Line(f"{len(ranking)} from {source.place} for: {text}", "dim").print(console)
    for rank, document in enumerate(ranking, start=1):
        console.print()
        title = f"{rank}. {document.title or '(no title)'}"
        Line(f"{title}  score {document.score:.2f}, id {document.id}", "bold").print(console)
        Line(document.text, indent=3).print(console)
    return 0


def index(
    corpus: str,
    /,
    *,
    out: Path,
    kind: Literal["bm25", "dense-flat"] = "bm25",
    encoder: str | None = None,
    query_prefix: str | None = None,
    passage_prefix: str | None = None,
    adopt: Path | None = None,
) -> int:
    """Indexes a corpus on disk, for `ssp search` and `ssp serve`.

    CORPUS is JSON lines or a table with tabs, plain or gzip, or Parquet: "id" (BEIR: "_id"), and
    "contents" (a title in double quotes, a newline, the text) or "text" and "title".

    A build that was stopped, killed or ran out of disk starts over when the same command runs
    again. To repair a damaged folder, delete it and run the same command.

    Args:
        corpus: The passages.
        out: The index directory, which may hold several kinds; created if need be.
        kind: The kind of index.
        encoder: For a dense kind: directory of a sentence-transformers model.
        query_prefix: Text that the model needs before a query ('query: ').
        passage_prefix: Text that it needs before a passage ('passage: ').
        adopt: For a dense kind: a FAISS file with the vectors of CORPUS, in its order, which is
            linked; nothing is encoded again.
    """
    from rich.filesize import decimal

    from ssp_env.search.index import build_index
    from ssp_env.search.store import read_manifest

    model = prefixes = None
    if query_prefix is not None or passage_prefix is not None:
        prefixes = (query_prefix or "", passage_prefix or "")
    if encoder is not None:
        from ssp_env.search.encoder import SentenceTransformerEncoder

        model = SentenceTransformerEncoder(encoder, prefixes=prefixes)
    elif prefixes is not None or adopt is not None:
        raise UsageError("--query-prefix, --passage-prefix and --adopt go with --encoder")

    # Asked before it is built.
    whole = "already complete, " if (out / kind).exists() else ""
    folder = build_index(corpus, out, kind, encoder=model, adopt=adopt)
    manifest = read_manifest(folder)
    size = decimal(sum(manifest.files.values()))
    print(f"{folder}: {whole}{manifest.passages:,} passages, {size}")
    return 0


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
    from ssp_env.net import read_key
    from ssp_env.search.server import run_server

    local = host in ("127.0.0.1", "::1", "localhost")
    anyone = no_token or (local and TOKEN_VARIABLE not in os.environ)
    token = None if anyone else read_key("token", TOKEN_VARIABLE, "or give --no-token")

    def ready(address: str) -> None:
        print(f"ssp serve: ready at {address}, searching {source.place}", flush=True)

    run_server(source.open, host, port, token, ready)
    return 0
