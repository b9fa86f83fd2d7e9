"""tianshou's PettingZooEnv with a DQN for each agent; masks pass through as ``obs.mask``.

    python examples/tianshou_dqn.py

tianshou keeps the rows of both agents in one buffer and pays the rewards of a game on its last row.
So that a proposer's tokens are paid as well, returns are summed over as many steps as a game can
have. A pilot with twice the replay buffer went from .08 to .89 in 8,000 tokens, and later fell to
.73 (20 Nov 2026, one
seed: 0).
"""

from __future__ import annotations

import argparse
import json
import logging
import time

import numpy as np
import torch
from curves import curve_file, write_curve
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.env.pettingzoo_env import PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import ssp_env

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--steps", type=int, default=12_000, help="tokens to play, both roles together")
parser.add_argument("--batch", type=int, default=2000, help="tokens between two lines")
parser.add_argument("--games", type=int, default=50, help="games that a line is the mean of")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=curve_file, help="write the curve here, as JSON lines")

LONGEST_GAME = 24
"""Tokens of the small world's longest legal game: two searches, a question and an answer are 18."""


def make_env() -> PettingZooEnv:
    """The AEC environment in tianshou's form."""
    return PettingZooEnv(ssp_env.env(world="small"))


def make_dqn(env: PettingZooEnv) -> DQN:
    """A network of one hidden layer."""
    inputs, tokens = env.observation_space["observation"].shape, env.action_space.n
    net = Net(state_shape=inputs, action_shape=tokens, hidden_sizes=[128])
    policy = DiscreteQLearningPolicy(
        model=net, action_space=env.action_space, eps_training=0.1, eps_inference=0.0
    )
    optim = AdamOptimizerFactory(lr=1e-3)

    return DQN(
        policy=policy,
        optim=optim,
        gamma=1.0,
        n_step_return_horizon=LONGEST_GAME,
        target_update_freq=200,
    )


def main() -> None:
    """Learns, and tests the greedy players now and then."""
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    np.random.seed(arguments.seed)  # what tianshou explores with

    # Otherwise it notes at every test that there are two agents.
    logging.getLogger("tianshou.data.stats").setLevel(logging.ERROR)

    env = make_env()
    algorithm = MultiAgentOffPolicyAlgorithm(
        algorithms=[make_dqn(env) for _ in env.agents], env=env
    )
    training, testing = (DummyVectorEnv([make_env] * count) for count in (8, 4))
    training.seed(arguments.seed)
    testing.seed(arguments.seed + 1000)
    collector = Collector(
        algorithm, training, VectorReplayBuffer(10_000, 8), exploration_noise=True
    )
    curve, began = [], time.process_time()

    def note(stats: CollectStats) -> float:
        mean = float(stats.returns.mean())
        steps, seconds = len(curve) * arguments.batch, time.process_time() - began
        curve.append({"steps": steps, "cpu_seconds": seconds, "return": mean})
        print(json.dumps({name: round(value, 3) for name, value in curve[-1].items()}), flush=True)
        return mean

    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            test_collector=Collector(algorithm, testing),
            max_epochs=max(1, arguments.steps // arguments.batch),
            epoch_num_steps=arguments.batch,
            collection_step_num_env_steps=min(80, arguments.batch),
            test_step_num_episodes=arguments.games,
            batch_size=256,
            update_step_num_gradient_steps_per_sample=0.1,
            multi_agent_return_reduction=lambda returns: returns.sum(-1),
            compute_score_fn=note,
            show_progress=False,
            verbose=False,
        )
    )
    write_curve(arguments.out, curve)


if __name__ == "__main__":
    main()
