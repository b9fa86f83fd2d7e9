"""Self-play for RLlib. Importing this registers the algorithm with Tune, as ``"SSP"``."""

from ray.tune.registry import register_trainable

from ssp_agents.rllib.algorithm import SSP
from ssp_agents.rllib.config import SSPConfig
from ssp_agents.rllib.learner import SSPLearner

__all__ = ["SSP", "SSPConfig", "SSPLearner"]

register_trainable("SSP", SSP)
