"""Everything that games share: settings, tokenizer, prompts, search, judge, verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

from ssp_env.checks import check_call
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.filters import FILTERS, Filter
from ssp_env.game.game import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.outcome import RESERVED
from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import check_tokenizer
from ssp_env.game.trajectory import Limits
from ssp_env.game.verification import NOISE, NearNoise, NoiseSource
from ssp_env.judge.base import Judge, Verifier
from ssp_env.judge.exact import NoVerifier, WorldVerifier
from ssp_env.judge.lenient import LenientJudge
from ssp_env.search.base import Retriever
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document, Immutable, Role, World

_WORLDS_OWN = ("corpus", "retriever")
"""Attributes that rules and world usually share."""


class Parts(TypedDict, total=False):
    """The exchangeable parts of a game; all of them are optional, behind every door."""

    retriever: Retriever | None
    """A retriever of your own; the world's when not given: its index, or BM25 over its corpus."""
    judge: Judge | None
    """The world's own when not given, see :func:`own_judge`."""
    verifier: Verifier | None
    """In place of the one that ``game.verifier`` names."""
    filters: Mapping[str, Filter] | None
    """More rules for a question, by reason code, after those that ``game.filters`` names."""
    noise: NoiseSource | None
    """In place of the kind that ``game.noise_kind`` names."""
    proposer_reward: ProposerReward | None
    """In place of the one that ``game.proposer_reward`` names."""
    solver_reward: SolverReward | None
    """1 for a right answer, 0 otherwise, when not given."""


@dataclass(frozen=True)
class Rules(Immutable):
    """Everything that games share, copies of games included. Make one with :meth:`build`."""

    config: GameConfig
    tokenizer: Tokenizer
    prompts: Prompts
    retriever: Retriever
    corpus: Sequence[Document]
    """Source of noise when the batch has too little."""
    judge: Judge
    verifier: Verifier | None
    """``None``: the policy itself verifies, in a trajectory of the role ``verifier``."""
    limits: dict[Role, Limits]
    world: World
    filters: Mapping[str, Filter]
    """Checks of a proposed question, in order, by reason code."""
    noise: NoiseSource | NearNoise
    """Source of verification's noise documents."""
    proposer_reward: ProposerReward
    solver_reward: SolverReward

    def __getstate__(self) -> dict[str, Any]:
        """State to pickle: parts that the world has of its own stay with the world."""
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in _WORLDS_OWN:
            if state[name] is getattr(self.world, name, None):
                del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = {name: getattr(state["world"], name) for name in _WORLDS_OWN if name not in state}
        self.__dict__.update(state | own)

    @property
    def longest_trajectory(self) -> int:
        """Tokens of the longest trajectory: prompt, response, and what a policy reads to verify."""
        config = self.config
        reads = self.verifier is None and not config.verifies_by_attempt
        reading = config.verification_tokens if reads else 0
        return config.max_prompt_tokens + reading + config.max_response_tokens

    @classmethod
    def build(
        cls,
        world: World,
        tokenizer: Tokenizer,
        config: GameConfig,
        **parts: Unpack[Parts],
    ) -> Rules:
        """Checks that everything fits together before any game starts.

        Args:
            world: corpus and answers.
            tokenizer: must be able to spell the tags.
            config: the settings.
            parts: objects and functions of your own; ``None`` counts as not given.

        Raises:
            ConfigError: a part that does not fit another one, or an answer that the default
                retriever cannot find.
            TokenizerError: a tag that the tokenizer cannot spell.
        """
        for name in Parts.__annotations__.keys() - {"filters"}:
            _check_part(name, parts.get(name))
        retriever, judge, noise = parts.get("retriever"), parts.get("judge"), parts.get("noise")
        verifier, filters = parts.get("verifier"), parts.get("filters")

        # Without tags that it can spell, no turn could ever be complete.
        check_tokenizer(tokenizer, config.tags)
        if verifier is None:
            verifier = _verifier(resolve_verifier(config.verifier, world), world)

        prompts = Prompts(config.prompts, tokenizer, config.tags)

        # A prompt set need not have this prompt, so ask for it before it is needed.
        if config.closed_book:
            prompts.closed_book("")

        _check_budget(
            "max_prompt_tokens",
            config.max_prompt_tokens,
            len(prompts.proposer("", config.asked_searches[0])),
            "the proposer's prompt alone takes {} tokens, without any answer in it",
        )
        if verifier is None and config.verification_prompt == "documents":
            _check_budget(
                "max_prompt_tokens",
                config.max_prompt_tokens,
                len(prompts.verifier("", (), 1)),
                "the verifier's prompt alone takes {} tokens, without any document in it",
            )
        own = _own_filters(filters, config)

        if retriever is None:
            retriever = own_retriever(world)
            knows = getattr(retriever, "knows", None)
            # Dense search finds something for any words, and cannot say that it knows none.
            if knows is not None:
                _check_answers(world, knows)

        return cls(
            config=config,
            tokenizer=tokenizer,
            prompts=prompts,
            retriever=retriever,
            corpus=world.corpus,
            judge=judge if judge is not None else own_judge(world),
            verifier=verifier,
            limits={role: Limits.of(role, config, tokenizer) for role in Role},
            world=world,
            filters={name: FILTERS[name] for name in config.filters} | own,
            noise=noise if noise is not None else _noise(config, world),
            proposer_reward=parts.get("proposer_reward")
            or PROPOSER_REWARDS[config.proposer_reward],
            solver_reward=parts.get("solver_reward") or right_answer,
        )


def _noise(config: GameConfig, world: World) -> NoiseSource | NearNoise:
    """Noise by its name; refuses to draw from a corpus that has no passages."""
    if config.noise_kind == "corpus" and config.noise_documents and not len(world.corpus):
        fix = (
            f"the world {world.name!r} has no passages to draw from; choose batch or near, or set "
            f"noise_documents to 0"
        )
        raise ConfigError("game.noise_kind", config.noise_kind, fix)
    return NOISE[config.noise_kind]


def own_retriever(world: World) -> Retriever:
    """The retriever that a world has, such as a kept index; else BM25 over its corpus."""
    own: Retriever | None = getattr(world, "retriever", None)
    if own is not None:
        return own
    # Imported here: it brings scipy along, which a retriever of your own can do without.
    from ssp_env.search.bm25 import BM25Retriever

    return BM25Retriever(world.corpus)


def own_judge(world: World) -> Judge:
    """The judge that a world has, such as exact match where names are generated; else lenient."""
    own: Judge | None = getattr(world, "judge", None)
    return LenientJudge() if own is None else own


_SHORT_FORMS = {
    "judge": ", such as ssp_env.judge.exact.F1Judge(0.8); leave it out for the world's own",
    "verifier": '; one that ships is named in the rules: game={"verifier": "world"}',
    "proposer_reward": '; one that ships is named in the rules: game={"proposer_reward": '
    '"4p(1-p)"}',
}
"""Hints for users who passed a name instead of an object."""


_CALLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "retriever": ("search", ("queries", "k")),
    "judge": ("judge", ("tasks",)),
    "verifier": ("verify", ("tasks",)),
    "noise": ("__call__", ("rng", "count", "own", "others", "corpus")),
    "proposer_reward": ("__call__", ("game",)),
    "solver_reward": ("__call__", ("game", "attempt")),
    "filters": ("__call__", ("proposal",)),
}
"""Method of each part, and its arguments."""


def _check_part(kind: str, part: object, name: str = "") -> None:
    """Finds a wrong type or signature here rather than in the middle of a game."""
    if part is None:
        return

    method, arguments = _CALLS[kind]
    # A class has the method too, but cannot be called without an object.
    if isinstance(part, type) or not callable(getattr(part, method, None)):
        what = f"an object with a method {method}(), not its class or its name"
        what = "a function" if method == "__call__" else what
        raise ConfigError(name or kind, part, f"give {what}{_SHORT_FORMS.get(kind, '')}")
    check_call(name or kind, part if method == "__call__" else getattr(part, method), arguments)


def _own_filters(filters: Mapping[str, Filter] | None, config: GameConfig) -> dict[str, Filter]:
    if filters is not None and not isinstance(filters, Mapping):
        raise ConfigError("filters", filters, "give a mapping from reason code to function")
    own = dict(filters or {})

    for name, rule in own.items():
        if not isinstance(name, str) or not name:
            raise ConfigError("filters", name, "a reason code is a string that is not empty")
        _check_part("filters", rule, f"filters[{name!r}]")
        if name in RESERVED or name in config.filters:
            raise ConfigError("filters", name, "this reason code is taken; choose another one")
    return own


def _check_budget(name: str, budget: int, needed: int, what: str) -> None:
    """Refuses a budget below what is needed whatever is asked."""
    if needed > budget:
        raise ConfigError(f"game.{name}", budget, f"{what.format(needed)}; give more than that")


def _check_answers(world: World, knows: Callable[[str], bool]) -> None:
    """Refuses an answer none of whose words occurs in the corpus."""
    for truth in world.answers:
        if not any(knows(wording) for wording in truth.wordings):
            where = (
                f"answer {truth.id!r} of the world {world.name!r} cannot be found by any "
                f"search: no word of it occurs "
            )
            where += f"in {world.corpus.name}"
            fix = "add a passage that mentions it, give it an alias that occurs, or leave it out"
            raise ConfigError("world.answers", truth.answer, f"{where}; {fix}")


def resolve_verifier(name: str, world: World) -> str:
    """The verifier that ``auto`` stands for in a world; any other name stands for itself."""
    if name != "auto":
        return name
    return "world" if world.can_read else "policy"


def _verifier(name: str, world: World) -> Verifier | None:
    match name:
        case "policy":
            return None
        case "world":
            return WorldVerifier(world)
        case "none":
            return NoVerifier()
    fix = (
        "make it first, an ssp_env.judge.openai.OpenAIVerifier(client, judge), and pass it as "
        "verifier=..."
    )
    raise ConfigError("game.verifier", name, fix)
