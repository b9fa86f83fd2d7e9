"""A mixin for tokenizers."""

from __future__ import annotations

from ssp_env.errors import TokenizerError
from ssp_env.game.config import GameConfig
from ssp_env.game.protocol import Tags, check_tokenizer
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.testing.material import AWKWARD, SCRIPTS, missing, same_twice, shown
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Role


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
        assert all(isinstance(piece, bytes) for piece in tokenizer.pieces), "pieces are bytes"

        for name, token in (("pad_id", tokenizer.pad_id), ("eos_id", tokenizer.eos_id)):
            if token is None and name == "eos_id":
                continue
            assert isinstance(token, int), f"{name} is a number, not {token!r}"
            assert 0 <= token < size, f"{name} = {token} is outside the ids 0 .. {size - 1}"
            assert tokenizer.pieces[token] == b"", f"{name} stands for no text: its piece is b''"

    def test_tags_are_spelled(self) -> None:
        try:
            check_tokenizer(self.make_tokenizer(), self.tags)
        except TokenizerError as error:
            raise AssertionError(str(error)) from error

    def test_any_text_becomes_ids_and_nothing_is_added(self) -> None:
        tokenizer = self.make_tokenizer()
        for encode in (tokenizer.encode, tokenizer.encode_data):
            assert encode("") == [], "'' has no ids: prompts are put together from parts"
            for text in (*AWKWARD, *SCRIPTS, "\ud800 half a pair"):
                ids = encode(text)
                assert isinstance(ids, list), f"ids come as a list, not as {shown(ids)}"
                wrong = [i for i in ids if type(i) is not int or not 0 <= i < tokenizer.vocab_size]
                assert not wrong, f"{shown(text)} became {wrong[0]!r}, which is not an id"

        same_twice("encode_data", lambda: [tokenizer.encode_data(text) for text in SCRIPTS])

    def test_pieces_spell_what_decode_says(self) -> None:
        tokenizer = self.make_tokenizer()
        for text in (*SCRIPTS, "what is it , and who ?", *self.tags.all()):
            ids = tokenizer.encode(text)
            spelled = b"".join(tokenizer.pieces[i] for i in ids).decode("utf-8", "replace")

            said = tokenizer.decode(ids)
            assert "".join(spelled.split()) == "".join(said.split()), (
                f"pieces and decode() disagree about {text!r}: {spelled!r} and {said!r}; tags are "
                f"looked for in the pieces, so give each id the very bytes that it adds to a text"
            )

    def test_data_never_becomes_a_special_token(self) -> None:
        tokenizer = self.make_tokenizer()
        special = {tokenizer.pad_id, tokenizer.eos_id} - {None}
        texts = {tokenizer.decode([i]): i for i in special if i is not None}
        for tag in self.tags.all():
            ids = tokenizer.encode(tag)
            if len(ids) == 1:
                texts[tag] = ids[0]

        for text, token in texts.items():
            assert token not in tokenizer.encode_data(f"a {text}{text} b"), (
                f"encode_data takes the text {text!r} for the token {token}: spell it out as plain "
                f"text, or put an unknown token there"
            )

    def test_a_turn_is_read(self) -> None:
        """A search call is found, whether its tokens come together or one by one."""
        tokenizer = self.make_tokenizer()
        limits = Limits.of(Role.SOLVER, GameConfig(), tokenizer, self.tags)

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
            assert Trajectory(limits, []).feed([tokenizer.eos_id]), "the end token ended no turn"
