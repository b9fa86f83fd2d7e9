"""The files of prompt sets: those that ship, and directories of one's own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Literal

from ssp_env.config import Settings
from ssp_env.errors import ConfigError, nearest
from ssp_env.game.protocol import Tags
from ssp_env.removed import PROMPTS

FORMATS: Mapping[str, dict[str, int]] = {
    # github.com/PeterGriffinJin/Search-R1: search_r1/llm_agent/generation.py, scripts/data_process
    "search-r1": {"top_k": 3, "max_searches": 4},
}
"""Settings of the game that other projects' checkpoints expect, by the name of the prompt set."""

SHIPPED = ("compact", "few-shot", "mini", "paper", "plain", "tools", *FORMATS)

BESIDE = ("judge", "verify", "solve")
"""Prompts of a set for models behind an API, which :func:`prompt_file` gives."""


_AUTHORS = ("system", "user", "assistant")
_AUTHOR = re.compile(
    r"^[ \t]*\[[ \t]*(system|user|assistant)[ \t]*\][ \t]*(?:\n|\Z)", re.MULTILINE | re.IGNORECASE
)
_BRACKETED = re.compile(r"\s*\[[^\]]*\]\s*")


class SetForm(Settings):
    """``set.json``: what a prompt set says of itself."""

    section: ClassVar[str] = "set"

    encoding: Literal["whole", "pieces"] = "whole"
    """``whole``: a prompt has the ids that the tokenizer gives its whole text. ``pieces``: literals
    and what stands between them are encoded one by one, as the policies that ship were trained."""
    results: Literal["message", "tool", "inside"] = "message"
    """Place of what a search has found: ``message`` (a user's message of its own), ``tool`` (the
    chat template's own message for it, and its declarations of functions, where it has them), or
    ``inside`` (the assistant's own message, as Search-R1's checkpoints expect it)."""


def format_settings(prompts: str) -> dict[str, Any]:
    """The settings of a game that a prompt set asks for, as plain data."""
    return {"prompts": prompts, **FORMATS.get(prompts.partition(":")[0], {})}


def prompt_file(source: str, name: str) -> Traversable | None:
    """A file of the set that ``game.prompts`` names, such as ``judge.txt``, if there is one."""
    shipped, _, words = source.partition(":")
    folders: list[Traversable] = [Path(source)]
    if shipped in SHIPPED:
        # Other projects have no proposer and no verifier: ``plain`` completes their sets.
        ours = resources.files("ssp_env.game.prompts")
        folders = [ours / shipped, ours / "plain"]
        if words and name == "solver.txt":
            return Path(words)
    elif not folders[0].is_dir():
        fix = PROMPTS.get(shipped, nearest(shipped, SHIPPED))
        raise ConfigError("game.prompts", source, f"name a directory, or a shipped set; {fix}")

    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def tags_of(source: str, tools: Sequence[str] = ("search",)) -> Tags:
    """Names of the tags of the prompt set that ``game.prompts`` names, and of these tools."""
    tags = read_tags(read_text(source, "tags.json"))
    more = tuple(tool for tool in tools if tool != "search")
    return tags.replace(tools=more) if more else tags


def read_tags(declared: str | None) -> Tags:
    """Names of tags from the text of a ``tags.json``; the default ones if there is none."""
    try:
        return Tags(**json.loads(declared or "{}"))
    except (json.JSONDecodeError, TypeError) as error:
        fix = 'give a mapping from tag to name, such as {"information": "observation"}'
        raise ConfigError("tags.json", declared, f"{fix} ({error})") from error


def read_text(source: str, name: str) -> str | None:
    file = prompt_file(source, name)
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8-sig")  # editors may mark the encoding
    except (OSError, UnicodeDecodeError) as error:
        fix = f"{file.name} has to be a readable UTF-8 file ({error})"
        raise ConfigError("game.prompts", source, fix) from error


def authored(name: str, text: str) -> list[tuple[str, str]]:
    """The messages of a prompt, each with its author: lines such as ``[system]`` divide them."""
    text = text.removesuffix("\n")
    for line in text.splitlines():
        said = line.strip()[1:-1].strip().casefold() if _BRACKETED.fullmatch(line) else "user"
        if said not in _AUTHORS and get_close_matches(said, _AUTHORS, 1, cutoff=0.7):
            raise ConfigError(f"game.prompts.{name}", line.strip(), nearest(said, _AUTHORS))

    first, *more = _AUTHOR.split(text)
    # Authors and their texts by turns.
    messages = list(zip(more[0::2], more[1::2], strict=True))
    if first.strip() or not messages:
        messages.insert(0, ("user", first))
    # The line break before the next author's name is none of a message's.
    whole = [content.removesuffix("\n") for _, content in messages[:-1]] + [messages[-1][1]]
    return [(author.lower(), each) for (author, _), each in zip(messages, whole, strict=True)]


def read_form(declared: str | None) -> SetForm:
    """What the text of a ``set.json`` says; the defaults if there is none."""
    try:
        return SetForm(**json.loads(declared or "{}"))
    except (json.JSONDecodeError, TypeError) as error:
        fix = f'give a mapping of its fields, such as {{"encoding": "pieces"}} ({error})'
        raise ConfigError("set.json", declared, fix) from error
