"""Messages of a chat: search results of their own, tool calls by the template, second chances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted import everything
from test_prompts import ASKED, chatty

from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.game.batch import GameBatch
from ssp_env.game.outcome import Ending
from ssp_env.game.prompts import Prompts
from ssp_env.game.trajectory import Trajectory, Waiting
from ssp_env.game.verification import verification_prompt
from ssp_env.players.base import conversation
from ssp_env.replay import replay
from ssp_env.replay.files import save_game
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, World

PAGE = Document("1", "Paris", "Paris lies on the river Seine.")
END, USER, REPLY = "<|im_end|>\n", "<|im_start|>user\n", "<|im_start|>assistant\n"
SEARCH, ANSWER = "<search> river Paris </search>", "<answer> Seine </answer>"
CALL = '{{"name": "{}", "arguments": {{"{}": "{}"}}}}'
SEARCHED, ANSWERED = CALL.format("search", "query", "Paris"), CALL.format("answer", "text", "Seine")
HEAD = "{% for m in messages %}"
DECLARED = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
QWEN = (
    f"{DECLARED}{HEAD}<|im_start|>{{% if m.role == 'tool' %}}user\n<tool_response>\n"
    "{{ m.content }}\n</tool_response>{% else %}{{ m.role }}\n{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\\n' }}"
)
MISTRAL = (
    f"{HEAD}{{% if m.role == 'user' %}}{{% if tools %}}[TOOLS]{{{{ tools | tojson }}}}{{% endif %}}"
    "[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}"
    "{% if not messages[loop.index0 - 1].tool_calls %}{{ raise_exception('no call') }}{% endif %}"
    '[RESULT]{"content": {{ m.content }}, "id": "{{ m.tool_call_id }}"}[/RESULT]'
    "{% elif m.tool_calls %}[CALL]{{ m.tool_calls[0].function | tojson }}<|im_end|>"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)


def begun(world: World, tokenizer: Tokenizer, **game: Any) -> GameBatch:
    config = {"verifier": "none", "attempts": 1, "top_k": 1, **game}
    setup = {"world": world, "tokenizer": tokenizer, "retriever": everything(world), "game": config}
    return GameBatch.of_questions(set_up(setup).rules, [ASKED], [0])


def played(world: World, tokenizer: Tokenizer, *turns: str, **game: Any) -> Trajectory:
    batch = begun(world, tokenizer, **game)
    for turn in turns:
        batch.pending()[0].feed_text(turn)
        batch.advance()
    return batch.games[0].attempts[0].trajectory


def response(trajectory: Trajectory) -> str:
    return trajectory.limits.tokenizer.decode(trajectory.ids[trajectory.prompt_length :])


def own_text(trajectory: Trajectory) -> str:
    pairs = zip(trajectory.ids, trajectory.mask, strict=True)
    return trajectory.limits.tokenizer.decode([i for i, own in pairs if own])


def test_a_result_is_a_message_of_its_own(cities: World) -> None:
    """As the template renders the same conversation; none of it is the policy's."""
    tokenizer = chatty()
    told = played(cities, tokenizer, SEARCH, ANSWER, prompts="compact")
    asked = Prompts.open("compact", tokenizer).texts["solver"].replace("{question}", ASKED.text)
    found = f"<information>[Paris] {PAGE.text}</information>"
    messages = [("user", asked.strip()), ("assistant", SEARCH), ("user", found)]
    chat = [{"role": role, "content": content} for role, content in messages]
    rendered = tokenizer.inner.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(told.ids) == rendered + ANSWER
    assert own_text(told) == SEARCH + ANSWER

    prompts = Prompts.open("search-r1", tokenizer)
    inside = tokenizer.decode(prompts.information([PAGE], 99))
    assert inside.strip().startswith("<information>"), "Search-R1's stays in its own message"


def test_a_message_that_the_policy_ended_is_not_ended_twice(cities: World) -> None:
    tokenizer = chatty()
    told = played(cities, tokenizer, f"hm<|im_end|>{SEARCH}", ANSWER, prompts="plain", retries=1)
    message = tokenizer.decode(
        Prompts.open("plain", tokenizer).retry(told.limits.actions)
    ).removeprefix("<|im_end|>")
    assert response(told) == f"hm<|im_end|>{message}{ANSWER}"
    assert own_text(told) == f"hm<|im_end|>{ANSWER}"


def test_verification_looks_like_solving_in_messages(cities: World) -> None:
    for name in ("plain", "few-shot", "tools"):
        tokenizer = chatty()
        tokenizer.inner.chat_template = QWEN
        batch = begun(cities, tokenizer, prompts=name)
        solver, rules = batch.pending()[0], batch.rules
        solver.feed(tokenizer.encode(SEARCH.replace("river Paris", ASKED.text)))
        batch.advance()
        read = verification_prompt(rules.prompts, rules.config, batch.games[0], [PAGE])
        assert tokenizer.decode(read) == tokenizer.decode(solver.ids)


def test_the_question_stands_behind_what_was_found_where_the_set_says_so(tmp_path: Path) -> None:
    for name, text in (("proposer", "{answer}"), ("solver", "{question}"), ("document", "{text}")):
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "nothing.txt").write_text("nothing")
    (tmp_path / "information.txt").write_text("{documents}\n{about}")
    prompts = Prompts.open(str(tmp_path), ByteTokenizer())
    assert bytes(prompts.information([PAGE], 5, "Who?")).decode() == "\nParis\nWho?"
    assert "<answer>" not in bytes(prompts.information([PAGE], 5, "<answer>")).decode()

    (tmp_path / "set.json").write_text('{"results": "beside"}')
    with pytest.raises(ConfigError, match=r"set\.results = 'beside'.*inside"):
        Prompts.open(str(tmp_path), ByteTokenizer())
    (tmp_path / "set.json").write_text("inside")
    with pytest.raises(ConfigError, match=r"set\.json = 'inside'.*mapping"):
        Prompts.open(str(tmp_path), ByteTokenizer())


@pytest.mark.parametrize("framed", [False, True])
def test_a_chat_server_is_sent_the_sets_messages(framed: bool) -> None:
    prompts = Prompts.open("few-shot", chatty() if framed else ByteTokenizer())
    decode = chatty().decode if framed else ByteTokenizer().decode
    told = prompts.chat(prompts.unframed(decode(prompts.solver("Who?", 3))))
    authors = [message["role"] for message in told]
    assert (authors[0], {*authors[1::2]}, authors[-1]) == ("system", {"user"}, "user")
    assert told[-1]["content"] == "Who?"
    assert all("<|im_" not in message["content"] for message in told)
    found = prompts.unframed(decode(prompts.information([PAGE], 99, "Who?")))
    assert found.startswith("<information>")
    assert prompts.chat("Another prompt.") == [{"role": "user", "content": "Another prompt."}]


@pytest.mark.parametrize("prompts", ["few-shot", "plain"])
def test_a_server_of_the_model_reads_what_an_engine_reads(prompts: str, cities: World) -> None:
    tokenizer = chatty()
    batch = begun(cities, tokenizer, prompts=prompts, retries=2)
    (attempt,) = batch.pending()
    for turn in (SEARCH, "hm<|im_end|>"):
        attempt.feed_text(turn)
        batch.advance()
        messages = conversation(batch.rules.prompts, attempt)
        told = tokenizer.inner.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert told == tokenizer.decode(attempt.ids)

    # Servers take no message without text.
    attempt.feed_text("")
    batch.advance()
    longer = conversation(batch.rules.prompts, attempt)
    assert longer[:-1] == messages[:-1]
    assert longer[-1]["content"] == "\n".join([messages[-1]["content"]] * 2)


def test_a_template_that_takes_no_result_names_the_setting(cities: World) -> None:
    tokenizer = chatty()
    tokenizer.inner.chat_template = "{{ messages[0]['content'] }}"
    with pytest.raises(TokenizerError, match=r'leaves out the assistant.*\{"results": "inside"\}'):
        Prompts.open("plain", tokenizer)
    assert played(cities, tokenizer, SEARCH, ANSWER, prompts="search-r1").result == "Seine"


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        (QWEN, f"{END}{USER}<tool_response>\n", f"\n</tool_response>{END}{REPLY}"),
        (MISTRAL, '<|im_end|>[RESULT]{"content": ', ', "id": "search001"}[/RESULT]'),
    ],
)
def test_functions_and_results_are_the_templates(
    template: str, before: str, after: str, cities: World
) -> None:
    tokenizer = chatty()
    tokenizer.inner.chat_template = template
    told = played(cities, tokenizer, SEARCHED, ANSWERED, prompts="tools")
    prompt = tokenizer.decode(told.ids[: told.prompt_length])
    assert prompt.count('"name": "search"') == prompt.count('"name": "answer"') == 1
    assert '"name": "question"' not in prompt
    assert response(told) == f"{SEARCHED}{before}[Paris] {PAGE.text}{after}{ANSWERED}"
    assert own_text(told) == SEARCHED + ANSWERED


def test_functions_are_declared_in_words_where_the_template_has_no_place(cities: World) -> None:
    for tokenizer in (chatty(), ByteTokenizer()):
        told = played(cities, tokenizer, SEARCHED, ANSWERED, prompts="tools")
        lines = tokenizer.decode(told.ids[: told.prompt_length]).splitlines()
        declared = [json.loads(line) for line in lines if line.startswith('{"type"')]
        assert [f["function"]["name"] for f in declared] == ["search", "answer"]
        assert f"<tool_response>[Paris] {PAGE.text}</tool_response>" in response(told)
        assert told.result == "Seine"


TAGGED = f"<tool_call>\n{SEARCHED}\n</tool_call>"


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        (SEARCHED, SEARCHED),
        (f"{TAGGED} more", TAGGED),
        (f"```json\n{SEARCHED}\n```", f"```json\n{SEARCHED}"),
        (f"I shall look.\n{SEARCHED}\n{ANSWERED}", f"I shall look.\n{SEARCHED}"),
        (f"{SEARCHED}\n<tool_response>\nSeine\n</tool_response>\n{ANSWERED}", SEARCHED),
        (f"[CALL][{SEARCHED}]", f"[CALL][{SEARCHED}"),
        (f"<tool_call>{SEARCHED}<|im_end|>", f"<tool_call>{SEARCHED}<|im_end|>"),
        (f"<tool_call>{SEARCHED}<tool_call>{ANSWERED}", f"<tool_call>{SEARCHED}<tool_call>"),
        (f"<think>{ANSWERED}</think>{SEARCHED}", f"<think>{ANSWERED}</think>{SEARCHED}"),
        (f'{{"calls": [{SEARCHED}]}}', f'{{"calls": [{SEARCHED}'),
        (f"{{no}} {{\"a\": 'b'}} {SEARCHED}", f"{{no}} {{\"a\": 'b'}} {SEARCHED}"),
        ("<search> Paris </search>", "<search> Paris </search>"),
    ],
)
@pytest.mark.parametrize("by_token", [False, True])
def test_the_first_call_of_a_turn_counts(
    written: str, taken: str, by_token: bool, cities: World
) -> None:
    tokenizer = chatty()
    tokenizer.inner.chat_template = QWEN
    trajectory = begun(cities, tokenizer, prompts="tools").pending()[0]
    ids = tokenizer.encode(written)
    if by_token:
        fed = next(n for n, i in enumerate(ids, 1) if trajectory.feed([i]))
        assert fed == len(ids) or taken != written
    else:
        trajectory.feed_turn(ids)
    assert trajectory.query == "Paris"
    assert own_text(trajectory) == taken


def test_results_that_a_model_invents_alone_are_forged(cities: World) -> None:
    told = played(cities, chatty(), "<tool_response>Seine</tool_response>", prompts="tools")
    assert told.ending is Ending.FORGED


def test_many_braces_cost_no_more_than_other_text() -> None:
    from ssp_env.game.calls import NO_OBJECTS, objects_after

    for text in (b'{"a":' * 20_000, b"{}" * 20_000, b'{"a":{' * 20_000 + b"}" * 40_000):
        at, state, tried = 0, NO_OBJECTS, 0
        while at is not None:
            start = at
            at, state = objects_after(state, text, start, len(text))
            assert len(state.starts) <= 2
            tried += 0 if at is None else at - state.closed
        assert tried <= 2 * len(text)


# -- second chances ------------------------------------------------------------------------------


def test_a_malformed_action_gets_a_message_and_another_chance(cities: World) -> None:
    tokenizer = chatty()
    turns = ("It is the Seine.", SEARCH, "It is the Seine.", ANSWER)
    told = played(cities, tokenizer, *turns, prompts="plain", retries=2)
    assert (told.result, len(told.searches), len(told.retried)) == ("Seine", 1, 2)
    assert own_text(told) == "".join(turns)
    says = f"{END}{USER}Your last message held no complete action. Reply with one: "
    says += f"<search> ... </search> or <answer> ... </answer>{END}{REPLY}"
    assert response(told).split(says) == [turns[0], response(told).split(says)[1], ANSWER]

    for retries, ending in ((0, Ending.FORMAT), (1, Ending.FORMAT)):
        short = played(cities, tokenizer, *turns[: 1 + 2 * retries], retries=retries)
        assert (short.ending, len(short.retried)) == (ending, retries)
    full = played(cities, tokenizer, turns[0], retries=1, max_response_tokens=60)
    assert (full.ending, full.waiting) == (Ending.FORMAT, Waiting.NOTHING)


@pytest.mark.parametrize("turns", [("", "", ANSWER), ("no", SEARCH, "", ANSWER), ("a", "b", "c")])
def test_second_chances_are_replayed(turns: tuple[str, ...], cities: World) -> None:
    batch = begun(cities, ByteTokenizer(), retries=2)
    for turn in turns:
        batch.pending()[0].feed_text(turn)
        batch.advance()
    assert batch.done
    again = replay(save_game(batch.games[0], batch.rules))
    assert again.identical, again.differences
    authors = [s.by for s in save_game(batch.games[0], batch.rules).record.attempts[0].segments]
    assert authors.count("retry") == 2
