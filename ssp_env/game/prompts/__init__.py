"""Prompts: text files with placeholders, turned into token ids.

``docs/parts.md`` lists the files of a set.

These sets ship: ``plain`` (for instruction-following models), ``paper`` (all that the paper's
prompts ask for, in words of our own), ``compact`` (a sentence or two, for small models that are
trained to play; see ``ssp imitate``), ``few-shot`` (a system message, and worked examples as turns
of the chat, for models that cannot play yet), ``tools`` (for models that call functions), ``mini``
(for the words of the mini world), and those of other projects' checkpoints.

The format of other projects' sets (tags, what surrounds documents, system messages) is read from
their released code. The sentences are ours; a checkpoint was trained on other ones.

A prompt has the ids that the tokenizer gives its whole text (:class:`Whole`). The policies that
ship, and games that earlier versions saved, have other ones: those of each literal, answer,
question, title and text by itself (:class:`Pieces`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.prompts.messages import CLOSING, OPENING, ROLES, as_messages, in_messages
from ssp_env.game.prompts.sets import (
    BESIDE,
    FORMATS,
    SHIPPED,
    SetForm,
    format_settings,
    prompt_file,
    read_form,
    read_tags,
    read_text,
    tags_of,
)
from ssp_env.game.tools import SEARCH, Tool
from ssp_env.tokenizers.base import Tokenizer, encode_parts, first_tokens
from ssp_env.types import Document, Role

__all__ = [
    "FORMATS",
    "SHIPPED",
    "Prompts",
    "SetForm",
    "Template",
    "format_settings",
    "prompt_file",
    "read_tags",
    "tags_of",
]

_ENCODING = "encoding"
"""Among the texts of a set: how it is encoded. Records of earlier versions lack it."""
Part = tuple[str, bool]
"""A text, and whether it is ours; one from outside is defused already."""

FIELDS: Mapping[str, tuple[set[str], set[str]]] = {
    "proposer": ({"answer"}, {"searches"}),
    "topic": ({"topic"}, {"searches"}),
    "solver": ({"question"}, {"searches"}),
    "verifier": ({"question", "documents"}, set()),
    "candidate": ({"question", "answer", "documents"}, set()),
    "closed_book": ({"question"}, set()),
    "information": ({"documents"}, {"about"}),
    "document": ({"text"}, {"number", "title"}),
    "nothing": (set(), set()),
    "retry": (set(), {"actions"}),
}
"""Placeholders of each prompt: those that it needs, and those that it may have."""
_ON_DEMAND = {"candidate", "topic"}
"""Prompts that are read only where the game asks for them."""
_OPTIONAL = {"closed_book", "verifier", "retry"} | _ON_DEMAND
"""Prompts that are missing only where the game asks for them."""
_OURS = frozenset({"searches", "number", "actions"})
"""Placeholders for numbers and tags of our own."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_OPEN_BRACKET = re.compile(r"<\s*/?\s*\Z")

_REMEMBERED = 20_000
"""Texts of a kind whose ids are kept."""
_KEPT_WHOLE = 2_000
"""Prompts and observations whose ids are kept: they come back for each attempt at a question."""


class Template:
    """Literal text and placeholders."""

    def __init__(
        self, name: str, text: str, tokenizer: Tokenizer, frame: tuple[str, str] = ("", "")
    ) -> None:
        """The final line break of a text file is ignored; other white space is not. ``frame`` is
        what a chat template puts around a message."""
        parts = _PLACEHOLDER.split(text.removesuffix("\n"))
        # Literals and placeholders by turns; a literal comes first and last, if only an empty one.
        self.literals, self.fields = parts[0::2], parts[1::2]

        needed, optional = FIELDS[name]
        for field in sorted(needed - set(self.fields)):
            fix = f"put the placeholder {{{field}}} into it"
            raise ConfigError(f"game.prompts.{name}", text.strip()[:60], fix)
        for field in sorted(set(self.fields) - needed - optional):
            fix = nearest(field, needed | optional)
            raise ConfigError(f"game.prompts.{name}", f"{{{field}}}", fix)
        # With the value behind it, such a bracket could become a tag.
        if any(_OPEN_BRACKET.search(literal) for literal in self.literals[:-1]):
            fix = "put no bracket right before a placeholder: the two could spell a tag"
            raise ConfigError(f"game.prompts.{name}", text.strip()[:60], fix)

        self.lists = "documents" in self.fields
        # The chat template surrounds the whole message, so it joins the outermost literals.
        self.literals[0] = frame[0] + self.literals[0]
        self.literals[-1] += frame[1]
        self.literal_ids = [tokenizer.encode(literal) for literal in self.literals]

    def encode(self, values: Mapping[str, Sequence[int]]) -> list[int]:
        """Ids of the literals (tags are tags) with the already encoded values between them."""
        ids = list(self.literal_ids[0])
        for field, literal in zip(self.fields, self.literal_ids[1:], strict=True):
            ids.extend(values[field])
            ids.extend(literal)
        return ids

    def parts(self, values: Mapping[str, Sequence[Part]]) -> list[Part]:
        """The literals with the values between them."""
        parts = [(self.literals[0], True)]
        for field, literal in zip(self.fields, self.literals[1:], strict=True):
            parts.extend(values[field])
            parts.append((literal, True))
        return parts


class Encoder(Protocol):
    """Ids of filled-in templates."""

    def fill(
        self,
        name: str,
        texts: Mapping[str, str],
        documents: Sequence[Document] = (),
        limit: int = 0,
        continues: bool = False,
    ) -> list[int]:
        """Ids of a template with texts, and documents of ``limit`` tokens at most, in its
        placeholders; ``continues``: it goes on a transcript."""

    def turn(self, opening: str, text: str, closing: str) -> list[int]:
        """Ids of a text between two tags."""

    def listed(self, document: Document, limit: int, place: int) -> int:
        """Number of tokens of a document and a line break, in this place of a listing (0: any)."""

    def cut(self, text: str, limit: int) -> str:
        """A text without what is cut off when it is shown."""


class Whole:
    """Encodes a filled-in template as one text, apart from outside text that holds markup."""

    def __init__(
        self, templates: Mapping[str, Template], tokenizer: Tokenizer, defuse: Callable[[str], str]
    ) -> None:
        self._templates, self._tokenizer, self._defuse = templates, tokenizer, defuse
        # The same documents come back throughout a run.
        self.cut = lru_cache(_REMEMBERED)(self._first)
        self._shown = lru_cache(_REMEMBERED)(self._harmless)
        self._ids = lru_cache(_KEPT_WHOLE)(self._encode)

    def fill(
        self,
        name: str,
        texts: Mapping[str, str],
        documents: Sequence[Document] = (),
        limit: int = 0,
        continues: bool = False,
    ) -> list[int]:
        values: dict[str, Sequence[Part]] = {
            field: [(text, True) if field in _OURS else (self._defuse(text), False)]
            for field, text in texts.items()
        }
        template = self._templates[name]
        if template.lists:
            values["documents"] = self._listing(documents, limit)
        return list(self._ids(tuple(template.parts(values)), continues))

    def turn(self, opening: str, text: str, closing: str) -> list[int]:
        content = self._defuse(text)
        return list(self._ids(((opening, True), (content, False), (closing, True)), True))

    def listed(self, document: Document, limit: int, place: int) -> int:
        return len(self._ids((*self._document(document, limit, place), ("\n", True)), True))

    def _listing(self, documents: Sequence[Document], limit: int) -> list[Part]:
        if not documents:
            return self._templates["nothing"].parts({})
        parts: list[Part] = []
        for number, document in enumerate(documents, 1):
            parts += [("\n", True)] if parts else []
            parts += self._document(document, limit, number)
        return parts

    def _document(self, document: Document, limit: int, place: int) -> list[Part]:
        return self._templates["document"].parts(
            {
                "title": [(self._shown(document.title, limit), False)],
                "text": [(self._shown(document.text, limit), False)],
                "number": [(str(place), True)],
            }
        )

    def _harmless(self, text: str, limit: int) -> str:
        """A text's first tokens; half a tag at which it was cut is harmless as well."""
        shown = self._first(self._defuse(text), limit)
        again = self._defuse(shown)
        return shown if again == shown else self._first(again, limit)

    def _first(self, text: str, limit: int) -> str:
        return first_tokens(self._tokenizer, text, limit)

    def _encode(self, parts: tuple[Part, ...], continues: bool) -> list[int]:
        return encode_parts(self._tokenizer, parts, continues)


class Pieces:
    """Encodes literals and texts one by one."""

    def __init__(
        self, templates: Mapping[str, Template], tokenizer: Tokenizer, defuse: Callable[[str], str]
    ) -> None:
        self._templates, self._tokenizer, self._defuse = templates, tokenizer, defuse
        self._newline = tokenizer.encode("\n")
        self._numbered = "number" in templates["document"].fields
        # The same documents come back throughout a run; a question is read by its verification and
        # by each attempt at it.
        self._document = lru_cache(_REMEMBERED)(self._encode_document)
        self._data = lru_cache(_REMEMBERED)(self._encode_data)
        self.cut = lru_cache(_REMEMBERED)(self._first)

    def fill(
        self,
        name: str,
        texts: Mapping[str, str],
        documents: Sequence[Document] = (),
        limit: int = 0,
        continues: bool = False,
    ) -> list[int]:
        values = {
            field: self._tokenizer.encode(text) if field == "actions" else self._data(text)
            for field, text in texts.items()
        }
        template = self._templates[name]
        if template.lists:
            listing: list[int] = []
            for number, document in enumerate(documents, 1):
                if listing:
                    listing += self._newline
                place = number if self._numbered else 0
                listing += self._document(document.title, document.text, limit, place)
            values["documents"] = listing if documents else self._templates["nothing"].encode({})
        return template.encode(values)

    def turn(self, opening: str, text: str, closing: str) -> list[int]:
        encode = self._tokenizer.encode
        return [*encode(opening), *self._data(text), *encode(closing)]

    def listed(self, document: Document, limit: int, place: int) -> int:
        number = place if self._numbered else 0
        ids = self._document(document.title, document.text, limit, number)
        return len(ids) + len(self._newline)

    def _encode_document(self, title: str, text: str, limit: int, number: int) -> list[int]:
        encode, defuse = self._tokenizer.encode_data, self._defuse
        values = {"title": encode(defuse(title))[:limit], "text": encode(defuse(text))[:limit]}
        if self._numbered:
            values["number"] = self._tokenizer.encode(str(number))
        return self._templates["document"].encode(values)

    def _encode_data(self, text: str) -> list[int]:
        return self._tokenizer.encode_data(self._defuse(text))

    def _first(self, text: str, limit: int) -> str:
        ids = self._tokenizer.encode_data(text)
        return text if len(ids) <= limit else self._tokenizer.decode(ids[:limit])


class Prompts:
    """A prompt set, bound to a tokenizer. Make one with :meth:`open`."""

    def __init__(
        self, texts: Mapping[str, str], frame: tuple[str, str], tokenizer: Tokenizer
    ) -> None:
        """``frame``: texts that the chat template puts before and after a role's message."""
        self.texts, self.frame = texts, frame
        self.tags = read_tags(texts.get("tags"))
        """Names of the tags, which look-alikes in outside text are defused against."""

        self._templates = {
            name: Template(name, texts[name], tokenizer, self.frame_of(name))
            for name in FIELDS
            if name in texts
        }

        self._tokenizer = tokenizer
        self._unknown_id: int | None = getattr(tokenizer, "unknown_id", None)
        encoder = Whole if texts.get(_ENCODING) == "whole" else Pieces
        self._encoder: Encoder = encoder(self._templates, tokenizer, self.tags.defuse)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.texts, self.frame, self._tokenizer)

    @classmethod
    def open(
        cls,
        source: str,
        tokenizer: Tokenizer,
        tools: Sequence[Tool] = (SEARCH,),
        also: Collection[str] = (),
    ) -> Prompts:
        """Reads a shipped set, ``NAME:FILE``, or a directory; a chat template frames the role
        prompts, and those of proposer and solver tell of tools beside search at ``{tools}``.
        ``also`` names prompts that only some games have.

        ``TokenizerError`` if the set has messages that the chat template does not take."""
        texts = {
            name: text
            for name in FIELDS
            if name not in _ON_DEMAND or name in also
            if (text := read_text(source, f"{name}.txt")) is not None
        }
        tags = tags_of(source, [tool.name for tool in tools])
        declared = tags.model_dump_json() if tags.tools else read_text(source, "tags.json")
        if declared is not None:
            texts["tags"] = declared
        for name in texts.keys() & {Role.PROPOSER, "topic", Role.SOLVER}:
            told = [t.in_words(tags.opening(t.name), tags.closing(t.name)) for t in tools[1:]]
            texts[name] = texts[name].replace("{tools}", "".join(told))
        if (form := read_form(read_text(source, "set.json"))).encoding == "whole":
            texts[_ENCODING] = form.encoding
        if source.partition(":")[0] not in SHIPPED:
            known = {*FIELDS, *BESIDE}
            for stem in sorted({file.stem for file in Path(source).glob("*.txt")} - known):
                fix = f"{stem}.txt is none of a set's prompts; {nearest(stem, known)}"
                raise ConfigError("game.prompts", source, fix)
        texts, frame = in_messages(texts, form, tags, tokenizer, tools)
        for name in FIELDS.keys() - texts.keys() - _OPTIONAL:
            raise ConfigError(
                "game.prompts", source, f"{name}.txt is missing from it; plain has one"
            )
        return cls(texts, frame, tokenizer)

    def frame_of(self, name: str) -> tuple[str, str]:
        """What a chat template puts before and after one of the set's texts: those of roles, of
        search results and of retries are messages."""
        before, after = self.frame if name in ROLES else ("", "")
        return self.texts.get(f"{name}{OPENING}", before), self.texts.get(f"{name}{CLOSING}", after)

    def unframed(self, text: str) -> str:
        """What the environment shows, without what a chat template puts around it."""
        frames = [self.frame_of(name) for name in FIELDS]
        # Several may fit, the empty one always: the longest is taken off.
        before = [b for b, _ in frames if text.startswith(b)]
        after = [a for _, a in frames if text.endswith(a)]
        return text.removeprefix(max(before, key=len)).removesuffix(max(after, key=len))

    def chat(self, text: str) -> list[dict[str, str]]:
        """A prompt, :meth:`unframed`, as messages for a server with a chat template of its own."""
        return as_messages(self.texts, text)

    def unspelled(self) -> str | None:
        """The first prompt whose own text the tokenizer cannot spell, if any."""
        for name, template in self._templates.items():
            if any(self._unknown_id in ids for ids in template.literal_ids):
                return name
        return None

    def can_spell(self, text: str) -> bool:
        """True if this text is encoded without the tokenizer's ``unknown_id``, if it has one."""
        if self._unknown_id is None:
            return True
        return self._unknown_id not in self._tokenizer.encode_data(self.tags.defuse(text))

    def proposer(self, subject: str, searches: int) -> list[int]:
        """Prompt about an answer, or about a topic where the proposer chooses the answer."""
        name, about = ("topic", "topic") if "topic" in self.texts else ("proposer", "answer")
        return self._encoder.fill(name, {about: subject, "searches": str(searches)})

    def solver(self, question: str, searches: int) -> list[int]:
        """Prompt of an attempt at a question, which may make this many searches.

        >>> from ssp_env.tokenizers import ByteTokenizer
        >>> tokenizer = ByteTokenizer()
        >>> prompt = Prompts.open("compact", tokenizer).solver("Who wrote <answer>?", 2)
        >>> print(tokenizer.decode(prompt))
        Who wrote ‹answer›?
        Look up: <search> words </search>. Then reply: <answer> a few words </answer>
        """
        return self._encoder.fill("solver", {"question": question, "searches": str(searches)})

    def search(self, query: str) -> list[int]:
        """A turn that searches for a text, as a policy could have written it."""
        opening, closing = self.tags.opening("search"), self.tags.closing("search")
        return self._encoder.turn(f"{opening} ", query, f" {closing}")

    def verifier(self, question: str, documents: Sequence[Document], limit: int) -> list[int]:
        """Prompt of RAG verification in a form of its own: the question and the documents."""
        return self._encoder.fill("verifier", {"question": question}, documents, limit)

    def candidate(
        self, question: str, answer: str, documents: Sequence[Document], limit: int
    ) -> list[int]:
        """Prompt of a verification that is shown the answer."""
        texts = {"question": question, "answer": answer}
        return self._encoder.fill("candidate", texts, documents, limit)

    def closed_book(self, question: str) -> list[int]:
        return self._encoder.fill("closed_book", {"question": question})

    def information(self, documents: Sequence[Document], limit: int, about: str = "") -> list[int]:
        """The observation that follows a search: ``limit`` tokens of each document at most, and
        what the chat template puts around it. ``about``: the question (proposer: the answer), which
        a set may repeat."""
        texts = {"about": about} if "about" in self._templates["information"].fields else {}
        return self._encoder.fill("information", texts, documents, limit, continues=True)

    def retry(self, actions: Sequence[str]) -> list[int]:
        """The observation that follows a turn without a complete action, of these."""
        tags = self.tags
        pairs = [(tags.opening(action), tags.closing(action)) for action in actions]
        named = " or ".join(map(" ... ".join, pairs))
        return self._encoder.fill("retry", {"actions": named}, continues=True)

    def listed(self, document: Document, limit: int, number: int = 1) -> int:
        """Number of tokens that a document adds to a listing, in this place of it; in texts that
        are encoded as a whole, give or take what its ends share with their neighbours."""
        return self._encoder.listed(document, limit, number)

    def as_shown(self, document: Document, limit: int) -> Document:
        """A document without what is cut off when it is shown."""
        cut = self._encoder.cut
        return replace(document, title=cut(document.title, limit), text=cut(document.text, limit))
