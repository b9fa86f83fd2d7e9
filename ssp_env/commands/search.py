"""``ssp search``: looks a query up, as a player's search would."""

from __future__ import annotations

import unicodedata
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ssp_env.commands.base import Command
from ssp_env.commands.index import add_index_options, check_index_options, open_named
from ssp_env.errors import UsageError
from ssp_env.game.rules import own_retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.search.corpus import read_corpus
from ssp_env.types import Document
from ssp_env.worlds import WORLDS, open_world


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("query", nargs="+", help="what to look for; several words make one query")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--world",
        default="wiki-mini",
        metavar="NAME",
        help=f"a packaged world: {', '.join(WORLDS)} (default: %(default)s)",
    )
    where.add_argument(
        "--corpus", metavar="FILE", help="a corpus of your own: JSON lines, plain or gzip"
    )
    where.add_argument("--index", metavar="DIR", help="an index that `ssp index` built")
    where.add_argument(
        "--url", help="a server that speaks Search-R1's protocol, such as http://127.0.0.1:8000"
    )
    parser.add_argument(
        "--token-env",
        metavar="VAR",
        help="with --url: environment variable that holds the server's token, such as "
        "SSP_SERVE_TOKEN",
    )
    add_index_options(parser)
    parser.add_argument(
        "-k", type=_count, default=3, metavar="N", help="documents to show (default: %(default)s)"
    )


def _run(arguments: Namespace) -> int:
    check_index_options(arguments)
    if arguments.token_env is not None and arguments.url is None:
        raise UsageError("--token-env goes with --url")

    query = " ".join(arguments.query)
    if arguments.url is not None:
        # Someone waits for this one answer, with less patience than a round of games has.
        config = HTTPConfig(url=arguments.url, token_env=arguments.token_env, attempts=4)
        with HTTPRetriever(config) as server:
            _show(Console(), query, server.search([query], arguments.k)[0], f"from {arguments.url}")
        return 0

    if arguments.index is not None:
        retriever, passages = open_named(arguments.index, arguments.kind, arguments.encoder)
        ranking = retriever.search([query], arguments.k)[0]
        _show(Console(), query, ranking, f"of {passages:,} passages in {arguments.index}")
        return 0

    if arguments.corpus is not None:
        own: Any = BM25Retriever(read_corpus(arguments.corpus))
    else:
        own = own_retriever(open_world(arguments.world))
    corpus, ranking = own.corpus, own.search([query], arguments.k)[0]
    _show(Console(), query, ranking, f"of {len(corpus):,} passages in {corpus.name}")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _show(console: Console, query: str, ranking: Sequence[Document], where: str) -> None:
    """Prints a ranking. Titles and texts are shown as they are, never read as rich's markup."""
    console.print(_printable(f"{len(ranking)} {where} for: {query}"), style="dim")
    if not ranking:
        console.print("No passage was found for this query.")
    for rank, document in enumerate(ranking, start=1):
        console.print()
        heading = Text.assemble(
            (f"{rank}. ", "bold cyan"),
            (_printable(document.title or "(no title)").plain, "bold"),
            (f"  score {document.score:.2f}, id {_printable(document.id).plain}", "dim"),
        )
        console.print(heading)
        console.print(Padding(_printable(document.text), (0, 0, 0, 3), expand=False))


def _printable(text: str) -> Text:
    """The text without characters that a terminal would obey or cannot encode."""
    kept = (
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in text
    )
    return Text("".join(kept))


COMMAND = Command(
    name="search",
    help="look a query up in a world's or your own corpus",
    configure=_configure,
    run=_run,
)
