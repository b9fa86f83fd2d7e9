"""Prompt sets as files: those that ship, directories, and a set with the words of another file.

Sets of other projects' checkpoints come with the tags and budgets that they were trained on. Facts
of format are the projects' own, read from their released code: which tags there are, what surrounds
the documents and how each is written, whether the instructions are a system message. The sentences
of the prompts are ours. A checkpoint was trained on other ones, which a file can give in their
place (:class:`PromptSet`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.protocol import Tags


@dataclass(frozen=True)
class Format:
    """Settings that a project's checkpoints expect besides the texts of its prompt set."""

    top_k: int
    """Documents per search."""
    max_searches: int
    """Searches per attempt."""
    tags: Tags = field(default_factory=Tags)
    """Names of the tags."""
    instructions: str = "solver"
    """The prompt of the set that holds its sentences; the others hold facts of format."""


FORMATS: Mapping[str, Format] = {
    # github.com/PeterGriffinJin/Search-R1: search_r1/llm_agent/generation.py, scripts/data_process
    "search-r1": Format(top_k=3, max_searches=4),
    # github.com/Alibaba-NLP/ZeroSearch: llm_agent/generation.py
    "zerosearch": Format(top_k=5, max_searches=5),
    # github.com/QingFei1/R-Search: src/eval/main.py (which sets no limit of searches) and
    # src/train/generation.py
    "r-search": Format(
        top_k=5,
        max_searches=10,
        tags=Tags(information="observation", also=("original_evidence",)),
        instructions="solver_system",
    ),
}
"""By the name of the prompt set."""


def format_settings(prompts: str) -> dict[str, Any]:
    """The settings of a game that a prompt set asks for, as plain data.

    Args:
        prompts: what ``game.prompts`` takes. If it names a project's set, ``tags``, ``top_k`` and
            ``max_searches`` come with it.
    """
    known = FORMATS.get(prompts.partition(":")[0])
    if known is None:
        return {"prompts": prompts}
    return {
        "prompts": prompts,
        "tags": known.tags.model_dump(),
        "top_k": known.top_k,
        "max_searches": known.max_searches,
    }


SHIPPED = ("mini", "paper", "plain", *FORMATS)

_BASIS = "plain"
"""Set that completes a project's own: such projects have no proposer, and no verifier."""
_OPTIONAL = frozenset({"closed_book", "solver_system"})


@dataclass(frozen=True)
class PromptSet:
    """Location of a set's texts."""

    source: str
    """The name or path that was asked for."""
    folder: Traversable
    name: str | None = None
    """The shipped set that it is; ``None``: a directory."""
    words: Path | None = None
    """File with the sentences of its instructions, in place of its own."""

    @classmethod
    def open(cls, source: str | Path) -> PromptSet:
        """Finds a set.

        Args:
            source: a shipped set, ``NAME:FILE`` (a shipped set, but its instructions to the solver
                are those of the file), or a directory.

        Raises:
            ConfigError: there is no such set.
        """
        name, _, words = str(source).partition(":")
        if isinstance(source, str) and name in SHIPPED:
            folder = resources.files("ssp_env.game.prompts") / name
            return cls(source, folder, name, Path(words) if words else None)

        folder = Path(source)
        if not folder.is_dir():
            fix = f"name a directory, or a shipped set; {nearest(name, SHIPPED)}"
            raise ConfigError("game.prompts", str(source), fix)
        return cls(str(source), folder)

    def file(self, name: str) -> Traversable | None:
        """The file of a prompt, if the set has one."""
        file: Traversable = self.folder / f"{name}.txt"
        if self.words is not None and name == self._instructions:
            return self.words
        if not file.is_file() and self.name in FORMATS:
            file = resources.files("ssp_env.game.prompts") / _BASIS / f"{name}.txt"
        return file if file.is_file() else None

    def read(self, name: str, tags: Tags) -> str | None:
        """A prompt's text; ``None`` if the set lacks one that it may lack.

        Args:
            name: which prompt.
            tags: what tags are called; texts that ship spell the default names.

        Raises:
            ConfigError: a file is missing or cannot be read.
        """
        file = self.file(name)
        if file is None:
            if name == "information":
                return f"{tags.opening('information')}{{documents}}{tags.closing('information')}"
            if name in _OPTIONAL:
                return None
            raise ConfigError("game.prompts", self.source, f"{name}.txt is missing from it")

        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = f"{file.name} has to be a readable UTF-8 file ({error})"
            raise ConfigError("game.prompts", self.source, fix) from error

        if self.name is None or file is self.words:
            return text

        renamed = dict(zip(Tags().all(), tags.all(), strict=False))
        return re.sub("|".join(map(re.escape, renamed)), lambda tag: renamed[tag[0]], text)

    @property
    def _instructions(self) -> str:
        """The prompt that holds what the solver is told."""
        known = FORMATS.get(self.name or "")
        return known.instructions if known else "solver"
