"""``ssp`` itself: commands and their help. Mistakes are refused before a run starts: status 2, one
line, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from runs import SETTINGS, SSP, arguments, environment
from tests.ssp_env.serverkit import ssp_serve

from ssp_env.cli import main
from ssp_env.errors import ModelError
from ssp_env.search.index import build_index
from ssp_env.worlds.mini import MiniWorld
from ssp_experiments.config import shipped
from ssp_experiments.run.checks import check_model

NAMES = """bootstrap eval export imitate index judge league plan play probe questions replay report
search serve sweep train view"""
COMMANDS = NAMES.split()


def test_installed_command_lists_its_commands_and_each_has_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = subprocess.run([SSP, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    named = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("│ ")]
    assert set(COMMANDS) <= set(named)
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: ssp {name}")
        assert name != "train" or all(preset in shown for preset in shipped("presets"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("columns", ["0", "1", "2", "3"])
def test_help_ends_however_narrow_the_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["search", "--help"]) == 0
    assert "Usage: ssp search" in capsys.readouterr().out


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    command = f"set -o pipefail; {SSP} sweep | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, env=environment())
    assert (result.returncode, result.stderr) == (141, b"")


def test_a_pipe_is_read_and_an_ascii_terminal_is_written_to(tmp_path: Path) -> None:
    pair = {"question": "where?", "answers": ["Zürich"], "prediction": "Genève", "right": True}
    (tmp_path / "pairs").write_text(json.dumps(pair))
    command = f"{SSP} judge <(gzip -c pairs)"
    ascii_only = {**environment(), "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ascii_only, cwd=tmp_path
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert r"'Gen\xe8ve' for ['Z\xfcrich']" in result.stdout


def test_a_pipe_is_refused_where_it_would_be_read_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    files = ["--world", "files", "--set", "world_options.name=own"]
    for words in (
        ["--questions", str(pipe)],
        [*files, "--set", f"world_options.corpus_path={pipe}"],
    ):
        assert main(["train", *words]) == 2
        assert "this is a pipe or device: write it to a file" in capsys.readouterr().err


def test_missing_extra_is_named_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ssp_experiments.commands.models", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["export", str(tmp_path), "-o", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ssp: ssp export (torch is missing) needs a package")
    assert said.endswith("run: pip install 'ssp-env[train]'\n")


# -- settings and models -------------------------------------------------------------------------


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
    file.unlink()
    assert "(model.safetensors is missing)" in refused(model=copy)
    file.write_bytes(whole)
    mamba = '{"model_type": "mamba", "num_hidden_layers": 1, "hidden_size": 8, "vocab_size": 10}'
    for config in ("{", '{"model_type": "t5"}', mamba):
        (copy / "config.json").write_text(config)
        assert len(refused(model=copy)) < 1000


def test_an_encoder_is_refused_before_its_weights_are_read(copy: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    for kind in ("bert", "roberta"):
        (copy / "config.json").write_text(json.dumps({"model_type": kind, **sizes}))
        with pytest.raises(ModelError, match=f"{kind} is no causal language model"):
            check_model(copy)


def test_a_model_that_does_not_fit_tokenizer_tags_or_budgets(
    refused: Callable[..., str], copy: Path, tmp_path: Path
) -> None:
    shutil.copytree(str(files("ssp_env.game.prompts") / "mini"), tmp_path / "own")
    (tmp_path / "own" / "tags.json").write_text('{"search": "lookup"}')
    own = refused(f"game.prompts={tmp_path / 'own'}")
    assert "cannot spell the tag <lookup>" in own
    wiki = ("world=wiki-mini", "game.max_prompt_tokens=2048")
    assert "cannot read documents" in refused(*wiki, "game.verifier=world")
    assert "take a model with a vocabulary for any text" in refused(*wiki)
    passage = {"id": "1", "title": "Vltava", "text": "What is the country of it?"}
    (tmp_path / "real.jsonl").write_text(json.dumps(passage))
    build_index(tmp_path / "real.jsonl", index := tmp_path / "index")
    with ssp_serve(tmp_path / "log", "--in", str(index)) as served:
        assert "cannot spell 1 of 1 passages" in refused(f"search.source={served.url}")
    vocabulary = json.loads((copy / "config.json").read_text())["vocab_size"]
    rewrite(copy / "config.json", max_position_embeddings=300)
    assert refused(model=copy).endswith("; give at most 44")
    named = (copy / "tokenizer_config.json").read_text()
    rewrite(copy / "tokenizer_config.json", eos_token=None, pad_token=None)
    rewrite(copy / "generation_config.json", eos_token_id=None)
    assert "no token of this tokenizer ends a turn; set eos_token" in refused(model=copy)
    (copy / "tokenizer_config.json").write_text(named)
    rewrite(copy / "tokenizer_config.json", chat_template="{{ messages[0]['role'] }}")
    assert "the chat template leaves out the user message" in refused(model=copy)
    (copy / "tokenizer_config.json").write_text(named)
    rewrite(copy / "config.json", vocab_size=vocabulary - 1)
    assert f"its tokenizer has {vocabulary} tokens" in refused(model=copy)


# -- run directories that are not what a command takes them for --------------------------------


@pytest.fixture
def place(two_runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a run, one whose files were edited, an empty folder and a file."""
    for name in ("run", "torn"):
        shutil.copytree(two_runs[0], tmp_path / name)
    (tmp_path / "torn" / "summary.json").write_text("{")
    (tmp_path / "torn" / "games" / "step_000001.jsonl").write_text("{")
    (tmp_path / "torn" / "sweep.yaml").write_text("name: run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine\n")
    seen = MiniWorld().questions(0, 1)[0]
    (tmp_path / "seen").write_text(json.dumps({"question": seen.text, "golden_answers": ["x"]}))
    (tmp_path / "strange").write_text('\n{"query": "who?", "ground_truth": "Jane"}')
    (tmp_path / "strangers").write_text('{"question": "who wrote Emma?", "answers": ["Jane"]}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


OWN = """
from dataclasses import replace
from ssp_agents.losses import ALGORITHMS

LIMIT = 3
ALGORITHM = replace(ALGORITHMS["grpo"], advantage=lambda a, b, c, d: a)
"""
GONE = "http://127.0.0.1:9/v1"
MISTAKES = [
    ("trian --preset tiny", 'Did you mean "train"?'),
    ("train --stpes 3", "Unknown option: --stpes. Did you mean --steps?"),
    ("train --steps x", 'unable to convert "x" into int'),
    ("report torn", "summary.json cannot be read"),
    ("questions torn", "step_000001.jsonl:1: "),
    ("sweep run --out torn --resume", "sweep.yaml: has no commands"),
    ("train --preset wiki", "name a causal LM by --model DIR"),
    ("eval --world wiki-mini", "name a causal LM by --model DIR"),
    ("train --model Qwen/Qwen2.5-0.5B", "there is no model directory Qwen/Qwen2.5-0.5B"),
    ("train --model file", "file is a file: name its directory"),
    ("train --steps 3 --set steps=4", "say 3: leave it out"),
    ("train --set game.max_prompt_tokens=5", "game.max_prompt_tokens = 5: "),
    ("train --set world_options.sede=1", "did you mean 'seed'"),
    ("train --set per_group=3000", "per_group = 3000: "),
    (f"train --set judge=openai --set openai.model=m --set openai.base_url={GONE}", GONE),
    ("train --set engine.kind=vllm", "engine.kind=vllm needs a package"),
    ("train --set tracker=wandb", "run: pip install 'ssp-env[track]'"),
    ("train --set learning.solver_algorithm=own:LIMIT", "is of type int, not an ssp_agents."),
    ("train --set learning.proposer_algorithm=no:X", "learning.proposer_algorithm = 'no:X'"),
    ("train --set learning.solver_algorithm=own:ALGORITHM", "missing 1 required positional"),
    ("train --rules broken:make", "No module named 'nothing_like_it'; fix it"),
    ("train --rules typo:make", "SyntaxError"),  # of several lines
    ("train --rules mine:make --search empty", "leave out --search (search.source)"),
    ("train --rules mine:make --set judge=f1", "leave out --search (search.source), judge"),
    ("train --search htp://127.0.0.1:9", "give an address such as http://"),
    ("train --questions nowhere", "nowhere: no such file (learning.questions)"),
    (
        "train --questions strange",
        "strange:2: no question in it: the line has query, ground_truth; give",
    ),
    ("train --questions strangers", "learning.questions = '1 questions': the tokenizer has no"),
    ("train --questions seen", "'seen': 1 of 1 are evaluation questions (q1; the first: 'what is"),
    (
        "train --questions seen --set learning.given_share=0.01",
        "of 32 questions a step it comes to",
    ),
    ("train --questions seen --set learning.learning_roles=[proposer]", "the solver alone learns"),
    ("train --set learning.given_share=0.5", "name the file that they come from"),
    ("sweep arms: {a: {}, c: {learning.questions: seen}}", "1 of 1 are evaluation questions"),
    ("eval --out empty", "it is there already"),
    ("sweep --resume", "name a sweep, or give its YAML file"),
    ("train --resume --out empty", "empty holds no run to resume"),
    ("eval a b c", "at most two are compared"),
    ("eval --attempts 2", "greedy attempts are all alike"),
    ("probe --rules own:LIMIT", "name a function that returns ssp_env Rules"),
    ("imitate --out run", "run is not empty; choose another --out"),
    ("imitate --out new --games nowhere", "nowhere: cannot be read"),
    ("sweep batch --resume", "holds no sweep (sweep.yaml is missing): start it without --resume"),
    ("sweep arms: {a: {}, c: {seed: 3}}", "give seeds"),
    ("sweep arms: {a: {}, c: {learning.lrr: 3}}", "c: learning.lrr = 3: no such setting"),
    ("sweep arms: {a: {}, a: {steps: 3}}", "'a' is there twice"),
    ("eval --prompts r-search", "does not ship any more: copy its folder out of commit"),
    ("plot run", "no command plot any more: ssp report draws the curves"),
    ("submit run --name mine", "no command submit any more: add the run's row"),
    ("train --set learning.privileged=0.1", "no such setting any more; leave it out"),
    ("sweep arms: {a: {learning.proposer_algorithm: grpo}}", "compares proposals"),
    *(
        (f"{command} {wrong}", wrong)
        for command in ("report", "view", "questions", "export -o new", "eval", "league")
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
    monkeypatch.setattr("ssp_env.judge.chat.CALLS", 1)
    # Neither vLLM nor the trackers are there.
    monkeypatch.setattr("ssp_experiments.run.checks.find_spec", lambda name: None)
    (place / "own.py").write_text(OWN)
    (place / "broken.py").write_text("import nothing_like_it\n")
    (place / "typo.py").write_text("def\n")
    command, _, more = words.partition(" ")
    (place / "mine.yaml").write_text(more)
    given = ["mine.yaml"] if ": " in more else more.split()
    before = sorted(place.rglob("*"))
    assert main([command, *given]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("ssp: ")
    assert says in line
    assert sorted(path for path in place.rglob("*") if "__pycache__" not in str(path)) == before


UNSEEN = """
import sys
sys.modules.update(torch=None, ray=None, transformers=None)  # none of them can be imported
from ssp_env.cli import main
for line in sys.stdin:
    assert main(line.split()) == 2
"""


def test_what_is_not_there_is_told_before_pytorch_is_loaded(place: Path) -> None:
    corpus = "--world files --set world_options.name=a --set world_options.corpus_path=nope"
    commands = (
        "eval nope",
        "eval --questions nope",
        "eval --questions nope.jsonl",
        f"eval {corpus}",
        f"train {corpus} --model run",
        "train --questions nope",
        "train --set game.prompts=nope",
        "plan --preset nope",
        "probe --model nope",
        "report nope",
        "play --model nope",
        "league nope",
        "export nope -o new",
        "imitate --out new --games nope",
    )
    (place / "nope.jsonl").write_text('{"query": "who?"}\n')  # no question in a form that is known
    command, text = [sys.executable, "-c", UNSEEN], "\n".join(commands)
    ran = subprocess.run(command, input=text, capture_output=True, text=True, cwd=place)
    assert ran.returncode == 0, ran.stderr
    said = ran.stderr.splitlines()
    assert len(said) == len(commands)
    assert all("nope" in line and "needs a package" not in line for line in said), said


@pytest.mark.parametrize("out", ["/dev/full", "file/in", "/proc/in"])
def test_a_place_that_cannot_be_written_is_named_before_anything_is_played(
    out: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mine.yaml").write_text("arms: {a: {}}\nset: {per_group: 1}")
    before = sorted(place.rglob("*"))
    for words in ("train", "sweep mine.yaml", "bootstrap", "report run"):
        assert main([*words.split(), "--out", out]) == 2
        said = capsys.readouterr().err
        assert said.startswith("ssp: ")
        assert out.partition("/in")[0] in said
        assert "Errno" not in said
    assert sorted(place.rglob("*")) == before


def test_rules_of_a_user_s_that_raise_are_named_with_the_user_s_frames(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "raising.py").write_text("def make(*_):\n    inner()\ndef inner():\n    {}['a']")
    assert main(["probe", "--rules", "raising:make"]) == 2
    *frames, line = capsys.readouterr().err.splitlines()
    assert line.startswith("ssp: rules = 'raising:make': ")
    shown = ["raising.py" in frame for frame in frames if 'File "' in frame]
    assert shown == [True, True], "none of ours"


def test_remote_code_is_never_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(copy / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own"})
    (copy / "own.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked the user"))
    with pytest.raises(ModelError):
        check_model(copy)
