"""The same code with other worlds, models, verifiers, roles and services; all within this process,
on one Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import SETTINGS, all_games, arguments, metrics, timeless
from scripted_model import ChatServer
from tests.ssp_env.serverkit import ssp_serve

from ssp_env.cli import main
from ssp_env.search.index import build_index
from ssp_env.worlds.mini import MiniWorld

pytestmark = pytest.mark.usefixtures("cluster")


def train(policy: Path, out: Path, *more: str, settings: tuple[str, ...] = SETTINGS) -> Path:
    """Runs ``ssp train`` here; returns the run directory."""
    assert main([*arguments(policy, out, "--quiet", settings=settings), *more]) == 0
    return out


def test_real_passages_with_a_model_that_never_saw_the_tags(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("learning.batch_size=3", "per_group=1", "game.prompts=plain")
    sizes += ("game.max_prompt_tokens=4000", "game.max_response_tokens=24")
    run, world = tmp_path / "run", ("--world", "wiki-mini", "--steps", "1")
    assert main([*arguments(stranger, run, *world, settings=sizes)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "in the last step, no proposed question was valid" in said
    assert len(metrics(run)) == 2
    played = all_games(run)
    assert len(played) == 3
    assert all("<search>" in game.trajectories[0].segments[0].text for game in played)
    assert (run / "checkpoints" / "step_000001" / "policy" / "tokenizer.json").is_file()


def test_own_files_as_a_world(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {
        "corpus": [
            {"id": str(i), "contents": f'"Page {i}"\nSamarick rival of Sebedor number {i} .'}
            for i in range(9)
        ],
        "answers": [{"answer": "Samarick", "aliases": ["Sam"]}],
        "questions": [
            {"question": "what is the rival of Samarick ?", "answers": ["Sebedor"], "group": "mine"}
        ],
    }
    options = ["world_options.name=mine"]
    for name, lines in rows.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        options.append(f"world_options.{name}_path={file}")
    words = ("--preset", "tiny", "--world", "files", "--steps", "1", "--solver-only")
    run = train(policy, tmp_path / "run", *words, settings=(*SETTINGS, *options))
    assert {game.answer for game in all_games(run)} == {"Samarick"}
    summary = json.loads((run / "summary.json").read_text())
    assert summary["questions"]["final"] == {"mine": 1}
    assert summary["learning_roles"] == ["solver"]

    # Where all questions are given, nobody needs answers to write some for.
    options = [option for option in options if "answers_path" not in option]
    asked = tmp_path / "asked.jsonl"
    row = {"question": "what is the rival of Sebedor ?", "golden_answers": ["Samarick"]}
    asked.write_text(json.dumps(row))
    *words, _ = words
    taught = train(
        policy,
        tmp_path / "taught",
        *(*words, "--questions", str(asked)),
        settings=(*SETTINGS, *options),
    )
    assert {(game.origin, game.answer) for game in all_games(taught)} == {("given", "Samarick")}
    out = tmp_path / "none"
    assert main([*arguments(policy, out, settings=(*SETTINGS, *options)), *words]) == 2
    assert "world_options.answers_path = None: proposers write" in capsys.readouterr().err


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
    again = ["train", "--resume", "--steps", "2", "--quiet"]
    assert main(again) == 2
    assert "repeat it on the command line" in capsys.readouterr().err
    assert main([*again, "--rules", "mine_of_this_test:make"]) == 0
    assert "(mini, verifier: Agreeable)" in capsys.readouterr().out
    run = tmp_path / "runs" / "tiny-seed0-2"
    assert metrics(run)[2]["invalid_odd"] > 0


# -- services ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_plays_the_games_of_its_index_and_may_move_before_a_resume(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = [{"id": d.id, "title": d.title, "text": d.text} for d in MiniWorld().corpus]
    (tmp_path / "c.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in passages))
    build_index(tmp_path / "c.jsonl", index := tmp_path / "index")
    indexed = train(policy, tmp_path / "indexed", "--search", str(index), "--steps", "2")
    run = tmp_path / "run"
    for steps, more in (("1", []), ("2", ["--resume"])):
        with ssp_serve(tmp_path / "log", "--in", str(index)) as served:
            words = [*arguments(policy, run, settings=SETTINGS), *more]
            assert main([*words, "--search", served.url, "--steps", steps]) == 0
            known = json.loads((run / "summary.json").read_text())["fingerprint"]["retriever"]
            assert known == {"class": "HTTPRetriever", "server": f"{served.url}/retrieve"}
    assert "it is played by other passages, search" in capsys.readouterr().err
    # The run that was cut in two also evaluated where it stopped. All else is the same, up
    # to the rounding of batches that came together in another order.
    for ours, theirs in zip(timeless(run), timeless(indexed), strict=True):
        for name, figure in theirs.items():
            rounded = isinstance(figure, float)
            assert ours[name] == (pytest.approx(figure, abs=1e-5) if rounded else figure), name


def test_outage_voids_the_games_that_it_hits_and_training_goes_on(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model behind an API is down in the second step."""
    monkeypatch.setattr("ssp_env.judge.chat.CALLS", 1)
    run, asked = tmp_path / "run", set[str]()
    first, second = (run / "games" / f"step_{step:06d}.jsonl" for step in (1, 2))

    def model(prompt: str) -> str | tuple[int, bytes]:
        asked.add("judge" if "verdict: correct" in prompt else "verifier")
        if first.exists() and not second.exists():
            return 503, b"down"
        # Verified questions are few where the judge is strict; here it finds everything right.
        return "<answer>what it says</answer>\nverdict: correct"

    settings = [one for one in SETTINGS if not one.startswith(("game.verifier", "game.noise"))]
    settings += ["per_group=1", "judge=openai", "openai.model=big"]
    with ChatServer(model) as server:
        settings.append(f"openai.base_url={server.url}")
        train(policy, run, "--verifier", "openai", "--steps", "3", settings=tuple(settings))
    assert asked == {"verifier", "judge"}
    void = [line.get("void_games", 0.0) for line in metrics(run)]
    assert void[2] > 0
    assert void[1] == void[3] == 0
    verified = [game for game in all_games(run) if game.verification]
    assert any(game.noise for game in verified)
    hit = [game for game in all_games(run) if game.outcome == "void"]
    assert len(hit) == void[2]
    for game in hit:
        assert game.proposer_reward is game.solve_rate is None
        assert game.outage is not None
        assert "503" in game.outage.what
    assert metrics(run)[3]["learner_updates"] == 1
    summary = json.loads((run / "summary.json").read_text())
    found = [summary[name] for name in ("verifier", "void_games", "void_questions")]
    assert found == ["openai", sum(void), 0]
