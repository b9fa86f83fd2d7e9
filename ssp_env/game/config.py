"""Settings of the game. Frozen, validated when made, a docstring under each field."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import NonNegativeInt, PositiveInt, model_validator

from ssp_env.config import Settings
from ssp_env.errors import ConfigError

VerifierName = Literal["auto", "world", "policy", "frozen", "openai", "none"]
FilterName = Literal[
    "no_answer",
    "unseen_answer",
    "empty_question",
    "no_search",
    "short_question",
    "long_question",
    "spoiler",
    "few_words",
    "few_searches",
    "repeated_query",
    "past_question",
    "one_document",
    "unsolved",
    "outvoted",
]
RewardName = Literal["1-p", "4p(1-p)", "min(p,1-p)", "(n-k)/(n-1)", "depth", "evidence", "band"]
DEFAULT_FILTERS: tuple[FilterName, ...] = (
    "empty_question",
    "no_search",
    "short_question",
    "long_question",
    "spoiler",
)
"""Filters where another verifier than the policy reads; and those of the paper."""
POLICY_FILTERS: tuple[FilterName, ...] = (*DEFAULT_FILTERS, "unsolved")
"""Filters where the policy itself verifies, whose word alone is not worth much."""


CHOSEN_FILTERS: tuple[FilterName, ...] = ("no_answer", "unseen_answer")
"""Filters that come first where the proposer chooses the answer."""


class GameConfig(Settings):
    """Rules of one game. The defaults are the paper's, except where the policy verifies: see
    docs/fidelity.md."""

    section: ClassVar[str] = "game"

    attempts: PositiveInt = 5
    """Solver trajectories per question (the paper's n)."""
    proposals: PositiveInt = 1
    """Proposer trajectories per answer."""
    answers: Literal["given", "proposed"] = "given"
    """``given``: the proposer is told the answer (the paper's). ``proposed``: it is told a topic,
    one of the world's answers, and writes an answer of its own on the line below its question; its
    evidence must contain it."""
    max_searches: PositiveInt = 10
    """Most searches of a trajectory, calls of other tools included; one more ends it."""
    tools: tuple[str, ...] = ("search",)
    """Tools of proposer and solver: ``search``, ``open`` (reads the page of a title), and those of
    your own that come by the keyword ``tools``."""
    top_k: PositiveInt = 3
    """Documents per search."""
    max_prompt_tokens: PositiveInt = 4096
    """Longest prompt; a game that needs a longer one is invalid. Verification has room besides."""
    max_response_tokens: PositiveInt = 8192
    """Token budget after the prompt, including retrieved text."""
    max_document_tokens: PositiveInt = 512
    """A longer passage is cut to this many tokens before a policy sees it."""
    max_query_tokens: PositiveInt = 128
    """A search call with a longer query ends its trajectory; a solver may always search for the
    question itself."""
    question_chars: tuple[NonNegativeInt, PositiveInt] = (10, 1000)
    """Fewest and most characters of a valid question."""
    retries: NonNegativeInt = 0
    """Malformed actions of a trajectory, turns without a complete action, that are answered by a
    message (``retry.txt``) and another chance; one more ends it."""
    asked_searches: tuple[PositiveInt, PositiveInt] = (1, 3)
    """Range (both ends included) of the searches that the proposer's prompt asks for; not enforced.
    """
    filters: tuple[FilterName, ...] | None = None
    """Filters that a question must pass, in order; see :mod:`ssp_env.game.filters`. ``None``: the
    first five, and where the policy verifies also ``unsolved``."""
    verifier: VerifierName = "policy"
    """Verifier of questions: ``policy`` (Algorithm 1), ``frozen`` (an earlier one, in training; see
    ``learning.verifier_model`` and ``learning.verifier_refresh``), ``world`` (its symbolic reader),
    ``openai`` (a model behind an API), ``none``, or ``auto``: ``world`` where it can read, else
    ``policy``."""
    verification_prompt: Literal["solver", "documents", "attempt", "candidate"] = "solver"
    """Form of a verifying model's documents: ``solver`` (as after a search for the question),
    ``attempt`` (by searches of its own that find these alone), ``documents`` (in a prompt of its
    own) or, for comparison, ``candidate`` (with the answer, and it says yes or no)."""
    verifications: tuple[PositiveInt, PositiveInt] = (2, 3)
    """``(k, n)``: where the policy verifies, it reads the documents in n orders, at a temperature
    of .5 (of 1 for a single reading), and must be right k times. The paper: (1, 1)."""
    closed_book: bool = False
    """Also reject a question that the solver answers in one try without documents, and pay no right
    attempt at others that was not shown the answer by a search of its own that did not name it."""
    noise_documents: NonNegativeInt = 4
    """Documents mixed in for verification that this game's proposer did not retrieve."""
    noise_kind: Literal["batch", "corpus", "near"] = "batch"
    """Their source: ``batch`` (what other proposers retrieved, the paper's), ``corpus``
    (any passage), or ``near`` (what a search for the question finds)."""
    proposer_reward: RewardName = "1-p"
    """Proposer's reward for a valid question, by its name in :mod:`ssp_env.game.rewards`: from the
    mean solve rate p ``1-p`` (the paper's), ``4p(1-p)``, ``min(p,1-p)``, ``(n-k)/(n-1)`` or
    ``band``; from the searches of the shallowest right attempt ``depth``; or ``evidence``."""
    invalid_reward: float = 0.0
    """Proposer's reward for an invalid question; a negative one collapses the paper's game."""
    prompts: str = "plain"
    """Prompt set: ``plain``, ``paper``, ``compact``, ``few-shot``, ``tools``, ``mini``,
    ``search-r1``, ``NAME:FILE`` (one of these, with a file as its ``solver.txt``), or a directory.
    """

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        for name in ("question_chars", "asked_searches", "verifications"):
            low, high = getattr(self, name)
            if low > high:
                raise ConfigError(f"game.{name}", (low, high), "give (fewest, most)")
        if "search" not in self.tools:
            raise ConfigError("game.tools", self.tools, "search has to be one of them")
        if self.asked_searches[1] > self.max_searches:
            fix = f"give no more than max_searches = {self.max_searches}"
            raise ConfigError("game.asked_searches", self.asked_searches, fix)
        if self.verifier == "openai" and self.sees_candidate:
            fix = "a policy alone reads so: verifier=policy or frozen, or another form"
            raise ConfigError("game.verification_prompt", self.verification_prompt, fix)
        return self

    @property
    def fewest_attempts(self) -> int:
        """Number of attempts that have to count; a game of which an outage leaves fewer is void.

        >>> [GameConfig(attempts=n).fewest_attempts for n in (1, 2, 5, 8)]
        [1, 2, 3, 4]
        """
        # Half of them keep the mean solve rate close to what all would have given, and GRPO
        # compares attempts with each other, for which one is too few.
        return max(-(-self.attempts // 2), min(2, self.attempts))

    @property
    def proposer_chooses(self) -> bool:
        """True if the proposer chooses what it asks for."""
        return self.answers == "proposed"

    @property
    def verifies_by_attempt(self) -> bool:
        """True if verification is an attempt of the solver, among its documents alone."""
        return self.verification_prompt == "attempt"

    @property
    def sees_candidate(self) -> bool:
        """True if a policy that verifies is shown the answer."""
        return self.verification_prompt == "candidate"

    @property
    def verification_temperature(self) -> float:
        """Temperature at which the policy verifies: that of play for a single reading."""
        return 1.0 if self.verifications[1] == 1 else 0.5

    @property
    def verification_tokens(self) -> int:
        """Most tokens that verification adds to the solver's prompt: a search and its documents.

        They hold all that a proposer can have been shown; noise for which there is no room is left
        out. Verification by an attempt has the solver's budgets instead."""
        # Evidence came within a response; a question takes no more than a prompt.
        return self.max_prompt_tokens + self.max_response_tokens


class ViewConfig(Settings):
    """View of the trajectory that an agent writes, by default all of it."""

    section: ClassVar[str] = "view"

    window: PositiveInt | None = None
    """Latest tokens that are shown, padded on the left; ``None``: the whole trajectory."""
    one_hot: bool = False
    """Show tokens as one-hot vectors, for networks that take floats; needs a ``window``."""
    legal_moves: bool = False
    """Mask every token that no well-formed turn could go on with. Needs a tokenizer with one
    token per tag."""

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        # One-hot over a whole trajectory would be tokens x vocabulary floats.
        if self.one_hot and self.window is None:
            fix = "set view.window as well: a whole trajectory is too long for it"
            raise ConfigError("view.one_hot", True, fix)
        return self


MINI_GAME = GameConfig(
    max_searches=4,
    top_k=2,
    max_prompt_tokens=256,
    max_response_tokens=256,
    max_document_tokens=64,
    max_query_tokens=16,
    asked_searches=(1, 1),
    verifier="auto",
    prompts="mini",
)
"""Rules for the mini world and its word vocabulary: short budgets, and the world itself as the
verifier."""

SMALL_GAME = MINI_GAME.replace(
    attempts=1,
    max_searches=1,
    top_k=1,
    max_prompt_tokens=64,
    max_response_tokens=64,
    noise_documents=1,
)
"""Rules for the small world: one search, one attempt, a few tokens."""

SMALL_VIEW = ViewConfig(window=48, one_hot=True, legal_moves=True)
"""View that small networks can learn from: one-hot words, and a mask of legal moves."""

TEXT_GAME = GameConfig(
    closed_book=True, asked_searches=(1, 1), proposer_reward="4p(1-p)", prompts="few-shot"
)
"""Rules for worlds of real text: a policy that has read much knows many answers, a question may
hold more than it asks, and one that nobody solves pays nothing."""

WIKI_GAME = GameConfig(
    max_searches=3,
    top_k=3,
    max_prompt_tokens=128,
    max_response_tokens=400,
    max_document_tokens=40,
    max_query_tokens=32,
    asked_searches=(1, 1),
    verification_prompt="attempt",
    closed_book=True,
    proposer_reward="4p(1-p)",
    prompts="mini",
)
"""Rules for single sentences of Wikipedia, and for a policy of a few million parameters that has
learnt to read them and nothing else: it verifies itself."""

UNMASKED = 'view={"one_hot": False, "legal_moves": False}'
"""The view of a world that is made for its own words, for any other tokenizer."""
_SUITED = {
    "mini": (MINI_GAME, ViewConfig()),
    "small": (SMALL_GAME, SMALL_VIEW),
    "wiki-mini": (TEXT_GAME, ViewConfig()),
    "wiki-sentences": (WIKI_GAME, ViewConfig()),
    "files": (TEXT_GAME, ViewConfig()),
}


def world_defaults(world: str) -> tuple[GameConfig, ViewConfig]:
    """Rules and view that suit a world, by its name; for other worlds, the paper's rules."""
    return _SUITED.get(world, (GameConfig(), ViewConfig()))
