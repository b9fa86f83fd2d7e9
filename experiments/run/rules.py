"""From a run's settings to the rules that its games are played by."""

from __future__ import annotations

from experiments.config import RunConfig
from ssp_env.config import load
from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import prompt_file
from ssp_env.game.rules import Parts, Rules, own_judge
from ssp_env.judge.chat import ChatClient
from ssp_env.judge.openai import OpenAIJudge, OpenAIVerifier
from ssp_env.search.index import open_search
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import World


class MakeRules:
    """Makes the rules in whichever process plays; it carries settings, not open connections."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def __call__(self, world: World, tokenizer: Tokenizer, game: GameConfig) -> Rules:
        """The rules of a user's own function, or with the parts that the settings name.

        Raises:
            ConfigError: the function is not there, or returns something else.
        """
        if self._config.rules:
            rules = load("rules", self._config.rules)(world, tokenizer, game)
            if not isinstance(rules, Rules):
                fix = "name a function that returns ssp_env Rules, such as Rules.build(...)"
                raise ConfigError("rules", self._config.rules, fix)
            return rules
        return Rules.build(world, tokenizer, game, **self.parts(world, game))

    def parts(self, world: World, game: GameConfig) -> Parts:
        """Retriever, judge and verifier as the settings name them; only what they name."""
        parts = Parts()

        client = chat_client(self._config)
        if client is not None:
            if self._config.served_model().judge:
                parts["judge"] = OpenAIJudge(client, prompt_file(game.prompts, "judge.txt"))
            if game.verifier == "openai":
                form = game.verification_prompt
                name = "verify.txt" if form == "documents" else "solve.txt"
                own = prompt_file(game.prompts, name)
                searches = game.max_searches
                judge = parts.get("judge") or own_judge(world)
                parts["verifier"] = OpenAIVerifier(client, judge, own, form, searches)

        retriever = open_search(self._config.search)
        if retriever is not None:
            parts["retriever"] = retriever
        return parts


def chat_client(config: RunConfig) -> ChatClient | None:
    """A client of the model behind an API; ``None`` for a run that uses none.

    Raises:
        ConfigError: settings that cannot work, or a key that is not set.
    """
    used = config.game.verifier == "openai" or (config.openai is not None and config.openai.judge)
    return ChatClient(config.served_model()) if used else None
