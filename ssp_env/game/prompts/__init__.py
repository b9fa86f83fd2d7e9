"""Prompts: text files with placeholders, turned into token ids.

``docs/bring_your_own.md`` lists the files of a set.

These sets ship: ``plain`` (for instruction-following models), ``paper`` (all that the paper's
prompts ask for, in words of our own), ``compact`` (a sentence or two, for small models that are
trained to play; see ``ssp imitate``), ``examples`` (the same behind worked examples, as turns of
the chat), ``tools`` and ``llama`` (for models that write tool calls as Qwen's and Llama 3's do),
``mini`` (for the words of the mini-wiki), and those of other projects' checkpoints.

The format of other projects' sets (tags, what surrounds documents, system messages) is read from
their released code. The sentences are ours; a checkpoint was trained on other ones."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.protocol import Tags
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document, Role

FORMATS: Mapping[str, dict[str, int]] = {
    # github.com/PeterGriffinJin/Search-R1: search_r1/llm_agent/generation.py, scripts/data_process
    "search-r1": {"top_k": 3, "max_searches": 4},
    # github.com/Alibaba-NLP/ZeroSearch: llm_agent/generation.py
    "zerosearch": {"top_k": 5, "max_searches": 5},
    # github.com/QingFei1/R-Search: src/eval/main.py (which sets no limit of searches) and
    # src/train/generation.py
    "r-search": {"top_k": 5, "max_searches": 10},
}
"""Settings of the game that other projects' checkpoints expect, by the name of the prompt set."""

SHIPPED = ("compact", "examples", "llama", "mini", "paper", "plain", "tools", *FORMATS)

_FIELDS: Mapping[str, tuple[set[str], set[str]]] = {
    "proposer": ({"answer"}, {"searches"}),
    "solver": ({"question"}, {"searches"}),
    "verifier": ({"question", "documents"}, set()),
    "closed_book": ({"question"}, set()),
    "information": ({"documents"}, set()),
    "document": ({"text"}, {"number", "title"}),
    "nothing": (set(), set()),
}
"""Placeholders of each prompt: those that it needs, and those that it may have."""
_BESIDE = ("judge", "verify", "solve")
"""Prompts of a set for models behind an API, which :func:`prompt_file` gives."""
_OPENING = "_opening"
"""Behind a role's name, among the texts of a set: what stands before several messages."""
_AUTHOR = re.compile(r"^\[(system|user|assistant)\]\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_OPEN_BRACKET = re.compile(r"<\s*/?\s*\Z")

_REMEMBERED = 20_000
"""Texts of a kind whose ids are kept."""


def format_settings(prompts: str) -> dict[str, Any]:
    """The settings of a game that a prompt set asks for, as plain data."""
    return {"prompts": prompts, **FORMATS.get(prompts.partition(":")[0], {})}


def prompt_file(source: str, name: str) -> Traversable | None:
    """A file of the set that ``game.prompts`` names, such as ``judge.txt``, if there is one."""
    shipped, _, words = source.partition(":")
    folders: list[Traversable] = [Path(source)]
    if shipped in SHIPPED:
        # Other projects have no proposer and no verifier: ``plain`` completes their sets.
        ours = resources.files("ssp_env.game.prompts")
        folders = [ours / shipped, ours / "plain"]
        if words and name == "solver.txt":
            return Path(words)
    elif not folders[0].is_dir():
        fix = f"name a directory, or a shipped set; {nearest(shipped, SHIPPED)}"
        raise ConfigError("game.prompts", source, fix)

    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def tags_of(source: str) -> Tags:
    """Names of the tags of the prompt set that ``game.prompts`` names."""
    return read_tags(_read(source, "tags.json"))


def read_tags(declared: str | None) -> Tags:
    """Names of tags from the text of a ``tags.json``; the default ones if there is none."""
    try:
        return Tags(**json.loads(declared or "{}"))
    except (json.JSONDecodeError, TypeError) as error:
        fix = 'give a mapping from tag to name, such as {"information": "observation"}'
        raise ConfigError("tags.json", declared, f"{fix} ({error})") from error


def _read(source: str, name: str) -> str | None:
    file = prompt_file(source, name)
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = f"{file.name} has to be a readable UTF-8 file ({error})"
        raise ConfigError("game.prompts", source, fix) from error


class Template:
    """Literal text and placeholders."""

    def __init__(
        self, name: str, text: str, tokenizer: Tokenizer, frame: tuple[str, str] = ("", "")
    ) -> None:
        """The final line break of a text file is ignored; other white space is not. ``frame`` is
        what a chat template puts around a message."""
        parts = _PLACEHOLDER.split(text.removesuffix("\n"))
        literals, self.fields = parts[0::2], parts[1::2]

        needed, optional = _FIELDS[name]
        for field in sorted(needed - set(self.fields)):
            fix = f"put the placeholder {{{field}}} into it"
            raise ConfigError(f"game.prompts.{name}", text.strip()[:60], fix)
        for field in sorted(set(self.fields) - needed - optional):
            fix = nearest(field, needed | optional)
            raise ConfigError(f"game.prompts.{name}", f"{{{field}}}", fix)
        # With the value behind it, such a bracket could become a tag.
        if any(_OPEN_BRACKET.search(literal) for literal in literals[:-1]):
            fix = "put no bracket right before a placeholder: the two could spell a tag"
            raise ConfigError(f"game.prompts.{name}", text.strip()[:60], fix)

        # The chat template surrounds the whole message, so it joins the outermost literals.
        literals[0] = frame[0] + literals[0]
        literals[-1] += frame[1]
        self.literal_ids = [tokenizer.encode(literal) for literal in literals]

    def encode(self, values: Mapping[str, Sequence[int]]) -> list[int]:
        """Ids of the literals (tags are tags) with the already encoded values between them."""
        ids = list(self.literal_ids[0])
        for field, literal in zip(self.fields, self.literal_ids[1:], strict=True):
            ids.extend(values[field])
            ids.extend(literal)
        return ids


class Prompts:
    """A prompt set, bound to a tokenizer. Make one with :meth:`open`."""

    def __init__(
        self, texts: Mapping[str, str], frame: tuple[str, str], tokenizer: Tokenizer
    ) -> None:
        """``frame``: texts that the chat template puts before and after a role's message."""
        self.texts, self.frame = texts, frame
        self.tags = read_tags(texts.get("tags"))
        """Names of the tags, which look-alikes in outside text are defused against."""

        frames = {str(r): (texts.get(f"{r}{_OPENING}", frame[0]), frame[1]) for r in Role}
        self._templates = {
            name: Template(name, texts[name], tokenizer, frames.get(name, ("", "")))
            for name in _FIELDS
            if name in texts
        }

        self._tokenizer = tokenizer
        self._unknown_id: int | None = getattr(tokenizer, "unknown_id", None)
        self._newline = tokenizer.encode("\n")
        self._numbered = "number" in self._templates["document"].fields
        # The same documents come back throughout a run; a question is read by its verification and
        # by each attempt at it.
        self._document = lru_cache(_REMEMBERED)(self._encode_document)
        self._asked = lru_cache(_REMEMBERED)(self._data)
        self._cut = lru_cache(_REMEMBERED)(self._first_tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.texts, self.frame, self._tokenizer)

    @classmethod
    def open(cls, source: str, tokenizer: Tokenizer) -> Prompts:
        """Reads a shipped set, ``NAME:FILE``, or a directory; a chat template frames the role
        prompts.

        ``TokenizerError`` if the set has messages that the chat template does not take."""
        texts = {
            name: text for name in _FIELDS if (text := _read(source, f"{name}.txt")) is not None
        }
        if (declared := _read(source, "tags.json")) is not None:
            texts["tags"] = declared
        if source.partition(":")[0] not in SHIPPED:
            known = {*_FIELDS, *_BESIDE}
            for stem in sorted({file.stem for file in Path(source).glob("*.txt")} - known):
                fix = f"{stem}.txt is none of a set's prompts; {nearest(stem, known)}"
                raise ConfigError("game.prompts", source, fix)
        tags = read_tags(declared)
        around = tags.opening("information"), tags.closing("information")
        texts.setdefault("information", "{documents}".join(around))
        for name in _FIELDS.keys() - texts.keys() - {"closed_book", "verifier"}:
            raise ConfigError("game.prompts", source, f"{name}.txt is missing from it")

        chat_frame: Callable[..., tuple[str, ...]] = getattr(tokenizer, "chat_frame", _no_frame)
        for role in texts.keys() & {*Role}:
            first, *more = _AUTHOR.split(texts[role])
            authors, messages = ["user", *more[0::2]], [first, *more[1::2]]
            if not first:
                authors, messages = authors[1:], messages[1:]
            if len(messages) > 1:
                opening, *between, _ = chat_frame(authors)
                lines = (message.removesuffix("\n") for message in messages)
                texts[role] = "".join(itertools.chain(*zip(lines, [*between, ""], strict=True)))
                texts[f"{role}{_OPENING}"] = opening
        before, after = chat_frame()
        return cls(texts, (before, after), tokenizer)

    def unspelled(self) -> str | None:
        """The first prompt whose own text the tokenizer cannot spell, if any."""
        for name, template in self._templates.items():
            if any(self._unknown_id in ids for ids in template.literal_ids):
                return name
        return None

    def can_spell(self, text: str) -> bool:
        """True if this text is encoded without the tokenizer's ``unknown_id``, if it has one."""
        return self._unknown_id is None or self._unknown_id not in self._data(text)

    def proposer(self, answer: str, searches: int) -> list[int]:
        return self._fill("proposer", answer=answer, searches=str(searches))

    def solver(self, question: str, searches: int) -> list[int]:
        return self._fill("solver", question=question, searches=str(searches))

    def search(self, query: str, most: int) -> list[int]:
        """A turn that searches for a text's first tokens, as a policy could have written it."""
        encode, tags = self._tokenizer.encode, self.tags
        opening, closing = f"{tags.opening('search')} ", f" {tags.closing('search')}"
        return [*encode(opening), *self._asked(query)[:most], *encode(closing)]

    def verifier(self, question: str, documents: Sequence[Document], limit: int) -> list[int]:
        """Prompt of RAG verification in a form of its own: the question and the documents."""
        values = {"question": self._asked(question), "documents": self._list(documents, limit)}
        return self._templates["verifier"].encode(values)

    def closed_book(self, question: str) -> list[int]:
        return self._fill("closed_book", question=question)

    def information(self, documents: Sequence[Document], limit: int) -> list[int]:
        """The observation that follows a search: ``limit`` tokens of each document at most."""
        return self._templates["information"].encode({"documents": self._list(documents, limit)})

    def listed(self, document: Document, limit: int, number: int = 1) -> int:
        """Number of tokens that a document adds to a listing, in this place of it."""
        place = number if self._numbered else 0
        ids = self._document(document.title, document.text, limit, place)
        return len(ids) + len(self._newline)

    def as_shown(self, document: Document, limit: int) -> Document:
        """A document without what is cut off when it is shown."""
        title, text = self._cut(document.title, limit), self._cut(document.text, limit)
        return replace(document, title=title, text=text)

    def _first_tokens(self, text: str, limit: int) -> str:
        ids = self._tokenizer.encode_data(text)
        return text if len(ids) <= limit else self._tokenizer.decode(ids[:limit])

    def _list(self, documents: Sequence[Document], limit: int) -> list[int]:
        if not documents:
            return self._templates["nothing"].encode({})

        ids: list[int] = []
        for number, document in enumerate(documents, 1):
            ids.extend(self._newline if ids else [])
            place = number if self._numbered else 0
            ids.extend(self._document(document.title, document.text, limit, place))
        return ids

    def _encode_document(self, title: str, text: str, limit: int, number: int) -> list[int]:
        encode, defuse = self._tokenizer.encode_data, self.tags.defuse
        values = {"title": encode(defuse(title))[:limit], "text": encode(defuse(text))[:limit]}
        if self._numbered:
            values["number"] = self._tokenizer.encode(str(number))
        return self._templates["document"].encode(values)

    def _fill(self, name: str, **values: str) -> list[int]:
        asked = {field: self._asked(text) for field, text in values.items()}
        return self._templates[name].encode(asked)

    def _data(self, text: str) -> list[int]:
        return self._tokenizer.encode_data(self.tags.defuse(text))


def _no_frame(roles: Sequence[str] = ("user",)) -> tuple[str, ...]:
    """Without a chat template, each message is a line of its own."""
    return ("", *["\n"] * (len(roles) - 1), "")
