"""Index directories, and retrievers that settings name.

``DIR/passages`` holds the passages, ``DIR/bm25`` and the like an index over them. An index whose
manifest names other passages is refused. A folder appears when it is whole; until then it is called
``.NAME.unfinished``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, NonNegativeFloat, model_validator

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
from ssp_env.search.words import VERSION
from ssp_env.search.wrappers import HybridRetriever
from ssp_env.types import Document, Passages, World

KINDS = ("bm25", "dense-flat")
"""Kinds of index, by the name that their folder has too. The second needs an encoder."""
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

    A build that was killed starts over.

    Args:
        source: in a form that :func:`~ssp_env.search.base.read_passages` reads.
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
    store = build_store(source, Path(directory) / PASSAGES)
    folder = Path(directory) / kind
    if folder.exists():
        info = None if encoder is None else encoder.info
        read_manifest(folder, corpus=store.digest(), encoder=info)
        return folder

    with building(folder) as path:
        made_with: dict[str, Any] = {}
        if encoder is None:
            from ssp_env.search import bm25

            bm25.build(path, store)
            made_with = {"words": VERSION}
        else:
            from ssp_env.search import dense

            dense.build(path, store, encoder, adopt)
            made_with = {"encoder": encoder.info}
        write_manifest(path, store.manifest.model_copy(update=made_with))
    return folder


def open_index(directory: str | Path, *, encoder: Encoder | str | Path | None = None) -> Retriever:
    """Opens all indexes of a directory, fused, or one of them, such as ``DIR/bm25``. Files are
    mapped, not read: that takes milliseconds. ``encoder``, of a dense kind, is the one that it was
    built with, or the directory of its model; ``None`` loads the directory that the manifest names.
    """
    root, folders = indexes_of(directory)
    store = PassageStore(root / PASSAGES)
    parts: list[Retriever] = []
    for folder in folders:
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
        parts.append(DenseRetriever(folder, store, model))
    return parts[0] if len(parts) == 1 else HybridRetriever(parts)


def indexes_of(directory: str | Path) -> tuple[Path, list[Path]]:
    """The directory with the passages, and the folders of the indexes that are meant: all of them,
    or the one that is named."""
    named = Path(directory)
    # `DIR/bm25` is an index of DIR, unless it holds passages itself.
    one = named.name in KINDS and not (named / PASSAGES).exists()
    root = named.parent if one else named
    read_manifest(root / PASSAGES)
    folders = [root / kind for kind in KINDS]
    # A half-built index counts, so that it is refused by name and not passed over.
    there = [path for path in folders if path.exists() or unfinished(path).exists()]
    meant = [path for path in there if not one or path.name == named.name]
    if not meant:
        names = ", ".join(path.name for path in there) or "no index"
        raise ConfigError("index", str(named), f"{root} holds {names}; add it by `ssp index`")
    return root, meant


# -- what settings name ------------------------------------------------------------------------


class SearchConfig(Settings):
    """Search in place of the world's own."""

    section: ClassVar[str] = "search"

    source: str = ""
    """A directory that ``ssp index`` made, for all its indexes, fused; one of them, such as
    ``DIR/bm25``; or the address of a server with Search-R1's protocol, such as ``ssp serve``.
    Empty: the world's own retriever."""
    encoder: str = ""
    """Directory of a dense index's encoder; empty: where it was when the index was built."""
    token_env: str | None = None
    """*Name* of the environment variable that holds the server's token; ``None`` if it asks for
    none."""
    k1: NonNegativeFloat | None = None
    """BM25's k1, of a search in memory over the world's passages (no ``source``), such as
    Pyserini's .9; ``None``: Lucene's 1.2 (in the mini world 1.5)."""
    b: Annotated[float, Field(ge=0, le=1)] | None = None
    """BM25's b, likewise, such as Pyserini's .4; ``None``: .75."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_server:
            check_url("search.source", self.source, "http://127.0.0.1:8000")
        check_key_name("search.token_env", self.token_env)
        if self.encoder and (self.is_server or not self.source):
            fix = "goes with an index directory as search.source"
            raise ConfigError("search.encoder", self.encoder, fix)
        for name, value in (("k1", self.k1), ("b", self.b)):
            if value is not None and self.source:
                has = (
                    "a server has its own" if self.is_server else "an index directory has Lucene's"
                )
                fix = f"{has}: leave it out, or search in memory (search.source empty)"
                raise ConfigError(f"search.{name}", value, fix)
        return self

    @property
    def is_server(self) -> bool:
        """True if the source is the address of a server."""
        return "://" in self.source

    @classmethod
    def of(cls, given: str | Path | Mapping[str, Any] | SearchConfig) -> Self:
        """Settings from a mapping of them or the source alone."""
        if isinstance(given, str | Path):
            given = {"source": str(given)}
        fix = "give an index directory, a server's address, or a mapping of fields"
        fix += "; a retriever of your own is retriever=..."
        return cls(**named_values("search", dict(given) if isinstance(given, cls) else given, fix))


def open_search(config: SearchConfig, world: World | None = None) -> Retriever | None:
    """The retriever that is meant; ``None``: the world's own. An index has to suit the world."""
    if not config.source:
        by_default = config.k1 is None and config.b is None
        return None if by_default or world is None else in_memory(world.corpus, config)
    if config.is_server:
        # Imported here and below: HTTP and models are of no use to a search by words.
        from ssp_env.search.client import HTTPRetriever

        return HTTPRetriever(config.source, config.token_env)
    retriever = open_index(config.source, encoder=config.encoder or None)
    if world is not None:
        _check_suits(retriever, config.source, world)
    return retriever


def in_memory(passages: Passages, config: SearchConfig) -> Retriever:
    """BM25 over passages with the constants of the settings, else Lucene's."""
    from ssp_env.search.bm25 import BM25Retriever
    from ssp_env.search.postings import K1, B, BM25Index

    k1, b = K1 if config.k1 is None else config.k1, B if config.b is None else config.b
    return BM25Retriever(passages, BM25Index(passages, k1, b))


_LOOKED_UP = 20
"""Titles of a world that are looked up in an index of other passages."""


def _check_suits(retriever: Retriever, directory: str, world: World) -> None:
    """Refuses an index in which nothing of the world can be found.

    A generated world is its passages, so the index has to be of these. Answers of real text are
    found in other corpora too, such as a larger one or one that is cut up otherwise, but not in one
    that knows none of the world's titles."""
    manifest, corpus = read_manifest(indexes_of(directory)[0] / PASSAGES), world.corpus
    if manifest.corpus == corpus.digest():
        return

    def title_of(document: Document) -> str:
        return document.title or document.text[:200]

    if not world.can_read:
        # Titles from all over the corpus, which may be ordered by them.
        step = -(-len(corpus) // _LOOKED_UP)
        titles = [title_of(corpus[place]) for place in range(0, len(corpus), step)]
        found = zip(titles, retriever.search(titles, 10), strict=True)
        if any(title in title_of(each) for title, ranking in found for each in ranking):
            return
    what = f"it is of other passages ({manifest.name}) than the world {world.name!r} plays in"
    fix = f"{what}; leave it out, or build one from the world's passages by `ssp index`"
    raise ConfigError("search.source", directory, fix)


def check_search(config: SearchConfig, tools: Sequence[str] = ()) -> None:
    """Finds out whether :func:`open_search` can work, without loading a model.

    A server is asked for one query, and one page if the ``tools`` of a game open some, with less
    patience than games have."""
    if not config.source:
        return
    if config.is_server:
        from ssp_env.search.client import HTTPRetriever

        with HTTPRetriever(config.source, config.token_env, PATIENCE) as asked:
            answers = asked.search_each(["search"], 1)
            if "open" in tools:
                with asked.pages as pages:
                    answers += pages.search_each(["search"], 1)
        for answer in answers:
            if isinstance(answer, ServiceError):
                raise ServiceError("search", f"{config.source} does not answer: {answer.what}")
        return

    for folder in indexes_of(config.source)[1]:
        encoder = read_manifest(folder).encoder
        model = config.encoder or (encoder.name if encoder is not None else "")
        if model and not Path(model).is_dir():
            fix = "there is no such directory; name its place"
            raise ConfigError("search.encoder", model, fix)
