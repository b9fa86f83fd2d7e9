"""Saved games play again offline as they were, and what was altered is told by its place; another
judge or reward changes only what it decides.

Invalid and void games are replayed where they are played: game/test_game_batch.py,
test_outages.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from all_interfaces import ROOMY
from pydantic import TypeAdapter
from scripted import again, begin, by_role, play, propose, rules_of, say, spell, written

from ssp_env.errors import ServiceError
from ssp_env.game.game import Attempt, Game
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Outcome
from ssp_env.game.record import GameRecord
from ssp_env.game.rewards import four_p_one_minus_p
from ssp_env.judge.base import Verdict
from ssp_env.judge.judges import ExactMatchJudge
from ssp_env.replay import Replay, SavedGame, replay, rescore
from ssp_env.tokenizers import ByteTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def test_own_prompts_and_tags_replay_where_they_do_not_lie(mini: MiniWorld, tmp_path: Path) -> None:
    texts = {
        "proposer": "Ask about {answer}, {searches} searches.",
        "solver": "Solve {question}",
        "verifier": "Read {documents} then {question}",
        "document": "[{title}] {text}",
        "nothing": "none",
        "information": "<observation>{documents}</observation> go on",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    tags = '{"search": "find", "information": "observation", "also": ["evidence"]}'
    (tmp_path / "tags.json").write_text(tags)
    rules = rules_of(mini, ByteTokenizer(), prompts=str(tmp_path), verifier="none", **ROOMY)
    asks = say("<find> mentor </find>", "<question> who is the mentor ? </question>")
    by_turn = by_role(asks, say("<find> rival </find>", "<answer> nobody </answer>"))
    (game,) = play(begin(rules, num_games=1), by_turn).games
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    assert game.outcome is Outcome.VALID
    assert b"<observation>[" in spell(rules.tokenizer, game.attempts[0].trajectory.ids)
    again(game, rules)


def pays_length(game: Game) -> float:
    """Something that no name of the config stands for."""
    return len(game.question or "") / 100


def pays_place(game: Game, attempt: Attempt) -> float:
    """Each attempt something else."""
    return 0.25 * game.number_of(attempt.trajectory)


def test_what_own_code_said_is_played_back(mini: MiniWorld, words: WordTokenizer) -> None:
    parts: dict[str, Any] = {"own_proposer_reward": pays_length, "solver_reward": pays_place}
    parts["noise"] = lambda *given: (NoiseDocument(given[-1][0], "corpus"),)
    parts["own_filters"] = {"fussy": lambda proposal: len(proposal.question) % 2 == 0}
    rules = rules_of(mini, words, attempts=3, **parts)
    games = play(begin(rules, num_games=6), by_role(propose())).games
    assert {game.reason for game in games} == {None, "fussy"}
    saved = [again(game, rules) for game in games]
    assert list(replay(saved[0]).as_saved) == ["filter fussy", "proposer_reward", "solver_reward"]

    given: Any = {"proposer_reward": pays_length, "solver_reward": pays_place}
    others: Any = {"proposer_reward": lambda g: 0.5, "solver_reward": lambda g, a: 1.0}
    for game, one in zip(games, saved, strict=True):
        checked = replay(one, **given)
        assert (checked.identical, list(checked.as_saved)) == (True, ["filter fussy"])
        if game.outcome is Outcome.VALID:
            assert (game.proposer_reward, game.solver_reward) == (pays_length(game), 0.25)
            paid = {"game: proposer_reward", "game: solver_reward", "solver 1: reward"}
            assert places(replay(one, **others)) >= paid


def places(replayed: Replay) -> set[str]:
    """Where a replay differs."""
    return {difference.split(": saved ")[0] for difference in replayed.differences}


def forged(saved: SavedGame, value: Any, *path: Any) -> SavedGame:
    """The game with another value in its record; ``None`` leaves the item of a list out."""
    adapter = TypeAdapter(GameRecord)
    record = json.loads(adapter.dump_json(saved.record, by_alias=True))
    row = record
    for step in path[:-1]:
        row = row[step]
    if isinstance(row, list) and value is None:
        del row[path[-1]]
    else:
        row[path[-1]] = value
    return replace(saved, record=adapter.validate_json(json.dumps(record)))


PAID = {"game: solve_rate", "game: proposer_reward", "game: solver_reward"}
LAST = "trajectories", -1


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        (9, (*LAST, "segments", 0, "ids", 1), {"solver 3: segments[0].ids[1]"}),
        ("me", (*LAST, "result"), {"solver 3: result"}),
        (False, (*LAST, "verdict", "correct"), {"solver 3: reward", *PAID}),
        ("who ?", ("question",), {"game: question"}),
        (None, ("evidence", -1), {"game: evidence[1]"}),
        (None, LAST, {"solver 3", *PAID}),
    ],
)
def test_a_replay_says_where_a_forged_game_differs(
    mini: MiniWorld, games: list[SavedGame], value: Any, path: tuple[Any, ...], expected: set[str]
) -> None:
    assert places(replay(forged(games[1], value, *path), world=mini)) == expected


def test_searches_that_were_not_recorded_or_found_something_else(games: list[SavedGame]) -> None:
    missing = replay(forged(games[1], [], *LAST, "searches"))
    assert any("not recorded: search 1 of solver 3" in d for d in missing.differences)
    assert {"solver 3: ending", "solver 3: outage"} <= places(missing)
    page = (*LAST, "searches", 0, "documents", 0)
    other = places(replay(forged(games[1], "nobody", *page, "text")))
    assert "solver 3: segments[2].text" in other


class Contrary:
    """Says the opposite of exact match, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def judge(self, tasks: Any) -> list[Verdict | ServiceError]:
        self.calls.append(len(tasks))
        verdicts: Any = ExactMatchJudge().judge(tasks)
        return [Verdict(not verdict.correct, "contrary") for verdict in verdicts]


def test_another_judge(games: list[SavedGame]) -> None:
    """With or without the tokens; and what was rescored is a saved game again."""
    judge = Contrary()
    rescored = rescore(games, judge)
    assert judge.calls == [5], "one call for all answers of valid games"
    assert [one.before for one in rescored] == games
    assert [one.changed for one in rescored] == [True, True, False, False]
    assert [one.after for one in rescored[2:]] == games[2:], "void and invalid games stay so"

    first, second = (one.after.record for one in rescored[:2])
    assert [attempt.verdict for attempt in first.attempts] == [
        Verdict(False, "contrary"),
        Verdict(True, "contrary"),
        Verdict(False, "no answer: format"),
    ]
    assert [attempt.reward for attempt in first.attempts] == [0.0, 1.0, 0.0]
    assert first.proposer_reward == pytest.approx(2 / 3)
    assert second.proposer_reward == 1.0
    assert rescored[0].after.rules.parts.judge.endswith("Contrary")

    bare = replace(games[0], record=games[0].record.without_tokens())
    assert rescore([bare], Contrary())[0].after.record == first.without_tokens()
    for one in rescored:
        assert written(one.after) == one.after
        assert replay(one.after).identical
    assert not any(one.changed for one in rescore(games, ExactMatchJudge()))


def test_other_rewards(games: list[SavedGame]) -> None:
    def thrifty(game: Game, attempt: Attempt) -> float:
        """Rewards may look at the whole game."""
        assert game.proposer is not None
        return attempt.right - 0.01 * sum(attempt.trajectory.mask)

    rescored = rescore(games, None, four_p_one_minus_p, thrifty)
    (first, now), (_, second) = ((one.before.record, one.after.record) for one in rescored[:2])
    assert (now.proposer_reward, second.proposer_reward) == (pytest.approx(8 / 9), 0.0)
    for before, after, right in zip(first.attempts, now.attempts, (1, 0, 0), strict=True):
        assert (after.reward, after.verdict) == (
            right - 0.01 * before.policy_tokens,
            before.verdict,
        )
    assert rescored[2].after.record.proposer_reward == -0.5
    assert all(replay(one.after, solver_reward=thrifty).identical for one in rescored)


def test_a_judge_that_fails(games: list[SavedGame]) -> None:
    class Failing(ExactMatchJudge):
        def judge(self, tasks: Any) -> Any:
            down = ServiceError("judge", "down")
            return [down, down, *super().judge(tasks)[2:]]

    class Down:
        def judge(self, tasks: Any) -> Any:
            raise ServiceError("judge", "down")

    first, second, *_ = rescore(games, Failing())
    record = first.after.record
    assert (record.outcome, record.reason, first.changed) == (Outcome.VOID, "judge", True)
    assert {(a.verdict, a.reward) for a in record.attempts} == {(None, None)}
    assert not second.changed
    assert replay(first.after).identical
    with pytest.raises(ServiceError, match="down"):
        rescore(games, Down())
    assert rescore([], Down()) == []
