"""Mixins for tokenizers and prompt sets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ssp_env.errors import TokenizerError
from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import Tags, check_tokenizer
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.testing.material import AWKWARD, SCRIPTS, missing, same_twice, shown
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, Role

_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9_-]*)>")
_BRACES = re.compile(r"\{\s*[A-Za-z_]+\s*\}")


class TokenizerTests:
    """Tests a :class:`~ssp_env.tokenizers.base.Tokenizer`."""

    tags = Tags()
    """The tags that it has to spell."""

    def make_tokenizer(self) -> Tokenizer:
        """The tokenizer to be tested."""
        missing("make_tokenizer(self)")

    def test_ids_and_pieces(self) -> None:
        tokenizer = self.make_tokenizer()
        size = tokenizer.vocab_size
        assert len(tokenizer.pieces) == size, (
            f"one piece per id: {len(tokenizer.pieces)} pieces for vocab_size = {size}"
        )

        wrong = [i for i, piece in enumerate(tokenizer.pieces) if not isinstance(piece, bytes)]
        assert not wrong, (
            f"pieces are bytes, but piece {wrong[0]} is {tokenizer.pieces[wrong[0]]!r}: encode it"
        )

        for name, token in (("pad_id", tokenizer.pad_id), ("eos_id", tokenizer.eos_id)):
            if token is None and name == "eos_id":
                continue
            assert isinstance(token, int), (
                f"{name} is a number, not {token!r}; without a pad token, take the end token"
            )
            assert 0 <= token < size, f"{name} = {token} is outside the ids 0 .. {size - 1}"
            assert tokenizer.pieces[token] == b"", (
                f"{name} stands for no text, but its piece is {tokenizer.pieces[token]!r}: make "
                f"it b''"
            )

    def test_tags_are_spelled(self) -> None:
        try:
            check_tokenizer(self.make_tokenizer(), self.tags)
        except TokenizerError as error:
            raise AssertionError(str(error)) from error

    def test_encoding_adds_nothing(self) -> None:
        tokenizer = self.make_tokenizer()
        for name in ("encode", "encode_data"):
            ids = getattr(tokenizer, name)("")
            assert ids == [], (
                f"{name}('') is [], not {ids}: prompts are put together from parts, so add no "
                f"special token"
            )

    def test_any_text_becomes_ids(self) -> None:
        tokenizer = self.make_tokenizer()
        for text in (*AWKWARD, *SCRIPTS, "\ud800 half a pair"):
            for name in ("encode", "encode_data"):
                ids = getattr(tokenizer, name)(text)
                assert isinstance(ids, list), (
                    f"{name} returns a list of ids, not {type(ids).__name__}"
                )
                wrong = [i for i in ids if type(i) is not int or not 0 <= i < tokenizer.vocab_size]
                assert not wrong, (
                    f"{name}({shown(text)}) gave {wrong[0]!r}, which is not an id of the vocabulary"
                )

    def test_same_text_same_ids(self) -> None:
        tokenizer = self.make_tokenizer()
        same_twice("encode_data", lambda: [tokenizer.encode_data(text) for text in SCRIPTS])

    def test_pieces_spell_what_decode_says(self) -> None:
        tokenizer = self.make_tokenizer()
        for text in (*SCRIPTS, "what is it , and who ?", *self.tags.all()):
            ids = tokenizer.encode(text)
            spelled = b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace")

            said = tokenizer.decode(ids)
            assert "".join(spelled.split()) == "".join(said.split()), (
                f"pieces and decode() disagree about {text!r}: {spelled!r} and {said!r}; tags "
                f"are looked for in the "
                "pieces, so give each id the very bytes that it adds to a text"
            )

    def test_data_never_becomes_a_special_token(self) -> None:
        tokenizer = self.make_tokenizer()
        ends = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        for special in {tokenizer.pad_id, *ends}:
            text = tokenizer.decode([special])
            assert special not in tokenizer.encode_data(f"a {text}{text} b"), (
                f"encode_data takes the text {text!r} for the special token {special}: spell it "
                f"out as plain text"
            )

        for tag in self.tags.all():
            ids = tokenizer.encode(tag)
            assert len(ids) > 1 or ids[0] not in tokenizer.encode_data(f"a {tag}{tag} b"), (
                f"encode_data takes the text {tag!r} for the tag's token: spell it out, or put "
                f"an unknown token there"
            )

    def test_a_turn_is_read(self) -> None:
        """A search call is found, whether its tokens come together or one by one."""
        tokenizer = self.make_tokenizer()
        limits = Limits.of(Role.SOLVER, GameConfig(tags=self.tags), tokenizer)

        ids = tokenizer.encode(f"{self.tags.opening('search')} what {self.tags.closing('search')}")
        together, one_by_one = Trajectory(limits, []), Trajectory(limits, [])

        together.feed(ids)
        for token in ids:
            one_by_one.feed([token])

        for trajectory in (together, one_by_one):
            assert trajectory.waiting is Waiting.SEARCH, (
                f"a search call was not found in the ids {ids}: their pieces have to spell its tags"
            )

        if tokenizer.eos_id is not None:
            assert Trajectory(limits, []).feed([tokenizer.eos_id]), (
                "the end token did not end a turn"
            )


class PromptsTests:
    """Tests a directory of prompts together with the tags that it speaks of."""

    def make_game(self) -> GameConfig:
        """A config with your ``prompts`` and ``tags``."""
        missing("make_game(self)")

    def make_tokenizer(self) -> Tokenizer:
        """What they are encoded with; bytes, unless your set needs another one."""
        return ByteTokenizer()

    def test_no_placeholder_is_left(self) -> None:
        for name, text in self._filled("what", Document("d", "what", "what")).items():
            left = _BRACES.findall(text)
            assert not left, (
                f"{name}.txt shows {left[0]} as it is: write placeholders in small letters, "
                f"without spaces"
            )

    def test_outside_text_opens_and_closes_nothing(self) -> None:
        tags = self.make_game().tags
        attack = " ".join(tags.all())
        harmless = self._filled("what", Document("d", "what", "what"))
        attacked = self._filled(attack, Document("d", attack, attack))
        for name, text in attacked.items():
            for tag in tags.all():
                assert text.count(tag) == harmless[name].count(tag), (
                    f"{name}.txt lets outside text spell {tag}: use the placeholders, which "
                    f"defuse it"
                )

    def test_every_tag_is_known(self) -> None:
        known = set(self.make_game().tags.names)
        for name, text in self._filled("what", Document("d", "what", "what")).items():
            unknown = sorted(set(_TAG.findall(text)) - known)
            assert not unknown, (
                f"{name}.txt speaks of <{'>, <'.join(unknown)}>, which outside text could spell "
                f"as well: name it in "
                "GameConfig.tags, under 'also' if it is decoration"
            )

    def test_finding_nothing_says_so(self) -> None:
        prompts, tokenizer = self._prompts()
        tags = self.make_game().tags
        text = _spell(tokenizer, prompts.information([], 99))

        for tag in (tags.opening("information"), tags.closing("information")):
            text = text.replace(tag, "")

        assert text.strip(), (
            "nothing.txt is empty: a search that finds nothing has to show something"
        )

    def test_they_leave_room(self) -> None:
        game, (prompts, _) = self.make_game(), self._prompts()
        for name, ids in (
            ("proposer", prompts.proposer("what", 1)),
            ("solver", prompts.solver("what is it ?", 1)),
        ):
            assert len(ids) < game.max_prompt_tokens, (
                f"{name}.txt takes {len(ids)} tokens even with a short value, which is not below "
                f"max_prompt_tokens = "
                f"{game.max_prompt_tokens}: shorten it or raise the limit"
            )

    def _prompts(self) -> tuple[Prompts, Tokenizer]:
        game, tokenizer = self.make_game(), self.make_tokenizer()
        return Prompts(game.prompts, tokenizer, game.tags), tokenizer

    def _filled(self, asked: str, page: Document) -> dict[str, str]:
        """Every prompt with these values, as the parser would read it."""
        prompts, tokenizer = self._prompts()
        ids = {
            "proposer": prompts.proposer(asked, 1),
            "solver": prompts.solver(asked, 1),
            "verifier": prompts.verifier(asked, [page], 999),
            "information": prompts.information([page], 999),
        }

        if self.make_game().closed_book:
            ids["closed_book"] = prompts.closed_book(asked)
        return {name: _spell(tokenizer, tokens) for name, tokens in ids.items()}


def _spell(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace")
