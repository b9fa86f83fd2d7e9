"""A prompt set's texts as messages of a chat: who writes each, what the model's chat template puts
around it, and the functions that it is told of."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ssp_env.errors import TokenizerError
from ssp_env.game.prompts.sets import SetForm, authored
from ssp_env.game.protocol import Tags, actions_of
from ssp_env.game.tools import Tool
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Action, Role

OPENING, CLOSING = "_opening", "_closing"
"""Behind a text's name, among the texts of a set: what the chat template puts around it."""
MESSAGES = "_messages"
"""Behind a role's name, among the texts of a set: authors, beginnings and ends of its messages."""
ROLES: Mapping[str, Role] = {role.value: role for role in Role} | {
    "topic": Role.PROPOSER,
    "candidate": Role.VERIFIER,
}
"""Role that each prompt is given to; all of them are messages."""
_LAST = {
    Action.QUESTION: ("text", "Gives the question that you have written.", "The question."),
    Action.ANSWER: ("text", "Gives your answer to the question.", "The answer, in a few words."),
}
_DECLARED = "You may call these functions. Reply with one call, a JSON object with its name and \
arguments, within {} and {}:"


def as_messages(texts: Mapping[str, str], text: str) -> list[dict[str, str]]:
    """A prompt, without what a chat template puts around it, as messages for a chat server: those
    of the set before the one that is filled in, which is the last."""
    for role in ROLES:
        places: list[tuple[str, int, int]] = json.loads(texts.get(f"{role}{MESSAGES}", "[]"))
        if places and text.startswith(texts[role][: places[-1][1]]):
            ends = [stop for _, _, stop in places[:-1]] + [len(text)]
            return [
                {"role": author, "content": text[start:stop]}
                for (author, start, _), stop in zip(places, ends, strict=True)
            ]
    return [{"role": "user", "content": text}]


def functions_of(role: Role, tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Declarations of a role's actions as JSON schemas, as ``apply_chat_template(tools=...)`` takes
    them."""
    known = {tool.name: (tool.argument, tool.purpose, tool.meaning) for tool in tools}
    actions = actions_of(role, [*known])
    return [_function(action, *(known.get(action) or _LAST[Action(action)])) for action in actions]


def _function(name: str, parameter: str, purpose: str, what: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {parameter: {"type": "string", "description": what}},
        "required": [parameter],
    }
    described = {"name": name, "description": purpose, "parameters": schema}
    return {"type": "function", "function": described}


def in_messages(
    texts: Mapping[str, str], form: SetForm, tags: Tags, tokenizer: Tokenizer, tools: Sequence[Tool]
) -> tuple[dict[str, str], tuple[str, str]]:
    """The texts with messages of several authors joined as the tokenizer's chat template joins
    them, and the template's texts around a single message by the user.

    Where other texts than these stand around one of them, they are added, as ``solver_opening`` and
    ``solver_closing``. Without a template, each message is a line of its own."""
    frame: Callable[..., tuple[str, ...]] = getattr(tokenizer, "chat_frame", _no_frame)
    texts, usual = dict(texts), frame()
    calls = form.results == "tool"
    declared = calls and getattr(tokenizer, "declares_functions", False)

    # As the chat template would: it does not see the texts themselves.
    trims = getattr(tokenizer, "trims_messages", False)
    for role in texts.keys() & ROLES.keys():
        messages = authored(role, texts[role])
        functions = functions_of(ROLES[role], tools) if calls else []
        given = {"functions": functions} if declared else {}
        opening, *between, closing = frame([author for author, _ in messages], **given)
        lines = [text.strip() if trims else text for _, text in messages]
        if functions and not declared:
            lines[0] = _in_words(functions, tags) + lines[0]
        # The final line break of a text is ignored.
        texts[role] = "".join(itertools.chain(*zip(lines, [*between, "\n"], strict=True)))
        if len(messages) > 1:
            # Where each message begins and ends in the text of all.
            places, at = [], 0
            for (author, _), line, behind in zip(messages, lines, [*between, ""], strict=True):
                places.append((author, at, at + len(line)))
                at += len(line) + len(behind)
            texts[f"{role}{MESSAGES}"] = json.dumps(places)
        if (opening, closing) != usual:
            texts[f"{role}{OPENING}"], texts[f"{role}{CLOSING}"] = opening, closing

    around = tags.opening("information"), tags.closing("information")
    bare = ("", "") if declared else around
    texts.setdefault("information", "{documents}".join(bare))
    for name, author in (("information", "tool" if declared else "user"), ("retry", "user")):
        if form.results != "inside":
            texts[f"{name}{OPENING}"], texts[f"{name}{CLOSING}"] = _reply_frame(
                frame, author, tools
            )
    return texts, (usual[0], usual[1])


def _reply_frame(
    frame: Callable[..., tuple[str, ...]], author: str, tools: Sequence[Tool]
) -> tuple[str, str]:
    """What stands between an assistant's message and a reply to it, and behind that reply."""
    given = {"functions": functions_of(Role.SOLVER, tools)} if author == "tool" else {}
    try:
        _, _, before, after = frame(("user", "assistant", author), **given)
    except TokenizerError as error:
        what = f"a search's result cannot be a message of its own: {error}"
        fix = 'or set {"results": "inside"} in the set.json of a prompt set of your own'
        raise TokenizerError(f"{what}, {fix}") from error
    return before, after


def _in_words(functions: Sequence[Mapping[str, Any]], tags: Tags) -> str:
    """Declarations for a chat template that has no place for them."""
    said = _DECLARED.format(tags.opening("call"), tags.closing("call"))
    return "\n".join([said, *map(json.dumps, functions), "", ""])


def _no_frame(roles: Sequence[str] = ("user",)) -> tuple[str, ...]:
    """Without a chat template, each message is a line of its own."""
    return ("", *["\n"] * (len(roles) - 1), "")
