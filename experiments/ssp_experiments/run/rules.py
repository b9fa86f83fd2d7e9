"""The world and the rules of a run: each process opens them once, and hands them on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ssp_env.config import load, own_code
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import prompt_file
from ssp_env.game.rules import Parts, Rules, own_judge
from ssp_env.judge.chat import ChatClient
from ssp_env.judge.judges import BY_RULES
from ssp_env.judge.openai import OpenAIJudge, OpenAIVerifier
from ssp_env.search.index import open_search
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import World
from ssp_env.worlds import open_world
from ssp_experiments.config import RunConfig

_rules: dict[str, Rules] = {}
"""Those that this process has open for its run, by the settings that decide them."""
_worlds: dict[str, World] = {}
"""The world that was opened last; one of files may have changed since, and is not kept."""


@contextmanager
def kept_open() -> Iterator[None]:
    """Context of a run, to the end of which its rules stay open."""
    try:
        yield
    finally:
        _rules.clear()


def keep_rules(config: RunConfig, rules: Rules) -> None:
    """Hands these rules on to all that asks for the run's, within :func:`kept_open`."""
    _rules[_key(config)] = rules


def _key(config: RunConfig) -> str:
    names = {"world", "world_options", "rules", "model", "game", "judge", "search", "openai"}
    return config.model_dump_json(include=names)


def world_of(config: RunConfig) -> World:
    """The run's world, which each process opens once."""
    if (rules := _rules.get(_key(config))) is not None:
        return rules.world
    key = config.model_dump_json(include={"world", "world_options"})
    if key not in _worlds:
        world = open_world(config.world, **config.world_options)
        if config.world == "files":
            return world
        _worlds.clear()
        _worlds[key] = world
    return _worlds[key]


def rules_of(config: RunConfig, world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    """The run's rules: those that are open here, or else, in another process, its own."""
    rules = _rules.get(_key(config))
    return build_rules(config, world, tokenizer, game) if rules is None else rules


def build_rules(config: RunConfig, world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
    """The rules of a user's own function, or with the retriever, judge and verifier that the
    settings name. Processes that play make their own, since connections cannot be sent."""
    if config.rules:
        make = load("rules", config.rules)
        with own_code("rules", config.rules):
            rules = make(world, tokenizer, game) if callable(make) else make
        if not isinstance(rules, Rules):
            fix = "name a function that returns ssp_env Rules, such as Rules.build(...)"
            raise ConfigError("rules", config.rules, fix)
        return rules

    parts = Parts()
    if config.judge in BY_RULES:
        parts["judge"] = BY_RULES[config.judge]()
    client = chat_client(config)
    if client is not None:
        if config.judge == "openai":
            parts["judge"] = OpenAIJudge(client, prompt_file(game.prompts, "judge.txt"))
        if game.verifier == "openai":
            form = game.verification_prompt
            prompts = prompt_file(
                game.prompts, "verify.txt" if form == "documents" else "solve.txt"
            )
            judge = parts.get("judge") or own_judge(world)
            parts["verifier"] = OpenAIVerifier(client, judge, prompts, form, game.max_searches)
    retriever = open_search(config.search, world)
    if retriever is not None:
        parts["retriever"] = retriever
    return Rules.build(world, tokenizer, game, **parts)


def chat_client(config: RunConfig) -> ChatClient | None:
    """A client of the model behind an API; ``None`` for a run that uses none."""
    used = "openai" in (config.game.verifier, config.judge)
    return ChatClient(config.served_model()) if used else None
