"""The run directory: every file in full or not at all, and only ever one run's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from small_runs import make_run

from ssp_agents.checksums import write_checksums
from ssp_env.errors import ConfigError, ModelError, RunError
from ssp_env.types import World
from ssp_env.worlds.mini import MiniWorld
from ssp_experiments.config import RunConfig, load_preset, make_config
from ssp_experiments.run.checks import check_early, open_training
from ssp_experiments.run.cluster import algorithm_config
from ssp_experiments.run.rules import kept_open
from ssp_experiments.run.rundir import RunDirectory

CONFIG = make_config(load_preset("tiny"))


def weights(folder: Path) -> None:
    (folder / "weights").write_text("w")


def begun(path: Path, steps: int = 3, saved: int = 2, config: RunConfig = CONFIG) -> RunDirectory:
    """A run that was stopped after ``steps``, with its last checkpoint at ``saved``."""
    directory = RunDirectory(path)
    with directory.claimed(config, resume=False) as step:
        assert step == 0
        directory.append_metrics({"step": 0})
        directory.games.mkdir()
        for step in range(1, steps + 1):
            (directory.games / f"step_{step:06d}.jsonl").write_text("{}\n")
            directory.append_metrics({"step": step})
        directory.save_checkpoint(saved, weights)
    return directory


def resume(directory: RunDirectory, config: RunConfig = CONFIG) -> int:
    with directory.claimed(config, resume=True) as step:
        return step


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def refused(path: Path, config: RunConfig = CONFIG, again: bool = False) -> str:
    """Why a run may not have the directory, which is left as it was."""
    before = contents(path)
    with pytest.raises(RunError) as caught, RunDirectory(path).claimed(config, resume=again):
        pass
    assert contents(path) == before
    return str(caught.value)


def test_a_directory_that_another_run_needs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "choose another --out" in refused(tmp_path)
    run = begun(tmp_path / "run").path
    assert "at step 2 already" in refused(run, CONFIG.replace(steps=1), again=True)


def test_a_run_that_fails_leaves_nothing_before_its_first_line_and_all_after(
    tmp_path: Path,
) -> None:
    def play(directory: RunDirectory, lines: int) -> None:
        with directory.claimed(CONFIG, resume=False):
            directory.tensorboard.mkdir()
            for step in range(lines):
                directory.append_metrics({"step": step})
            raise KeyboardInterrupt

    # A directory that was there before stays.
    for place, lines in ((tmp_path / "runs" / "one", 0), (tmp_path, 0), (tmp_path / "run", 1)):
        with pytest.raises(KeyboardInterrupt):
            play(RunDirectory(place), lines)
        assert len(list(tmp_path.iterdir())) == lines
    assert RunDirectory(tmp_path / "run").read_metrics() == [{"step": 0}]


@pytest.mark.parametrize("line", ['{"stap": 1}', '{"step": "1"}', "[1]"])
def test_metrics_without_a_step_are_refused(tmp_path: Path, line: str) -> None:
    directory = RunDirectory(tmp_path)
    directory.append_metrics({"step": 0})
    with directory.metrics.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunError, match="line 2 has no step"):
        directory.read_metrics()


def test_metrics_are_json(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.append_metrics({"step": 1, "loss": float("nan"), "seconds": {"step": float("inf")}})
    line = json.loads(directory.metrics.read_text(), parse_constant=pytest.fail)
    assert line == {"step": 1, "loss": None, "seconds": {"step": None}}


def test_a_checkpoint_that_did_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.write_config(CONFIG)
    directory.save_checkpoint(1, weights)

    def save(folder: Path) -> None:
        weights(folder)
        raise SafetensorError("No space left on device")

    with pytest.raises(RunError, match=r"step_000002 cannot be written: .*No space left"):
        directory.save_checkpoint(2, save)
    assert [child.name for child in directory.checkpoints.iterdir()] == ["step_000001"]


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run", steps=4, saved=2)
    (directory.checkpoints / ".unfinished_000004").mkdir()
    (directory.games / ".step_000005.jsonl.unfinished").write_text("half")
    directory.summary.write_text("{}")
    with open(directory.metrics, "a") as file:
        file.write('{"step": 5, "loss": 0.')  # cut off by a crash
    assert [line["step"] for line in directory.read_metrics()] == [0, 1, 2, 3, 4]
    assert resume(directory) == 2
    assert [line["step"] for line in directory.read_metrics()] == [0, 1, 2]
    left = {str(path.relative_to(directory.path)) for path in contents(directory.path)}
    games = {f"games/step_00000{step}.jsonl" for step in (1, 2)}
    saved = {f"checkpoints/step_000002/{name}" for name in ("weights", "config.yaml")}
    assert left == games | saved | {"config.yaml", "metrics.jsonl"}

    shutil.rmtree(directory.checkpoints)
    assert resume(directory) == 0, "without a checkpoint it starts over"
    assert {path.name for path in directory.path.iterdir()} == {"config.yaml"}


SERVERS = [{"search.source": source} for source in ("http://one:1", "http://two:2", "an/index")]


@pytest.mark.parametrize(
    ("held", "given", "fixed"),
    [
        ({}, {"steps": 500, "compute": {"learners": 2, "sharding": "fsdp2"}}, ""),
        ({}, {"seed": 5}, "seed"),
        ({}, {"world_options.seed": 2}, "world_options, world_options.seed"),
        ({}, {"learning.lr": 0.1}, "learning.lr"),
        ({}, SERVERS[0], "search.source"),
        (SERVERS[0], SERVERS[1], ""),  # a server may move
        (SERVERS[0], SERVERS[2], "search.source"),
    ],
)
def test_only_settings_that_decide_no_game_may_change(
    tmp_path: Path, held: dict[str, Any], given: dict[str, Any], fixed: str
) -> None:
    first, changed = (make_config(load_preset("tiny"), each) for each in (held, given))
    directory = begun(tmp_path / "run", config=first)
    if not fixed:
        assert resume(directory, changed) == 2
        assert make_config(directory.read_config()) == changed
        return
    assert f"other settings ({fixed})" in refused(directory.path, changed, again=True)
    # Nor may its file be edited: the checkpoint has its own.
    directory.write_config(changed)
    assert f"other settings ({fixed})" in refused(directory.path, changed, again=True)


def test_a_run_of_an_older_version_goes_on_unless_it_used_what_is_gone(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run", config=(config := make_config(load_preset("tiny"))))
    held = directory.config.read_text()
    for folder in (directory.path, *(at for _, at in directory.kept_checkpoints())):
        older = held.replace("learning:\n", "learning:\n  privileged: 0.0\n")
        older = older.replace("\ngame:\n", "\ngame:\n  gate_errors: [0.0, 0.0]\n")
        (folder / "config.yaml").write_text(older)
    assert make_config(directory.read_config()) == config
    assert resume(directory, config) == 2
    with pytest.raises(ConfigError, match=r"privileged = 0\.5: no such setting any more"):
        make_config({**load_preset("tiny"), "learning": {"privileged": 0.5}})


def test_a_run_whose_checkpoints_are_gone_is_left_alone(tmp_path: Path) -> None:
    directory = make_run(tmp_path / "run", steps=3, finished=False)
    config = RunConfig(**directory.read_config()).replace(checkpoint_every=2)
    with pytest.raises(RunError, match="its checkpoints are gone"), directory.claimed(config, True):
        pass
    assert len(directory.read_metrics()) == 4


def test_lost_lines_of_metrics_are_named_with_what_to_do(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run", steps=4, saved=2)
    directory.save_checkpoint(4, weights)
    whole = directory.metrics.read_text()
    for lost, kept in ((4, whole[:-3]), (3, whole.replace('{"step": 3}\n', ""))):
        directory.metrics.write_text(kept)
        said = refused(directory.path, again=True)
        assert f"has lost its line of step {lost}" in said
        assert "restore the file from a copy, or delete step_000004 in" in said
    directory.metrics.write_text(whole.replace('{"step": 1}\n', ""))
    assert "or begin another run" in refused(directory.path, again=True)

    directory.metrics.write_text(whole[:-3])
    shutil.rmtree(directory.checkpoints / "step_000004")
    assert resume(directory) == 2


@pytest.mark.parametrize("harm", [lambda file: file.write_bytes(b"state\0"), Path.unlink])
def test_a_damaged_state_is_found_before_ray_is_started(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    def save(folder: Path) -> None:
        (folder / "algorithm").mkdir()
        (folder / "algorithm" / "algorithm_state.pkl").write_bytes(b"state")
        write_checksums(folder / "algorithm", "*")

    directory = begun(tmp_path / "run")
    directory.save_checkpoint(3, save)
    file = directory.checkpoints / "step_000003" / "algorithm" / "algorithm_state.pkl"
    harm(file)
    with pytest.raises(ModelError, match=r"algorithm_state.pkl.*restore it from a copy"):
        directory.check(CONFIG, resume=True)


def test_a_run_opens_its_world_and_its_rules_once(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[World] = []
    make = MiniWorld.__init__

    @wraps(make)
    def counted(world: MiniWorld, *args: Any, **options: Any) -> None:
        opened.append(world)
        make(world, *args, **options)

    monkeypatch.setattr(MiniWorld, "__init__", counted)
    config = make_config(load_preset("tiny"), {"model": str(policy), "world_options.seed": 71})
    with kept_open():
        check_early(config, tmp_path / "run", resume=False)
        rules, _ = open_training(config)
        made = algorithm_config(config)
        assert made.make_rules(made.make_world(), rules.tokenizer) is rules
    assert opened == [rules.world]
    assert algorithm_config(config).make_rules(rules.world, rules.tokenizer) is not rules


def test_a_checkpoint_without_its_state_is_refused(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    config = make_config(load_preset("tiny"))
    directory.write_config(config)
    directory.append_metrics({"step": 0})
    directory.save_checkpoint(1, lambda folder: (folder / "algorithm").mkdir())
    with pytest.raises(RunError, match=r"algorithm_state.pkl is missing: restore it from a copy"):
        check_early(config, tmp_path, resume=True)
