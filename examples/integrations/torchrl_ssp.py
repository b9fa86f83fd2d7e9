"""Search self-play in TorchRL: both roles in a ``PettingZooWrapper``, and REINFORCE on whole games.

    python examples/integrations/torchrl_ssp.py --steps 40

TorchRL makes a tensor of every value in ``infos``, so :class:`Numbers` leaves their texts out; they
are in ``env.unwrapped.game``. Each group, ``proposer`` and ``solver``, has a ``mask`` (whose turn
it is), an ``action_mask`` (legal tokens) and a ``reward``, which is paid to both at the end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from pettingzoo.utils import BaseWrapper
from tensordict import TensorDictBase
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.modules import MaskedCategorical, ProbabilisticActor

import ssp_env
from ssp_env.envs.setup import Setup
from ssp_env.errors import require_version

require_version("torchrl", "0.14.1")

LONGEST = 1000
"""Tokens of a rollout, which ends with its game."""


class Numbers(BaseWrapper):  # type: ignore[misc]
    """The environment, whose ``infos`` hold numbers alone."""

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        return {
            agent: {name: value for name, value in info.items() if not isinstance(value, str)}
            for agent, info in self.env.infos.items()
        }


def make_env(**setup: Unpack[Setup]) -> PettingZooWrapper:
    """The game of both roles, with the keywords of every interface."""
    return PettingZooWrapper(Numbers(ssp_env.env(**setup)), use_mask=True)


def make_actors(env: PettingZooWrapper) -> dict[str, ProbabilisticActor]:
    """A network for each role, which writes legal tokens alone."""
    actors = {}
    for role in env.possible_agents:
        size = env.observation_spec[role, "observation", "observation"].shape[-1]
        tokens = env.observation_spec[role, "action_mask"].shape[-1]
        network = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, tokens))
        seen, logits = (role, "observation", "observation"), (role, "logits")
        actors[role] = ProbabilisticActor(
            TensorDictModule(network, in_keys=[seen], out_keys=[logits]),
            in_keys={"logits": logits, "mask": (role, "action_mask")},
            out_keys=[(role, "action")],
            distribution_class=MaskedCategorical,
            default_interaction_type=InteractionType.RANDOM,  # else the likeliest token
        )
    return actors


def loss_of(role: str, actor: ProbabilisticActor, games: Sequence[TensorDictBase]) -> torch.Tensor:
    """REINFORCE on a role's own tokens; the baseline is the mean reward of the role's games.

    Void games, which alone are truncated, are left out, and games without a turn of the role."""
    played = []
    for game in games:
        turns = game[game[role, "mask"].squeeze(-1)]
        if len(turns) and not game["next", "truncated"].any():
            played.append((turns, float(game["next", role, "reward"].sum())))
    mean = sum(paid for _, paid in played) / max(len(played), 1)
    loss = torch.zeros(())
    for turns, paid in played:
        logprobs = actor.get_dist(turns).log_prob(turns[role, "action"])
        loss = loss - (paid - mean) * logprobs.sum() / len(played)
    return loss


def main() -> None:
    """Learns in the world ``small``, and prints the mean reward of each role, step by step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--games", type=int, default=50, help="a step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    env = make_env(world="small")
    env.set_seed(options.seed)
    actors = make_actors(env)
    policy = TensorDictSequential(*actors.values())
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for step in range(1, options.steps + 1):
        with torch.no_grad():
            games = [env.rollout(LONGEST, policy) for _ in range(options.games)]
        optimizer.zero_grad()
        sum(loss_of(role, actor, games) for role, actor in actors.items()).backward()
        optimizer.step()
        paid = {role: sum(float(g["next", role, "reward"].sum()) for g in games) for role in actors}
        means = {role: round(total / len(games), 3) for role, total in paid.items()}
        print(json.dumps({"step": step, **means}), flush=True)


if __name__ == "__main__":
    main()
