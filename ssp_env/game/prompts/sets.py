"""Prompt sets as files: those that ship, directories, and a set with the words of another file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.prompts.formats import FORMATS
from ssp_env.game.protocol import Tags

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
