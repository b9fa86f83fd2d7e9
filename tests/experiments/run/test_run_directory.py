"""The run directory: written in full or not at all, and only ever one run's."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from safetensors import SafetensorError

from experiments.config import RunConfig, load_preset, make_config, override
from experiments.run import cluster, training
from experiments.run import directory as directory_module
from experiments.run.directory import RunDirectory, fresh, newest
from experiments.run.progress import Progress
from ssp_env import disk
from ssp_env.errors import RunError, ServiceError
from ssp_env.game.config import MINI_GAME
from ssp_env.game.game import Origin, Start
from ssp_env.game.outcome import Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import Rules
from ssp_env.replay import SavedRules, read_games
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import GroundTruth
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini.lexicon import vocabulary

CONFIG = make_config(load_preset("tiny"))
FULL = OSError(errno.ENOSPC, "No space left on device")


def game(question: str) -> GameRecord:
    start = Start((0,), 0, 0, GroundTruth("a", "x"), Origin.PROPOSED)
    empty: dict[str, Any] = dict.fromkeys(GameRecord.__dataclass_fields__)
    known = {"start": start, "first_slot": 0, "outcome": Outcome.INVALID, "question": question}
    lists: dict[str, Any] = dict.fromkeys(("evidence", "noise", "trajectories"), ())
    return GameRecord(**{**empty, **known, **lists, "weights_version": 0})


@cache
def header() -> SavedRules:
    words = WordTokenizer(vocabulary(), Tags().all())
    return SavedRules.of(Rules.build(MiniWorld(entities=40), words, MINI_GAME))


def begun(path: Path, config: RunConfig = CONFIG, steps: int = 3, saved: int = 2) -> RunDirectory:
    """A run that was stopped after ``steps``, with its last checkpoint at ``saved``."""
    directory = RunDirectory(path)
    with directory.claimed(config, resume=False):
        directory.append_metrics({"step": 0})
        for step in range(1, steps + 1):
            directory.write_games(step, header(), [game(f"q{step}")])
            directory.append_metrics({"step": step})
        directory.save_checkpoint(saved, lambda folder: (folder / "weights").write_text("w"))
    return directory


def resume(directory: RunDirectory, config: RunConfig = CONFIG) -> int:
    with directory.claimed(config, resume=True) as step:
        return step


def config_with(*assignments: str) -> RunConfig:
    values = load_preset("tiny")
    for assignment in assignments:
        override(values, assignment)
    return make_config(values)


# -- the beginning -----------------------------------------------------------------------------


def test_new_run_starts_at_0_and_keeps_its_settings(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "deep" / "er" / "run")
    with directory.claimed(CONFIG, resume=False) as step:
        assert step == 0
        assert make_config(directory.read_config()) == CONFIG
        directory.append_metrics({"step": 0})


def test_empty_directory_may_be_used(tmp_path: Path) -> None:
    with RunDirectory(tmp_path).claimed(CONFIG, resume=False) as step:
        assert step == 0


def test_directory_with_anything_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with (
        pytest.raises(RunError, match="is not empty"),
        RunDirectory(tmp_path).claimed(CONFIG, resume=False),
    ):
        pass
    assert [child.name for child in tmp_path.iterdir()] == ["notes.txt"]


def test_another_run_s_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    other = CONFIG.replace(seed=5)
    for again in (False, True):
        with pytest.raises(RunError), RunDirectory(tmp_path / "run").claimed(other, resume=again):
            pass
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("failure", [RuntimeError("the model"), KeyboardInterrupt()])
def test_run_that_fails_before_its_first_line_leaves_nothing(
    tmp_path: Path, failure: BaseException
) -> None:
    directory = RunDirectory(tmp_path / "runs" / "one")

    def fail() -> None:
        with directory.claimed(CONFIG, resume=False):
            directory.tensorboard.mkdir()
            (directory.tensorboard / "events").write_text("e")
            raise failure

    with pytest.raises(type(failure)):
        fail()
    assert not list(tmp_path.iterdir())


def test_run_that_fails_later_keeps_what_it_has(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")

    def fail() -> None:
        with directory.claimed(CONFIG, resume=False):
            directory.append_metrics({"step": 0})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert directory.read_metrics() == [{"step": 0}]
    assert directory.config.is_file()


def test_failing_run_leaves_a_directory_that_was_there_before(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunDirectory(tmp_path).claimed(CONFIG, resume=False):
        raise RuntimeError
    assert tmp_path.is_dir()
    assert not list(tmp_path.iterdir())


def test_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "run", tmp_path / "file", Path("/proc/ssp/run")):
        with (
            pytest.raises(RunError, match="cannot be"),
            RunDirectory(path).claimed(CONFIG, resume=False),
        ):
            pass
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_full_disk_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - 5 * 2**20, 5 * 2**20)
    )
    with (
        pytest.raises(RunError, match="only 5 MiB of disk are free; at least 200 MiB are needed"),
        RunDirectory(tmp_path / "a" / "run").claimed(CONFIG, resume=False),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_checkpoints_of_a_large_model_need_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, 10 * 2**30))
    claim = {"config": CONFIG, "resume": False}
    with RunDirectory(tmp_path / "fits").claimed(**claim, checkpoint_bytes=3 * 2**30):
        pass
    with (
        pytest.raises(RunError),
        RunDirectory(tmp_path / "not").claimed(**claim, checkpoint_bytes=4 * 2**30),
    ):
        pass

    # 80 steps and one every 20: four are kept, and a fifth is there for a moment.
    claim["config"] = config_with("checkpoints_kept=null")
    with RunDirectory(tmp_path / "all").claimed(**claim, checkpoint_bytes=int(1.9 * 2**30)):
        pass
    with (
        pytest.raises(RunError),
        RunDirectory(tmp_path / "not").claimed(**claim, checkpoint_bytes=2 * 2**30),
    ):
        pass


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run")
    code = (
        "import sys; from ssp_env.disk import locked\n"
        "with locked(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(directory.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="in use by a run that is still going on"):
            resume(directory)
        other.kill()
    assert resume(directory) == 2


# -- what is written ---------------------------------------------------------------------------


def test_figures_that_are_not_finite_become_null(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.append_metrics({"step": 1, "loss": float("nan"), "seconds": {"step": float("inf")}})
    assert json.loads(directory.metrics.read_text(), parse_constant=pytest.fail) == {
        "step": 1,
        "loss": None,
        "seconds": {"step": None},
    }


def test_games_of_a_step_are_read_back(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    games = [game("Wer? \u00e4 \ud800 \u2028"), game("b\nc")]
    directory.write_games(7, header(), games)
    saved = list(read_games(tmp_path / "games" / "step_000007.jsonl"))
    assert [one.record for one in saved] == games
    assert all(one.rules == header() for one in saved)


def test_full_disk_in_mid_run_names_the_metrics(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.metrics.symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"metrics\.jsonl cannot be written: .*No space left"):
        directory.append_metrics({"step": 1})


class HalfWritten:
    """A file that takes some bytes, and then the disk is full."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, text: str) -> int:
        self.file.write(text[: self.room])
        self.file.flush()
        raise FULL

    def __enter__(self) -> HalfWritten:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on files take 5 characters."""
    real = open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        handle = real(file, mode, *args, **kwargs)
        return HalfWritten(handle, 5) if set(mode) & set("wa") else handle

    for module in (disk, directory_module):
        monkeypatch.setattr(module, "open", opened, raising=False)


@pytest.mark.usefixtures("full_disk")
def test_line_that_did_not_fit_is_taken_back(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.metrics.write_text('{"step": 0}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl cannot be written"):
        directory.append_metrics({"step": 1})
    assert directory.metrics.read_text() == '{"step": 0}\n'


@pytest.mark.usefixtures("full_disk")
def test_first_line_that_did_not_fit_leaves_no_file(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(RunError):
        directory.append_metrics({"step": 0})
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("full_disk")
def test_games_that_did_not_fit_leave_no_file(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(RunError, match=r"step_000001\.jsonl cannot be written: .*No space left"):
        directory.write_games(1, header(), [game("q")])
    assert not list(directory.games.iterdir())


@pytest.mark.usefixtures("full_disk")
def test_file_that_did_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("old")
    with pytest.raises(RunError, match=r"summary\.json cannot be written"):
        RunDirectory(tmp_path).write_summary({"steps": 3})
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
    assert (tmp_path / "summary.json").read_text() == "old"


@pytest.mark.parametrize("failure", [FULL, SafetensorError("I/O error: No space left on device")])
def test_checkpoint_that_did_not_fit_leaves_the_old_one(tmp_path: Path, failure: Exception) -> None:
    directory = RunDirectory(tmp_path)
    directory.save_checkpoint(1, lambda folder: (folder / "weights").write_text("w"))

    def save(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise failure

    with pytest.raises(
        RunError, match=r"checkpoint .*step_000002 cannot be written: .*No space left"
    ):
        directory.save_checkpoint(2, save)
    assert [child.name for child in directory.checkpoints.iterdir()] == ["step_000001"]


@pytest.mark.parametrize(("kept", "steps"), [(1, [100]), (2, [20, 100]), (None, [5, 20, 100])])
def test_the_newest_checkpoints_are_kept(
    tmp_path: Path, kept: int | None, steps: list[int]
) -> None:
    directory = RunDirectory(tmp_path)
    for step in (5, 20, 100):
        directory.save_checkpoint(step, lambda folder: (folder / "weights").write_text("w"), kept)
    found = sorted(child.name for child in directory.checkpoints.iterdir())
    assert found == [f"step_{step:06d}" for step in steps]
    assert directory.latest_checkpoint() == (100, directory.checkpoints / "step_000100")


# -- going on ----------------------------------------------------------------------------------


def test_resuming_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run", steps=4, saved=2)
    (directory.checkpoints / ".unfinished_000004").mkdir()
    (directory.games / ".step_000005.jsonl.unfinished").write_text("half")
    directory.summary.write_text("{}")
    assert resume(directory) == 2
    assert [line["step"] for line in directory.read_metrics()] == [0, 1, 2]
    assert sorted(file.name for file in directory.games.iterdir()) == [
        "step_000001.jsonl",
        "step_000002.jsonl",
    ]
    assert [folder.name for folder in directory.checkpoints.iterdir()] == ["step_000002"]
    assert not directory.summary.exists()


@pytest.mark.parametrize("measured", [False, True])
def test_a_learner_s_death_leaves_a_base_that_is_not_measured_to_who_goes_on(
    measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path / "run")
    told: list[bool] = []

    def die_once(run: Any, first: int, evaluated: bool, progress: Progress) -> None:
        told.append(evaluated)
        if len(told) == 1 and measured:
            directory.append_metrics({"step": 0})
        if len(told) == 1:
            raise ServiceError("learner", "dead")

    monkeypatch.setattr(training, "_run_steps", die_once)
    monkeypatch.setattr(cluster, "local_ray", lambda config: nullcontext())
    config = config_with("compute.env_runners=1")
    rules = Rules.build(
        MiniWorld(entities=40), WordTokenizer(vocabulary(), Tags().all()), MINI_GAME
    )
    quiet = Progress(config.steps, quiet=True)
    with directory.claimed(config, resume=False):
        training._play(config, directory, 0, rules, [], quiet, 0.0, None)
    assert told == [False, measured]


def test_line_cut_off_by_a_crash_is_forgotten(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run", steps=2, saved=2)
    with open(directory.metrics, "a") as file:
        file.write('{"step": 3, "loss": 0.')
    assert resume(directory) == 2
    assert [line["step"] for line in directory.read_metrics()] == [0, 1, 2]


def test_broken_line_before_the_checkpoint_is_an_error(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run")
    directory.metrics.write_text('{"step": 0}\n{"step": 1\n{"step": 2}\n')
    with pytest.raises(RunError, match="cannot be resumed"):
        resume(directory)


@pytest.mark.parametrize(
    "assignment",
    [
        "steps=500",
        "checkpoint_every=3",
        "checkpoints_kept=null",
        "compute.learners=2",
        "compute={learners: 2, sharding: fsdp2}",
        "compute.env_runners=2",
        "compute.gpus_per_learner=1",
        "compute.gpus_per_env_runner=1",
        "compute.threads=2",
        "openai.base_url=http://other/v1",
        "openai.api_key_env=KEY",
        "openai.timeout=5",
        "openai.attempts=1",
    ],
)
def test_setting_that_decides_no_game_may_change(tmp_path: Path, assignment: str) -> None:
    directory, changed = begun(tmp_path / "run"), config_with(assignment)
    assert resume(directory, changed) == 2
    assert make_config(directory.read_config()) == changed


@pytest.mark.parametrize(
    "assignment",
    [
        "seed=1",
        "world=wiki-mini",
        "world_options.seed=2",
        "model=other",
        "game.attempts=3",
        "game.tags.search=find",
        "learning.lr=0.1",
        "evaluation.per_group=2",
        "learning.round_size=16",
        "openai.judge=false",
        "openai.model=n",
    ],
)
def test_any_other_setting_may_not(tmp_path: Path, assignment: str) -> None:
    directory = begun(
        tmp_path / "run",
        config_with("openai.judge=true", "openai.base_url=http://a/v1", "openai.model=m"),
    )
    start = ["openai.judge=true", "openai.base_url=http://a/v1", "openai.model=m"]
    name = assignment.partition("=")[0]
    with pytest.raises(RunError, match=f"other settings .*{name}"):
        resume(directory, config_with(*start, assignment))


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run to resume \(config.yaml is missing\)"):
        resume(RunDirectory(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_checkpoint_starts_over(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run")
    shutil.rmtree(directory.checkpoints)
    with pytest.raises(RunError, match="other settings"):
        resume(directory, config_with("seed=1"))
    assert len(directory.read_metrics()) == 4

    assert resume(directory) == 0
    assert {path.name for path in directory.path.iterdir()} == {"config.yaml"}


def test_what_is_in_the_way_is_said(tmp_path: Path) -> None:
    """A directory names --resume only where that can go on."""

    def refused(path: Path) -> str:
        with (
            pytest.raises(RunError, match="is not empty") as caught,
            RunDirectory(path).claimed(CONFIG, resume=False),
        ):
            pass
        return str(caught.value)

    directory = begun(tmp_path / "run")
    assert "continue it with --resume" in refused(directory.path)
    shutil.rmtree(directory.checkpoints)
    assert "start it over with --resume" in refused(directory.path)
    directory.metrics.unlink()
    assert refused(directory.path).endswith("is not empty; choose another --out"), (
        "config.yaml is a name that many use"
    )


def test_fewer_steps_than_are_done_are_refused(tmp_path: Path) -> None:
    directory = begun(tmp_path / "run")
    assert resume(directory, CONFIG.replace(steps=2)) == 2
    with pytest.raises(RunError, match="at step 2 already; ask for more than 2 --steps"):
        resume(directory, CONFIG.replace(steps=1))


@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
def test_broken_settings_are_an_error(tmp_path: Path, text: str) -> None:
    directory = begun(tmp_path / "run")
    directory.config.write_text(text)
    with pytest.raises(RunError, match=r"config\.yaml"):
        resume(directory)


def test_reading_metrics_names_what_is_wrong(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(RunError, match="holds no metrics"):
        directory.read_metrics()
    directory.metrics.write_text("")
    with pytest.raises(RunError, match="is empty"):
        directory.read_metrics()
    directory.metrics.write_text('{"step": 0}\nnot json\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: not JSON"):
        directory.read_metrics()
    directory.metrics.write_text('{"step": 0}\n{"steps": 1}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: no line of metrics"):
        directory.read_metrics()
    directory.metrics.write_text('{"step": 0}\n{"step": 1, "gam')
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: cut off"):
        directory.read_metrics()
    assert directory.read_metrics(growing=True) == [{"step": 0}]


# -- names -------------------------------------------------------------------------------------


def test_fresh_directory_is_numbered(tmp_path: Path) -> None:
    base = tmp_path / "runs" / "tiny-seed0"
    assert fresh(base) == base
    for name in ("tiny-seed0", "tiny-seed0-2", "tiny-seed0-4", "tiny-seed01"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert fresh(base) == tmp_path / "runs" / "tiny-seed0-3"


def test_newest_run_has_the_highest_number(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run"):
        newest(tmp_path / "tiny-seed1")
    for name in (
        "tiny-seed1",
        "tiny-seed1-2",
        "tiny-seed1-10",
        "tiny-seed10",
        "tiny-seed1-11",
        "tiny-seed1-x",
    ):
        (tmp_path / name).mkdir()
        if name != "tiny-seed1-11":
            (tmp_path / name / "config.yaml").write_text(yaml.safe_dump({"seed": 1}))
    assert newest(tmp_path / "tiny-seed1") == tmp_path / "tiny-seed1-10"
