"""Prompt templates: text files with named placeholders, filled with untrusted text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ssp_env.errors import ConfigError


class Template:
    """A prompt with placeholders such as ``{question}``; all other braces are plain text."""

    def __init__(
        self, path: str | Path | Traversable | None, default: str, placeholders: Sequence[str]
    ) -> None:
        """
        Args:
            path: a UTF-8 text file; ``None`` for the package's own.
            default: name of the package's own file, under ``ssp_env/judge/prompts``.
            placeholders: names that the text has to hold, each at least once.

        Raises:
            ConfigError: a file that cannot be read or lacks a placeholder.
        """
        if path is None:
            path = files("ssp_env.judge").joinpath("prompts", default)
        source = Path(path) if isinstance(path, str) else path

        try:
            self.text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                "prompt", str(source), f"give a readable UTF-8 text file ({error})"
            ) from error

        missing = [f"{{{name}}}" for name in placeholders if f"{{{name}}}" not in self.text]
        if missing:
            raise ConfigError(
                "prompt", str(source), f"put {' and '.join(missing)} into this template"
            )

        # One pass over all names, so that a value is never searched for placeholders.
        self._placeholders = re.compile("{(" + "|".join(map(re.escape, placeholders)) + ")}")

    def fill(self, **values: str) -> str:
        """The prompt with every placeholder replaced, in one pass: braces in values stay.

        Values are inserted unchanged: pass outside text through :func:`line` or :func:`block`
        first.
        """
        return self._placeholders.sub(lambda hole: values[hole[1]], self.text)


def line(text: str) -> str:
    """Outside text as a single line that can neither open nor close a tag."""
    return " ".join(block(text).split())


def block(text: str) -> str:
    """Outside text that can neither open nor close a tag; line breaks stay.

    Only angle brackets are escaped: an ampersand is harmless, and a reader would copy its escape
    into an answer. Half a surrogate pair, which no server would take, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    """Undoes the escapes of :func:`block` in a reply that quotes its prompt."""
    return text.replace("&lt;", "<").replace("&gt;", ">")
