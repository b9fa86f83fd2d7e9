"""The preset `paper-7b` on a Ray cluster of three nodes, shrunk in model and batch alone.

All nodes are on this machine: a head without CPUs of its own, and two that share two env runners
and two learners (FSDP2, over gloo). The policy is a Qwen2 of random weights, tilted towards turns
that do something; wiki-mini is searched through ``ssp serve``; a model behind an API, here a script
that accepts every question, verifies and judges.

Two runs of two steps. Nothing happens to the first one. In the second step of the other one, a node
is killed; what it took with it is replaced: rounds of a dead env runner are played by another, and
after a learner's death the run goes on from the checkpoint of the first step. Its games are the
same, but for the last digits of log-probabilities, because services answer in threads.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.cluster_utils import Cluster
from tests.scripted_model import serve
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from benchmarks.origin import origin
from benchmarks.runs import PATIENCE, SSP_COMMAND, begin, figures, serving, sets, wait_for
from ssp_env.replay import read_games

SMALLER = {
    "learning.batch_size": 8,
    "learning.round_size": 4,
    "learning.microbatch_tokens": 4096,
    "checkpoint_every": 1,
    "evaluation.per_group": 1,
    "evaluation.every": 100,
    "compute.env_runners": 2,
    "compute.learners": 2,
    "compute.gpus_per_env_runner": 0,
    "compute.gpus_per_learner": 0,
    "compute.threads": 1,
}
"""What differs from the preset, beside the policy and where the services are."""
SHOWN = ("step", "games", "valid_rate", "solver_reward", "learner_updates", "learner_grad_norm")


def main() -> int:
    """Trains twice, kills a node, and writes what came of it; 1 if a run did not end well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm", action="store_true", help="the first run alone")
    parser.add_argument("--folder", type=Path, help="keep the runs; do not repeat finished ones")
    settings = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="cluster-") as name, serve(accept) as api:
        folder = settings.folder or Path(name)
        make_policy(folder / "policy", settings.seed)
        with serving("--world", "wiki-mini") as (url, _):
            given = {**SMALLER, "openai.base_url": api, "seed": settings.seed}
            for run, kill in ((folder / "calm", False), (folder / "hit", True)):
                wanted = not (kill and settings.calm)
                if wanted and not (run / "summary.json").exists():
                    train(run, folder / "policy", given, url, kill=kill)

        calm = came_of(folder / "calm")
        hit = None if settings.calm else came_of(folder / "hit")
        same = hit and distance(folder / "calm", folder / "hit")

    result = {
        "nodes": 3,
        "calm": calm,
        "node killed": hit,
        "distance_from_the_calm_run": same,
        "held": calm["held"]
        and (
            hit is None or (hit["held"] and bool(hit["actors_that_died"]) and same["tokens"] == 0)
        ),
        "settings": SMALLER,
        **origin("cluster"),
        "seed": settings.seed,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if result["held"] else 1


def accept(prompt: str) -> str:
    """A model that finds every question answered by its documents, and half of the answers right:
    those with an even number of characters."""
    answer = re.search(r"<(candidate|model)_answer>\s*(.*?)\s*</\1_answer>", prompt, re.DOTALL)
    if answer is None:
        return "<answer>so they say</answer>"
    right = answer[2] == "so they say" or len(answer[2]) % 2 == 0
    return f"verdict: {'correct' if right else 'incorrect'}"


def make_policy(folder: Path, seed: int) -> None:
    """A small Qwen2 with the packaged byte-pair encoding, whose random weights like tags."""
    source = files("ssp_env.tokenizers").joinpath("data", "bpe", "tokenizer.json")
    end = "<|endoftext|>"  # `transformers` gives it to every Qwen2
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(source), eos_token=end, pad_token=end)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16_384,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config)

    # The first channel of every token's vector is 1, so the output layer's first column is a bias.
    # The second one marks tokens that begin an action, and the third one words: in an action, words
    # follow, and after words its end.
    words = tokenizer.encode(" who wrote the novel that was made into a film in the year of 1984")
    read, written = model.model.embed_tokens.weight.T, model.lm_head.weight.T
    with torch.no_grad():
        read[:3] = written[:3] = 0.0
        read[0] = 1.0
        written[0] = -1.0
        written[0, words] = 0.3
        written[1, words] = 0.8
        written[2, words] = 0.8
        read[2, words] = 1.0
        for action, liking in (("search", 0.8), ("question", 0.7), ("answer", 0.7)):
            first, last = tokenizer.convert_tokens_to_ids([f"<{action}>", f"</{action}>"])
            read[1, first] = 1.0
            written[0, first] = liking
            written[0, last], written[2, last] = 0.0, liking + 0.4
    model.save_pretrained(folder)


def train(run: Path, policy: Path, given: dict[str, Any], url: str, *, kill: bool) -> None:
    """A run on a cluster of its own, of which a node may be killed in the second step."""
    command = [SSP_COMMAND, "train", "--preset", "paper-7b", "--model", str(policy)]
    command += ["--search", url, "--steps", "2", "--out", str(run), *sets(given)]

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=4) for _ in range(2)]
    lost: list[str] = []
    try:
        environment = {**os.environ, "RAY_ADDRESS": cluster.address, "OMP_NUM_THREADS": "1"}
        process = begin(command, env=environment)
        if kill:
            wait_for(run / "checkpoints" / "step_000001", process)
            lost = _actors_on(nodes[1])
            cluster.remove_node(nodes[1], allow_graceful=False)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        cluster.shutdown()
    ended = {"actors_that_died": lost, "status": process.returncode, "said": errors.splitlines()}
    (run / "ended.json").write_text(json.dumps(ended))


def came_of(run: Path) -> dict[str, Any]:
    """What a run left behind."""
    ended = json.loads((run / "ended.json").read_text())
    lines = figures(run)
    written = (run / "checkpoints" / "step_000002").rglob("*.safetensors")
    said = [line.strip() for line in ended["said"] if "died" in line or "ssp:" in line]
    return {
        **ended,
        "said": [line.replace(f"{run.parent}/", "") for line in said],
        "steps": [{name: line.get(name) for name in SHOWN} for line in lines],
        "checkpoint": sorted(path.name for path in written),
        "held": ended["status"] == 0
        and [line["step"] for line in lines] == [0, 1, 2]
        and all(line["learner_updates"] and line["learner_grad_norm"] for line in lines[1:])
        and not any("Traceback" in line for line in ended["said"]),
    }


def distance(one: Path, other: Path) -> dict[str, float]:
    """How many trajectories of two runs differ in a token, and by how much log-probabilities do.

    Services of other machines decide who is in a batch with whom, and batches the last digits.
    """
    apart, largest = 0, 0.0
    for file in sorted((one / "games").iterdir()):
        games = zip(read_games(file), read_games(other / "games" / file.name), strict=True)
        for mine, theirs in games:
            pairs = zip(mine.record.trajectories, theirs.record.trajectories, strict=True)
            for a, b in pairs:
                if list(a.own) != list(b.own):
                    apart += 1
                else:
                    gaps = np.abs(np.subtract(a.logprobs, b.logprobs))
                    largest = max(largest, float(gaps.max(initial=0.0)))
    return {"tokens": apart, "logprobs": largest}


def _actors_on(node: Any) -> list[str]:
    """The names of the processes of the actors that live on a node."""
    raylet = node.all_processes["raylet"][0].process.pid
    listed = subprocess.run(
        ["ps", "--ppid", str(raylet), "-o", "args="], capture_output=True, text=True, check=True
    )
    others = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
    names = [line.strip() for line in listed.stdout.splitlines()]
    return sorted(n for n in names if n.startswith("ray::") and not n.startswith(others))


if __name__ == "__main__":
    sys.exit(main())
