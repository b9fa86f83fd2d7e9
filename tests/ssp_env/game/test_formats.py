"""Prompt sets of other projects' checkpoints: whole attempts, as their own code would write them.

What is expected here is spelled out from their released code, not taken from the sets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ssp_env
from ssp_env.doors.setup import set_up
from ssp_env.game.game import Game
from ssp_env.game.prompts.formats import FORMATS, format_settings
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.types import Document, Question, World

ASKED = Question("1", "Which river runs through Paris?", ("Seine", "the Seine"), "rivers")
SEARCH = "<think> I do not know. </think>\n<search> river Paris </search>"
ANSWER = "<think> So it is. </think>\n<answer> the Seine </answer>"
CITED = "It is there.\n<original_evidence> Paris lies on the Seine. </original_evidence>\n"
FOUND = {
    "search-r1": '\n\n<information>Doc 1(Title: "Paris") Paris lies on the river Seine.\n'
    'Doc 2(Title: "Rome") Rome lies on the Tiber.</information>\n\n',
    "zerosearch": "\n\n<information>Doc 1: Paris lies on the river Seine.\n"
    "Doc 2: Rome lies on the Tiber.</information>\n\n",
    "r-search": '\n\n<observation>(Title: "Paris") Paris lies on the river Seine.\n'
    '(Title: "Rome") Rome lies on the Tiber.</observation>\n\n',
}


@pytest.fixture
def cities(tmp_path: Path) -> World:
    """Two passages, of which both are found, and one answer."""
    texts = {"Paris": "Paris lies on the river Seine.", "Rome": "Rome lies on the Tiber."}
    rows = [{"id": name, "title": name, "text": text} for name, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "answers.jsonl").write_text(json.dumps({"answer": "Tiber"}))
    paths = {f"{name}_path": tmp_path / f"{name}.jsonl" for name in ("corpus", "answers")}
    return ssp_env.open_world("files", name="cities", **paths)


class Everything:
    """Finds the whole corpus, in its order."""

    def __init__(self, world: World) -> None:
        self._documents = list(world.corpus)

    def search(self, queries: list[str], k: int) -> list[list[Document]]:
        return [self._documents[:k] for _ in queries]


def chatty(**options: Any) -> Any:
    """A tokenizer with a chat template."""
    hf = pytest.importorskip("hf_tokenizers", exc_type=ImportError)
    from ssp_env.tokenizers import HuggingFaceTokenizer

    inner = hf.byte_level(chat=True)
    for name, value in options.items():
        setattr(inner, name, value)
    return HuggingFaceTokenizer(inner)


def rules_of(world: World, prompts: str, tokenizer: Any, **more: Any) -> Rules:
    game = {**format_settings(prompts), "verifier": "none", "attempts": 1, **more}
    setup = {"world": world, "tokenizer": tokenizer, "retriever": Everything(world), "game": game}
    return set_up(setup).rules


def attempt(rules: Rules, *turns: str) -> Game:
    """The game in which a solver writes these turns, whatever it is shown."""
    played = Round.of_questions(rules, [ASKED], [0])
    for turn in turns:
        for trajectory in played.pending():
            trajectory.feed_turn(rules.tokenizer.encode(turn))
        played.advance()
    return played.games[0]


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_whole_attempt(name: str, cities: World) -> None:
    """Framed, stopped, rendered and scored as the project does it."""
    tokenizer = chatty()
    rules = rules_of(cities, name, tokenizer)
    last = (CITED if name == "r-search" else "") + ANSWER
    (tried,) = attempt(rules, f"{SEARCH} and more", f"{last} and more").attempts

    folder = Path(ssp_env.__file__).parent / "game/prompts" / name
    sentences = (folder / f"{FORMATS[name].instructions}.txt").read_text()
    if name == "r-search":
        told = sentences.replace("information>", "observation>").removesuffix("\n")
        messages = [
            {"role": "system", "content": told},
            {"role": "user", "content": ASKED.text},
        ]
    else:
        told = sentences.replace("{question}", ASKED.text).removesuffix("\n")
        assert told.endswith(f"Question: {ASKED.text}\n")
        messages = [{"role": "user", "content": told}]
    prompt = tokenizer.inner.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False
    )

    written = tried.trajectory
    assert tokenizer.decode(written.ids) == f"{prompt}{SEARCH}{FOUND[name]}{last}"
    theirs = [i for i, by_policy in zip(written.ids, written.mask, strict=True) if by_policy]
    assert tokenizer.decode(theirs) == f"{SEARCH}{last}"
    assert (written.searches[0].query, written.result) == ("river Paris", "the Seine")
    assert tried.reward == 1.0


def test_words_of_a_file_stand_as_they_are(tmp_path: Path, cities: World) -> None:
    file = tmp_path / "original.txt"
    file.write_text("Be told about <information>. {question}\n\n", encoding="utf-8")
    prompts = rules_of(cities, f"zerosearch:{file}", "bytes", tags={"information": "seen"}).prompts
    assert bytes(prompts.solver("Why?", 1)) == b"Be told about <information>. Why?\n"
    page = [Document("1", "A", "aaa")]
    assert bytes(prompts.information(page, 9)) == b"\n\n<seen>Doc 1: aaa</seen>\n\n"

    file.write_text("Search.\n", encoding="utf-8")
    prompts = rules_of(cities, f"r-search:{file}", "bytes").prompts
    assert bytes(prompts.solver("Why?", 1)) == b"Search.\nWhy?"
    assert b"Search." not in bytes(prompts.proposer("Rome", 1)), "it is the solver's alone"
