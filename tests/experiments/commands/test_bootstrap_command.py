"""``ssp bootstrap``."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from agents.models import load_model
from experiments.run.checks import check_model
from ssp_env.cli import main
from ssp_env.tokenizers import HuggingFaceTokenizer


def bootstrap(out: Path, *more: str) -> None:
    assert main(["bootstrap", "--steps", "2", "--out", str(out), *more]) == 0


def test_bootstrap_makes_a_model_directory(tmp_path: Path) -> None:
    out = tmp_path / "models" / "base"
    bootstrap(out)
    check_model(out)
    load_model(out)
    assert HuggingFaceTokenizer.load(out).encode("<search>")
    origin = json.loads((out / "origin.json").read_text())
    assert origin["command"] == "ssp bootstrap --seed 0 --width 128 --steps 2 --out DIR"
    assert origin["sha256"] == hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    assert [child.name for child in out.parent.iterdir()] == ["base"]


def test_bootstrap_keeps_its_hands_off_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("x")
    for out in (tmp_path, tmp_path / "mine"):
        assert main(["bootstrap", "--out", str(out)]) == 2
        assert f"{out} exists already" in capsys.readouterr().err
    assert main(["bootstrap", "--steps", "0", "--out", str(tmp_path / "new")]) == 2
    assert main(["bootstrap", "--out", str(tmp_path / "mine" / "new")]) == 2
    assert [child.name for child in tmp_path.iterdir()] == ["mine"]


def test_interrupted_bootstrap_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not (tmp_path / "models" / ".base.unfinished").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    ctrl_c = threading.Thread(target=interrupt, daemon=True)
    ctrl_c.start()
    out = tmp_path / "models" / "base"
    assert main(["bootstrap", "--steps", "100000", "--out", str(out)]) == 130
    ctrl_c.join()
    errors = capsys.readouterr().err
    assert errors.splitlines()[-2:] == [
        "nothing was written; ssp bootstrap cannot be resumed, only started again",
        "ssp: interrupted",
    ]
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())
