"""The preset `paper-7b` on a Ray cluster of three nodes, shrunk in model and batch alone.

Nobody has run this yet.

All nodes are on this machine: a head without CPUs of its own, and two that share two env runners
and two learners (FSDP2, over gloo). The policy is a Qwen2 of random weights, tilted towards tags;
wiki-mini is searched through `ssp serve`; a model behind an API, here a server that agrees with
everything, verifies and judges. In the second of two steps a node is killed. What it took with it
is replaced: rounds of a dead env runner are played by another, and after a learner's death the run
goes on from the checkpoint of the first step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from ray.cluster_utils import Cluster
from ray.util.state import list_actors
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from experiments.run.provenance import git_commit, machine
from ssp_env.game.protocol import Tags

SSP = str(Path(sys.executable).with_name("ssp"))
PATIENCE = 1500.0
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


def main() -> int:
    """Trains, kills a node, and writes what came of it; 1 if the run did not end well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    settings = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="cluster-") as name, _agreeing() as api:
        folder = Path(name)
        make_policy(folder / "policy", settings.seed)
        with _serving() as url:
            result = _trained(folder, url, api, settings)

    result |= {
        "command": " ".join(["python -m benchmarks.cluster", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "seed": settings.seed,
        "settings": SMALLER,
    }
    settings.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if result["held"] else 1


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
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16_384,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config)

    liked = [tag for tag in Tags().all() if not tag.strip("</>").startswith(("think", "info"))]
    words = tokenizer.encode(" who wrote the novel that was made into a film in the year of 1984")
    with torch.no_grad():
        # The first channel is the same for every token, so the output layer's first column is a
        # bias.
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.lm_head.weight[:, 0] = -0.5
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(liked), 0] = 1.0
        model.lm_head.weight[words, 0] = 1.1
    model.save_pretrained(folder)


def _trained(folder: Path, url: str, api: str, settings: argparse.Namespace) -> dict[str, Any]:
    run = folder / "run"
    assignments = {**SMALLER, "openai.base_url": api, "seed": settings.seed}
    sets = [part for name, value in assignments.items() for part in ("--set", f"{name}={value}")]
    command = [SSP, "train", "--preset", "paper-7b", "--model", str(folder / "policy")]
    command += ["--search", url, "--steps", "2", "--out", str(run), *sets]

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=4) for _ in range(2)]
    began = time.perf_counter()
    try:
        environment = {**os.environ, "RAY_ADDRESS": cluster.address, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        lost = []
        if not settings.calm:
            _wait_for(run / "games" / "step_000001.jsonl", process)
            _wait_for(run / "checkpoints" / "step_000001", process)
            lost = _actors_on(cluster.address, nodes[1].node_id)
            cluster.remove_node(nodes[1], allow_graceful=False)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        cluster.shutdown()

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    said = [line.strip() for line in errors.splitlines() if "died" in line or "ssp:" in line]
    written = (run / "checkpoints" / "step_000002").rglob("*.safetensors")
    return {
        "nodes": 3,
        "actors_on_the_node_that_was_killed": lost,
        "status": process.returncode,
        "said": [re.sub(r"/\S+/run", "RUN", line) for line in said],
        "seconds": round(time.perf_counter() - began, 1),
        "steps": [
            {
                name: line.get(name)
                for name in ("step", "games", "valid_rate", "learner_updates", "learner_loss")
            }
            for line in lines
        ],
        "checkpoint": sorted(path.name for path in written),
        "held": process.returncode == 0
        and [line["step"] for line in lines] == [0, 1, 2]
        and "Traceback" not in errors,
    }


def _actors_on(address: str, node: str) -> list[str]:
    """The classes of the actors that live on a node."""
    actors = list_actors(address=address, filters=[("state", "=", "ALIVE")], limit=1000)
    return sorted(actor["class_name"] for actor in actors if actor["node_id"] == node)


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            assert process.stderr is not None
            raise RuntimeError(
                f"the run ended without {path.name}: {process.stderr.read()[-2000:]}"
            )
        time.sleep(0.05)


@contextmanager
def _serving() -> Iterator[str]:
    """``ssp serve`` over wiki-mini: its address."""
    process = subprocess.Popen(
        [SSP, "serve", "--world", "wiki-mini", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        assert address is not None, "the server did not start"
        yield address[0]
    finally:
        process.kill()
        process.wait()


class _Agreeing(BaseHTTPRequestHandler):
    """A model that finds everything right."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the screen."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = request["messages"][-1]["content"]
        reply = "<answer>it says so</answer>" if "<answer>" in asked else "verdict: correct"
        body = json.dumps({"choices": [{"message": {"content": reply}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def _agreeing() -> Iterator[str]:
    """A server of such a model: its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Agreeing)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())
