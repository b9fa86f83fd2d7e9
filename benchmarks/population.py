"""Tune's population based training over the algorithm: is a copy what it was copied from?

Three trials begin with different learning rates. After two steps of each, the one that answers the
fewest unseen questions takes over the checkpoint of another one, with another learning rate
(``PopulationBasedTraining``, in step).
Written down are digests of weights and moments and of the pool of questions whenever a trial is
saved or restored, and the learning rate that the next update used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import tune

from agents.rllib import SSP, SSPConfig
from agents.rllib.batch import MODULE_ID
from benchmarks.origin import origin

LOG = "SSP_POPULATION_LOG"
"""Names the file in which trials write, each from its own process."""
RATES = (1e-5, 1e-4, 1e-3)
STEPS, EVERY = 4, 2
LEARNING: dict[str, Any] = {
    "batch_size": 8,
    "round_size": 8,
    "minibatches": 1,
    "warmup_steps": 0,
    "strategy": "reuse",
    "precision": "float32",
}


class Witness(SSP):
    """The algorithm, telling what it saves, takes back and learns with."""

    def save_to_path(self, *args: Any, **kwargs: Any) -> str:
        """As it is."""
        saved = super().save_to_path(*args, **kwargs)
        self._tell("saved")
        return saved

    def restore_from_path(self, *args: Any, **kwargs: Any) -> None:
        """As it is."""
        super().restore_from_path(*args, **kwargs)
        self._tell("restored")

    def training_step(self) -> None:
        """As it is."""
        super().training_step()
        self._tell("learnt")

    def _tell(self, what: str) -> None:
        learner = self.learner_group._learner
        optimizer = learner.get_optimizer(MODULE_ID)
        moments = optimizer.state_dict()["state"]
        digest = hashlib.sha256()
        for parameter in learner.get_parameters(learner.module[MODULE_ID]):
            digest.update(parameter.detach().numpy().tobytes())
        for place in sorted(moments):
            for name in sorted(moments[place]):
                digest.update(moments[place][name].numpy().tobytes())

        line = {
            "what": what,
            "trial": Path(self.logdir).name,
            "step": self._steps,
            "digest": digest.hexdigest()[:16],
            "pool": hashlib.sha256(repr(self._strategy.get_state()).encode()).hexdigest()[:16],
            "lr": self.config.lr,
            "lr_of_the_last_update": optimizer.param_groups[0]["lr"],
        }
        with open(os.environ[LOG], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main() -> int:
    """Trains a population and judges what it wrote."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="population-") as folder:
        os.environ[LOG] = f"{folder}/log.jsonl"
        errors = _train(Path(folder))
        lines = [json.loads(line) for line in Path(os.environ[LOG]).read_text().splitlines()]

    result = {**origin("population"), "errors": errors, **_judged(lines)}
    settings.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if result["held"] else 1


def _train(folder: Path) -> int:
    """How many trials failed."""
    config = SSPConfig().environment(env_config={"world": "mini", "game": {"attempts": 3}})
    config.training(**LEARNING, lr=tune.grid_search(list(RATES)))
    config.evaluation(evaluation_interval=EVERY, evaluation_duration=10)

    # One at a time. Trials wait in step, so a limit of Tune's own would have them wait forever.
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        results = tune.Tuner(
            Witness,
            param_space=config,
            tune_config=tune.TuneConfig(
                scheduler=tune.schedulers.PopulationBasedTraining(
                    metric="evaluation/env_runners/episode_return_mean",
                    mode="max",
                    time_attr="training_iteration",
                    perturbation_interval=EVERY,
                    hyperparam_mutations={"lr": tune.loguniform(1e-5, 1e-3)},
                    quantile_fraction=0.34,
                    synch=True,
                ),
            ),
            run_config=tune.RunConfig(
                stop={"training_iteration": STEPS}, storage_path=str(folder), verbose=0
            ),
        ).fit()
    finally:
        ray.shutdown()
    return len(results.errors)


def _judged(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Every restoring: from which trial, and whether it is that trial to the last bit."""
    saved = {
        (one["digest"], one["pool"], one["step"]): one for one in lines if one["what"] == "saved"
    }
    taken = []
    for place, line in enumerate(lines):
        if line["what"] != "restored":
            continue
        source = saved.get((line["digest"], line["pool"], line["step"]))
        after = next(
            one
            for one in lines[place + 1 :]
            if one["what"] == "learnt" and one["trial"] == line["trial"]
        )
        taken.append(
            {
                "trial": line["trial"],
                "step": line["step"],
                "from": source and source["trial"],
                "lr": line["lr"],
                "lr_of_the_source": source and source["lr"],
                "lr_of_the_next_update": after["lr_of_the_last_update"],
                "next_step": after["step"],
            }
        )

    copied = [one for one in taken if one["from"] not in (None, one["trial"])]
    held = bool(copied) and all(
        one["from"] is not None
        and one["lr"] == one["lr_of_the_next_update"]
        and one["next_step"] == one["step"] + 1
        for one in taken
    )
    changed = sum(one["lr"] != one["lr_of_the_source"] for one in copied)
    return {"restored": taken, "copied": len(copied), "with_another_lr": changed, "held": held}


if __name__ == "__main__":
    sys.exit(main())
