"""Texts of several parts, encoded as one by a fast tokenizer (the Rust library's).

Models have read texts as their tokenizer gives them: in pieces, ``": "`` and ``"Which"`` are other
tokens than ``": Which"``. What stands in a part from outside must stay text all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ssp_env.tokenizers.base import encodable

Parts = Sequence[tuple[str, bool]]
"""Texts in order, and for each whether it is ours: tags in it are tags."""

_REMEMBERED = 1_000


class Joiner:
    """Encodes parts as one text, apart from those in which something would become markup."""

    def __init__(
        self,
        whole: Callable[[str], Any],
        backend: Any,
        data: Any,
        reserved: Collection[int],
        added: Collection[int],
        stand_in: Sequence[int],
    ) -> None:
        """
        Args:
            whole: gives the library's ``Encoding`` of a text that we wrote.
            backend: the Rust tokenizer behind it.
            data: a copy that takes markup for plain text.
            reserved: ids that no text from outside may become.
            added: ids of added tokens, at which the tokenizer divides a text before all else.
            stand_in: what takes the place of a reserved id that ``data`` gives all the same.
        """
        self._whole, self._data = whole, data
        self._reserved, self._added, self._stand_in = set(reserved), set(added), list(stand_in)
        self._marks: dict[str, tuple[int, ...]] = {}
        """Markup in texts of ours, which come back again and again."""

        # Some tokenizers put a space before a text (Llama 2's ``▁``); these copies do not.
        self._inside = self._inside_data = None
        if (inner := _without_prefix(backend)) is not None:
            self._inside, self._inside_data = inner, _without_prefix(data)
        self.prefixes = self._inside is not None
        """True if the tokenizer puts a space before a text."""
        self.divides = self.prefixes and self._begins_anew(backend)
        """True if it puts one behind an added token too, as at the beginning."""

    def join(self, parts: Parts, continues: bool) -> list[int]:
        """Ids of the parts as one text; ``continues``: it goes on a text, so that no space is put
        before it."""
        merged: list[tuple[str, bool]] = []
        for text, ours in parts:
            text = encodable(text)
            if merged and ours and merged[-1][1]:
                # Our own texts may make up a tag together; outside texts may not, and stay apart.
                merged[-1] = merged[-1][0] + text, True
            elif text:
                merged.append((text, ours))
        return self._join(merged, continues)

    def data(self, text: str) -> list[int]:
        """Ids of a text from outside by itself: markup in it is spelled out.

        Where a vocabulary has it as ordinary words too (word-level, unigram), an unknown token or a
        question mark takes its place: if it were just left out, what stands around it could close
        up to a tag."""
        return self._harmless(self._data.encode(encodable(text), add_special_tokens=False).ids)

    def first(self, text: str, limit: int) -> str:
        """The beginning of a text from outside that has this many tokens by itself."""
        text = encodable(text)
        encoding = self._data.encode(text, add_special_tokens=False)
        if len(self._harmless(encoding.ids)) <= limit:
            return text
        if limit <= 0:
            return ""

        # Tokens that share a letter begin before the last one ends: it has to go as a whole.
        (_, stop), (following, _) = encoding.offsets[limit - 1], encoding.offsets[limit]
        # By itself, what is left may have other tokens: it is looked at again, each time shorter.
        cut = text[: min(stop, following)] or text[:stop]
        return self.first(cut, limit) if len(cut) < len(text) else text[: max(0, len(text) - 1)]

    # -- one text -----------------------------------------------------------------------------

    def _join(self, parts: list[tuple[str, bool]], continues: bool) -> list[int]:
        text = "".join(text for text, _ in parts)
        encoding = self._whole(text)
        ids: list[int] = encoding.ids
        stake = self._at_stake(parts, text, encoding, ids)
        if not stake:
            return self._continued(text, encoding, ids) if continues else ids

        joined: list[int] = []
        start = 0
        for place in [*sorted(stake), len(parts)]:
            if start < place:
                # Between two of them, what is left is a text again, and is looked at anew.
                joined += self._join(parts[start:place], self._goes_on(joined, continues))
            if place < len(parts):
                joined += self._apart(parts[place][0], self._goes_on(joined, continues))
            start = place + 1
        return joined

    def _at_stake(
        self, parts: list[tuple[str, bool]], text: str, encoding: Any, ids: list[int]
    ) -> set[int]:
        """Places of the parts from outside that have to be encoded apart."""
        outside, end = [], 0
        for place, (part, ours) in enumerate(parts):
            end += len(part)
            if not ours:
                outside.append((place, end - len(part), end))
        if not outside:
            return set()

        read, stake = [], set()
        for k, token in enumerate(ids):
            if token in self._reserved:
                read.append(token)
                # Markup may take the white space around it along.
                start, stop = encoding.token_to_chars(k)
                spelled = text[start:stop]
                start += len(spelled) - len(spelled.lstrip())
                stop = max(start + 1, start + len(spelled.strip()))
                stake |= {place for place, a, b in outside if start < b and a < stop}
        # If nothing from outside is in it, markup is that of our own parts, in their order.
        due = [token for part, ours in parts if ours for token in self._marks_in(part)]
        # A token that has letters of both may have taken the place of one of ours.
        return stake or ({place for place, _, _ in outside} if read != due else stake)

    def _continued(self, text: str, encoding: Any, ids: list[int]) -> list[int]:
        """Ids without the space that the tokenizer has put before a text."""
        if self._inside is None:
            return ids

        # It treats what is before the first added token as a text of its own.
        cut = next((k for k, token in enumerate(ids) if token in self._added), None)
        if cut is None:
            return list(self._inside.encode(text, add_special_tokens=False).ids)
        head = text[: encoding.token_to_chars(cut)[0]]
        return [*self._inside.encode(head, add_special_tokens=False).ids, *ids[cut:]]

    def _apart(self, text: str, continues: bool) -> list[int]:
        if not continues or self._inside_data is None:
            return self.data(text)
        return self._harmless(self._inside_data.encode(text, add_special_tokens=False).ids)

    def _goes_on(self, before: list[int], continues: bool) -> bool:
        """True if what follows these ids gets no space before it."""
        if not before:
            return continues
        return not (self.divides and before[-1] in self._added)

    def _harmless(self, ids: list[int]) -> list[int]:
        if self._reserved.isdisjoint(ids):
            return ids
        return [j for i in ids for j in (self._stand_in if i in self._reserved else (i,))]

    def _marks_in(self, text: str) -> tuple[int, ...]:
        if text not in self._marks:
            if len(self._marks) >= _REMEMBERED:
                self._marks.clear()
            ids = self._whole(text).ids
            self._marks[text] = tuple(token for token in ids if token in self._reserved)
        return self._marks[text]

    def _begins_anew(self, backend: Any) -> bool:
        added = next((backend.id_to_token(i) for i in sorted(self._added & self._reserved)), None)
        if added is None:
            return False
        # Behind an added token, "a" is then what it is at the beginning of a text.
        first, *rest = self._whole(f"{added}a").ids
        return first in self._added and rest == list(self._whole("a").ids)


class Joining:
    """Base of tokenizers that encode by a joiner."""

    _joiner: Joiner

    def encode_data(self, text: str) -> list[int]:
        """Ids of text from outside; special tokens in it are spelled out as plain text."""
        return self._joiner.data(text)

    def encode_parts(self, parts: Parts, continues: bool = False) -> list[int]:
        """Ids of one text; see :func:`ssp_env.tokenizers.base.encode_parts`."""
        return self._joiner.join(parts, continues)

    def first_tokens(self, text: str, limit: int) -> str:
        """The beginning of a text from outside, of this many tokens at most."""
        return self._joiner.first(text, limit)


def for_data(backend: Any, markup: Callable[[str], bool]) -> Any:
    """A copy of a tokenizer that takes special tokens and other markup for plain text."""
    spec = json.loads(backend.to_str())

    # Texts are cut by the game, never by the tokenizer.
    spec["truncation"] = spec["padding"] = None
    for token in spec["added_tokens"]:
        token["special"] = token["special"] or markup(token["content"])

    copy = type(backend).from_str(json.dumps(spec))
    copy.encode_special_tokens = True
    return copy


def _without_prefix(backend: Any) -> Any:
    """A copy of a tokenizer that puts no space before a text; ``None`` if it does not anyway."""
    spec = json.loads(backend.to_str())
    steps = {part: _bare(spec[part]) for part in ("normalizer", "pre_tokenizer")}
    if steps == {part: spec[part] for part in steps}:
        return None
    copy = type(backend).from_str(
        json.dumps({**spec, **steps, "truncation": None, "padding": None})
    )
    copy.encode_special_tokens = backend.encode_special_tokens
    return copy


def _bare(step: Any) -> Any:
    """A normaliser or pre-tokenizer, as plain data, without what it puts before a text."""
    if step is None or step["type"] == "Prepend":
        return None
    for inner in ("normalizers", "pretokenizers"):
        if inner in step:
            kept = (_bare(each) for each in step[inner])
            return {**step, inner: [each for each in kept if each is not None]}
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never"}
    return {**step, "add_prefix_space": False} if step.get("add_prefix_space") else step
