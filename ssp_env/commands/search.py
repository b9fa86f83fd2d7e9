"""``ssp search``: looks a query up, as a player's search would."""

from __future__ import annotations

import unicodedata
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ssp_env.commands.base import Command
from ssp_env.search.base import Document
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import Corpus, read_corpus
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
    where.add_argument("--corpus", metavar="FILE", help="a corpus of your own: JSON lines, plain or gzip")
    parser.add_argument("-k", type=_count, default=3, metavar="N", help="documents to show (default: %(default)s)")


def _run(arguments: Namespace) -> int:
    corpus = read_corpus(arguments.corpus) if arguments.corpus is not None else open_world(arguments.world).corpus
    query = " ".join(arguments.query)
    ranking = BM25Retriever(corpus).search([query], arguments.k)[0]
    _show(Console(), query, ranking, corpus)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def _show(console: Console, query: str, ranking: Sequence[Document], corpus: Corpus) -> None:
    """Prints a ranking. Titles and texts are shown as they are, never read as rich's markup."""
    console.print(_printable(f"{len(ranking)} of {len(corpus):,} passages in {corpus.name} for: {query}"), style="dim")
    if not ranking:
        console.print("No passage shares a word with this query.")
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
    kept = (c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in text)
    return Text("".join(kept))


COMMAND = Command(
    name="search",
    help="look a query up in a world's or your own corpus",
    configure=_configure,
    run=_run,
)
