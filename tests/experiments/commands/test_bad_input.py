"""What cannot work is refused before a run starts: status 2, one line, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from runs import SETTINGS, arguments

from experiments.config import ComputeConfig, RunConfig
from experiments.run.checks import check_devices, check_model, parameters
from experiments.run.cluster import local_ray
from experiments.run.recorder import Board
from ssp_env.commands.cli import main
from ssp_env.errors import ConfigError, ModelError, RunError, ServiceError


class Refused:
    """Runs ``ssp train`` in an empty directory and looks at how it was refused."""

    def __init__(self, policy: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.policy, self.out, self._capsys = policy, place / "runs" / "run", capsys

    def __call__(
        self, *more: str, model: Path | None = None, settings: tuple[str, ...] = SETTINGS
    ) -> str:
        """What standard error says, without the greeting."""
        self._capsys.readouterr()
        status = main(
            [*arguments(model or self.policy, self.out, "--quiet", settings=settings), *more]
        )
        shown = self._capsys.readouterr()
        assert (status, shown.out) == (2, "")
        assert not self.out.parent.exists()
        (line,) = shown.err.splitlines()
        assert line.startswith("ssp: ")
        return line.removeprefix("ssp: ")


@pytest.fixture
def refused(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    return Refused(policy, tmp_path / "place", capsys)


@pytest.fixture
def copy(policy: Path, tmp_path: Path) -> Path:
    """A model directory to spoil."""
    return Path(shutil.copytree(policy, tmp_path / "model"))


def rewrite(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


# -- the model ---------------------------------------------------------------------------------


def test_missing_model_directory(refused: Refused, tmp_path: Path) -> None:
    assert (
        refused(model=tmp_path / "nowhere") == f"there is no model directory {tmp_path / 'nowhere'}"
    )


@pytest.mark.parametrize(
    "mistake",
    [
        ["--world", "nimi"],
        ["--model", "nowhere"],
        ["--out", "file/run"],
        ["--out", "taken"],
        ["--resume"],
        ["--set", "compute.engine=vllm"],
        ["--set", "learning.lora_rank=4"],
    ],
)
def test_what_needs_no_pytorch_is_found_before_it_is_loaded(
    mistake: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("agents.config", "agents.engines.config"):  # neither vLLM nor peft is there
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    (tmp_path / "taken").mkdir()
    for name in ("file", "taken/file"):
        (tmp_path / name).write_text("mine")
    assert main(["train", *mistake]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ssp: "), "no greeting comes first"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "file", "taken"]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("config.json", "is not a model directory (config.json is missing)"),
        ("model.safetensors", "holds no weights (model.safetensors is missing)"),
    ],
)
def test_incomplete_model_directory(refused: Refused, copy: Path, file: str, says: str) -> None:
    (copy / file).unlink()
    assert refused(model=copy) == f"{copy} {says}"


def test_model_without_a_tokenizer(refused: Refused, copy: Path) -> None:
    for file in copy.glob("tokenizer*"):
        file.unlink()
    assert refused(model=copy) == f"{copy} holds no tokenizer (tokenizer.json is missing)"


def test_tokenizer_that_cannot_spell_the_tags(refused: Refused) -> None:
    # The mini-wiki's words hold no such name, and its tokenizer has no letters to spell it with.
    line = refused("--set", "game.tags.search=lookup")
    assert "cannot spell the tag <lookup>" in line


def test_tokenizer_with_more_tokens_than_the_model(refused: Refused, copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    rewrite(copy / "config.json", vocab_size=config["vocab_size"] - 1)
    line = refused(model=copy)
    assert (
        f"its tokenizer has {config['vocab_size']} tokens, its model only "
        f"{config['vocab_size'] - 1}" in line
    )


@pytest.mark.parametrize(
    "spoil", [lambda text: text[:5], lambda text: b"x" * 100, lambda text: text[:-1]]
)
def test_broken_weights(refused: Refused, copy: Path, spoil: Any) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(spoil(file.read_bytes()))
    assert refused(model=copy).startswith(f"{file} cannot be read: ")


@pytest.mark.parametrize(
    "config", ["{", '{"model_type": "nothing"}', '{"model_type": "t5"}', '{"model_type": "vit"}']
)
def test_config_of_no_causal_lm(refused: Refused, copy: Path, config: str) -> None:
    (copy / "config.json").write_text(config)
    line = refused(model=copy)
    assert str(copy) in line
    assert len(line) < 1000


def test_architecture_that_the_engine_cannot_serve(refused: Refused, copy: Path) -> None:
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "vocab_size": 10}
    (copy / "config.json").write_text(json.dumps({"model_type": "mamba", **sizes}))
    assert "cannot keep the state of mamba" in refused(model=copy)


def test_remote_code_is_never_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(copy / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own"})
    (copy / "own.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked the user"))
    with pytest.raises(ModelError):
        check_model(copy)


def test_budgets_beyond_what_the_model_can_read(refused: Refused, copy: Path) -> None:
    rewrite(copy / "config.json", max_position_embeddings=300)
    line = refused(model=copy)
    assert line.startswith("game.max_response_tokens = 96: with max_prompt_tokens it makes 352")


def test_prompts_beyond_their_budget(refused: Refused) -> None:
    line = refused("--set", "game.max_prompt_tokens=5")
    assert line.startswith("game.max_prompt_tokens = 5: the ")
    assert "'s prompt alone takes" in line


def test_parameters_are_counted(policy: Path, tmp_path: Path) -> None:
    from agents.models import load_model

    assert parameters(policy) == sum(p.numel() for p in load_model(policy).parameters())
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 100)
    assert parameters(tmp_path) == 50


# -- the world ---------------------------------------------------------------------------------

CORPUS = '{"id": "1", "contents": "A page about Samarick"}\n'
ANSWERS = '{"answer": "Samarick"}\n'
QUESTIONS = '{"question": "who is it ?", "answers": ["Sebedor"]}\n'


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        (
            "corpus",
            CORPUS + "{not json\n",
            ":2: not JSON (Expecting property name enclosed in double quotes at column 2)",
        ),
        (
            "corpus",
            CORPUS + '{"id": "2"}\n',
            ':2: a passage needs "contents", or "title" and "text"',
        ),
        ("corpus", '{"contents": "Page"}\n', ":1: field 'id' is missing (the line has: contents)"),
        ("corpus", "", ": holds no passage"),
        ("corpus", None, ": cannot be read"),
        ("answers", "", ": holds no answer"),
        ("answers", None, ": cannot be read"),
        ("answers", '{"id": "a"}\n', ":1: field 'answer' is missing (the line has: id)"),
        ("questions", "[]\n", ":1: a JSON object was expected, not list"),
        ("questions", '{"question": "?", "answers": []}\n', ":1: field 'answers' is empty"),
    ],
)
def test_files_of_a_world(
    refused: Refused, tmp_path: Path, file: str, text: str | None, says: str
) -> None:
    texts = {"corpus": CORPUS, "answers": ANSWERS, "questions": QUESTIONS, file: text}
    options = ["world_options.name=mine"]
    for name, content in texts.items():
        path = tmp_path / f"{name}.jsonl"
        options.append(f"world_options.{name}_path={path}")
        if content is not None:
            path.write_text(content)
    line = refused("--world", "files", settings=(*SETTINGS, *options))
    assert line.startswith(f"{tmp_path / file}.jsonl{says}")


def test_world_without_questions(refused: Refused, tmp_path: Path) -> None:
    options = ["world_options.name=mine"]
    for name, content in {"corpus": CORPUS, "answers": ANSWERS}.items():
        (tmp_path / name).write_text(content)
        options.append(f"world_options.{name}_path={tmp_path / name}")
    line = refused("--world", "files", settings=(*SETTINGS, *options))
    assert line.startswith("world_options.questions_path = None: ")


def test_unknown_world_and_option(refused: Refused) -> None:
    assert "did you mean 'wiki-mini'" in refused("--world", "wiki")
    assert "did you mean 'seed'" in refused("--set", "world_options.sede=1")
    assert refused("--set", "world_options.entities=3").startswith(
        "world_options.entities = 3: choose 16 to"
    )


def test_more_questions_than_there_are(refused: Refused) -> None:
    line = refused("--set", "evaluation.per_group=3000")
    assert line.startswith("evaluation.per_group = 3000: this graph has only about")


def test_verifier_that_the_world_does_not_have(refused: Refused) -> None:
    settings = ("game.max_prompt_tokens=512",)
    line = refused("--world", "wiki-mini", "--verifier", "world", settings=settings)
    assert "verifier = 'world': the world 'wiki-mini' cannot read documents" in line


def test_algorithm_without_anything_to_compare(refused: Refused) -> None:
    assert refused("--set", "game.attempts=1").startswith(
        "game.attempts = 1: GRPO compares attempts"
    )


# -- the place, services and devices -----------------------------------------------------------


def test_place_that_cannot_be_written(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    out = tmp_path / "file" / "run"
    assert main(arguments(policy, out, "--quiet")) == 2
    assert f"ssp: {out} cannot be made" in capsys.readouterr().err


def test_service_that_does_not_answer(refused: Refused) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        settings = (
            f"openai.base_url={url}",
            "openai.model=m",
            "openai.attempts=1",
            "openai.judge=true",
        )
        assert refused(settings=(*SETTINGS, *settings)).startswith(
            f"openai: {url}/chat/completions: "
        )


def test_key_that_is_not_set(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    served = (
        "openai.base_url=http://127.0.0.1:9/v1",
        "openai.model=m",
        "openai.api_key_env=NO_SUCH_KEY",
    )
    assert "set this environment variable" in refused(
        settings=(*SETTINGS, *served, "openai.judge=true")
    )


@pytest.mark.parametrize(
    ("compute", "there", "field"),
    [
        (ComputeConfig(gpus_per_env_runner=1), 0, "gpus_per_env_runner"),
        (ComputeConfig(gpus_per_learner=0.5), 0, "gpus_per_learner"),
        (
            ComputeConfig(env_runners=2, gpus_per_env_runner=0.5, gpus_per_learner=0.5),
            1,
            "gpus_per_learner",
        ),
        (ComputeConfig(learners=4, gpus_per_learner=1), 3, "gpus_per_learner"),
    ],
)
def test_gpus_that_are_not_there(
    compute: ComputeConfig, there: int, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    with pytest.raises(ConfigError) as raised:
        check_devices(compute)
    assert raised.value.field == f"compute.{field}"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    check_devices(compute)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("RAY_ADDRESS", "somewhere:6379")
    check_devices(compute)


def test_tensorboard_without_room() -> None:
    with pytest.raises(RunError, match=r"/proc/ssp/tensorboard cannot be written"):
        Board(Path("/proc/ssp/tensorboard"), 0)


def test_ray_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def time_out(**_: Any) -> None:
        raise Exception("The current node timed out during startup")

    monkeypatch.setattr(ray, "init", time_out)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ServiceError, match="Ray did not start: The current node timed out"):
        local_ray(RunConfig()).__enter__()


def test_a_run_whose_settings_were_edited_names_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("preset: tiny\ncolour: red\n")
    assert main(["train", "--resume", "--out", str(tmp_path)]) == 2
    assert f"ssp: {tmp_path / 'config.yaml'}: colour = 'red': known: " in capsys.readouterr().err
