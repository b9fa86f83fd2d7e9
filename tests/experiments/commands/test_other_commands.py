"""``ssp plot`` and ``ssp bootstrap``."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agents.models import load_model
from experiments.report import curves
from experiments.run.checks import check_model
from ssp_env.cli import main
from ssp_env.tokenizers import HuggingFaceTokenizer

# -- plot --------------------------------------------------------------------------------------


def small_run(folder: Path, seed: int, steps: int, value: float) -> str:
    """A run directory with settings and metrics alone; its path."""
    folder.mkdir()
    (folder / "config.yaml").write_text(f"seed: {seed}\nsteps: {steps}\n")
    accuracy = {"accuracy": {"1": value}, "interval": {"1": [0, 1]}}
    lines = [{"step": s, "solver_reward": value, "valid_rate": None} for s in range(steps + 1)]
    text = "".join(json.dumps(line | accuracy) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return str(folder)


def test_plot_draws_a_line_per_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[Any] = []
    save = curves.save_figure
    monkeypatch.setattr(curves, "save_figure", lambda *given: drawn.append(given) or save(*given))
    kinds = {"a-seed0": (0, 4, 0.0), "a-seed1": (1, 4, 0.25), "a-seed2": (2, 4, 0.5)}
    kinds["b"] = (0, 2, 0.75)
    runs = [small_run(tmp_path / name, *kind) for name, kind in kinds.items()]
    out = tmp_path / "plot.png"
    assert main(["plot", *runs, "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "4 runs, 2 lines" in capsys.readouterr().out
    ((figure, _),) = drawn
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["steps=4 · 3 seeds", "steps=2"]
    titles = [axis.get_title() for axis in figure.axes]
    groups = ["Unseen questions: 1 hop", "Unseen questions: mean"]
    assert titles == [*groups, "What each role is paid: solver"]
    for axis in figure.axes:
        lines = [(line.get_xdata().tolist(), line.get_ydata()[-1]) for line in axis.lines]
        assert lines == [([0, 1, 2, 3, 4], 0.25), ([0, 1, 2], 0.75)]
        assert len(axis.collections) == 1, "the interval over three seeds"
        assert all(float(tick).is_integer() for tick in axis.get_xticks())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere is no run directory"),
        (["RUN", "--smooth", "0"], "--smooth = 0: must be at least 1"),
        (["RUN", "--out", "plot.foo"], "plot.foo cannot be written"),
    ],
)
def test_plot_s_mistakes(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    small_run(tmp_path / "RUN", 0, 1, 0.5)
    assert main(["plot", *words]) == 2
    assert says in capsys.readouterr().err
    assert [child.name for child in tmp_path.iterdir()] == ["RUN"]


# -- bootstrap ---------------------------------------------------------------------------------


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
