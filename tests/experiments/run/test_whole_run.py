"""What a run leaves behind, and what a terminal shows of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from runs import all_games, games, metrics

from agents.models import load_model
from experiments.config import make_config
from ssp_env.commands.cli import main
from ssp_env.replay import read_games
from ssp_env.tokenizers import HuggingFaceTokenizer

Run = tuple[Path, str]


@pytest.fixture(scope="module")
def run(whole_run: Run) -> Path:
    return whole_run[0]


def test_directory_holds_what_its_docstring_lists(run: Path) -> None:
    names = {"config.yaml", "metrics.jsonl", "games", "checkpoints", "tensorboard", "summary.json"}
    assert {child.name for child in run.iterdir()} == names
    (events,) = (run / "tensorboard").iterdir()
    assert events.name.startswith("events.out.tfevents")


def test_config_is_the_run_s_own(run: Path, policy: Path) -> None:
    config = make_config(yaml.safe_load((run / "config.yaml").read_text()))
    assert (config.model, config.steps, config.learning.batch_size) == (str(policy), 6, 8)


def test_metrics_have_a_line_a_step_from_the_base(run: Path) -> None:
    lines = metrics(run)
    assert [line["step"] for line in lines] == list(range(7))
    assert all(("accuracy" in line) == (line["step"] in (0, 6)) for line in lines)
    assert set(lines[0]["accuracy"]) == set(lines[0]["interval"]) == {"1", "2", "3", "4"}
    assert lines[0]["questions"] == dict.fromkeys("1234", 3)
    for line in lines[1:]:
        assert {"games", "void_games", "proposer_reward", "valid_rate", "policy_tokens"} <= set(
            line
        )
        assert {"engine", "game", "sample", "learn", "step", "wall"} <= set(line["seconds"])
    # Otherwise the tests that compare runs would compare little.
    assert any(line.get("learner_kl", 0.0) > 0 for line in lines[1:])
    assert any(0 < line["valid_rate"] < 1 for line in lines[1:])
    assert any(line["reused_games"] for line in lines[1:])


def test_games_hold_all_that_happened(run: Path) -> None:
    assert list(games(run)) == [f"step_{step:06d}.jsonl" for step in range(1, 7)]
    played = all_games(run)
    for line in metrics(run)[1:]:
        of_step = list(read_games(run / "games" / f"step_{line['step']:06d}.jsonl"))
        assert len(of_step) == line["games"]
        assert [saved.record.slot for saved in of_step] == list(range(len(of_step)))
    assert {game.outcome for game in played} == {"valid", "invalid"}
    assert {game.origin for game in played} == {"proposed", "reused"}
    for game in played:
        proposals = [t for t in game.trajectories if t.role == "proposer"]
        found = {d.id for t in proposals for search in t.searches for d in search.documents}
        assert set(game.evidence) == found
        assert (game.proposer_reward is not None) == (game.origin == "proposed")
        assert len(game.attempts) == (2 if game.outcome == "valid" else 0)
        assert all(t.reward in (0.0, 1.0) and t.verdict for t in game.attempts)
    assert any(game.evidence for game in played)
    authors = {segment.by for game in played for t in game.trajectories for segment in t.segments}
    assert authors == {"prompt", "policy", "environment"}


def test_every_game_of_a_run_replays_offline(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(run), "--check"]) == 0
    count = len(all_games(run))
    assert f"{count} of {count} games are identical" in capsys.readouterr().out
    assert any(p < 0 for game in all_games(run) for t in game.trajectories for p in t.logprobs)


def test_checkpoint_holds_a_model_directory(run: Path, policy: Path) -> None:
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step_000006"]
    trained = run / "checkpoints" / "step_000006" / "policy"
    before, after = load_model(policy).state_dict(), load_model(trained).state_dict()
    assert before.keys() == after.keys()
    assert any(not before[name].equal(after[name]) for name in before)
    assert HuggingFaceTokenizer.load(trained).encode("<search>") == HuggingFaceTokenizer.load(
        policy
    ).encode("<search>")


def test_summary_says_what_was_reached(run: Path) -> None:
    summary, lines = json.loads((run / "summary.json").read_text()), metrics(run)
    assert {
        name: summary[name] for name in ("seed", "steps", "preset", "verifier", "questions_per_hop")
    } == {
        "seed": 0,
        "steps": 6,
        "preset": "tiny",
        "verifier": "none",
        "questions_per_hop": 3,
    }
    assert summary["accuracy"] == {"base": lines[0]["accuracy"], "final": lines[-1]["accuracy"]}
    assert summary["wall_seconds"] == pytest.approx(
        sum(line["seconds"]["wall"] for line in lines), abs=0.06
    )
    assert summary["wall_seconds"] > sum(line["seconds"].get("step", 0.0) for line in lines)
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", summary["git_commit"])


def test_tensorboard_has_the_figures(run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    for name, at in (
        ("proposer_reward", range(1, 7)),
        ("accuracy/2", (0, 6)),
        ("seconds/step", range(1, 7)),
    ):
        shown = {event.step: event.value for event in events.Scalars(name)}
        assert sorted(shown) == list(at)
    line = metrics(run)[3]
    assert next(e.value for e in events.Scalars("valid_rate") if e.step == 3) == pytest.approx(
        line["valid_rate"]
    )


# -- the terminal ------------------------------------------------------------------------------


def plain(shown: str) -> list[str]:
    """The lines that a terminal got, without colours and movements."""
    return [
        line
        for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))
        if line.strip()
    ]


def test_terminal_shows_figures_accuracies_and_the_result(whole_run: Run) -> None:
    lines = plain(whole_run[1])
    assert any("self-play" in line and "6/6" in line for line in lines)
    for name in ("reward", "valid", "accepted", "questions", "searches", "speed"):
        assert any(line.startswith(name) for line in lines)
    assert any(re.search(r"accuracy base:  1: \d\.\d{3}  2: ", line) for line in lines)
    assert "base [95% interval]" in whole_run[1]
    assert any(
        line.startswith("6 steps in ") and f"everything is in {whole_run[0]}/" in line
        for line in lines
    )


def test_terminal_is_never_overflown(whole_run: Run) -> None:
    panel = [line for line in plain(whole_run[1]) if not line.startswith("6 steps in")]
    assert max(map(len, panel)) <= 100


def test_panel_does_not_jump(whole_run: Run) -> None:
    # Before it draws itself anew the panel goes up by its own height, which must always be the
    # same.
    heights = {len(ups) for ups in re.findall(r"(?:\x1b\[1A\x1b\[2K)+", whole_run[1])}
    assert len(heights) == 1


def test_libraries_stay_silent(whole_run: Run) -> None:
    panel = r"self-play|reward|valid|accepted|questions|searches|speed"
    notes = r"\s*\d+:\d\d (evaluating|accuracy|starting)"
    known = rf"loading PyTorch|{notes}|{panel}|accuracy on|[┏┃┡│└]|6 steps"
    strange = [line for line in plain(whole_run[1]) if not re.match(known, line)]
    assert strange == []


def test_finished_run_is_summed_up_again_without_playing(whole_run: Run) -> None:
    run = whole_run[0]
    before, played = json.loads((run / "summary.json").read_text()), games(run)
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert json.loads((run / "summary.json").read_text()) == before
    assert games(run) == played
