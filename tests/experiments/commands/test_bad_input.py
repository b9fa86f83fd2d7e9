"""Mistakes are refused before a run starts: status 2, one line, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from runs import SETTINGS, arguments

from ssp_env.cli import main
from ssp_env.errors import ModelError
from ssp_experiments.run.checks import check_model


@pytest.fixture
def refused(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs ``ssp train`` in an empty directory; returns how it was refused, in one line."""
    out = tmp_path / "place" / "runs" / "run"

    def train(*settings: str, model: Path = policy) -> str:
        assert main(arguments(model, out, "--quiet", settings=(*SETTINGS, *settings))) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n"), shown.err[:5]) == ("", 1, "ssp: ")
        assert not out.parent.exists()
        return shown.err[5:-1]

    return train


@pytest.fixture
def copy(policy: Path, tmp_path: Path) -> Path:
    """A model directory to spoil."""
    return Path(shutil.copytree(policy, tmp_path / "model"))


def rewrite(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_broken_and_missing_files_of_a_model(refused: Callable[..., str], copy: Path) -> None:
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert refused(model=copy).startswith(f"{file} cannot be read: ")
    file.write_bytes(whole)
    known = (copy / "config.json").read_text()
    mamba = '{"model_type": "mamba", "num_hidden_layers": 1, "hidden_size": 8, "vocab_size": 10}'
    for config in ("{", '{"model_type": "t5"}', mamba):
        (copy / "config.json").write_text(config)
        assert len(refused(model=copy)) < 1000

    (copy / "config.json").write_text(known)
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        for file in copy.glob(name.replace(".json", "*")):
            file.unlink()
        assert f"({name} is missing)" in refused(model=copy)


def test_a_model_that_does_not_fit_tokenizer_tags_or_budgets(
    refused: Callable[..., str], copy: Path, tmp_path: Path
) -> None:
    shutil.copytree(str(files("ssp_env.game.prompts") / "mini"), tmp_path / "own")
    (tmp_path / "own" / "tags.json").write_text('{"search": "lookup"}')
    own = refused(f"game.prompts={tmp_path / 'own'}")
    assert "cannot spell the tag <lookup>" in own
    line = refused("game.max_prompt_tokens=5")
    assert line.startswith("game.max_prompt_tokens = 5: the ")
    vocabulary = json.loads((copy / "config.json").read_text())["vocab_size"]
    rewrite(copy / "config.json", max_position_embeddings=300)
    line = refused(model=copy)
    assert line.startswith("game.max_response_tokens = 64: with the prompt it makes 320")
    assert line.endswith("; give at most 44")
    named = (copy / "tokenizer_config.json").read_text()
    rewrite(copy / "tokenizer_config.json", eos_token=None, pad_token=None)
    assert "no token to pad with; name one in its tokenizer_config.json" in refused(model=copy)
    (copy / "tokenizer_config.json").write_text(named)
    rewrite(copy / "tokenizer_config.json", chat_template="{{ messages[0]['role'] }}")
    assert "the chat template leaves out the user message; take another" in refused(model=copy)
    (copy / "tokenizer_config.json").write_text(named)
    rewrite(copy / "config.json", vocab_size=vocabulary - 1)
    assert f"its tokenizer has {vocabulary} tokens" in refused(model=copy)


def test_settings_that_do_not_fit_the_world_or_each_other(refused: Callable[..., str]) -> None:
    assert "did you mean 'seed'" in refused("world_options.sede=1")
    line = refused("per_group=3000")
    assert line.startswith("per_group = 3000: this graph has only about")
    wiki = ("world=wiki-mini", "game.max_prompt_tokens=512")
    assert "cannot read documents" in refused(*wiki, "game.verifier=world")
    assert "take a model with a vocabulary for any text" in refused(*wiki)
    missing = ("world=files", "world_options.name=mine", "world_options.corpus_path=nowhere")
    assert "answers_path" in refused(*missing)


def test_a_service_that_does_not_answer(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.judge.chat.CALLS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        line = refused(f"openai.base_url={url}", "openai.model=m", "judge=openai")
    assert line.startswith("openai: ")
    assert url in line


# -- run directories that are not what a command takes them for --------------------------------


@pytest.fixture
def place(two_runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a run, an empty folder and a file."""
    shutil.copytree(two_runs[0], tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


MISTAKES = [
    ("train --preset wiki", "name a causal LM by --model DIR"),
    ("train --model Qwen/Qwen2.5-0.5B", "there is no model directory Qwen/Qwen2.5-0.5B"),
    ("train --set learning.learning_rate=1e-4", "did you mean 'lr'?"),
    ("train --model file", "file is a file: name its directory"),
    ("train --set engine.kind=vllm", "engine.kind=vllm needs a package"),
    ("train --set tracker=wandb", "run: pip install 'ssp-env[track]'"),
    ("train --set learning.solver_algorithm=own:LIMIT", "is a int, not an ssp_agents."),
    ("train --set learning.proposer_algorithm=no:X", "learning.proposer_algorithm = 'no:X'"),
    ("train --rules broken:make", "No module named 'nothing_like_it'; mend it"),
    ("train --rules mine:make --search empty", "leave out search.source"),
    ("train --search htp://127.0.0.1:9", "give an address such as http://"),
    ("eval --out empty", "it is there already"),
    ("index file --out file", "file is a file"),
    ("sweep --resume", "name a sweep, or give its YAML file"),
    ("train --resume --out run --preset best", "other settings (engine."),
    ("train --resume --out empty", "empty holds no run to resume"),
    ("eval a b c", "at most two are compared"),
    ("eval --attempts 2", "greedy attempts are all alike"),
    ("imitate --out run", "run is not empty; choose another --out"),
    ("imitate --out new --games nowhere", "nowhere: cannot be read"),
    ("sweep nose", "did you mean 'noise'"),
    ("sweep batch --resume", "holds no sweep to resume"),
    ("sweep arms: {a: {}, c: {seed: 3}}", "give seeds"),
    ("sweep arms: {a: {learning.proposer_algorithm: grpo}}", "compares proposals"),
    *(
        (f"{command} {wrong}", wrong)
        for command in ("report", "plot", "view", "questions", "export -o new", "eval", "league")
        for wrong in ("nowhere", "empty")
    ),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    words: str,
    says: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Neither vLLM nor the trackers are there.
    monkeypatch.setattr("ssp_experiments.run.checks.find_spec", lambda name: None)
    (place / "own.py").write_text("LIMIT = 3\n")
    (place / "broken.py").write_text("import nothing_like_it\n")
    command, _, more = words.partition(" ")
    (place / "mine.yaml").write_text(more)
    given = ["mine.yaml"] if ": " in more else more.split()
    before = sorted(place.rglob("*"))
    assert main([command, *given]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("ssp: ")
    assert says in line
    assert sorted(path for path in place.rglob("*") if "__pycache__" not in str(path)) == before


@pytest.mark.parametrize("out", ["/dev/full", "file/in", "/proc/in"])
def test_a_place_that_cannot_be_written_is_named_before_anything_is_played(
    out: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mine.yaml").write_text("arms: {a: {}}\nset: {per_group: 1}")
    before = sorted(place.rglob("*"))
    for words in ("train", "sweep mine.yaml", "bootstrap", "report run", "plot run"):
        assert main([*words.split(), "--out", out]) == 2
        said = capsys.readouterr().err
        assert said.startswith("ssp: ")
        assert out.partition("/in")[0] in said
        assert "Errno" not in said
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "text", "words", "says"),
    [
        ("summary.json", "{", "report run", "summary.json cannot be read"),
        ("games/step_000001.jsonl", "{", "questions run", "step_000001.jsonl:1: "),
        ("sweep.yaml", "name: run", "sweep run --out run --resume", "sweep.yaml: has no commands"),
    ],
)
def test_files_of_a_run_that_were_edited_are_named(
    file: str, text: str, words: str, says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "run" / file).write_text(text)
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ssp: ")
    assert says in line


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def make_rules(world, tokenizer, game):\n    inner()\ndef inner():\n    {}['a']", "'a'"),
        ("1 / 0", "division by zero"),
        ("make_rules = 3", "name a function that returns ssp_env Rules"),
    ],
)
def test_rules_of_a_user_s_that_raise_are_named_with_the_user_s_frames(
    code: str, says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"own_{abs(hash(code))}"
    (place / f"{module}.py").write_text(code)
    assert main(["probe", "--rules", f"{module}:make_rules"]) == 2
    *frames, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ssp: rules = '{module}:make_rules': ")
    assert says in line
    shown = [module in frame for frame in frames if 'File "' in frame]
    assert shown == [True] * (code.count("inner()") + code.count("1 / 0")), "none of ours"


def test_remote_code_is_never_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(copy / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own"})
    (copy / "own.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked the user"))
    with pytest.raises(ModelError):
        check_model(copy)
