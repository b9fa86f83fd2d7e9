"""One role's trajectory: its tokens, who wrote them, its searches, and how it ended."""

from __future__ import annotations

import bisect
import copy
import itertools
import operator
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from ssp_env.errors import UsageError
from ssp_env.game.calls import Call
from ssp_env.game.config import GameConfig
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Forgery, ScannerTags, Tags, TurnScanner, actions_of
from ssp_env.tokenizers.base import Tokenizer, decode_rest, encode_parts, end_ids
from ssp_env.types import Action, Document, Immutable, Role
from ssp_env.wording.normal import fold

MAX_ANSWER_TOKENS = 256
"""A longer answer ends its trajectory; no judge is asked."""


class Waiting(StrEnum):
    POLICY = "policy"
    SEARCH = "search"
    RETRY = "retry"
    """A message about its malformed action."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class SearchRecord(Immutable):
    """A call of a tool, and what it was shown."""

    query: str
    documents: tuple[Document, ...]
    tool: Annotated[str, Field(exclude_if=lambda tool: tool == Action.SEARCH)] = Action.SEARCH.value
    """Files leave out ``search``."""


@dataclass(frozen=True)
class Limits(Immutable):
    """Rules that the trajectories of one role share."""

    role: Role
    tokenizer: Tokenizer
    chooses: bool
    """True if the proposer writes an answer below its question."""
    actions: tuple[str, ...]
    """Actions that end a turn of this role, tools first; any other tag is text."""
    tools: tuple[str, ...]
    """All of them but the last, which ends a trajectory."""
    tags: ScannerTags
    max_response_tokens: int
    max_query_tokens: int
    max_searches: int
    retries: int
    ends: frozenset[int]
    """Tokens that end a turn by themselves."""

    @classmethod
    def of(cls, role: Role, config: GameConfig, tokenizer: Tokenizer, tags: Tags) -> Limits:
        # Verification that is an attempt may do what an attempt may.
        by_attempt = role is Role.VERIFIER and config.verifies_by_attempt
        actions = actions_of(Role.SOLVER if by_attempt else role, config.tools)
        return cls(
            role,
            tokenizer,
            role is Role.PROPOSER and config.proposer_chooses,
            actions,
            actions[:-1],
            ScannerTags(tags, actions),
            config.max_response_tokens,
            config.max_query_tokens,
            config.max_searches if Action.SEARCH in actions else 0,
            config.retries,
            end_ids(tokenizer),
        )

    def checked(
        self, ids: Sequence[int], logprobs: Sequence[float] | None
    ) -> tuple[list[int], array[float] | None]:
        """Tokens and their log-probabilities, if given, as Python's own numbers."""
        try:
            whole = list(map(operator.index, ids))
            behaviour = None if logprobs is None else array("d", logprobs)
        except TypeError as error:
            what = "tokens are whole numbers (encode text first), their log-probabilities numbers"
            raise UsageError(f"{what}, not {ids!r:.200} and {logprobs!r:.200}") from error

        # A negative id would index the table of pieces from its end.
        size = self.tokenizer.vocab_size
        if whole and not 0 <= min(whole) <= max(whole) < size:
            token = next(t for t in whole if not 0 <= t < size)
            raise UsageError(f"token {token} is outside the action space 0 .. {size - 1}")
        if behaviour is not None and len(behaviour) != len(whole):
            raise UsageError(f"{len(whole)} tokens came with {len(behaviour)} log-probabilities")
        return whole, behaviour


_keys = itertools.count()


@dataclass(slots=True)
class Trajectory:
    """Prompt, turns and observations of one role, as one growing sequence of token ids.

    ``ids`` (int), ``mask`` (1 on precisely the tokens that the policy wrote) and ``logprobs``
    (behaviour log-probabilities in nats, float64, 0.0 where the mask is 0) have equal length.
    Nothing is ever removed."""

    limits: Limits
    ids: list[int]
    about: str = ""
    """Subject of the prompt: the answer (proposer) or the question (all others)."""
    documents: tuple[Document, ...] = ()
    library: tuple[Document, ...] | None = None
    """All that its searches can find (verification by an attempt); ``None``: what there is."""
    candidate: str | None = None
    """The answer that a verification is shown; ``None`` for all others."""
    prompt_length: int = field(init=False)
    mask: bytearray = field(init=False)
    logprobs: array[float] = field(init=False)
    searches: list[SearchRecord] = field(default_factory=list)
    """Its searches, and calls of other tools, with what they found, in order."""
    ending: Ending | None = None
    """Reason why it is over; ``None`` while it goes on."""
    result: str | None = None
    """The question or the answer that it ended with, if it did."""
    query: str | None = None
    """The query that waits to be searched for."""
    tool: str = Action.SEARCH.value
    """The tool that it waits for."""
    malformed: bool = False
    """True if its last turn held no complete action, and a message about that is due."""
    retried: list[int] = field(default_factory=list)
    """Where the messages about malformed actions begin."""
    key: int = field(default_factory=lambda: next(_keys))
    """Tells trajectories of this process apart, for engines that cache by it. Never recorded."""
    _scanner: TurnScanner = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = len(self.ids)
        self.mask = bytearray(self.prompt_length)
        # Eight bytes of 0 are the float64 0.0.
        self.logprobs = array("d", bytes(8 * self.prompt_length))
        self._scanner = self._new_scanner()

    def __deepcopy__(self, memo: dict[int, Any]) -> Trajectory:
        """A trajectory that goes its own way; one that has ended never changes, and is shared."""
        if self.done:
            return self

        twin = copy.copy(self)
        twin.ids, twin.mask = self.ids.copy(), self.mask.copy()
        twin.logprobs = self.logprobs[:]
        twin.searches, twin.retried = self.searches.copy(), self.retried.copy()
        twin._scanner = copy.deepcopy(self._scanner, memo)

        # An engine must not continue one of them from what it has cached of the other.
        twin.key = next(_keys)
        return twin

    @property
    def role(self) -> Role:
        return self.limits.role

    @property
    def tokens_left(self) -> int:
        return self.limits.max_response_tokens - (len(self.ids) - self.prompt_length)

    @property
    def queries(self) -> set[tuple[str, str]]:
        """Its different queries, up to case, width, spacing and invisible characters, each behind
        the tool that was asked."""
        return {(each.tool, " ".join(fold(each.query).split())) for each in self.searches}

    @property
    def waiting(self) -> Waiting:
        if self.ending is not None:
            return Waiting.NOTHING
        if self.malformed:
            return Waiting.RETRY
        return Waiting.POLICY if self.query is None else Waiting.SEARCH

    @property
    def done(self) -> bool:
        return self.ending is not None

    @property
    def began_thinking(self) -> bool:
        """True if the current turn began inside a thought, which its prompt has opened."""
        return self._scanner.began_thinking

    def text_from(self, start: int) -> str:
        """Text of its tokens from this place on."""
        decode = partial(decode_rest, self.limits.tokenizer)
        return (decode if start else self.limits.tokenizer.decode)(self.ids[start:])

    def runs(self) -> Iterator[tuple[int, int, bool]]:
        """Runs of tokens behind the prompt by one author: start, stop, and if it is the policy.

        Two of the environment's follow one another where a turn between them was empty."""
        start = self.prompt_length
        while start < len(self.ids):
            by_policy = self.mask[start] == 1
            stop = self.mask.find(b"\0" if by_policy else b"\1", start)
            stop = stop if stop >= 0 else len(self.ids)
            stop = min([stop, *(place for place in self.retried if place > start)])
            yield start, stop, by_policy
            start = stop

    def feed(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> bool:
        """Takes tokens that the policy sampled, at least one; returns whether they ended the turn.

        ``logprobs``: behaviour log-probability of each; zeros when not given. ``UsageError`` for
        tokens that do not fit, such as some after the turn's end: nothing is taken then.

        >>> from ssp_env.tokenizers import ByteTokenizer
        >>> tokenizer = ByteTokenizer()
        >>> limits = Limits.of(Role.SOLVER, GameConfig(), tokenizer, Tags())
        >>> attempt = Trajectory(limits, tokenizer.encode("Who wrote Emma?"))
        >>> [attempt.feed(tokenizer.encode(text)) for text in ("<search> Emma </", "search>")]
        [False, True]
        >>> attempt.waiting, attempt.query
        (<Waiting.SEARCH: 'search'>, 'Emma')
        """
        whole, behaviour = self.limits.checked(ids, logprobs)
        if not whole:
            raise UsageError("a turn goes on with at least one token")

        # Nothing is taken if the tokens turn out to go on after the turn's end.
        before = self._scanner.mark()
        taken, action, ended = self._scan(whole)
        if taken < len(whole):
            self._scanner.rewind(before)
            raise UsageError(f"{len(whole) - taken} tokens were given after the end of the turn")

        self._append(whole, behaviour)

        if ended:
            self._end_turn(action)
        return ended

    def feed_turn(self, ids: Sequence[int], logprobs: Sequence[float] | None = None) -> int:
        """Takes a whole turn, which may be empty; returns how many of the ids were taken.

        What follows its first complete action is dropped. A turn without one is malformed, as it
        would be with an end token. Actions in a thought that the turn leaves open count, and
        nothing behind them is dropped. Arguments and errors are those of :meth:`feed`."""
        return self.append_turn(*self.limits.checked(ids, logprobs))

    def append_turn(self, ids: list[int], logprobs: array[float] | None) -> int:
        """As :meth:`feed_turn`, for what is checked already."""
        taken, action, ended = self._scan(ids)
        self._append(ids[:taken], None if logprobs is None else logprobs[:taken])

        if ended:
            self._end_turn(action)
        # A whole turn is over even where a thought in it is not: then its first action counts.
        elif in_thought := self._scanner.end():
            self._end_turn(in_thought)
        else:
            self._malformed()
        return taken

    def feed_text(self, text: str) -> None:
        if not isinstance(text, str):
            fix = "token ids go to feed_turn(), or to TurnVectorEnv"
            what = f"a turn, such as a player's write() returns, is one string, not {text!r:.200}"
            raise UsageError(f"{what}; {fix}")
        # It goes on the transcript, as a policy's own tokens would.
        self.feed_turn(encode_parts(self.limits.tokenizer, [(text, True)], continues=True))

    def observe(self, documents: Sequence[Document] | None, observation: Sequence[int]) -> None:
        """Takes what the pending search found, already encoded; without documents, the message
        about a malformed action."""
        if not (self.malformed if documents is None else self.query is not None):
            what = f"this {self.role} trajectory waits for {self.waiting}, not for"
            raise UsageError(f"{what} {'documents' if documents is not None else 'a retry'}")

        if documents is not None:
            self.searches.append(SearchRecord(self.query or "", tuple(documents), self.tool))
        self.query, self.malformed = None, False

        # The policy may have ended its message itself, as the chat template would.
        last = self.ids[-1] if self.mask[-1:] == b"\x01" else None
        if last in self.limits.ends and observation[:1] == [last]:
            observation = observation[1:]

        # At least one token has to be left for the policy's reply.
        # What the environment adds counts in the budget of the response too.
        if len(observation) >= self.tokens_left:
            self.end(Ending.FORMAT if documents is None else Ending.BUDGET_TOKENS)
            return

        if documents is None:
            self.retried.append(len(self.ids))
        self.ids.extend(observation)
        self.mask.extend(bytes(len(observation)))
        self.logprobs.frombytes(bytes(8 * len(observation)))

        # Tags in the observation are not the policy's, so the next turn is scanned on its own.
        self._scanner = self._new_scanner()

    def end(self, ending: Ending) -> None:
        self.ending, self.query, self.malformed = ending, None, False

    def _new_scanner(self) -> TurnScanner:
        pieces, tags = self.limits.tokenizer.pieces, self.limits.tags

        # A template may already have opened a think tag, and added a line break or two.
        tail = b"".join(map(pieces.__getitem__, self.ids[-(tags.longest + 8) :]))
        return TurnScanner(tags, thinking=tail.rstrip().endswith(tags.think_opening))

    def _scan(self, ids: list[int]) -> tuple[int, Call | Forgery | None, bool]:
        """Number of ids that belong to the turn; what they complete; if they end the turn."""
        # As ``waiting``, but this is asked at every token, and a property costs a tenth of one.
        if self.ending is not None or self.query is not None or self.malformed:
            what = f"this {self.role} trajectory waits for {self.waiting}, not for tokens"
            raise UsageError(what)

        # Tokens beyond the budget, or behind the end token, do not belong to the turn.
        pieces_of, ends, left = self.limits.tokenizer.pieces, self.limits.ends, self.tokens_left
        belong = min(len(ids), left)
        ended = belong == left
        text = ids if belong == len(ids) else ids[:belong]
        # The end token is the policy's (mask 1), but no text: the scanner does not see it.
        if not ends.isdisjoint(text):
            belong = next(place for place, token in enumerate(text, 1) if token in ends)
            text, ended = text[: belong - 1], True

        pieces = list(map(pieces_of.__getitem__, text))

        joined = b"".join(pieces)
        action = self._scanner.feed(joined)
        if action is None:
            return belong, self._scanner.end() if ended else None, ended

        # The action may end before the last token does: tokens behind it are not taken.
        surplus = self._scanner.surplus
        if surplus < len(pieces[-1]):
            return len(pieces), action, True
        stops = list(itertools.accumulate(map(len, pieces)))
        return bisect.bisect_left(stops, len(joined) - surplus) + 1, action, True

    def _append(self, ids: list[int], logprobs: array[float] | None) -> None:
        self.ids.extend(ids)
        self.mask.extend(b"\x01" * len(ids))
        if logprobs is None:
            self.logprobs.frombytes(bytes(8 * len(ids)))
        else:
            self.logprobs.extend(logprobs)

    @property
    def longest_query(self) -> int:
        """Tokens of the longest query: a solver may always search for its question, which
        verification does."""
        limits = self.limits
        solves = limits.role in (Role.SOLVER, Role.VERIFIER)
        question = len(limits.tokenizer.encode_data(self.about)) if solves else 0
        return max(limits.max_query_tokens, question)

    def _end_turn(self, action: Call | Forgery | None) -> None:
        limits = self.limits
        # Only the environment writes information tags: what follows would pass for documents.
        if isinstance(action, Forgery):
            self.end(Ending.FORGED)
            return
        if action is None:
            # Without an end token, it was the budget that ended the turn.
            if self.ids[-1] in limits.ends:
                self._malformed()
            else:
                self.end(Ending.BUDGET_TOKENS)
            return

        # A question has no budget of its own: a filter looks at its length.
        searches = action.action in limits.tools
        most = limits.max_query_tokens if searches else MAX_ANSWER_TOKENS
        # Limits in this order, so that a search too many is that, however long its query.
        if searches and len(self.searches) >= limits.max_searches:
            self.end(Ending.BUDGET_SEARCHES)
        elif (
            action.action != Action.QUESTION
            and (length := len(limits.tokenizer.encode_data(action.content))) > most
            and not (searches and length <= self.longest_query)
        ):
            self.end(Ending.BUDGET_QUERY if searches else Ending.BUDGET_ANSWER)
        elif searches:
            self.tool, self.query = action.action, action.content
        else:
            self.result = action.content
            self.end(Ending.ACTION)

    def _malformed(self) -> None:
        """Ends the trajectory, or has it wait for a message and another chance."""
        if len(self.retried) < self.limits.retries:
            self.malformed = True
        else:
            self.end(Ending.FORMAT)
