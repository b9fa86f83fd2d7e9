"""PPO in one file, in CleanRL's manner, over the AEC environment: one network per agent.

    python examples/cleanrl_ppo.py

What an AEC loop has to know: an action's reward is read when ``last()`` next shows the same agent,
and both agents end together, so the last rewards of a game are read off while the finished agents
are stepped with ``None``. The mean return of both, the share of valid games, rose to .94, .95 and
.89 in 80,000 tokens and 78 to 82 CPU-seconds, where a random legal player gets .18; the solver was
right in .70, .69 and .58 of them (20 Nov 2026, seeds 0 to 2, the mean of the last five updates, AMD
EPYC, one thread, commit 7f11436). Made by ``python -m benchmarks.learning_curves --out DIRECTORY``;
curves in ``benchmarks/results/learning_curves``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from typing import Any

import torch
from curves import curve_file, write_curve
from torch import nn
from torch.distributions import Categorical

import ssp_env

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--steps", type=int, default=80_000, help="tokens to play, both roles together")
parser.add_argument("--batch", type=int, default=4000, help="tokens an update")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=curve_file, help="write the curve here, as JSON lines")

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, EPOCHS, MINIBATCH, LEARNING_RATE = (
    1.0,
    0.95,
    0.2,
    0.003,
    4,
    500,
    5e-4,
)


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, actions))
        self.critic = nn.Sequential(nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, 1))
        self.optimizer = torch.optim.Adam(self.parameters(), LEARNING_RATE, eps=1e-5)

    def policy(self, observations: torch.Tensor, masks: torch.Tensor) -> Categorical:
        """The distribution over legal tokens."""
        return Categorical(logits=self.actor(observations).masked_fill(masks == 0, -1e9))


def play(env: Any, agents: dict[str, Agent]) -> dict[str, list[dict[str, Any]]]:
    """One game: for each agent that had a turn, its steps with the reward that each was paid."""
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        if steps[name]:
            steps[name][-1]["reward"] = reward

        if terminated or truncated:
            env.step(None)
            continue

        seen, mask = (
            torch.as_tensor(observation["observation"]),
            torch.as_tensor(observation["action_mask"]),
        )

        with torch.no_grad():
            policy, value = agents[name].policy(seen, mask), agents[name].critic(seen)
            action = policy.sample()
            step = {
                "seen": seen,
                "mask": mask,
                "action": action,
                "logprob": policy.log_prob(action),
                "value": value[0],
            }

        steps[name].append(step)
        env.step(int(action))

    return {name: own for name, own in steps.items() if own}


def advantages(game: list[dict[str, Any]]) -> None:
    """Generalised advantage estimates of one agent's steps in one game."""
    advantage, following = 0.0, 0.0
    for step in reversed(game):
        value = float(step["value"])
        advantage = step["reward"] + GAMMA * following - value + GAMMA * GAE_LAMBDA * advantage
        step["advantage"], step["return"], following = advantage, advantage + value, value


def update(agent: Agent, steps: list[dict[str, Any]]) -> None:
    """PPO's clipped update."""
    rows = {name: torch.stack([torch.as_tensor(step[name]) for step in steps]) for name in steps[0]}
    scaled = (rows["advantage"] - rows["advantage"].mean()) / (
        rows["advantage"].std(correction=0) + 1e-8
    )

    for _ in range(EPOCHS):
        for i in torch.randperm(len(steps)).split(MINIBATCH):
            policy = agent.policy(rows["seen"][i], rows["mask"][i])
            ratio = (policy.log_prob(rows["action"][i]) - rows["logprob"][i]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            gain = (
                torch.min(scaled[i] * ratio, scaled[i] * clipped).mean()
                + ENTROPY * policy.entropy().mean()
            )
            error = (agent.critic(rows["seen"][i])[:, 0] - rows["return"][i].float()).pow(2).mean()
            agent.optimizer.zero_grad()
            (error / 2 - gain).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            agent.optimizer.step()


def main() -> None:
    """Learns, and prints one line per update."""
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    env = ssp_env.env(world="small")
    inputs = env.observation_space("solver")["observation"].shape[0]
    agents = {name: Agent(inputs, int(env.action_space(name).n)) for name in env.possible_agents}
    env.reset(seed=arguments.seed)
    curve, began, steps = [], time.process_time(), 0

    while steps < arguments.steps:
        played: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        batch = 0
        while batch < arguments.batch:
            for name, game in play(env, agents).items():
                advantages(game)
                played[name].append(game)
                batch += len(game)

            env.reset()

        steps += batch
        for agent in agents.values():
            agent.optimizer.param_groups[0]["lr"] = LEARNING_RATE * max(
                0.0, 1 - steps / arguments.steps
            )

        for name, games in played.items():
            update(agents[name], [step for game in games for step in game])
        # The solver's mean is over valid games: it plays no others.
        paid = {
            name: float(sum(game[-1]["reward"] for game in games)) for name, games in played.items()
        }
        means = {name: paid[name] / len(games) for name, games in played.items()}
        total = sum(paid.values()) / len(played["proposer"])
        curve.append(
            {"steps": steps, "cpu_seconds": time.process_time() - began, "return": total, **means}
        )
        print(json.dumps({name: round(value, 3) for name, value in curve[-1].items()}), flush=True)

    write_curve(arguments.out, curve)


if __name__ == "__main__":
    main()
