"""Index directories (passages once, and indexes over them), and retrievers that settings name.

::

    DIR/passages/     the passages (:mod:`ssp_env.search.store`)
    DIR/bm25/         a BM25 index (:mod:`ssp_env.search.bm25`)
    DIR/dense-flat/   a dense index (:mod:`ssp_env.search.dense`)...

An index whose manifest names other passages is refused. A folder appears when it is whole; until
then it is called ``.NAME.unfinished``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ssp_env.config import Settings
from ssp_env.disk import unfinished
from ssp_env.errors import ConfigError, ServiceError, named_values, nearest
from ssp_env.net import check_key_name, check_url
from ssp_env.search.base import Retriever
from ssp_env.search.store import (
    PASSAGES,
    Encoder,
    PassageStore,
    build_store,
    building,
    read_manifest,
    write_manifest,
)
from ssp_env.search.wrappers import CachedRetriever, HybridRetriever
from ssp_env.types import World

KINDS = ("bm25", "dense-flat", "dense-ivf-sq8")
"""Kinds of index, by the name that their folder has too. All but the first need an encoder."""
PATIENCE = 10.0
"""Seconds that a server may take to answer a first query."""


def build_index(
    source: str | Path,
    directory: str | Path,
    kind: str = "bm25",
    *,
    encoder: Encoder | str | Path | None = None,
    adopt: str | Path | None = None,
) -> Path:
    """Builds an index over a corpus file and returns its folder; does nothing where one is whole.

    A build that was killed starts over, but does not encode again what it has encoded.

    Args:
        source: Search-R1's JSONL, plain or gzip.
        directory: created if need be. It may hold other kinds over the same passages.
        kind: one of :data:`KINDS`.
        encoder: for a dense kind; a directory is loaded as a sentence-transformers model.
        adopt: for a dense kind: a FAISS file with the encoder's vectors of the passages, in their
            order, such as Search-R1's ``e5_Flat.index`` for ``wiki-18.jsonl``. It is linked, and
            nothing is encoded again.
    """
    if kind not in KINDS:
        raise ConfigError("kind", kind, nearest(kind, KINDS))
    if (kind == "bm25") != (encoder is None):
        fix = "a dense kind needs the encoder that turns texts into vectors, bm25 none"
        raise ConfigError("encoder", encoder, f"{kind!r} is asked for: {fix}")
    if isinstance(encoder, str | Path):
        from ssp_env.search.encoder import SentenceTransformerEncoder

        encoder = SentenceTransformerEncoder(encoder)
    info = None if encoder is None else encoder.info
    store = build_store(source, Path(directory) / PASSAGES)
    folder = Path(directory) / kind
    if folder.exists():
        read_manifest(folder, corpus=store.digest(), encoder=info)
        return folder

    with building(folder, resume=encoder is not None and adopt is None) as path:
        lists = None
        if encoder is None:
            from ssp_env.search import bm25

            bm25.build(path, store)
        else:
            from ssp_env.search import dense

            lists = dense.build(path, kind, store, encoder, adopt)
        made_with = {"encoder": info, "lists_probed": lists}
        write_manifest(path, store.manifest.model_copy(update=made_with))
    return folder


def open_index(
    directory: str | Path,
    kind: str | None = None,
    *,
    encoder: Encoder | str | Path | None = None,
) -> Retriever:
    """Opens an index for searching. Files are mapped, not read: that takes milliseconds.

    Args:
        directory: as :func:`build_index` left it.
        kind: index of the directory, or ``hybrid``, which fuses all; may be left out where there is
            only one.
        encoder: of a dense kind: the one that it was built with, or the directory of its model.
            ``None`` loads the directory that the manifest names.
    """
    store = PassageStore(Path(directory) / PASSAGES)
    parts: list[Retriever] = []
    for each in kinds_of(directory, kind):
        folder = Path(directory) / each
        manifest = read_manifest(folder, corpus=store.digest())
        if manifest.encoder is None:
            from ssp_env.search.bm25 import BM25Retriever, DiskIndex

            parts.append(BM25Retriever(store, DiskIndex(folder)))
            continue

        from ssp_env.search.dense import DenseRetriever

        made_with, model = manifest.encoder, encoder or manifest.encoder.name
        if isinstance(model, str | Path):
            from ssp_env.search.encoder import SentenceTransformerEncoder

            # The model's directory may not name its prefixes.
            prefixes = (made_with.query_prefix, made_with.passage_prefix)
            model = SentenceTransformerEncoder(model, prefixes)
        read_manifest(folder, encoder=model.info)
        parts.append(DenseRetriever(folder, store, model, manifest))
    return parts[0] if len(parts) == 1 else HybridRetriever(parts)


def kinds_of(directory: str | Path, kind: str | None = None) -> list[str]:
    """The indexes that are meant: the one that is named, the only one there, or all (hybrid)."""
    read_manifest(Path(directory) / PASSAGES)
    folders = {kind: Path(directory) / kind for kind in KINDS}
    there = [kind for kind, path in folders.items() if path.exists() or unfinished(path).exists()]
    if kind in there:
        return [kind]
    if (len(there) == 1 and not kind) or (len(there) > 1 and kind == "hybrid"):
        return there
    fix = f"{directory} holds {', '.join(there) or 'no index'}; name one, or add it by `ssp index`"
    raise ConfigError("kind", kind, fix)


# -- what settings name ------------------------------------------------------------------------


class SearchConfig(Settings):
    """An index directory, or a server; neither: the world's own retriever."""

    section: ClassVar[str] = "search"

    index: str = ""
    """A directory that ``ssp index`` made; empty: none."""
    kind: Literal["", "hybrid", "bm25", "dense-flat", "dense-ivf-sq8"] = ""
    """Index of the directory: ``bm25``, ``dense-flat``..., or ``hybrid``, which fuses all of them.
    May stay empty where there is only one."""
    encoder: str = ""
    """Directory of a dense index's encoder; empty: where it was when the index was built."""
    server: str = ""
    """Address of a server that speaks Search-R1's protocol, such as ``ssp serve``; empty: none."""
    token_env: str | None = None
    """*Name* of the environment variable that holds the server's token; ``None`` if it asks for
    none."""
    cache: str = ""
    """A directory of rankings that outlast the process. Delete it when a server's index changes."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.server:
            check_url("search.server", self.server, "http://127.0.0.1:8000")
        check_key_name("search.token_env", self.token_env)
        if self.server and self.index:
            fix = "a server is named as well; leave one of them out"
            raise ConfigError("search.index", self.index, fix)
        for name in ("kind", "encoder", "cache"):
            of_server = self.server and name == "cache"
            if getattr(self, name) and not self.index and not of_server:
                fix = "goes with search.index, an index directory"
                raise ConfigError(f"search.{name}", getattr(self, name), fix)
        return self

    @classmethod
    def of(cls, given: str | Path | Mapping[str, Any] | SearchConfig) -> Self:
        """Settings from a mapping of them or a single text: a server's address or an index
        directory; empty: the world's own retriever."""
        if isinstance(given, str | Path):
            given = {"server" if "://" in str(given) else "index": str(given)}
        fix = "give an index directory, a server's address, or a mapping of fields"
        fix += "; a retriever of your own is retriever=..."
        return cls(**named_values("search", dict(given) if isinstance(given, cls) else given, fix))


def open_search(config: SearchConfig, world: World | None = None) -> Retriever | None:
    """The retriever that is meant; ``None``: the world's own. An index has to suit the world."""
    retriever: Retriever
    if config.server:
        # Imported here and below: HTTP and models are of no use to a search by words.
        from ssp_env.search.client import HTTPRetriever

        retriever = HTTPRetriever(config.server, config.token_env)
    elif config.index:
        encoder = config.encoder or None
        retriever = open_index(config.index, config.kind or None, encoder=encoder)
        if world is not None:
            _check_suits(retriever, config.index, world)
    else:
        return None

    return CachedRetriever(retriever, config.cache) if config.cache else retriever


_LOOKED_UP = 20
"""Titles of a world that are looked up in an index of other passages."""


def _check_suits(retriever: Retriever, directory: str, world: World) -> None:
    """Refuses an index in which nothing of the world can be found.

    A generated world is its passages, so the index has to be of these. Answers of real text are
    found in other corpora too, such as a larger one or one that is cut up otherwise, but not in one
    that knows none of the world's titles."""
    manifest, corpus = read_manifest(Path(directory) / PASSAGES), world.corpus
    if manifest.corpus == corpus.digest():
        return

    if not world.can_read:
        places = range(0, len(corpus), -(-len(corpus) // _LOOKED_UP))
        titles = [corpus[place].title or corpus[place].text[:200] for place in places]
        found = zip(titles, retriever.search(titles, 10), strict=True)
        if any(title in (each.title or each.text[:200]) for title, r in found for each in r):
            return
    what = f"it is of other passages ({manifest.name}) than the world {world.name!r} plays in"
    fix = f"{what}; leave it out, or build one from the world's passages by `ssp index`"
    raise ConfigError("search.index", directory, fix)


def check_search(config: SearchConfig) -> None:
    """Finds out whether :func:`open_search` can work, without loading a model.

    A server is asked for one query, with less patience than games have."""
    if config.server:
        from ssp_env.search.client import HTTPRetriever

        with HTTPRetriever(config.server, config.token_env, PATIENCE) as asked:
            (answer,) = asked.search_each(["search"], 1)
        if isinstance(answer, ServiceError):
            raise ServiceError("search", f"{config.server} does not answer: {answer.what}")

    for kind in kinds_of(config.index, config.kind or None) if config.index else []:
        encoder = read_manifest(Path(config.index) / kind).encoder
        model = config.encoder or (encoder.name if encoder is not None else "")
        if model and not Path(model).is_dir():
            fix = "there is no such directory; name its place"
            raise ConfigError("search.encoder", model, fix)
