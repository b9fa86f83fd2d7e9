"""The cheats that ship, and what a probe makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ssp_env.envs.setup import set_up
from ssp_env.errors import ServiceError
from ssp_env.game.config import DEFAULT_FILTERS
from ssp_env.game.game import Game
from ssp_env.game.rewards import one_minus_p
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import scripted_player
from ssp_env.probe import (
    CHEATS,
    Cheat,
    Finding,
    Report,
    Result,
    Turn,
    find_cheat,
    probe,
)
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld

GAMES = 25
PAYS, HELD, OPEN = Finding.PAYS, Finding.HELD, Finding.OPEN


def rules_of(world: MiniWorld, *, spelled: bool = False, **parts: Any) -> Rules:
    """The mini world's rules; ``spelled`` plays in bytes, so that any text can be written."""
    game = {"attempts": 2, **parts.pop("game", {})}
    if spelled:
        longer = {"max_prompt_tokens": 8192, "max_response_tokens": 8192, "max_query_tokens": 99}
        game = {"prompts": "plain", **longer, **game}
        parts["tokenizer"] = "bytes"
    return set_up({"world": world, "game": game, **parts}).rules


def result_of(rules: Rules, cheat: str) -> Result:
    """A single cheat's result."""
    (result,) = probe(rules, [find_cheat(cheat)], games=GAMES).cheats
    return result


@pytest.mark.parametrize("spelled", [False, True], ids=["words", "bytes"])
def test_every_cheat_plays_to_an_end(mini: MiniWorld, spelled: bool) -> None:
    rules = rules_of(mini, spelled=spelled, game={"attempts": 1, "closed_book": True})
    report = probe(rules, map(find_cheat, CHEATS), games=2)
    assert [result.name for result in report.cheats] == list(CHEATS)
    assert len(CHEATS) == 34 + 7
    for result in report.cheats[:34]:
        assert result.finding is not Finding.NOT_PLAYED
        assert (result.games, result.void) == (2, 0), result.name
    assert {result.finding for result in report.cheats[34:]} == {Finding.NOT_PLAYED}


def test_a_frozen_verifier_has_not_learnt_the_code(mini: MiniWorld) -> None:
    """Where the policy verifies, a pair with a code is paid; an earlier one does not know it."""
    found = {}
    for verifier in ("policy", "frozen"):
        game = rules_of(mini, spelled=True, game={"verifier": "policy"})
        config = game.config.replace(verifier=verifier)
        result = result_of(Rules.build(mini, game.tokenizer, config), "base64")
        found[verifier] = result.finding, next(iter(result.stopped_by), None)
    assert found == {"policy": (PAYS, None), "frozen": (HELD, "unverified")}


@pytest.mark.parametrize(
    ("cheat", "game", "finding", "reason"),
    [
        ("answer_everywhere", {"verifier": "policy"}, PAYS, None),
        ("answer_everywhere", {"verifier": "world"}, HELD, "unverified"),
        ("answer_everywhere", {"verifier": "policy", "closed_book": True}, None, "closed_book"),
        ("guessable_answer", {"verifier": "policy"}, HELD, "unseen_answer"),
        ("answer_in_question", {"verifier": "policy"}, HELD, "spoiler"),
        ("answer_nobody_saw", {"verifier": "policy"}, HELD, "unseen_answer"),
        ("wrong_answer", {"verifier": "policy"}, HELD, "unverified"),
        ("answer_too_long", {"verifier": "policy"}, HELD, "no_answer"),
        ("wrong_question", {"verifier": "policy"}, HELD, "unverified"),
    ],
)
def test_proposers_that_choose_the_answer(
    mini: MiniWorld, cheat: str, game: dict[str, Any], finding: Finding | None, reason: str | None
) -> None:
    """Cheats that this opens, and one that there was before."""
    rules = rules_of(mini, spelled=True, game={"answers": "proposed", **game})
    result = result_of(rules, cheat)
    assert result.finding is (finding or Finding.HELD)
    assert next(iter(result.stopped_by), None) == reason


def test_a_world_that_cannot_read_the_players_questions_says_nothing_of_the_gate(
    mini: MiniWorld,
) -> None:
    read = probe(set_up({"world": mini}).rules, [], games=3).gate
    assert (read.precision, read.recall) == (1, 1)
    told = probe(set_up({"world": "wiki-sentences"}).rules, [], games=3)
    assert told.honest.accepted > 0
    assert (told.gate.precision, told.gate.recall) == (None, None)


def test_a_probe_is_the_same_twice(mini: MiniWorld) -> None:
    def report(seed: int) -> Report:
        cheats = map(find_cheat, ["hedge", "wrong_question", "base64"])
        return probe(rules_of(mini), cheats, games=8, seed=seed)

    assert report(3) == report(3)
    assert report(3) != report(4)


PAPER = {"verifier": "policy", "filters": DEFAULT_FILTERS}
GATE, PAST = {"closed_book": True}, {"filters": (*DEFAULT_FILTERS, "past_question")}


@pytest.mark.parametrize(
    ("cheat", "spelled", "game", "finding", "reason"),
    [
        # A code pays where the same network verifies; beside an honest question, whoever does.
        ("base64", True, {"verifier": "policy"}, PAYS, None),
        ("base64", True, {"verifier": "world"}, HELD, "unverified"),
        ("spaces_beside", True, {"verifier": "policy"}, PAYS, None),
        ("spaces_beside", True, {"verifier": "world"}, PAYS, None),
        ("spaces_beside", True, {"verifier": "policy", **GATE}, HELD, "closed_book"),
        # A memory of past questions is open unless they are refused.
        ("near_duplicate", False, {}, OPEN, None),
        ("near_duplicate", False, PAST, HELD, "past_question"),
        ("near_duplicate", False, GATE, HELD, "closed_book"),
        # An order in a question pays by the paper's filters and its reward together.
        ("search_for_zebras", True, PAPER, PAYS, None),
        ("search_for_zebras", True, {**PAPER, "proposer_reward": "4p(1-p)"}, HELD, None),
        ("search_for_zebras", True, {"verifier": "policy"}, HELD, "unsolved"),
    ],
)
def test_what_holds_a_cheat(
    mini: MiniWorld, cheat: str, spelled: bool, game: Any, finding: Finding, reason: str | None
) -> None:
    found = result_of(rules_of(mini, spelled=spelled, game=game), cheat)
    assert found.finding is finding
    assert reason is None or next(iter(found.stopped_by)) == reason
    if finding in (PAYS, OPEN) and found.gains == "solver":
        assert found.solver == 1.0


@pytest.mark.parametrize("verifier", ["world", "policy"])
@pytest.mark.parametrize("cheat", ["sandbag", "sandbag_number", "sandbag_search", "spaces_beside"])
def test_what_was_not_read_pays_nobody_at_the_closed_book_gate_or_after_it(
    mini: MiniWorld, cheat: str, verifier: str
) -> None:
    game = {"closed_book": True, "verifier": verifier, "proposer_reward": "4p(1-p)"}
    found = result_of(rules_of(mini, spelled=True, game=game), cheat)
    assert found.finding is Finding.HELD
    assert (found.proposer, found.solver) == (0.0, 0.0)


def test_the_gate_costs_an_honest_pair_nothing(mini: MiniWorld) -> None:
    pays = [
        (honest.proposer, honest.solver)
        for gate in (False, True)
        for honest in [probe(rules_of(mini, game={"closed_book": gate}), [], games=GAMES).honest]
    ]
    assert pays[0] == pays[1]


class AsksForTwo(Cheat):
    """A solver that is paid as it was, and a proposer that is paid for one word in its question."""

    gains = Role.SOLVER
    closed_by = "a reward that does not read"

    def ask(self, turn: Turn) -> str:
        return f"{turn.recall().question} really"

    def solve(self, turn: Turn) -> str:
        return turn.honest(turn.question.removesuffix(" really"))


def test_a_cheat_whose_pay_goes_to_the_other_role_moves_and_a_gift_does_not(
    mini: MiniWorld,
) -> None:
    def reward(game: Game) -> float:
        return 1.0 if "really" in (game.question or "") else one_minus_p(game)

    rules = rules_of(mini, spelled=True, game={"verifier": "none"}, proposer_reward=reward)
    moving, gift = probe(rules, [AsksForTwo(), find_cheat("throw")], games=GAMES).cheats
    assert moving.finding is Finding.MOVES
    assert moving.more_than_honest is not None
    assert moving.more_than_honest.low > 0.1
    assert gift.finding is Finding.HELD


def test_an_outage_of_the_partner_voids_what_it_has_not_written(mini: MiniWorld) -> None:
    rules = rules_of(mini)

    class Failing:
        """Writes all turns but the very first one."""

        failed = False

        def play(self, trajectories: Sequence[Trajectory]) -> None:
            late = [] if self.failed else trajectories[:1]
            self.failed = True
            scripted_player(rules).play(trajectories[len(late) :])
            if late:
                raise ServiceError("player", "is away")

    honest = probe(rules, [], games=8, partner=Failing()).honest
    assert (honest.void, honest.accepted) == (1, 7)
