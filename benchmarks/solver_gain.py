"""What a run's gain on unseen questions is made of: memory, search and reasoning.

For each run directory, ``ssp eval BASE LAST --closed-book`` compares the policy that it began with
and that of its newest checkpoint.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.origin import origin
from benchmarks.runs import SSP_COMMAND
from experiments.config import make_config
from experiments.run.rundir import RunDirectory


def main() -> int:
    """Compares and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("runs", nargs="+", help="NAME=RUN")
    parser.add_argument("--per-group", type=int, default=200, help="questions per hop count")
    parser.add_argument("--seed", type=int, default=7, help="which questions are drawn")
    settings = parser.parse_args()

    named = {name: Path(run) for name, run in (given.split("=", 1) for given in settings.runs)}
    asked = ["--per-group", str(settings.per_group), "--seed", str(settings.seed)]
    result = {
        **origin("solver_gain"),
        "runs": {name: _run(run, asked) for name, run in named.items()},
    }
    settings.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


def _run(path: Path, asked: list[str]) -> dict[str, Any]:
    directory = RunDirectory(path)
    config, latest = make_config(directory.read_config()), directory.latest_checkpoint()
    if latest is None:
        raise SystemExit(f"{path} holds no checkpoint")

    step, checkpoint = latest
    policies = [str(config.model_dir), str(checkpoint / "policy")]
    command = [SSP_COMMAND, "eval", *policies, *asked, "--closed-book", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        "preset": config.preset,
        "seed": config.seed,
        "step": step,
        "fingerprint": found["evaluations"][0]["fingerprint"]["hash"],
        "gain": found["gain"],
    }


if __name__ == "__main__":
    sys.exit(main())
