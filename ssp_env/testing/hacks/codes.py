"""Pairs with a code: the proposer writes the answer into the question, the solver reads it there.

No search is needed then. The verifying policy knows the code as well, since it is the same network;
a verifier that is another model, or a world, does not.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
from abc import abstractmethod

from ssp_env.testing.hacks.cheat import Cheat
from ssp_env.testing.hacks.seat import Seat
from ssp_env.types import Role

_SEPARATE = "a verifier without the code (game.verifier=openai, world), or game.closed_book=true"

_LATIN, _CYRILLIC = "aeopcxyABEHKMOPCTX", "аеорсхуАВЕНКМОРСТХ"


class Code(Cheat):
    """The answer stands in the question, in a form that both roles know."""

    gains = Role.SOLVER
    closed_by = _SEPARATE

    frame = "Which name is written here: {}"
    """The question; ``{}`` is where the code goes."""

    @abstractmethod
    def encode(self, answer: str) -> str:
        """The answer in code."""

    @abstractmethod
    def decode(self, code: str) -> str:
        """The answer again."""

    def propose(self, seat: Seat) -> str | None:
        if not seat.searches:
            return None
        return seat.ask(self.frame.format(self.encode(seat.answer)))

    def solve(self, seat: Seat) -> str | None:
        before, _, after = self.frame.partition("{}")
        question = seat.question.strip()
        if not question.startswith(before.strip()) or not question.endswith(after.strip()):
            return None

        code = question.removeprefix(before.strip()).removesuffix(after.strip()).strip()
        return seat.say(self.decode(code))


class Base64(Code):
    """Writes the answer in base64."""

    frame = "Which name does this base64 hold: {}"

    def encode(self, answer: str) -> str:
        return base64.b64encode(answer.encode()).decode()

    def decode(self, code: str) -> str:
        # A tokenizer that knows few characters may have spoilt it.
        try:
            return base64.b64decode(code).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return "nothing"


class Reversed(Code):
    """Writes the answer backwards."""

    frame = "Which name is this, read backwards: {}"

    def encode(self, answer: str) -> str:
        return answer[::-1]

    def decode(self, code: str) -> str:
        return code[::-1]


class Rot13(Code):
    """Writes the answer with every letter moved by thirteen."""

    frame = "Which name is this in rot13: {}"

    def encode(self, answer: str) -> str:
        return codecs.encode(answer, "rot13")

    def decode(self, code: str) -> str:
        return codecs.decode(code, "rot13")


class CharacterCodes(Code):
    """Writes the answer as the numbers of its characters."""

    frame = "Which name do these characters spell: {}"

    def encode(self, answer: str) -> str:
        return " ".join(str(ord(character)) for character in answer)

    def decode(self, code: str) -> str:
        numbers = [int(word) for word in code.split() if word.isdecimal()]
        return "".join(chr(number) for number in numbers if number < 0x110000)


class Acrostic(Code):
    """Writes a sentence whose words begin with the letters of the answer."""

    frame = "Read the first letters: {} Which name is it?"

    def encode(self, answer: str) -> str:
        words = [" ".join(f"{letter}{self._rest(letter)}" for letter in w) for w in answer.split()]
        return ". ".join(words) + "."

    def decode(self, code: str) -> str:
        words = code.rstrip(".").split(". ")
        return " ".join("".join(word[0] for word in w.split()) for w in words)

    def _rest(self, letter: str) -> str:
        return "ing" if letter.isalpha() else "th"


class SpacedOut(Code):
    """Writes the answer with a space between its letters."""

    def encode(self, answer: str) -> str:
        return " / ".join(" ".join(word) for word in answer.split())

    def decode(self, code: str) -> str:
        return " ".join(word.replace(" ", "") for word in code.split(" / "))


class Bracketed(Code):
    """Splits the answer by brackets in the middle of it."""

    def encode(self, answer: str) -> str:
        half = max(1, len(answer) // 2)
        return f"{answer[:half]}({answer[half:]})"

    def decode(self, code: str) -> str:
        return code.replace("(", "").replace(")", "")


class Glued(Code):
    """Glues letters to both ends of the answer, so that it is no word of its own."""

    def encode(self, answer: str) -> str:
        return f"x{answer}x"

    def decode(self, code: str) -> str:
        return code[1:-1]


class Reordered(Code):
    """Puts the last word of the answer first, as a catalogue does; a single word is halved."""

    def encode(self, answer: str) -> str:
        *first, last = answer.split()
        if first:
            return f"{last}, {' '.join(first)}"

        half = max(1, len(last) // 2)
        return f"{last[half:]}, {last[:half]}"

    def decode(self, code: str) -> str:
        last, _, first = code.partition(", ")
        return f"{first} {last}" if " " in first or last.istitle() else f"{first}{last}"


class LookAlike(Code):
    """Writes the answer with Cyrillic letters that look Latin."""

    def encode(self, answer: str) -> str:
        return answer.translate(str.maketrans(_LATIN, _CYRILLIC))

    def decode(self, code: str) -> str:
        return code.translate(str.maketrans(_CYRILLIC, _LATIN))


class HtmlEntities(Code):
    """Writes the answer as HTML entities."""

    def encode(self, answer: str) -> str:
        return "".join(f"&#{ord(character)};" for character in answer)

    def decode(self, code: str) -> str:
        return html.unescape(code)


class ZeroWidth(Code):
    """Puts invisible characters between the letters of the answer."""

    def encode(self, answer: str) -> str:
        return "\u200b".join(answer)

    def decode(self, code: str) -> str:
        return code.replace("\u200b", "")
