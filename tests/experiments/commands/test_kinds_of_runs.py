"""The same code with other worlds, models, verifiers and roles; all within this process, on one
Ray."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from runs import SETTINGS, all_games, arguments, games, metrics

from ssp_agents.models import load_model
from ssp_env.cli import main

pytestmark = pytest.mark.usefixtures("cluster")


def train(policy: Path, out: Path, *more: str, settings: tuple[str, ...] = SETTINGS) -> Path:
    """Runs ``ssp train`` here; returns the run directory."""
    assert main([*arguments(policy, out, "--quiet", settings=settings), *more]) == 0
    return out


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in load_model(folder).state_dict().items()}


def test_solver_only_learns_from_the_solver_alone(policy: Path, tmp_path: Path) -> None:
    # Without the KL there is nothing that a solver could learn from games that it always loses.
    settings = (
        *SETTINGS,
        "learning.kl_coeff=0",
        "learning.drop_uniform_groups=true",
        "game.attempts=2",
    )
    both = train(policy, tmp_path / "both", "--steps", "1", settings=settings)
    alone = train(policy, tmp_path / "alone", "--steps", "1", "--solver-only", settings=settings)
    assert json.loads((alone / "summary.json").read_text())["learning_roles"] == ["solver"]
    assert games(alone) == games(both)
    tokens = {run: metrics(run)[1].get("learner_trained_tokens", 0.0) for run in (both, alone)}
    assert tokens[alone] < tokens[both]


def test_noise_and_verdicts_are_kept_with_a_verifier(policy: Path, tmp_path: Path) -> None:
    settings = (*(s for s in SETTINGS if "verifier" not in s), "game.noise_documents=3")
    run = train(policy, tmp_path / "run", "--steps", "1", "--verifier", "auto", settings=settings)
    verified = [game for game in all_games(run) if game.verification]
    assert verified
    assert all(len(game.noise) == 3 for game in verified)
    drawn = [(noise.document.id, game.evidence) for game in verified for noise in game.noise]
    assert all(name not in evidence for name, evidence in drawn)
    assert json.loads((run / "summary.json").read_text())["verifier"] == "world"


def test_real_passages_with_a_model_that_never_saw_the_tags(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = (
        "learning.batch_size=3",
        "per_group=1",
        "game.prompts=plain",
        "game.max_prompt_tokens=4000",
    )
    sizes += ("game.max_response_tokens=24",)
    run, world = tmp_path / "run", ("--world", "wiki-mini", "--steps", "1")
    assert main([*arguments(stranger, run, *world, settings=sizes)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "in the last step, no proposed question was valid" in said
    assert "needs another prompt set, a model that follows instructions, or ssp imitate" in said
    assert len(metrics(run)) == 2
    played = all_games(run)
    assert len(played) == 3
    assert all("<search>" in game.trajectories[0].segments[0].text for game in played)
    assert (run / "checkpoints" / "step_000001" / "policy" / "tokenizer.json").is_file()


def test_own_files_as_a_world(policy: Path, tmp_path: Path) -> None:
    rows = {
        "corpus": [
            {"id": str(i), "contents": f'"Page {i}"\nSamarick rival of Sebedor number {i} .'}
            for i in range(9)
        ],
        "answers": [{"answer": "Samarick", "aliases": ["Sam"]}],
        "questions": [{"question": "who is it ?", "answers": ["Sebedor"], "group": "mine"}],
    }
    options = ["world_options.name=mine"]
    for name, lines in rows.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        options.append(f"world_options.{name}_path={file}")
    run = train(
        policy, tmp_path / "run", "--world", "files", "--steps", "1", settings=(*SETTINGS, *options)
    )
    assert {game.answer for game in all_games(run)} == {"Samarick"}
    assert json.loads((run / "summary.json").read_text())["questions"]["final"] == {"mine": 1}


OWN_RULES = '''
from ssp_env.game.rules import Rules


class Agreeable:
    def verify(self, tasks):
        raise AssertionError("no question gets here")


def make(world, tokenizer, game):
    """Rejects every question."""
    filters = {"odd": lambda proposal: True}
    return Rules.build(world, tokenizer, game, filters=filters, verifier=Agreeable())
'''


def test_parts_of_your_own_are_trained_with_and_resumed(
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine_of_this_test.py").write_text(OWN_RULES)
    monkeypatch.chdir(tmp_path)
    # Without --out the run gets a fresh directory, which --resume finds.
    (tmp_path / "runs" / "tiny-seed0").mkdir(parents=True)
    command = arguments(policy, "-", "--steps", "1", "--rules", "mine_of_this_test:make")
    del command[command.index("--out") : command.index("--out") + 2]
    assert main(command) == 0
    assert "everything is in runs/tiny-seed0-2/" in capsys.readouterr().out
    assert main(["train", "--resume", "--steps", "2", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "2 steps" in told
    assert "(mini, verifier: Agreeable)" in told
    run = tmp_path / "runs" / "tiny-seed0-2"
    assert metrics(run)[2]["invalid_odd"] > 0
    assert "rules: mine_of_this_test:make" in (run / "config.yaml").read_text()
