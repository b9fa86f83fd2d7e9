"""``ssp serve``: a search server over a world, a corpus or an index."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

from ssp_env.commands.base import Command
from ssp_env.commands.index import add_index_options, check_index_options, open_named
from ssp_env.errors import MissingExtra
from ssp_env.game.rules import own_retriever
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.config import TOKEN_VARIABLE, ServerConfig, read_token
from ssp_env.search.corpus import read_corpus
from ssp_env.search.index import one_kind
from ssp_env.worlds import WORLDS, open_world

_EXAMPLES = f"""
Answers POST /retrieve as Search-R1's retrieval server does:

  curl -H 'Content-Type: application/json' http://127.0.0.1:8000/retrieve \\
       -d '{{"queries": ["Who wrote the opera Fidelio?"], "topk": 3, "return_scores": true}}'

Also there: /healthz, /status, /openapi.json.

It listens once the index is loaded. SIGTERM or Ctrl-C stops it when the requests in progress are
answered; a second Ctrl-C stops it at once.
Beyond this machine (--host 0.0.0.0) it wants a token, in the variable {TOKEN_VARIABLE} or in a
--token-file; clients send it as "Authorization: Bearer TOKEN", to all but /healthz.
--no-token goes without one, for a network that is trusted. It speaks plain HTTP: across a
network, put TLS in front.

Needs the extra serve: pip install '.[serve]' in the checkout.
"""

_LIMITS = {
    "max_k": "largest topk",
    "max_queries": "most queries per request",
    "max_waiting": "most queries that wait; a request beyond gets 503",
}


def _configure(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--index", metavar="DIR", help="an index directory made by ssp index")
    what.add_argument(
        "--world",
        default="wiki-mini",
        metavar="NAME",
        help=f"a packaged world: {', '.join(WORLDS)} (default: %(default)s)",
    )
    what.add_argument(
        "--corpus", metavar="FILE", help="a corpus of your own, by BM25: JSON lines, plain or gzip"
    )
    add_index_options(parser)
    where = parser.add_argument_group("where to listen")
    where.add_argument(
        "--host", default=ServerConfig.host, help="address to bind (default: %(default)s)"
    )
    where.add_argument(
        "--port",
        type=int,
        default=ServerConfig.port,
        help="port to bind, 0 for a free one (default: %(default)s)",
    )
    token = where.add_mutually_exclusive_group()
    token.add_argument(
        "--token-file", metavar="FILE", help=f"file with the token (default: ${TOKEN_VARIABLE})"
    )
    token.add_argument(
        "--no-token", action="store_true", help="let anyone ask who can reach the address"
    )
    limits = parser.add_argument_group("limits")
    for name, text in _LIMITS.items():
        option = "--" + name.replace("_", "-")
        limits.add_argument(
            option,
            type=int,
            default=getattr(ServerConfig, name),
            metavar="N",
            help=f"{text} (default: %(default)s)",
        )


def _run(arguments: Namespace) -> int:
    check_index_options(arguments)

    config = ServerConfig(
        host=arguments.host,
        port=arguments.port,
        token=None if arguments.no_token else read_token(arguments.token_file),
        no_token=arguments.no_token,
        **{name: getattr(arguments, name) for name in _LIMITS},
    )

    _serve(*_what(arguments), config)
    return 0


_Opened = Callable[[], tuple[Retriever, int]]
"""Opens a retriever; returns it with its number of passages."""


def _what(arguments: Namespace) -> tuple[str, _Opened]:
    """What is to be served, in words, and what opens it.

    Raises:
        SSPError: what is wrong with its name.
    """
    if arguments.index is not None:
        kind = one_kind(arguments.index, arguments.kind)
        return f"{kind} of {arguments.index}", partial(
            open_named, arguments.index, kind, arguments.encoder
        )
    if arguments.corpus is not None:
        return f"BM25 over {arguments.corpus}", partial(_open_corpus, arguments.corpus)
    if arguments.world not in WORLDS:
        open_world(arguments.world)  # raises at once, with the nearest names
    return f"BM25 over the world {arguments.world}", partial(_open_world, arguments.world)


def _open_corpus(path: str) -> tuple[Retriever, int]:
    corpus = read_corpus(path)
    return BM25Retriever(corpus), len(corpus)


def _open_world(name: str) -> tuple[Retriever, int]:
    retriever: Any = own_retriever(open_world(name))
    return retriever, len(retriever.corpus)


def _serve(what: str, opened: _Opened, config: ServerConfig) -> None:
    try:
        from ssp_env.search.server import run_server
    except ModuleNotFoundError as error:
        what = f"ssp serve ({error.name} is missing)"
        raise MissingExtra(what, "pip install '.[serve]' in the checkout") from error

    passages = 0

    def source() -> Retriever:
        nonlocal passages
        retriever, passages = opened()
        return retriever

    run_server(source, config, lambda address: _tell(f"{what}, {passages:,} passages", address))


def _tell(what: str, address: str) -> None:
    print(f"ssp serve: ready at {address} ({what})", flush=True)


COMMAND = Command(
    name="serve",
    help="serve search over HTTP, as Search-R1's retrieval server does",
    configure=_configure,
    run=_run,
)
