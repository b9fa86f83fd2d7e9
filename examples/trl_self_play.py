"""TRL's GRPOTrainer on both roles, with the policy that ships: our tokens, masks and rewards.

    python examples/trl_self_play.py --save runs/trl
    ssp eval --model runs/trl

A step is a batch of as many games as each question has attempts. One group holds the proposals of
all games, and one each the attempts at a question. Rows without a reward, of which TRL warns, only
fill the batch: those of questions that nobody attempts. In 80 steps, the solver's accuracy on 400
unseen questions rose from .338 to .515, .532 and .562 (26 Nov 2026, seeds 0 to 2, AMD EPYC, one
thread, commit 9f99dcfb; ``benchmarks/results/trl/both_roles.json``). ``--world wiki-sentences``
trains the policy of real text.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
sys.path.insert(0, str(Path(__file__).parent / "integrations"))

import trl_ssp
from curves import curve_file, write_curve
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import ssp_env
from ssp_agents.models import SHIPPED, shipped_directory
from ssp_env.tokenizers import HuggingFaceTokenizer

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--world", choices=SHIPPED, default="mini", help="world of the policy")
parser.add_argument("--steps", type=int, default=60, help="batches of games")
parser.add_argument("--attempts", type=int, default=6, help="attempts at a question")
parser.add_argument("--lr", type=float, default=3e-4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--save", default="runs/trl", help="directory of the policy that comes of it")
parser.add_argument("--out", type=curve_file, help="write the curve here, as JSON lines")


class Curve(TrainerCallback):
    """Keeps and prints the mean reward of each step, over both roles."""

    def __init__(self) -> None:
        self.points: list[dict[str, float]] = []

    def on_log(self, args, state, control, logs, **more):  # type: ignore[no-untyped-def]
        """Called by TRL after every step."""
        if "reward" in logs:
            self.points.append({"steps": state.global_step, "reward": logs["reward"]})
            print(f"step {state.global_step}: mean reward {logs['reward']:.2f}", flush=True)


if __name__ == "__main__":
    given = parser.parse_args()
    folder, rows = str(shipped_directory(given.world)), given.attempts * (1 + given.attempts)
    rules = ssp_env.TurnVectorEnv(
        1,
        world=given.world,
        tokenizer=HuggingFaceTokenizer.load(folder),
        game={"attempts": given.attempts, "verifier": "world"},
    ).rules
    # A prompt is a seed: each batch begins with another one.
    seeds = [str(1_000_000 * given.seed + given.attempts * step) for step in range(given.steps)]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager"),
        processing_class=AutoTokenizer.from_pretrained(folder),
        reward_funcs=[trl_ssp.earned],
        rollout_func=trl_ssp.rollouts(rules=rules),
        train_dataset=Dataset.from_list(
            [{"prompt": seed} for seed in seeds for _ in range(1 + given.attempts)]
        ),
        args=GRPOConfig(
            output_dir=given.save,
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
            activation_checkpointing=False,
            seed=given.seed,
            max_steps=given.steps,
            per_device_train_batch_size=rows,
            num_generations=given.attempts,
            max_completion_length=rules.config.max_response_tokens,
            learning_rate=given.lr,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            scale_rewards="none",
            shuffle_dataset=False,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        callbacks=[curve := Curve()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model(given.save)
    write_curve(given.out, curve.points)
