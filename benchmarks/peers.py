"""Other environments, measured beside ours: each in its own process and virtual environment."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer_worker import PEERS
from benchmarks.workload import ANSWER, ANSWER_TURN, DOCUMENTS, QUESTION, search_turn

PINS = {
    "pettingzoo": ["pettingzoo==1.27.0", "pygame==2.6.1"],
    "textarena": ["textarena==0.7.4"],
    "gem-llm": ["gem-llm==0.1.0"],
    "skyrl-gym": ["skyrl-gym==0.4.0"],
}
"""What is installed for each peer."""

NOT_MEASURED = {
    "search_r1": {
        "reason": "not on PyPI",
        "turns_per_cpu_second": [2900, 3700],
        "note": "not measured in this run: its run_llm_loop, measured beforehand at batch 8 and "
        "64 on 2 contended "
        "cores with scripted tokens and a byte tokenizer (no date or command kept); tokens and "
        "mask, as ours",
    },
    "ssp_paper": {"reason": "not on PyPI"},
    "spiral": {"reason": "not on PyPI"},
    "verifiers": {
        "reason": "on PyPI, but a rollout is a program that asks a model's HTTP endpoint for "
        "each turn "
        "(verifiers 0.4.0, v1/interception): there is no loop to feed"
    },
}
"""Peers without a figure of this run, and why."""


def pins_here() -> dict[str, list[str]]:
    """The pins, with our own release of NumPy: it is a part of what is measured."""
    return {name: [*wanted, f"numpy=={np.__version__}"] for name, wanted in PINS.items()}


class Peers:
    """The peers that can be measured here."""

    def __init__(self, directory: Path) -> None:
        """
        Args:
            directory: their virtual environment; made and filled where it is missing or holds other
                versions.
        """
        self.python = directory / "bin" / "python"
        self.failed: dict[str, str] = {}
        done, pins = directory / "pins.json", pins_here()

        if done.is_file() and (kept := json.loads(done.read_text()))["pins"] == pins:
            self.failed = kept["failed"]
            return

        venv.create(directory, with_pip=True)
        for name, wanted in pins.items():
            if reason := self._install(wanted):
                self.failed[name] = reason

        done.write_text(json.dumps({"pins": pins, "failed": self.failed}))

    def names(self) -> list[str]:
        """What can be measured."""
        return [name for name, (package, _) in PEERS.items() if package not in self.failed]

    def left_out(self) -> dict[str, Any]:
        """What cannot, and why."""
        return {
            **NOT_MEASURED,
            **{name: {"reason": reason} for name, reason in self.failed.items()},
        }

    def measure(self, name: str, seconds: float) -> dict[str, Any]:
        """``rate`` (steps per CPU-second) and ``version`` of one peer.

        Raises:
            CalledProcessError: the peer failed; its traceback is on stderr.
        """
        work = {
            "search": search_turn(0),
            "answer": ANSWER_TURN,
            "question": QUESTION,
            "truth": ANSWER.answer,
            "documents": [[document.title, document.text] for document in DOCUMENTS[:3]],
        }
        worker = Path(__file__).with_name("peer_worker.py")
        command = [str(self.python), "-W", "ignore", str(worker), name, str(seconds)]
        run = subprocess.run(
            command, input=json.dumps(work), stdout=subprocess.PIPE, text=True, check=True
        )
        result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])

        return result

    def _install(self, wanted: list[str]) -> str | None:
        """The last line of pip's complaint; ``None`` if there was none."""
        print(f"installing {' '.join(wanted)}", file=sys.stderr)
        command = [
            str(self.python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *wanted,
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)

        return run.stderr.strip().splitlines()[-1] if run.returncode else None
