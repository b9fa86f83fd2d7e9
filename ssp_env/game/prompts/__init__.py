"""Prompts: text files with placeholders, turned into token ids.

A prompt set is a directory with ``proposer.txt``, ``solver.txt``, ``verifier.txt``,
``document.txt`` and ``nothing.txt``; with ``closed_book.txt`` where that gate is wanted; with
``information.txt`` where an observation is to be more than the documents between the information
tags; with ``solver_system.txt`` where the solver's instructions are a system message; with
``judge.txt`` and ``verify.txt`` where a model behind an API is to be asked in the set's own words.
These sets ship with the package: ``plain`` (for instruction-following models), ``paper`` (all that
the paper's prompts ask for, in words of our own), ``mini`` (for the word-level vocabulary of the
mini-wiki), and those of other projects' checkpoints (:mod:`ssp_env.game.prompts.sets`); tags in
them follow the config. ``NAME:FILE`` is a shipped set whose instructions to the solver are those of
a file. Any other name is taken for a directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.prompts.sets import SHIPPED, PromptSet
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document, Role

__all__ = ["SHIPPED", "Prompts", "Template", "api_prompt"]

_REMEMBERED_PASSAGES = 20_000
"""Documents whose ids are kept; when there are more, all are forgotten."""

_REQUIRED: dict[str, frozenset[str]] = {
    "proposer": frozenset({"answer"}),
    "solver": frozenset({"question"}),
    "verifier": frozenset({"question", "documents"}),
    "closed_book": frozenset({"question"}),
    "information": frozenset({"documents"}),
    "document": frozenset({"text"}),
    "nothing": frozenset(),
}
_OPTIONAL: dict[str, frozenset[str]] = {
    "proposer": frozenset({"searches"}),
    "solver": frozenset({"searches"}),
    "document": frozenset({"number", "title"}),
}
_OPENING = "solver_opening"
"""Among the texts of a set: what stands before the solver's prompt if that has a system message."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_OPEN_BRACKET = re.compile(r"<\s*/?\s*\Z")


class Template:
    """Literal text and placeholders.

    Values are outside text: they are defused, then encoded as data.
    """

    def __init__(
        self, name: str, text: str, tokenizer: Tokenizer, frame: tuple[str, str] = ("", "")
    ) -> None:
        """
        Args:
            name: which prompt this is; decides the placeholders.
            text: the template. The final line break of a text file is ignored; other white space
                is not.
            tokenizer: encodes the literal text.
            frame: what a chat template puts around a message.

        Raises:
            ConfigError: a placeholder is missing or unknown, or stands right behind an angle
                bracket.
        """
        parts = _PLACEHOLDER.split(text.removesuffix("\n"))
        self.literals, self.fields = parts[0::2], parts[1::2]

        missing = _REQUIRED[name] - set(self.fields)
        known = _REQUIRED[name] | _OPTIONAL.get(name, frozenset())
        unknown = set(self.fields) - known

        if missing:
            raise ConfigError(
                f"game.prompts.{name}",
                text.strip()[:60],
                f"put the placeholder {{{min(missing)}}} into it",
            )
        if unknown:
            raise ConfigError(
                f"game.prompts.{name}", f"{{{min(unknown)}}}", nearest(min(unknown), known)
            )

        # With the value behind it, such a bracket could become a tag.
        if any(_OPEN_BRACKET.search(literal) for literal in self.literals[:-1]):
            fix = (
                "put no bracket right before a placeholder: with it, outside text could spell a tag"
            )
            raise ConfigError(f"game.prompts.{name}", text.strip()[:60], fix)

        # The chat template surrounds the whole message, so it joins the outermost literals.
        self.literals[0] = frame[0] + self.literals[0]
        self.literals[-1] += frame[1]

        self._literal_ids = [tokenizer.encode(literal) for literal in self.literals]

    def encode(self, values: Mapping[str, Sequence[int]]) -> list[int]:
        """Ids of the literals (tags are tags) with the already encoded values between them."""
        ids = list(self._literal_ids[0])
        for field, literal in zip(self.fields, self._literal_ids[1:], strict=True):
            ids.extend(values[field])
            ids.extend(literal)
        return ids


class Prompts:
    """A prompt set, bound to a tokenizer and to tags."""

    def __init__(self, source: str | Path, tokenizer: Tokenizer, tags: Tags) -> None:
        """
        Args:
            source: a shipped set, ``NAME:FILE``, or a directory of your own
                (:meth:`PromptSet.open`).
            tokenizer: encodes everything; its chat template, if it has one, frames the three role
                prompts.
            tags: what look-alikes in outside text are defused against.

        Raises:
            ConfigError: no such set, a file is missing, or a placeholder is missing or unknown.
            TokenizerError: the set has a system message, and the chat template takes none.
        """
        chat_frame: Callable[..., tuple[str, str]] = getattr(tokenizer, "chat_frame", _no_frame)

        opened = PromptSet.open(source)
        texts = {name: text for name in _REQUIRED if (text := opened.read(name, tags)) is not None}
        system = opened.read("solver_system", tags)
        if system is not None:
            texts[_OPENING], _ = chat_frame(system.removesuffix("\n"))

        self._bind(texts, chat_frame(), tokenizer, tags, source)

    @classmethod
    def of_texts(
        cls, texts: Mapping[str, str], frame: tuple[str, str], tokenizer: Tokenizer, tags: Tags
    ) -> Prompts:
        """A prompt set from the :attr:`texts` and the :attr:`frame` of another one.

        Raises:
            ConfigError: a text is missing, or a placeholder is missing or unknown.
        """
        for name in texts.keys() ^ _REQUIRED.keys():
            if name not in ("closed_book", _OPENING):
                raise ConfigError(
                    "game.prompts",
                    sorted(texts),
                    f"{name!r} is missing from it, or is not a prompt's name",
                )

        prompts = cls.__new__(cls)
        prompts._bind(texts, frame, tokenizer, tags, "texts")
        return prompts

    def _bind(
        self,
        texts: Mapping[str, str],
        frame: tuple[str, str],
        tokenizer: Tokenizer,
        tags: Tags,
        source: str | Path,
    ) -> None:
        self.texts: Mapping[str, str] = texts
        """Every template by name, tags as the config names them."""
        self.frame = frame
        """Texts that the chat template puts before and after the role prompts."""

        frames = dict.fromkeys(map(str, Role), frame)
        frames[Role.SOLVER] = texts.get(_OPENING, frame[0]), frame[1]
        self._templates = {
            name: Template(name, texts[name], tokenizer, frames.get(name, ("", "")))
            for name in _REQUIRED
            if name in texts
        }

        self._tokenizer, self._tags, self._source = tokenizer, tags, source
        self._newline = tokenizer.encode("\n")
        search = tags.opening("search"), tags.closing("search")
        self._search = tokenizer.encode(f"{search[0]} "), tokenizer.encode(f" {search[1]}")
        self._numbered = "number" in self._templates["document"].fields
        self._passages: dict[tuple[str, str, int, int], list[int]] = {}
        self._parts: dict[tuple[str, str, int], tuple[str, str]] = {}
        self._asked: dict[str, list[int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Remembered passages are found again where they are needed.
        return self.__dict__ | {"_passages": {}, "_parts": {}, "_asked": {}}

    def prompt_containing(self, token: int) -> str | None:
        """The first prompt whose own text contains this token, such as the unknown one."""
        for name, template in self._templates.items():
            if any(token in self._tokenizer.encode(literal) for literal in template.literals):
                return name
        return None

    def can_spell(self, text: str) -> bool:
        """True if this text is encoded without the tokenizer's ``unknown_id``, if it has one."""
        unknown = getattr(self._tokenizer, "unknown_id", None)
        return unknown is None or unknown not in self._data(text)

    def proposer(self, answer: str, searches: int) -> list[int]:
        """Prompt of the proposer: the ground truth and a number of searches to aim at."""
        return self._fill("proposer", answer=answer, searches=str(searches))

    def solver(self, question: str, searches: int) -> list[int]:
        """Prompt of the solver: the question and the search budget."""
        return self._fill("solver", question=question, searches=str(searches))

    def search(self, query: str, max_query_tokens: int) -> list[int]:
        """A turn that searches for a text, as a policy could have written it."""
        opening, closing = self._search
        return [*opening, *self._asked_ids(query)[:max_query_tokens], *closing]

    def verifier(
        self, question: str, documents: Sequence[Document], max_document_tokens: int
    ) -> list[int]:
        """Prompt of RAG verification in a form of its own: the question and the documents."""
        listing = self._documents(documents, max_document_tokens)
        return self._templates["verifier"].encode(
            {"question": self._asked_ids(question), "documents": listing}
        )

    def closed_book(self, question: str) -> list[int]:
        """Prompt of the closed-book gate: the question, and nothing to read.

        Raises:
            ConfigError: the set has no such prompt.
        """
        if "closed_book" not in self._templates:
            raise ConfigError(
                "game.prompts", str(self._source), "closed_book.txt is missing from it"
            )
        return self._fill("closed_book", question=question)

    def information(self, documents: Sequence[Document], max_document_tokens: int) -> list[int]:
        """The observation that follows a search: documents between the information tags."""
        listing = self._documents(documents, max_document_tokens)
        return self._templates["information"].encode({"documents": listing})

    def listed(self, document: Document, max_document_tokens: int, number: int = 1) -> int:
        """Number of tokens that a document adds to a listing, in this place of it."""
        return len(self._document(document, max_document_tokens, number)) + len(self._newline)

    def as_shown(self, document: Document, max_document_tokens: int) -> Document:
        """A document without what is cut off when it is shown."""
        key = (document.title, document.text, max_document_tokens)
        parts = self._parts.get(key)
        if parts is None:
            if len(self._parts) >= _REMEMBERED_PASSAGES:
                self._parts.clear()
            parts = self._parts[key] = (
                self._cut(document.title, max_document_tokens),
                self._cut(document.text, max_document_tokens),
            )
        return replace(document, title=parts[0], text=parts[1])

    def _cut(self, text: str, max_tokens: int) -> str:
        ids = self._tokenizer.encode_data(text)
        return text if len(ids) <= max_tokens else self._tokenizer.decode(ids[:max_tokens])

    def _documents(self, documents: Sequence[Document], max_tokens: int) -> list[int]:
        if not documents:
            return self._templates["nothing"].encode({})

        ids: list[int] = []
        for number, document in enumerate(documents, 1):
            ids.extend(self._newline if ids else [])
            ids.extend(self._document(document, max_tokens, number))
        return ids

    def _document(self, document: Document, max_tokens: int, number: int) -> list[int]:
        """A document's ids, remembered: the same ones come back throughout a run."""
        key = (document.title, document.text, max_tokens, number if self._numbered else 0)
        ids = self._passages.get(key)
        if ids is None:
            # Simpler than evicting the oldest, and rare.
            if len(self._passages) >= _REMEMBERED_PASSAGES:
                self._passages.clear()
            encode, defuse = self._tokenizer.encode_data, self._tags.defuse
            values = {
                "title": encode(defuse(document.title))[:max_tokens],
                "text": encode(defuse(document.text))[:max_tokens],
            }
            if self._numbered:
                values["number"] = self._tokenizer.encode(str(number))
            ids = self._passages[key] = self._templates["document"].encode(values)
        return ids

    def _fill(self, name: str, **values: str) -> list[int]:
        return self._templates[name].encode(
            {key: self._asked_ids(text) for key, text in values.items()}
        )

    def _asked_ids(self, text: str) -> list[int]:
        """Ids of a question, remembered: its verification reads it, and each attempt at it."""
        ids = self._asked.get(text)
        if ids is None:
            if len(self._asked) >= _REMEMBERED_PASSAGES:
                self._asked.clear()
            ids = self._asked[text] = self._data(text)
        return ids

    def _data(self, text: str) -> list[int]:
        return self._tokenizer.encode_data(self._tags.defuse(text))


def api_prompt(source: str | Path, name: str) -> Traversable | None:
    """A set's own prompt for a model behind an API; ``None`` where the judge's own will do.

    Args:
        source: as for :class:`Prompts`.
        name: ``judge``, ``solve`` or ``verify``.

    Raises:
        ConfigError: no such set.
    """
    return PromptSet.open(source).file(name)


def _no_frame(system: str | None = None) -> tuple[str, str]:
    """Without a chat template, a system message is a line of its own."""
    return ("" if system is None else f"{system}\n"), ""
