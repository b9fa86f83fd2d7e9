"""Legal moves: the tokens that a well-formed turn can continue with, for small action spaces.

Only the shortest well-formed turns are legal: an opening tag, its content, the closing tag. A world
may say which words can follow one another in the content (its grammar); in other worlds any token
of text can, unless it has an angle bracket, so that no tag is spelled by several tokens. A query's
budget is only kept exactly by tokenizers that spell a text in one way, as words do: others may
encode a query to more tokens than it was written with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import ConfigError
from ssp_env.game.config import UNMASKED
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import MAX_ANSWER_TOKENS, Trajectory
from ssp_env.tokenizers.base import end_ids
from ssp_env.types import Action, Role


@runtime_checkable
class Grammar(Protocol):
    """A world whose queries, questions and answers follow a grammar of words."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All of its words. The grammar holds for tokenizers that have a token for each."""

    def continuations(
        self, action: str, words: Sequence[str], seen: frozenset[str]
    ) -> tuple[frozenset[str], bool]:
        """The words that can follow ``words`` inside this action, and whether it can end there;
        ``seen`` holds every word of the trajectory so far."""


class LegalMoves:
    """Masks of legal tokens, for short turns: a mask costs time in proportion to their length."""

    def __init__(self, rules: Rules) -> None:
        """``ConfigError`` where a tag is more than one token."""
        tokenizer, tags = rules.tokenizer, rules.tags
        self._rules = rules

        def token_of(tag: str) -> int:
            token, *more = tokenizer.encode(tag)
            if more:
                # The small world has this view by default.
                fix = "choose a tokenizer with one token per tag, or"
                fix = f"the tag {tag} is several tokens; {fix} {UNMASKED}"
                raise ConfigError("view.legal_moves", True, fix)
            return token

        actions = (*rules.config.tools, Action.QUESTION.value, Action.ANSWER.value)
        self._opening = {action: token_of(tags.opening(action)) for action in actions}
        self._closing = {action: token_of(tags.closing(action)) for action in actions}
        self._think, self._unthink = map(token_of, (tags.opening("think"), tags.closing("think")))

        silent = {tokenizer.pad_id} | end_ids(tokenizer)
        silent |= {token for tag in tags.all() for token in tokenizer.encode(tag)}
        # Tags, ends and padding are legal in their own places alone.
        text = [t for t, piece in enumerate(tokenizer.pieces) if t not in silent and _plain(piece)]
        self._text = self._of(text)
        self._spelling = [piece.decode("utf-8", "replace").strip() for piece in tokenizer.pieces]
        self._words = {self._spelling[token]: token for token in text}

        # A grammar is no use to a tokenizer that lacks some of its words.
        world = rules.world
        known = isinstance(world, Grammar) and self._words.keys() >= {*world.vocabulary}
        self._grammar = world if isinstance(world, Grammar) and known else None

    def mask(self, trajectory: Trajectory, written: Sequence[int] = ()) -> NDArray[np.int8]:
        """int8 (vocabulary,): 1 on every legal token, after ``written``, which is not fed yet.

        At least one token is legal, even in a trajectory that has ended."""
        thinking, action, inside = self._open(trajectory, written)
        if thinking:
            return self._of([self._unthink])
        if action is None:
            return self._of([self._opening[a] for a in self._actions(trajectory)])

        # Where the next token is the last one, only the closing tag is legal.
        closing = self._closing[action]
        room = trajectory.tokens_left - len(written)
        if action != Action.QUESTION:
            searches = action in trajectory.limits.tools
            most = trajectory.longest_query if searches else MAX_ANSWER_TOKENS
            # Behind the longest content, there is room for the closing tag.
            room = min(room, most + 1 - len(inside))
        if room <= 1:
            return self._of([closing])

        if self._grammar is None:
            mask = self._text.copy()
            mask[closing] = len(inside) > 0
            return mask

        words = [self._spelling[token] for token in inside]
        seen = frozenset(self._spelling[token] for token in {*trajectory.ids, *written})
        following, may_end = self._grammar.continuations(action, words, seen)

        tokens = [self._words[word] for word in following if word in self._words]
        # Where the vocabulary has no word that may follow, the turn can only be closed.
        return self._of([*tokens, closing] if may_end or not tokens else tokens)

    def _open(
        self, trajectory: Trajectory, written: Sequence[int]
    ) -> tuple[bool, str | None, list[int]]:
        """State of the turn: if a thought is open, the action begun, and the tokens inside it."""
        # The policy's own tokens since the last ones that the environment wrote.
        start = max(trajectory.mask.rfind(b"\0") + 1, trajectory.prompt_length)
        openers = {self._opening[action]: action for action in trajectory.limits.actions}

        opened: str | None = None
        inside: list[int] = []
        thinking = trajectory.began_thinking
        for token in (*trajectory.ids[start:], *written):
            if thinking or token == self._think:
                thinking = token != self._unthink
            elif token in openers:
                opened, inside = openers[token], []
            else:
                inside.append(token)
        return thinking, opened, inside

    def _actions(self, trajectory: Trajectory) -> Sequence[str]:
        """The actions that can begin now: no search beyond the budget, and no question without
        evidence where a filter demands some."""
        searches, limits = trajectory.searches, trajectory.limits
        if len(searches) >= limits.max_searches:
            return limits.actions[-1:]
        if trajectory.role is Role.PROPOSER and "no_search" in self._rules.filters:
            found = any(search.documents for search in searches)
            return limits.actions if found else limits.tools
        return limits.actions

    def _of(self, tokens: Iterable[int]) -> NDArray[np.int8]:
        mask = np.zeros(self._rules.tokenizer.vocab_size, dtype=np.int8)
        mask[list(tokens)] = 1
        return mask


def _plain(piece: bytes) -> bool:
    """True for plain text: neither blank, nor half a letter, nor part of a tag."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return False
    return bool(text.strip()) and not {"<", ">"} & set(text)
