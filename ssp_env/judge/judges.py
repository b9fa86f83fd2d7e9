"""The judges that ship, by the names that settings and commands call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ssp_env.errors import ConfigError, nearest
from ssp_env.judge.base import Judge
from ssp_env.judge.chat import ChatClient, ChatConfig
from ssp_env.judge.exact import ExactMatchJudge, F1Judge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.judge.openai import OpenAIJudge

BY_RULES: Mapping[str, Callable[[], Judge]] = {
    "lenient": LenientJudge,
    "exact": ExactMatchJudge,
    "f1": F1Judge,
}
"""Judges that need no model."""

JUDGES = (*BY_RULES, "openai")
"""Every name that :func:`make_judge` knows; the first is the default."""


def name_of(judge: Judge) -> str:
    """The name of a judge by rules; the class of any other."""
    names = {made: name for name, made in BY_RULES.items()}
    return names.get(type(judge), type(judge).__name__)


def make_judge(name: str, chat: ChatConfig | None = None) -> Judge:
    """The judge of this name.

    Args:
        name: one of :data:`JUDGES`.
        chat: where the model of ``openai`` is served; the others use none.

    Raises:
        ConfigError: no such judge, or ``openai`` without ``chat``.
    """
    if name in BY_RULES:
        return BY_RULES[name]()
    if name != "openai":
        raise ConfigError("judge", name, nearest(name, JUDGES))
    if chat is None:
        raise ConfigError("judge", name, "say where its model is served: base_url and model")
    return OpenAIJudge(ChatClient(chat))
