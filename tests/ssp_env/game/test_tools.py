"""Tools beside search: declared once, and played, recorded, masked and voided as searches are."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from random_player import RandomLegalPlayer
from scripted import (
    OPENING,
    again,
    begin,
    by_role,
    play,
    propose,
    rules_of,
    say,
    solve,
    spell,
    word_tokenizer,
)

import ssp_env
from ssp_env.envs.setup import set_up
from ssp_env.errors import ConfigError, ServiceError, TokenizerError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.game import Game
from ssp_env.game.prompts import Prompts
from ssp_env.game.protocol import Tags
from ssp_env.game.referee import Referee
from ssp_env.game.rules import Rules, idle_settings
from ssp_env.game.tools import OPEN, SEARCH, Tool
from ssp_env.game.trajectory import Trajectory
from ssp_env.game.transcript import render_ansi
from ssp_env.players import MiniPlayer, play_by
from ssp_env.probe import probe
from ssp_env.replay.files import game_lines
from ssp_env.search.base import Corpus, Retriever
from ssp_env.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document, Role, World
from ssp_env.worlds.files import WikiMini
from ssp_env.worlds.mini import MiniWorld

BOTH = ("search", "open")
CHAPTERS = [
    Document(f"{title} {i}", title, f"{title} has {i}.") for i in range(5) for title in "AB"
]
ROOMY = {"max_prompt_tokens": 8000, "max_response_tokens": 4000, "max_query_tokens": 99}


class Echo:
    """A tool of one's own: it repeats what it is given, once per word, but for some words."""

    def __init__(self, world: World, retriever: Retriever) -> None:
        self.k: list[int] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        self.k.append(k)
        if "mentor" in queries:
            raise ServiceError("echo", "nobody is there")
        return [[Document(f"echo {query}", "echo", query)] for query in queries]


ECHO = Tool("echo", "words", "Repeats what it is given.", "What to repeat.", Echo)


@pytest.fixture(scope="module")
def opening() -> WordTokenizer:
    """The mini world's vocabulary, with a tag for ``open``."""
    return word_tokenizer(OPENING)


@pytest.fixture(scope="module")
def open_rules(mini: MiniWorld, opening: WordTokenizer) -> Rules:
    return rules_of(mini, opening, tools=BOTH, attempts=2)


def solver_of(rules: Rules, question: str = "what ?") -> Trajectory:
    return Trajectory(rules.limits[Role.SOLVER], rules.prompts.solver(question, 3), question)


def shown(rules: Rules, trajectory: Trajectory, turn: str) -> list[str]:
    """Ids of what a turn's call shows."""
    trajectory.feed_text(turn)
    (found,) = Referee(rules).search([(cast(Game, None), trajectory)])
    assert isinstance(found, list)
    trajectory.observe(found, rules.prompts.information(found, 9))
    return [document.id for document in found]


def test_scripted_games_open_pages_and_are_replayed(open_rules: Rules) -> None:
    played = begin(open_rules, num_games=3, seed=(4,))
    play(played, MiniPlayer(open_rules.tags, hops=2).write)
    for game in played.games:
        assert (game.outcome, game.solve_rate) == ("valid", 1.0)
        for trajectory in game.trajectories():
            assert [search.tool for search in trajectory.searches] == ["search", "open"]
            own = [i for i, mask in enumerate(trajectory.mask) if mask]
            written = spell(open_rules.tokenizer, [trajectory.ids[i] for i in own]).decode()
            (page,) = trajectory.searches[1].documents
            assert f"<open> {trajectory.searches[1].query}</open>" in written
            assert page.text not in written, "what it shows has mask 0"
            assert page.title == trajectory.searches[1].query
        assert game.proposer is not None
        assert game.proposer.searches[1].documents[0] in game.evidence
        saved = again(game, open_rules)
        searches = saved.record.attempts[0].searches
        assert [search.tool for search in searches] == ["search", "open"]
        assert f"found: {searches[1].documents[0].id}" in render_ansi(game, open_rules)


def test_without_a_tool_nothing_is_another(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words)
    (game, *_) = play(begin(rules, num_games=1), by_role(propose(2), solve)).games
    assert '"tool"' not in "".join(game_lines([again(game, rules)]))
    assert rules.prompts.texts.get("tags") is None


@pytest.mark.parametrize("name", ["plain", "paper", "compact", "few-shot"])
def test_prompts_tell_of_a_tool_only_if_it_is_on(name: str) -> None:
    tokenizer, off = ByteTokenizer(), Prompts.open(name, ByteTokenizer())
    on = Prompts.open(name, tokenizer, [SEARCH, OPEN, ECHO])
    told = " Besides, <open> title </open> reads the page of this title, and reads on when called"
    told += " again. Besides, <echo> words </echo> repeats what it is given."
    for role in ("proposer", "solver"):
        assert on.texts[role].replace(told, "") == off.texts[role]
        assert told in on.texts[role]
        assert "{tools}" not in off.texts[role]
    assert off.tags == Tags()
    assert on.tags.defuse("</open> <ｅcho>") == "‹/open› ‹ｅcho›"


def test_tool_calls_are_declared_and_read(mini: MiniWorld) -> None:
    """By the chat template's ``tools=`` where it has them, else in words."""
    functions = []

    class Declaring(ByteTokenizer):
        declares_functions = True

        def chat_frame(self, roles: Any = ("user",), functions_: Any = None, **given: Any) -> Any:
            functions.append(given.get("functions"))
            return ("", *["\n"] * (len(roles) - 1), "")

    game = MINI_GAME.replace(prompts="tools", tools=(*BOTH, "echo"), **ROOMY)
    rules = Rules.build(mini, Declaring(), game, tools=[ECHO])
    named = [[each["function"]["name"] for each in said] for said in functions if said]
    assert ["search", "open", "echo", "answer"] in named
    assert ["search", "open", "echo", "question"] in named
    opened = next(f["function"] for said in functions if said for f in said if "page" in str(f))
    assert opened["description"] == OPEN.purpose
    assert list(opened["parameters"]["properties"]) == ["title"]

    trajectory, title = solver_of(rules), mini.corpus[0].title
    call = json.dumps({"name": "open", "arguments": {"title": title}})
    assert shown(rules, trajectory, f"<tool_call>{call}</tool_call>") == [title]


def test_a_page_is_read_on_within_budgets(mini: MiniWorld) -> None:
    class Book(MiniWorld):
        corpus = Corpus(CHAPTERS)  # type: ignore[assignment]

        def __init__(self) -> None:
            self.answers = ()

    game = MINI_GAME.replace(tools=BOTH, top_k=2, verifier="none", max_searches=5, **ROOMY)
    rules = Rules.build(Book(), ByteTokenizer(), game, retriever=Echo(mini, None))  # type: ignore[arg-type]
    reader = solver_of(rules)
    assert shown(rules, reader, "<open> [a] </open>") == ["A 0", "A 1"], "as it is shown"
    assert shown(rules, reader, "<open> B </open>") == ["B 0", "B 1"]
    assert shown(rules, reader, "<open>A</open>") == ["A 2", "A 3"]
    assert shown(rules, reader, "<open> A </open>") == ["A 4"]
    assert shown(rules, reader, "<open> A </open>") == ["A 0", "A 1"], "it begins anew"
    reader.feed_text("<open> B </open>")
    assert reader.ending == "budget_searches"

    (long := solver_of(rules)).feed_text(f"<open> {'A' * 100} </open>")
    assert long.ending == "budget_query"
    assert pickle.loads(pickle.dumps(rules.retrievers["open"])).search(["B"], 1) == [[CHAPTERS[1]]]

    # In verification by an attempt, a page has what the library has of it.
    verifies = solver_of(rules)
    verifies.library = (CHAPTERS[4], CHAPTERS[1])
    assert shown(rules, verifies, "<open> A </open>") == ["A 2"]


def test_an_outage_of_a_tool_voids_its_game_alone(mini: MiniWorld) -> None:
    game = MINI_GAME.replace(tools=("search", "echo"), attempts=2, **ROOMY)
    rules = Rules.build(mini, ByteTokenizer(), game, tools=[ECHO])
    played = begin(rules, num_games=3)
    hit = played.games[1].proposer

    def proposer(trajectory: Trajectory) -> str | list[int]:
        if not trajectory.searches:
            return f"<echo> {'mentor' if trajectory is hit else 'rival'} </echo>"
        return propose()(trajectory) if len(trajectory.searches) > 1 else "<search> Tatal </search>"

    def after_echo(trajectory: Trajectory) -> str | list[int]:
        if len(trajectory.searches) < 2:
            return proposer(trajectory)
        return "<question> what is the mentor of Tatal ? </question>"

    play(played, by_role(after_echo, say("<echo> mentor </echo>", "<answer> no </answer>")))
    assert [game.reason for game in played.games].count("echo") == 1
    assert played.games[1].outcome == "void"
    assert played.games[1].outage is not None
    assert played.games[1].outage.service == "echo"
    for game_ in played.games:
        again(game_, rules)


def test_one_attempt_is_void_where_its_tool_fails(mini: MiniWorld) -> None:
    game = MINI_GAME.replace(tools=("search", "echo"), attempts=4, verifier="none", **ROOMY)
    rules = Rules.build(mini, ByteTokenizer(), game, tools=[ECHO])
    played = begin(rules, num_games=1)

    def solver(trajectory: Trajectory) -> str | list[int]:
        number = played.games[0].number_of(trajectory)
        word = "mentor" if number == 2 else "rival"
        return "<answer> x </answer>" if trajectory.searches else f"<echo> {word} </echo>"

    play(played, by_role(propose(), solver))
    (game_,) = played.games
    assert [attempt.outage is not None for attempt in game_.attempts] == [False, False, True, False]
    assert game_.outcome == "valid"
    again(game_, rules)


def test_legal_moves_know_tools(open_rules: Rules) -> None:
    rng, tokenizer = np.random.default_rng(0), open_rules.tokenizer
    played = play_by(begin(open_rules, num_games=8), RandomLegalPlayer(open_rules, rng))
    called = [search for game in played.games for t in game.trajectories() for search in t.searches]
    assert {search.tool for search in called} == {"search", "open"}
    assert {len(tokenizer.encode_data(search.query)) for search in called} == {1}, "names"
    assert all(t.ending == "action" for game in played.games for t in game.trajectories())


def test_an_honest_pair_with_a_tool_is_paid_as_without(
    mini: MiniWorld, words: WordTokenizer, open_rules: Rules
) -> None:
    without = rules_of(mini, words, attempts=2)
    reports = [probe(rules, [], games=20) for rules in (open_rules, without)]
    assert reports[0].honest == reports[1].honest


@pytest.mark.parametrize("turns", [("open", "title"), ("echo", "words")])
def test_every_one_role_env_and_text_env_takes_it(mini: MiniWorld, turns: tuple[str, str]) -> None:
    name, _ = turns
    setup: Any = {"world": mini, "tokenizer": "words", "tools": [ECHO]}
    setup["game"] = {"tools": (*BOTH, "echo")}
    title = mini.corpus[0].title
    for role in ("solver", "proposer"):
        env = ssp_env.TextRole(role, **setup)
        env.reset(seed=0)
        seen, _, _, _, info = env.step(f"<{name}> {title} </{name}>")
        assert seen.strip().startswith(f"<information> {title}")
        assert info["searches_left"] == MINI_GAME.max_searches - 1


@pytest.mark.parametrize(
    ("game", "given", "field", "fix"),
    [
        (("search", "opne"), [], "game.tools", "open"),
        (("open",), [], "game.tools", "search has to be"),
        (("search",), [ECHO], "game.tools", "'tools': ['search', 'echo']"),
        (("search", "think"), [Tool("think", "a", "b", "c", Echo)], "tags", "of its own"),
        (("search", "call"), [Tool("call", "a", "b", "c", Echo)], "tags", "of its own"),
        (("search", "a b"), [Tool("a b", "a", "b", "c", Echo)], "tags.tools.1", ""),
        (BOTH, ["open"], "tools", "give Tools"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(
    mini: MiniWorld, game: Any, given: Any, field: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Rules.build(mini, ByteTokenizer(), MINI_GAME.replace(tools=game, **ROOMY), tools=given)
    assert raised.value.field.startswith(field.removesuffix(".1"))
    assert fix in raised.value.fix


def test_a_set_of_one_s_own_that_does_not_tell_of_a_tool(mini: MiniWorld) -> None:
    def said(prompts: str) -> list[str]:
        game = MINI_GAME.replace(tools=BOTH, prompts=prompts, noise_documents=0, **ROOMY)
        lines = idle_settings(Rules.build(mini, ByteTokenizer(), game))
        return [line for line in lines if "game.tools" in line]

    assert (said("plain"), said("tools"), said("mini")) == ([], [], [])
    (line,) = said("search-r1")
    assert "does not tell of open" in line


def test_a_tokenizer_without_the_tag_is_refused(mini: MiniWorld, words: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="<open>"):
        rules_of(mini, words, tools=BOTH)


def test_pages_of_real_text_are_read_in_order(wiki: WikiMini) -> None:
    rules = set_up({"world": wiki, "game": {"tools": BOTH, "top_k": 3}}).rules
    places = [i for i, passage in enumerate(wiki.corpus) if passage.title == "Korean War"]
    ids = [wiki.corpus[place].id for place in places]
    reader = solver_of(rules)
    read = [shown(rules, reader, "<open>  korean war </open>") for _ in range(2)]
    assert read == [ids[:3], ids[3:6]]
