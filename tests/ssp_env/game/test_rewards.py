"""The proposer's rewards by name: their equations, in real games and in their replays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest
from scripted import again, begin, by_role, play, propose, rules_of, say, solve, word_tokenizer

from ssp_env.errors import ConfigError
from ssp_env.game.config import GameConfig, RewardName
from ssp_env.game.rewards import PROPOSER_REWARDS
from ssp_env.game.trajectory import Trajectory
from ssp_env.worlds.mini import MiniWorld


def game(*attempts: tuple[bool, int], verification_attempts: tuple[bool, ...] = ()) -> Any:
    """A judged game: of each attempt whether it was right, and how often it searched of 4 times."""
    limits = SimpleNamespace(max_searches=4)
    counted = [
        SimpleNamespace(
            right=right, trajectory=SimpleNamespace(searches=[None] * searches, limits=limits)
        )
        for right, searches in attempts
    ]
    read = [SimpleNamespace(right=right, verdict=True) for right in verification_attempts]
    share = sum(right for right, _ in attempts) / len(attempts)
    return SimpleNamespace(counted=counted, share_right=share, verification_attempts=read)


NONE, ALL = [(False, 2)] * 4, [(True, 2)] * 4
ONE, THREE = [(True, 3), *[(False, 1)] * 3], [(False, 1), (True, 4), (True, 2), (True, 3)]
PAYS = {
    "1-p": (1.0, 0.75, 0.25, 0.0),
    "4p(1-p)": (0.0, 0.75, 0.75, 0.0),
    "min(p,1-p)": (0.0, 0.25, 0.25, 0.0),
    "(n-k)/(n-1)": (0.0, 1.0, 1 / 3, 0.0),
    "depth": (0.2, 0.2 + 0.8 * 3 / 4, 0.2 + 0.8 * 2 / 4, 0.2),
    "evidence": (1.0, 0.75, 0.25, 0.0),
    "band": (0.0, 1.0, 1.0, 0.0),
}
"""For no, one, three and all of four attempts right."""


@pytest.mark.parametrize("name", get_args(RewardName))
def test_a_reward_is_its_equation(name: str) -> None:
    played = [game(*attempts) for attempts in (NONE, ONE, THREE, ALL)]
    assert [PROPOSER_REWARDS[name](each) for each in played] == pytest.approx(PAYS[name])


def test_edges_of_rewards() -> None:
    assert PROPOSER_REWARDS["(n-k)/(n-1)"](game((True, 1))) == 0.0, "a lone attempt"
    assert PROPOSER_REWARDS["depth"](game((True, 9), (False, 0))) == 1.0, "beyond the budget"
    assert PROPOSER_REWARDS["depth"](game((True, 0), (False, 0))) == 0.2, "without a search"
    halves = game(*ONE, verification_attempts=(True, True, False, False))
    assert PROPOSER_REWARDS["evidence"](halves) == 0.25, "half of the verifiers, a quarter of four"
    assert [PROPOSER_REWARDS["band"](game(*[(True, 1)] * k, *[(False, 1)] * (10 - k)))
            for k in (1, 2, 8, 9)] == [0.0, 1.0, 1.0, 0.0]  # fmt: skip


@pytest.mark.parametrize("name", PROPOSER_REWARDS)
def test_a_named_reward_pays_in_a_game_and_in_its_replay(mini: MiniWorld, name: str) -> None:
    late = say("<answer> nobody </answer>")

    def attempt(trajectory: Trajectory) -> Any:
        return (solve if trajectory.key % 2 else late)(trajectory)

    rules = rules_of(mini, word_tokenizer(), attempts=4, proposer_reward=name)
    (played,) = play(begin(rules, num_games=1), by_role(propose(2), attempt)).games
    assert 0 < played.share_right < 1
    assert played.proposer_reward == PROPOSER_REWARDS[name](played)
    assert again(played, rules).record.proposer_reward == played.proposer_reward


def test_an_unknown_reward_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"game\.proposer_reward"):
        GameConfig(proposer_reward="depht")  # type: ignore[arg-type]
