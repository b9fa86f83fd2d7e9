"""Which of RLlib's own settings search self-play honours. Every other one that is set is refused.

RLlib has some 250 settings, most of them for algorithms that step vectors of environments and learn
from episodes. Self-play does neither, so most would be read by nobody, and a run with ``gamma=0.9``
would silently be the run without it.
"""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils import force_list

from ssp_env.errors import ConfigError

CALLED = (
    "on_algorithm_init",
    "on_train_result",
    "on_checkpoint_loaded",
    "on_env_runners_recreated",
    "on_evaluate_start",
    "on_evaluate_end",
    "on_sample_end",
)
"""Callbacks that are called: on a round's end, ``on_sample_end`` with its
:class:`~agents.rllib.rounds.Sample`, and elsewhere as RLlib does."""

HONOURED = frozenset(
    {
        # What is played and by whom: environment(), training(model_dir=...), debugging().
        *("algo_class", "model_dir", "engine", "env_config", "seed", "log_level", "log_sys_usage"),
        "overlap",
        # Where it runs: env_runners(), learners(), resources(), python_environment().
        *("env_runner_cls", "num_env_runners", "num_cpus_per_env_runner"),
        *("num_gpus_per_env_runner", "custom_resources_per_env_runner", "sample_timeout_s"),
        *("create_local_env_runner", "validate_env_runners_after_construction"),
        *("num_learners", "num_cpus_per_learner", "num_gpus_per_learner", "sharding"),
        "weights",
        *("custom_resources_per_learner", "local_gpu_idx", "placement_strategy"),
        *("num_cpus_for_main_process", "custom_resources_for_main_process"),
        *("extra_python_environs_for_driver", "extra_python_environs_for_worker"),
        # What happens when an env runner dies: fault_tolerance().
        *("restart_failed_env_runners", "max_num_env_runner_restarts"),
        *("env_runner_restore_timeout_s", "env_runner_health_probe_timeout_s"),
        # Measuring the policy: evaluation().
        *("evaluation_interval", "evaluation_duration", "evaluation_duration_unit"),
        "evaluation_num_env_runners",
        # Callbacks that are called: callbacks(). There are no episodes to call others for.
        *("callbacks_class", *(f"callbacks_{name}" for name in CALLED)),
        # How long an iteration is: reporting(). Steps are tokens of the policy's.
        *("min_time_s_per_iteration", "min_sample_timesteps_per_iteration"),
        "min_train_timesteps_per_iteration",
        # A module of your own: rl_module().
        "_rl_module_spec",
        # A learner of your own, and figures: learners(), reporting().
        *("_learner_class", "stats_cls_lookup"),
        # How RLlib keeps house; nothing about a result depends on it.
        *("_is_frozen", "_validate_config", "_use_msgpack_checkpoints"),
        "simple_optimizer",  # validate() derives it
    }
)
"""Attributes of RLlib's config that search self-play reads, or RLlib itself on its behalf."""

EVALUATION = (
    "an evaluation is evaluation_duration questions, answered greedily; SSP.solve(...) asks others"
)
PLAYED_AGAIN = "what a dead env runner had begun is always played by another"
INSTEAD = {
    "gamma": "a trajectory is paid once, at its end: nothing is discounted",
    "train_batch_size_per_learner": "set training(batch_size=...), questions per step",
    "train_batch_size": "set training(batch_size=...), questions per step",
    "minibatch_size": "set training(minibatches=...), optimizer updates per step",
    "num_epochs": "every game is learnt from once; set training(minibatches=...) for more updates",
    "grad_clip": "set training(max_grad_norm=...)",
    "grad_clip_by": "gradients are clipped by their global norm, training(max_grad_norm=...)",
    "optimizer": "Adam is used; set training(lr=..., beta2=..., warmup_steps=...)",
    "env": "the game is set by env_config alone; leave env out",
    "num_envs_per_env_runner": "a runner plays its share of training(batch_size=...) side by side",
    "rollout_fragment_length": "games are played to their end",
    "num_gpus": "set learners(num_gpus_per_learner=...)",
    "model_config": "set training(model_dir=...), the directory of a causal LM",
    "model": "set training(model_dir=...), the directory of a causal LM",
    "policies": "one policy plays both roles",
    "policy_mapping_fn": "one policy plays both roles",
    "policies_to_train": "set training(learning_roles=...)",
    "explore": "set training(temperature=...)",
    "ignore_env_runner_failures": PLAYED_AGAIN,
    "num_consecutive_env_runner_failures_tolerance": PLAYED_AGAIN,
    "delay_between_env_runner_restarts_s": PLAYED_AGAIN,
}
"""What to do in place of the settings that people try first."""


def refuse_ignored(config: AlgorithmConfig, fresh: AlgorithmConfig, own: frozenset[str]) -> None:
    """Compares a config with an untouched one.

    Args:
        config: what the user made.
        fresh: a new config of the same class.
        own: attributes that are the algorithm's own settings.

    Raises:
        ConfigError: a setting was changed that nothing would read.
    """
    for name, default in vars(fresh).items():
        value = getattr(config, name)
        if name in HONOURED or name in own or _same(value, default):
            continue

        typed = name.removeprefix("_").removesuffix("_str")
        evaluates = typed.startswith(("evaluation_", "offline_evaluation_", "custom_evaluation"))
        fix = EVALUATION if evaluates else INSTEAD.get(typed, "leave it out")
        raise ConfigError(typed, value, f"not used by search self-play; {fix}")


def refuse_uncalled(config: AlgorithmConfig) -> None:
    """Looks at the methods of callbacks.

    Raises:
        ConfigError: a class of callbacks overrides one that is never called.
    """
    for cls in force_list(config.callbacks_class):
        for name in sorted(n for n in vars(RLlibCallback) if n.startswith("on_")):
            if name not in CALLED and getattr(cls, name, None) is not getattr(RLlibCallback, name):
                fix = f"self-play never calls {name}; it calls {', '.join(CALLED)}"
                raise ConfigError("callbacks_class", cls, fix)


def _same(value: Any, default: Any) -> bool:
    return value is default or bool(value == default)
