"""Any tokenizer of the `transformers` library."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from ssp_env.errors import MissingExtra, ModelError, TokenizerError
from ssp_env.tokenizers.base import byte_level_alphabet, encodable
from ssp_env.tokenizers.joining import Joiner, Joining, for_data

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
"""A byte in a vocabulary with byte fallback."""
_DATE = date(2024, 7, 26)
"""Today, to chat templates that ask: the day that Llama 3's fall back on. The real one would give
another prompt every day."""
_WAITS = ("<|eom_id|>", "<|call|>")
"""Tokens that end a message which calls a function, where a chat template names them."""
_PLAIN = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names of the class that takes a tokenizer.json as it is."""
_FILES = ("tokenizer*.json", "chat_template*", "generation_config.json")
_NUMBERED = re.compile(r"SSP0(\d+)TEXT")
_FIX = "take another prompt set, or a tokenizer_config.json with another template"
_CALL_ID = "search001"
"""Id of a call in chat templates that want one, of nine characters as Mistral's do."""
_MARKUP = re.compile(r"<.+>")
"""Added tokens that mean something to a model even if nobody declared them special, such as
``<tool_call>``."""


class HuggingFaceTokenizer(Joining):
    """Wraps a fast tokenizer of `transformers`.

    The bytes of a token are read off what the tokenizer itself decodes, so byte-level, metaspace
    and word-level vocabularies all work."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            what = f"{type(tokenizer).__name__} is a slow tokenizer"
            raise TokenizerError(f"{what}; convert it to a tokenizer.json")
        self.inner = tokenizer
        # Not len(tokenizer): ids may have gaps.
        self.vocab_size = max(tokenizer.get_vocab().values()) + 1
        self.unknown_id: int | None = tokenizer.unk_token_id

        end: int | None = tokenizer.eos_token_id
        behind = [*self._ends_of_messages()]
        self.end_ids: frozenset[int] = frozenset(
            [*behind, *self._configured_ends(), *([] if end is None else [end])]
        )
        """What ends a turn: the tokenizer's own end token, those of ``generation_config.json``
        beside it, and what the chat template puts behind an assistant's message."""
        if not self.end_ids:
            fix = "set eos_token in its tokenizer_config.json"
            raise TokenizerError(f"no token of this tokenizer ends a turn; {fix}")
        self.eos_id: int | None = end if end is not None else [*behind, *sorted(self.end_ids)][0]
        pad: int | None = tokenizer.pad_token_id
        self.pad_id = self.eos_id if pad is None else pad

        # Prompts are encoded by the tokenizer itself, outside text by a copy that knows no markup.
        backend, added = tokenizer.backend_tokenizer, tokenizer.added_tokens_decoder
        self._added = {i: token.content for i, token in added.items()}
        reserved = {i for i, t in added.items() if t.special or _MARKUP.fullmatch(t.content)}
        # Outside text may hold what is unknown, but never what ends a turn or pads.
        reserved = (reserved - {self.unknown_id} | {self.eos_id, self.pad_id}) - {None}
        data = for_data(backend, lambda text: _MARKUP.fullmatch(text) is not None)
        question_mark = data.encode("?", add_special_tokens=False).ids
        stand_in = question_mark if self.unknown_id is None else [self.unknown_id]
        self._joiner = Joiner(self._encoding, backend, data, reserved, self._added, stand_in)
        self.pieces: Sequence[bytes] = self._read_pieces()
        self.chat_frame()  # refuses a template that cannot be used

    @classmethod
    def load(cls, directory: str | Path) -> HuggingFaceTokenizer:
        """Loads the tokenizer of a model directory, offline."""
        files = [f for kind in _FILES for f in Path(directory).glob(kind) if f.is_file()]
        if not any(f.name.startswith("tokenizer") for f in files):
            raise ModelError(f"{directory} holds no tokenizer (tokenizer.json is missing)")
        # When its files were written, so that others are not taken for them.
        return cls._load(Path(directory), max(f.stat().st_mtime_ns for f in files))

    @classmethod
    @lru_cache(maxsize=8)
    def _load(cls, path: Path, written: int) -> HuggingFaceTokenizer:
        """A run loads its tokenizer a dozen times; reading 150,000 tokens off takes seconds."""
        try:
            # Imported here, and after a look at the files: it takes seconds.
            from transformers import AutoTokenizer, PreTrainedTokenizerFast
        except ImportError as error:
            raise MissingExtra("a tokenizer of a model directory", "train") from error

        try:
            # For some families, the automatic class puts its own split in the place of the file's,
            # even where the config names the plain class.
            said = path / "tokenizer_config.json"
            config = json.loads(said.read_text(encoding="utf-8")) if said.is_file() else {}
            plain = (path / "tokenizer.json").is_file() and config.get("tokenizer_class") in _PLAIN
            kind = PreTrainedTokenizerFast if plain else AutoTokenizer
            inner = kind.from_pretrained(path, local_files_only=True)
        except Exception as error:  # the Rust library raises bare ones
            raise ModelError(f"the tokenizer of {path} cannot be loaded: {error}") from error
        return cls(inner)

    def encode(self, text: str) -> list[int]:
        """Ids of text that we wrote; special tokens in it are recognised, none is added."""
        return list(self.inner.encode(encodable(text), add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included; the text that :meth:`encode` was given."""
        return self._decode(ids) if not self._joiner.divides else self._divided(ids, goes_on=False)

    def decode_rest(self, ids: Sequence[int]) -> str:
        """Text of ids that go on a text: a space at their beginning is one of the text's."""
        return self._decode(ids) if not self._joiner.prefixes else self._divided(ids, goes_on=True)

    def _divided(self, ids: Sequence[int], goes_on: bool) -> str:
        """Text of ids, part by part between added tokens: a space that the tokenizer puts behind
        one of them is none of the text's."""
        added = self._added if self._joiner.divides else {}
        texts, start = list[str](), 0
        for place, token in enumerate([*ids, None]):
            if token is None or token in added:
                rest = ids[start:place]
                if start == 0 and goes_on and rest:
                    # Read behind a letter, which is taken off: alone, it would lose a space.
                    anchor = self.inner.backend_tokenizer.encode("a", add_special_tokens=False).ids
                    texts.append(self._decode([*anchor, *rest]).removeprefix(self._decode(anchor)))
                else:
                    texts.append(self._decode(rest) if rest else "")
                texts.append("" if token is None else added[token])
                start = place + 1
        return "".join(texts)

    def _decode(self, ids: Sequence[int]) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self.inner.decode(list(ids), **options))

    def _encoding(self, text: str) -> Any:
        """The Rust library's encoding of a text that we wrote."""
        backend = self.inner.backend_tokenizer
        # Whoever shares the tokenizer may have had it cut and fill up texts.
        backend.no_truncation()
        backend.no_padding()
        return backend.encode(text, add_special_tokens=False)

    @property
    def trims_messages(self) -> bool:
        """True if the chat template leaves out white space around a message."""
        if not self._templated:
            return False
        # White space that a template would hardly write by itself: a vertical tab.
        return "\x0b" not in self._render([{"role": "user", "content": "\x0bSSP\x0b"}])

    @cached_property
    def declares_functions(self) -> bool:
        """True if the chat template has a place for functions (``tools=``), and for what they
        return."""
        roles, function = ("user", "assistant", "tool"), {"name": "ssp_function"}
        declared = {"type": "function", "function": {**function, "parameters": {"type": "object"}}}
        try:
            return self._templated and function["name"] in "".join(
                self.chat_frame(roles, [declared])
            )
        except TokenizerError:
            return False

    def chat_frame(
        self, roles: Sequence[str] = ("user",), functions: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[str, ...]:
        """Texts of the chat template before, between and after messages of these roles, with the
        beginning of the reply at the end.

        ``functions`` are declared to the model as JSON schemas; what one of them returns is a
        message by ``tool``. Without a template, each message is a line of its own, behind the
        begin-of-sequence token if the tokenizer starts texts with one."""
        if not self._templated:
            bos = self.inner.bos_token
            begins = bos is not None and self.inner.encode("a")[:1] == [self.inner.bos_token_id]
            return (bos if begins else "", *["\n"] * (len(roles) - 1), "")

        tools = {"tools": list(functions)} if functions else {}
        # Each message is a mark with its number, to be found again in what the template makes.
        messages = [{"role": r, "content": f"SSP0{i}TEXT"} for i, r in enumerate(roles)]
        try:
            parts = re.split(_NUMBERED, self._render(messages, **tools))
        except TokenizerError:
            # Some templates take what a function returns behind a call alone.
            if "tool" not in roles:
                raise
            parts = self._around_calls(messages, tools)
        # ``parts`` has the template's texts and the numbers of messages by turns.
        for i, role in enumerate(roles):
            if parts[1::2].count(str(i)) != 1:
                raise TokenizerError(f"the chat template leaves out the {role} message; {_FIX}")
        return tuple(parts[0::2])

    def _around_calls(
        self, messages: Sequence[Mapping[str, Any]], tools: Mapping[str, Any]
    ) -> list[str]:
        """As :meth:`chat_frame`, with what calls a function written as the template writes it."""
        copies = [dict(message) for message in messages]
        replies = [i for i, message in enumerate(copies) if message["role"] == "tool"]
        for i in replies:
            called = {"name": "search", "arguments": {"query": copies[i - 1]["content"]}}
            call = {"id": _CALL_ID, "type": "function", "function": called}
            copies[i - 1] |= {"content": "", "tool_calls": [call]}
            copies[i] |= {"name": "search", "tool_call_id": _CALL_ID}

        parts = re.split(_NUMBERED, self._render(copies, **tools))
        # The policy writes all of its call: the frame begins with what ends its message.
        special = [t.content for t in self.inner.added_tokens_decoder.values() if t.special]
        for place in (2 * i for i in replies):
            behind = parts[place] if place < len(parts) else ""
            ends = [behind.find(token) for token in special if token in behind]
            if not ends:
                raise TokenizerError(f"no token in the chat template ends a call; {_FIX}")
            parts[place] = behind[min(ends) :]
        return parts

    @property
    def _templated(self) -> bool:
        return bool(getattr(self.inner, "chat_template", None))

    def _render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The text that the chat template makes of messages, the same on every day.

        By default it ends with the beginning of the reply."""
        # Loaded with `transformers`, of which this tokenizer is one.
        from jinja2 import TemplateError

        # A template may ask for the date by either name.
        day = _DATE.strftime("%d %b %Y")
        options = {"date_string": day, "add_generation_prompt": True, **options}
        template: str = self.inner.get_chat_template(None, options.get("tools"))
        if "strftime_now" in template:
            template = _same_day() + template
        try:
            text = self.inner.apply_chat_template(
                list(messages), chat_template=template, tokenize=False, **options
            )
        except (TemplateError, TypeError) as error:  # templates add up what may not be there
            roles = ", ".join(message["role"] for message in messages)
            what = f"the chat template does not take messages by {roles}"
            raise TokenizerError(f"{what} ({error}); {_FIX}") from error
        return str(text)

    def _ends_of_messages(self) -> Iterator[int]:
        """Ids of what the chat template puts behind an assistant's message."""
        template = getattr(self.inner, "chat_template", None)
        if not template:
            return
        if isinstance(template, dict) and "default" not in template:
            fix = "name one of them default in tokenizer_config.json"
            raise TokenizerError(f"the chat templates are {', '.join(template)}; {fix}")

        mark = "SSP0TEXT"
        messages = [{"role": "user", "content": "SSP"}, {"role": "assistant", "content": mark}]
        added = self.inner.added_tokens_decoder.items()
        marks = {t.content: i for i, t in added if t.special or _MARKUP.fullmatch(t.content)}
        try:
            _, before, behind = self._render(messages, add_generation_prompt=False).rpartition(mark)
        except TokenizerError:
            before = ""  # a prompt set that needs such messages is refused
        # The longest, since one token may begin as another one does.
        ends = [t for t in marks if before and behind.lstrip().startswith(t)]
        yield from (marks[t] for t in sorted(ends, key=len)[-1:])
        named = template.values() if isinstance(template, dict) else [template]
        yield from (marks[t] for t in _WAITS if t in marks and any(t in one for one in named))

    def _configured_ends(self) -> list[int]:
        """The end tokens that ``generation_config.json`` names, in the tokenizer's directory."""
        file = Path(self.inner.name_or_path or "", "generation_config.json")
        if not self.inner.name_or_path or not file.is_file():
            return []
        try:
            said = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(f"{file} cannot be read: {error}") from error
        ids = said if isinstance(said, list) else [said]
        if not all(token is None or type(token) is int for token in ids):
            raise ModelError(
                f"{file}: eos_token_id is {said!r}; give a token id, or a list of them"
            )
        # A model may have more logits than the tokenizer has tokens; those are never sampled.
        return [token for token in ids if token is not None and 0 <= token < self.vocab_size]

    def _read_pieces(self) -> tuple[bytes, ...]:
        backend = self.inner.backend_tokenizer

        byte_level = type(backend.decoder).__name__ == "ByteLevel"
        byte_fallback = getattr(backend.model, "byte_fallback", False)
        decoder = byte_level_alphabet()

        silent = {self.eos_id, self.pad_id}
        tokens = self.inner.convert_ids_to_tokens(list(range(self.vocab_size)))

        # A token is read off behind another one, since decoders treat the beginning of a text
        # differently.
        anchor_ids = backend.encode("a", add_special_tokens=False).ids or [len(tokens) - 1]
        anchor = backend.decode(anchor_ids, skip_special_tokens=False)

        pieces: dict[int, bytes] = {}
        for i, token in enumerate(tokens):
            if token is None or i in silent:
                pieces[i] = b""
            elif byte_level and all(char in decoder for char in token):
                pieces[i] = bytes(decoder[char] for char in token)
            elif byte_level and i in self._added:
                pieces[i] = token.encode()
            elif byte_fallback and (byte := _BYTE.fullmatch(token)):
                pieces[i] = bytes.fromhex(byte[1])

        # All others at once: a decoder may rewrite added tokens too, such as Gemma's runs of ``▁``.
        others = [i for i in range(self.vocab_size) if i not in pieces]
        texts = backend.decode_batch([[*anchor_ids, i] for i in others], skip_special_tokens=False)
        for i, text in zip(others, texts, strict=True):
            said, spelled = text.removeprefix(anchor), self._added.get(i)
            # What it puts around an added token is none of the token's.
            same_text = (
                spelled is not None and i != self.unknown_id and said.strip() == spelled.strip()
            )
            pieces[i] = (spelled if same_text and spelled is not None else said).encode()
        return tuple(pieces[i] for i in range(self.vocab_size))


@cache
def _same_day() -> str:
    """A macro that stands before a chat template in the place of the function of its name.

    A function of ours would not do: `transformers` hands templates nothing but plain values."""
    spelled = {f"%{letter}": _DATE.strftime(f"%{letter}") for letter in string.ascii_letters}
    # Such as %-d, without a zero before it.
    spelled |= {f"%-{key[1]}": text.lstrip("0") for key, text in spelled.items()}
    steps = "".join(f" | replace({k!r}, {text!r})" for k, text in spelled.items() if k != text)
    # Its line break belongs to the block before it, and is left out.
    return f"{{%- macro strftime_now(format) -%}}{{{{ format{steps} }}}}{{%- endmacro %}}\n"
