"""Everything that games share: settings, tokenizer, prompts, search, judge, verifier."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

from ssp_env.errors import ConfigError, check_part, expect, named_values, nearest
from ssp_env.game.config import CHOSEN_FILTERS, DEFAULT_FILTERS, POLICY_FILTERS, GameConfig
from ssp_env.game.filters import ATTEMPT_FILTERS, FILTERS, AttemptFilter, Filter
from ssp_env.game.game import ProposerReward, SolverReward, right_answer
from ssp_env.game.noise import NOISE, NoiseSource
from ssp_env.game.outcome import RESERVED
from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import Tags, check_tokenizer
from ssp_env.game.rewards import PROPOSER_REWARDS
from ssp_env.game.tools import TOOLS, Tool
from ssp_env.game.trajectory import Limits
from ssp_env.judge.base import Judge, Verifier
from ssp_env.judge.judges import BY_RULES, NoVerifier, WorldVerifier
from ssp_env.judge.lenient import LenientJudge
from ssp_env.search.base import Retriever, identify
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Immutable, Passages, Role, World


class Parts(TypedDict, total=False):
    """The exchangeable parts of a game; all of them are optional, behind every interface."""

    retriever: Retriever | None
    """A retriever of your own; the world's when not given: its index, or BM25 over its corpus."""
    tools: Sequence[Tool] | None
    """Tools of your own, which ``game.tools`` names beside those that ship."""
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


_METHODS = {
    "retriever": "search",
    "judge": "judge",
    "verifier": "verify",
    "noise": "__call__",
    "proposer_reward": "__call__",
    "solver_reward": "__call__",
}


@dataclass(frozen=True)
class Rules(Immutable):
    """Everything that games share, copies of games included. Make one with :meth:`build`."""

    config: GameConfig
    tokenizer: Tokenizer
    prompts: Prompts
    retrievers: Mapping[str, Retriever]
    """What answers the calls of each tool of ``config.tools``, by its name."""
    judge: Judge
    verifier: Verifier | None
    """``None``: the policy itself verifies, or an earlier one (``frozen``), in a trajectory of the
    role ``verifier``."""
    limits: dict[Role, Limits]
    world: World
    filters: Mapping[str, Filter]
    """Checks of a proposed question, in order, by reason code."""
    noise: NoiseSource
    proposer_reward: ProposerReward
    solver_reward: SolverReward

    @property
    def retriever(self) -> Retriever:
        """What is searched."""
        return self.retrievers["search"]

    @property
    def attempt_filters(self) -> dict[str, AttemptFilter]:
        """Checks of a proposed question by the attempts at it, in order, by reason code."""
        names = self.config.filters or ()
        return {name: ATTEMPT_FILTERS[name] for name in names if name in ATTEMPT_FILTERS}

    @property
    def corpus(self) -> Passages:
        """The world's passages: the source of noise when the batch has too little."""
        return self.world.corpus

    @property
    def tags(self) -> Tags:
        return self.prompts.tags

    @property
    def longest_trajectory(self) -> int:
        """Tokens of the longest trajectory: prompt, response, and what a policy reads to verify."""
        config = self.config
        reads = self.verifier is None and not config.verifies_by_attempt
        reading = config.verification_tokens if reads else 0
        return config.max_prompt_tokens + reading + config.max_response_tokens

    def with_config(self, config: GameConfig) -> Rules:
        """The same parts under a config that differs in numbers."""
        if config == self.config:
            return self
        tokenizer, tags = self.tokenizer, self.prompts.tags
        limits = {role: Limits.of(role, config, tokenizer, tags) for role in Role}
        return replace(self, config=config, limits=limits)

    @classmethod
    def build(
        cls, world: World, tokenizer: Tokenizer, config: GameConfig, **parts: Unpack[Parts]
    ) -> Rules:
        """Checks that everything fits together before any game starts; a part that is ``None``
        counts as not given."""
        expect("tokenizer", tokenizer, Tokenizer, "give a Tokenizer; names are for the interfaces")
        expect("game", config, GameConfig, "give a GameConfig")
        given: Mapping[str, Any] = parts
        for name in given.keys() - Parts.__annotations__.keys():
            fix = f"no such part of the rules; {nearest(name, Parts.__annotations__)}"
            raise ConfigError(name, given[name], fix)
        for name, method in _METHODS.items():
            if name == "judge" and isinstance(given.get(name), str):
                fix = "give an object: open_judge('lenient') of ssp_env.judge.judges makes those "
                fix += f"that ship ({', '.join(BY_RULES)})"
                raise ConfigError(name, given[name], fix)
            if given.get(name) is not None:
                check_part(name, given[name], method)

        # A part may be falsy, such as one with a length.
        verifier = given.get("verifier")
        if verifier is None:
            verifier = _verifier(config.verifier, world)
        retriever, judge, noise = (given.get(name) for name in ("retriever", "judge", "noise"))
        asks, solves = given.get("proposer_reward"), given.get("solver_reward")
        names = config.filters
        if names is None:
            names = POLICY_FILTERS if verifier is None else DEFAULT_FILTERS
        if config.proposer_chooses:
            names = (*CHOSEN_FILTERS, *(name for name in names if name not in CHOSEN_FILTERS))
        # From here on, the config names the filters, also in the files of its games.
        config = config.replace(filters=names)
        fix = "give functions by reason code; those that ship are named in game={'filters': [...]}"
        added = named_values("filters", parts.get("filters") or {}, fix)
        for code, fails in added.items():
            check_part(f"filters.{code}", fails, "__call__")
        for code in added.keys() & {*RESERVED, *names}:
            raise ConfigError("filters", code, "this reason code is taken; choose another one")

        tools = _declared(config.tools, given.get("tools") or ())
        retriever = own_retriever(world) if retriever is None else retriever
        needed = _needed_prompts(config, by_policy=verifier is None)
        prompts = Prompts.open(config.prompts, tokenizer, tools, needed)
        # Without tags that it can spell, no turn could ever be complete.
        check_tokenizer(tokenizer, prompts.tags)
        _check_prompts(prompts, config, needed)
        # A world of files may ask for a number of searches, answer by answer.
        most = max(getattr(world, "asked_searches", {}).values(), default=0)
        if most > config.max_searches:
            fix = (
                f"the answers of world {world.name!r} ask for up to {most} searches; allow as many"
            )
            raise ConfigError("game.max_searches", config.max_searches, fix)

        return cls(
            config=config,
            tokenizer=tokenizer,
            prompts=prompts,
            retrievers={tool.name: tool.make(world, retriever) for tool in tools},
            judge=own_judge(world) if judge is None else judge,
            verifier=verifier,
            limits={role: Limits.of(role, config, tokenizer, prompts.tags) for role in Role},
            world=world,
            filters={name: FILTERS[name] for name in names if name in FILTERS} | added,
            noise=NOISE[config.noise_kind] if noise is None else noise,
            proposer_reward=PROPOSER_REWARDS[config.proposer_reward] if asks is None else asks,
            solver_reward=right_answer if solves is None else solves,
        )


def _declared(names: Sequence[str], given: Sequence[Tool]) -> list[Tool]:
    """The tools of these names, search first: those that ship, and those that are given."""
    for tool in given:
        expect("tools", tool, Tool, "give Tools: ssp_env.Tool(name=..., ...)")
        if tool.name not in names:
            fix = f"name it there as well: game={{'tools': {[*names, tool.name]}}}"
            raise ConfigError("game.tools", names, fix)
    known = TOOLS | {tool.name: tool for tool in given}
    for name in names:
        if name not in known:
            fix = f"no such tool; {nearest(name, known)}; your own come by the keyword tools"
            raise ConfigError("game.tools", name, fix)
    return [known[name] for name in dict.fromkeys(["search", *names])]


def _needed_prompts(config: GameConfig, by_policy: bool) -> list[str]:
    """The prompts that these rules need beside those of every game."""
    used = {
        "topic": config.proposer_chooses,
        "closed_book": config.closed_book,
        "verifier": by_policy and config.verification_prompt == "documents",
        "candidate": by_policy and config.sees_candidate,
    }
    return [name for name in used if used[name]]


def _check_prompts(prompts: Prompts, config: GameConfig, needed: Sequence[str]) -> None:
    """Refuses prompts that are missing, or too long whatever is asked."""
    for name in needed:
        if name not in prompts.texts:
            fix = f"{name}.txt is missing from it; plain has one"
            raise ConfigError("game.prompts", config.prompts, fix)

    lengths = {"proposer": len(prompts.proposer("", config.asked_searches[0]))}
    if "verifier" in needed:
        lengths["verifier"] = len(prompts.verifier("", (), 1))
    if "candidate" in needed:
        lengths["verifier"] = len(prompts.candidate("", "", (), 1))
    for role, length in lengths.items():
        if length > config.max_prompt_tokens:
            fix = f"the {role}'s prompt alone takes {length} tokens; give more than that"
            raise ConfigError("game.max_prompt_tokens", config.max_prompt_tokens, fix)


def own_retriever(world: World) -> Retriever:
    """The retriever that a world has, such as a kept index; else BM25 over its corpus."""
    retriever: Retriever | None = getattr(world, "retriever", None)
    if retriever is not None:
        return retriever
    # Imported here: a retriever of your own can do without.
    from ssp_env.search.bm25 import BM25Retriever

    return BM25Retriever(world.corpus)


def own_judge(world: World) -> Judge:
    """The judge that a world has, such as exact match where names are generated; else lenient."""
    judge: Judge | None = getattr(world, "judge", None)
    return LenientJudge() if judge is None else judge


def resolve_verifier(name: str, world: World) -> str:
    """The verifier that ``auto`` stands for in a world; any other name stands for itself."""
    if name != "auto":
        return name
    return "world" if world.can_read else "policy"


def _verifier(name: str, world: World) -> Verifier | None:
    match resolve_verifier(name, world):
        case "policy" | "frozen":
            return None
        case "world":
            return WorldVerifier(world)
        case "none":
            return NoVerifier()
    fix = "pass verifier=ssp_env.judge.openai.OpenAIVerifier(client, judge)"
    raise ConfigError("game.verifier", name, fix)


# -- facts about rules -------------------------------------------------------------------------


def fingerprint(rules: Rules) -> dict[str, Any]:
    """Everything about search, judging and prompts that decides what an accuracy means, as plain
    data for JSON."""
    config, corpus = rules.config, rules.corpus
    parts: dict[str, Any] = {
        "world": rules.world.name,
        "corpus": {"name": corpus.name, "passages": len(corpus), "digest": corpus.digest()},
        "retriever": identify(rules.retriever),
        "top_k": config.top_k,
        "max_searches": config.max_searches,
        "max_document_tokens": config.max_document_tokens,
        "judge": _part(rules.judge),
        "verifier": _reader(config) if rules.verifier is None else _part(rules.verifier),
        "prompts": {"name": config.prompts, "digest": _digest(dict(rules.prompts.texts))},
    }
    more = {name: identify(each) for name, each in rules.retrievers.items() if name != "search"}
    parts |= {"tools": more} if more else {}
    return {**parts, "hash": _digest(parts)[:12]}


def _reader(config: GameConfig) -> str:
    """The policy that verifies."""
    reader = "frozen" if config.verifier == "frozen" else "policy"
    return f"{reader} (candidate)" if config.sees_candidate else reader


def _part(part: object) -> str:
    """A judge or verifier: its class, and what it says of itself by its method ``describe``."""
    # Without such a method, `dict` says nothing of a part.
    described: dict[str, Any] = getattr(part, "describe", dict)()
    settings = ", ".join(map(str, described.values()))
    name = type(part).__name__
    return f"{name} ({settings})" if settings else name


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def is_remote(part: object) -> bool:
    """True if a retriever, judge or verifier spends its time waiting for another machine.

    It is then called from several threads at once, while the policy generates. A part says so by
    its attribute ``remote``; a wrapper is remote if any retriever it wraps is."""
    said = getattr(part, "remote", None)
    if isinstance(said, bool):
        return said
    # Wrappers have one retriever or several.
    inner = getattr(part, "retriever", None)
    several = getattr(part, "retrievers", None) or ([] if inner is None else [inner])
    return any(map(is_remote, several))


def waits_for_others(rules: Rules) -> bool:
    """True if a service of these rules waits for another machine, so that the order in which turns
    are batched depends on which answers first."""
    return any(map(is_remote, (*rules.retrievers.values(), rules.judge, rules.verifier)))


def idle_settings(rules: Rules) -> Iterator[str]:
    """One line for each setting of these rules that changes nothing, with the reason."""
    config = rules.config
    count, kind, searches = config.noise_documents, config.noise_kind, config.asked_searches

    # Noise is read by the verifier alone, and misleads a world's reader where facts have rivals.
    misleads = getattr(rules.world, "one_to_many", True)
    if count and isinstance(rules.verifier, NoVerifier):
        yield f"game.noise_documents = {count} has no effect: nobody verifies (game.verifier: none)"
    elif count and isinstance(rules.verifier, WorldVerifier) and not misleads:
        yield (
            f"game.noise_documents = {count} has no effect: every fact of this world has one "
            f"value (world_options.one_to_many: false)"
        )
    if kind != "batch" and not count:
        yield f"game.noise_kind = {kind} has no effect: game.noise_documents is 0"
    elif kind != "batch" and rules.noise is not NOISE[kind]:
        yield f"game.noise_kind = {kind} has no effect: noise comes from a source of your own"

    for tool in config.tools:
        # A set that names search, such as one of your own, may leave others out.
        told = [
            rules.tags.opening(name) in rules.prompts.texts["solver"] for name in ("search", tool)
        ]
        if told == [True, False]:
            yield (
                f"game.tools: the solver's prompt (game.prompts: {config.prompts}) does not tell "
                f"of {tool}; put {{tools}} into it"
            )
    asks = "topic" if config.proposer_chooses else "proposer"
    if searches != (1, 1) and "{searches}" not in rules.prompts.texts[asks]:
        yield (
            f"game.asked_searches = {searches} has no effect: the proposer's prompt "
            f"(game.prompts: {config.prompts}) does not name a number of searches"
        )
