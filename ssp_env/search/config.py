"""Settings of search: an index or a server to ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError
from ssp_env.net import check_key_name, check_url


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
    reranker: str = ""
    """Directory of a cross-encoder that puts the first 50 documents into its order; empty: none."""
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
        for name in ("kind", "encoder", "reranker", "cache"):
            of_server = self.server and name in ("reranker", "cache")
            if getattr(self, name) and not self.index and not of_server:
                fix = "goes with search.index, an index directory"
                raise ConfigError(f"search.{name}", getattr(self, name), fix)
        return self

    @classmethod
    def of(cls, given: str | Path | Mapping[str, Any] | SearchConfig) -> Self:
        """Settings from a mapping of them or a single text: a server's address, which begins with
        ``http``, or an index directory; empty: the world's own retriever."""
        if isinstance(given, str | Path):
            name = "server" if str(given).startswith(("http://", "https://")) else "index"
            given = {name: str(given)}
        return cls(**dict(given))
