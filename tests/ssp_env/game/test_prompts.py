"""Prompt sets: those that ship, the paper's elements, other projects' formats, one's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from scripted import everything, spell, word_tokenizer

import ssp_env
from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError, TokenizerError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Attempt
from ssp_env.game.prompts import FORMATS, SHIPPED, Prompts, format_settings
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document, Question, World

BYTES = ByteTokenizer()
OWN = {
    "proposer": "Ask for {answer} in {searches}.",
    "solver": "Solve {question} in {searches}.",
    "verifier": "{documents} Q: {question}",
    "document": "({title}) {text}",
    "nothing": "none",
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name, text in OWN.items():
        (tmp_path / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    return tmp_path


def chatty(**options: Any) -> Any:
    """A tokenizer with a chat template."""
    hf = pytest.importorskip("hf_tokenizers", exc_type=ImportError)
    from ssp_env.tokenizers import HuggingFaceTokenizer

    return HuggingFaceTokenizer(hf.byte_level(chat=True, **options))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("tokenizer", [BYTES, word_tokenizer()])
def test_shipped_sets_hold_every_value(name: str, tokenizer: Tokenizer) -> None:
    prompts, page = Prompts.open(name, tokenizer), Document("d", "mentor", "rival mayor")
    for ids, values in (
        (prompts.proposer("mentor", 2), ["mentor"]),
        (prompts.solver("what is it ?", 4), ["what is"]),
        (prompts.verifier("what is it ?", [page], 99), ["rival mayor", "what is"]),
        (prompts.information([page], 99), ["rival mayor"]),
    ):
        text = spell(tokenizer, ids).decode()
        assert all(value in text for value in values)
        assert not re.search(r"\{[a-z_]+\}", text), "a placeholder"
    assert prompts.information([page], 99) != prompts.information([], 99) != []
    assert name != "paper" or len(prompts.proposer("x" * 200, 10)) < 4096


def test_an_own_set(own: Path) -> None:
    prompts = Prompts.open(str(own), BYTES)
    pages = [Document("1", "A", "aaa"), Document("2", "B", "bbb")]
    found = "\n<information>(A) aaa\n(B) bbb</information>"
    for ids, text in (
        (prompts.proposer("Rome", 3), "Ask for Rome in 3."),
        (prompts.solver("Where?", 7), "Solve Where? in 7."),
        (prompts.verifier("Where?", pages, 2), "(A) aa\n(B) bb Q: Where?"),
        (prompts.information(pages, 3), found),
        (prompts.information([], 3), "\n<information>none</information>"),
    ):
        assert bytes(ids).decode() == text

    (own / "tags.json").write_text('{"serch": "find"}')
    with pytest.raises(ConfigError, match="search"):
        Prompts.open(str(own), BYTES)
    (own / "tags.json").unlink()
    (own / "jugde.txt").write_text("Judge.")
    with pytest.raises(ConfigError, match=r"jugde\.txt is none .* did you mean 'judge'"):
        Prompts.open(str(own), BYTES)
    (own / "jugde.txt").unlink()
    (own / "verifier.txt").unlink()
    small = ssp_env.open_world("mini", entities=50)
    solving = GameConfig(prompts=str(own), verifier="policy", verification_prompt="attempt")
    Rules.build(small, BYTES, solving)
    with pytest.raises(ConfigError, match=r"verifier\.txt is missing from it; plain has one"):
        Rules.build(small, BYTES, solving.replace(verification_prompt="documents"))


ASKED = Question("1", "Which river runs through Paris?", ("Seine", "the Seine"), "rivers")
SEARCH = "<think> I do not know. </think>\n<search> river Paris </search>"
ANSWER = "<think> So it is. </think>\n<answer> the Seine </answer>"
FOUND = {
    "search-r1": '\n\n<information>Doc 1(Title: "Paris") Paris lies on the river Seine.\n'
    'Doc 2(Title: "Rome") Rome lies on the Tiber.</information>\n\n',
}
"""Spelled out from their released code, not taken from the sets."""


def attempt(world: World, prompts: str, tokenizer: Any, *turns: str, **more: Any) -> Attempt:
    """A search, which finds everything, and an answer."""
    game = {**format_settings(prompts), "verifier": "none", "attempts": 1, **more}
    setup = {"world": world, "tokenizer": tokenizer, "retriever": everything(world), "game": game}
    played = GameBatch.of_questions(set_up(setup).rules, [ASKED], [0])
    for turn in turns:
        played.pending()[0].feed_text(turn)
        played.advance()
    return played.games[0].attempts[0]


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_whole_attempt_in_a_projects_format(name: str, cities: World) -> None:
    """Framed, stopped, rendered and scored as the project does it."""
    tokenizer = chatty()
    tried = attempt(cities, name, tokenizer, f"{SEARCH} and more", f"{ANSWER} and more")

    folder = Path(ssp_env.__file__).parent / "game/prompts" / name
    told = (folder / "solver.txt").read_text().removesuffix("\n")
    messages = [{"role": "user", "content": told.replace("{question}", ASKED.text)}]
    prompt = tokenizer.inner.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )
    written = tried.trajectory
    assert tokenizer.decode(written.ids) == f"{prompt}{SEARCH}{FOUND[name]}{ANSWER}"
    theirs = [i for i, by_policy in zip(written.ids, written.mask, strict=True) if by_policy]
    assert tokenizer.decode(theirs) == f"{SEARCH}{ANSWER}"
    assert (written.searches[0].query, written.result) == ("river Paris", "the Seine")
    assert tried.reward == 1.0


def test_worked_examples_are_turns_of_the_chat(own: Path) -> None:
    turns = {"system": "Be brief.", "user": "2 + 2?", "assistant": "<answer> 4 </answer>"}
    told = "".join(f"[{author}]\n{text}\n" for author, text in turns.items())
    (own / "solver.txt").write_text(f"{told}[user]\n{OWN['solver']}\n")
    tokenizer, asked = chatty(), "Solve Where? in 3."
    messages = [{"role": author, "content": text} for author, text in turns.items()]
    ids = tokenizer.inner.apply_chat_template(
        [*messages, {"role": "user", "content": asked}], add_generation_prompt=True, tokenize=False
    )
    assert tokenizer.decode(Prompts.open(str(own), tokenizer).solver("Where?", 3)) == ids
    lines = "\n".join([*turns.values(), asked])
    assert bytes(Prompts.open(str(own), BYTES).solver("Where?", 3)).decode() == lines

    tokenizer.inner.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ messages[0]['content'] }}"
    )
    with pytest.raises(TokenizerError, match=r"no system\); take another prompt set"):
        Prompts.open(str(own), tokenizer)
