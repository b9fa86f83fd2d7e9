"""The environments of Tinker's cookbook, played offline by its own rollouts."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from recorded import SETUP, Recorded
from scripted_model import cut

import ssp_env
from ssp_env import Rules
from ssp_env.envs.chat import reward_of

pytest.importorskip(
    "tinker_cookbook", reason="tinker-cookbook is not installed; run: make integrations"
)
GAMES = 8


def script(recorded: Recorded) -> Any:
    """A completer that writes what was recorded, and stops where it is told to."""
    from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs

    tokenizer = recorded.rules.tokenizer

    class Script(TokenCompleter):
        async def __call__(
            self, model_input: Any, stop: Any, *, max_tokens: int | None = None
        ) -> TokensWithLogprobs:
            text = cut(recorded.writing[tuple(model_input.to_ints())], stop)
            ids = tokenizer.encode(text)
            return TokensWithLogprobs(ids, [-0.5] * len(ids))

    return Script()


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded(GAMES)


def test_tokens_masks_and_advantages_equal_ours(recorded: Recorded) -> None:
    from tinker_cookbook.rl.data_processing import compute_advantages, trajectory_to_data
    from tinker_cookbook.rl.rollouts import do_group_rollout
    from tinker_ssp import SspGroupBuilder

    builder = pickle.loads(pickle.dumps(SspGroupBuilder(seed=0, games=GAMES, setup=SETUP)))
    group = asyncio.run(do_group_rollout(builder, script(recorded)))
    (advantages,) = compute_advantages([group])

    # Each kind is compared with itself: attempts at one question, proposals of the group.
    solved = [[reward_of(game, t) for t in game.trajectories()] for game in recorded.games]
    proposals = [float(rewards[0] or 0.0) for rewards in solved]
    expected, played = [], []
    for game, rewards in zip(recorded.games, solved, strict=True):
        mean = sum(proposals) / GAMES
        expected.append(float(rewards[0] or 0.0) - mean)
        attempts = [float(r or 0.0) for r in rewards[1:]] or [0.0] * 5
        expected += [reward - sum(attempts) / 5 for reward in attempts]
        played += [*game.trajectories(), *[None] * (6 - len(game.trajectories()))]
    assert advantages.tolist() == pytest.approx(expected, abs=1e-6)

    for trajectory, own in zip(group.trajectories_G, played, strict=True):
        data = trajectory_to_data(trajectory, 1.0)
        if own is None:
            assert data == [] or not any(data[0].loss_fn_inputs["mask"].data)
            continue
        (datum,) = data  # the sequence only grows
        ids = [datum.model_input.to_ints()[0], *datum.loss_fn_inputs["target_tokens"].data]
        assert ids == own.ids
        assert [0, *datum.loss_fn_inputs["mask"].data] == list(own.mask)


def test_mistakes_of_a_caller() -> None:
    from tinker_ssp import SspGroupBuilder

    async def play() -> None:
        seat, other, *_ = await SspGroupBuilder(0, 1, SETUP).make_envs()
        await seat.initial_observation()
        with pytest.raises(ssp_env.UsageError, match="encode text first"):
            await seat.step("<search>")  # type: ignore[arg-type]
        with pytest.raises(ssp_env.UsageError, match="not this seat's turn"):
            await other.step([5])

    asyncio.run(play())


def test_an_outage_teaches_nothing(
    without_search: Callable[[Rules], None], recorded: Recorded
) -> None:
    from tinker_cookbook.rl.rollouts import do_group_rollout
    from tinker_ssp import SspGroupBuilder

    without_search(recorded.rules)
    builder = SspGroupBuilder(0, 4, {"rules": recorded.rules})
    group = asyncio.run(do_group_rollout(builder, script(recorded)))
    assert group.get_total_rewards() == [0.0] * 24
    assert all("reward/proposer" not in metrics for metrics in group.metrics_G)
