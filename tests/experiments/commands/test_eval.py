"""``ssp eval``: a policy on fixed questions, alone and against another."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import sets
from scripted_model import ChatServer, obedient

from ssp_agents.models import tiny_directory
from ssp_agents.rollout import answer, play
from ssp_env.cli import main
from ssp_env.game.outcome import Outage, Outcome
from ssp_env.game.record import GameRecord
from ssp_env.replay import read_games
from ssp_experiments import evaluation as answering
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.evaluation import engine_of, majority, pass_at_k
from ssp_experiments.options import Chosen
from ssp_experiments.run.checks import open_run
from ssp_experiments.run.cluster import build
from ssp_experiments.run.rundir import RunDirectory

SHORT = ("--set", "game.max_response_tokens=64")
VOID: Any = {"outcome": Outcome.VOID, "outage": Outage("engine", "it was gone")}


def evaluate(policy: Path, out: Path, *more: str) -> list[GameRecord]:
    """Runs ``ssp eval``; returns the games that it wrote."""
    assert main(["eval", str(policy), "--per-group", "4", "--out", str(out), *SHORT, *more]) == 0
    return [saved.record for saved in read_games(out)]


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What ``ssp eval --json`` prints."""
    capsys.readouterr()
    assert main(["eval", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_file_of_games_is_shown_with_a_row_per_group(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Games about four questions of each group, one greedy attempt at each."""
    games = evaluate(policy, tmp_path / "greedy")
    assert [file.name for file in tmp_path.iterdir()] == ["greedy"]
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "greedy")]) == 0
    shown = capsys.readouterr().out
    for group in "1234":
        assert re.search(rf"^ *{group} +4 +[01]\.\d\d\d ", shown, re.MULTILINE)
        assert sum(game.question_group == group for game in games) == 4
    assert all(game.origin == "given" and len(game.trajectories) == 1 for game in games)
    drawn = evaluate(policy, tmp_path / "seed", "--seed", "3")
    assert {game.question for game in drawn} != {game.question for game in games}
    half = evaluate(policy, tmp_path / "half", "--set", "engine.dtype=bfloat16")
    pairs = zip(half, games, strict=True)
    first = [[game.trajectories[0].logprobs[0] for game in pair] for pair in pairs]
    assert 0 < max(abs(one - other) for one, other in first) < 0.1


def test_a_model_behind_an_api_samples_at_the_temperature_that_is_given() -> None:
    with ChatServer(obedient) as server:
        # The GPUs of the run that settings are for are not needed.
        url = f"openai.base_url={server.url}"
        served = sets(url, "openai.model=scripted", "compute.gpus=shared")
        attempts = ("--per-group", "1", "--attempts", "2", "--temperature", "0.7")
        assert main(["eval", "--player", "api", *attempts, *served]) == 0
        assert {body["temperature"] for body in server.bodies} == {0.7}


def test_a_model_behind_an_api_needs_no_other(tmp_path: Path) -> None:
    (tmp_path / "corpus").write_text('{"id": "1", "title": "Vltava", "text": "A river in Prague."}')
    asked = {"question": "which river is in Prague?", "answers": ["Vltava"]}
    (tmp_path / "mine").write_text(json.dumps(asked))
    named = ("world_options.name=mine", f"world_options.corpus_path={tmp_path / 'corpus'}")
    with ChatServer(lambda prompt: "<answer>Vltava</answer>") as server:
        served = sets(f"openai.base_url={server.url}", "openai.model=scripted", *named)
        words = ["--world", "files", "--questions", str(tmp_path / "mine"), *served]
        assert main(["eval", "--player", "api", "--out", str(tmp_path / "out"), *words]) == 0
    (game,) = read_games(tmp_path / "out")
    assert game.record.attempts[0].right


def test_a_model_behind_an_api_shows_that_it_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has written is counted, beside what engines have sampled here."""
    monkeypatch.setattr("ssp_experiments.run.progress.BEAT", 0.05)

    def slow(conversation: str) -> str:
        time.sleep(0.5 if len(server.bodies) > 5 else 0)
        return "<search> it </search>"

    with ChatServer(slow) as server:
        served = sets(
            f"openai.base_url={server.url}", "openai.model=scripted", "game.max_searches=1"
        )
        assert main(["eval", "--player", "api", "--per-group", "1", *served]) == 0
    assert "5 replies so far" in capsys.readouterr().err, "a check, and a search for each question"


def test_a_checkpoint_plays_by_the_settings_of_its_run(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    changes = {"game.top_k": 1, "per_group": 2, "seed": 7}
    run.write_config(make_config(load_preset("tiny"), changes))
    run.save_checkpoint(5, lambda made: shutil.copytree(policy, made / "policy") and None)
    held = run.checkpoints / "step_000005" / "policy"

    assert main(["eval", str(policy), str(held), "--json", *SHORT]) == 0
    said = capsys.readouterr()
    assert f"settings: {held.with_name('config.yaml')} (" in said.err
    found = json.loads(said.out)["evaluations"]
    assert [one["fingerprint"]["top_k"] for one in found] == [1, 1], "both by the same rules"
    assert [one["rows"][-1]["questions"] for one in found] == [8, 8]
    games = evaluate(held, tmp_path / "games", "--set", "game.top_k=2")
    assert games == evaluate(policy, tmp_path / "others"), "runs of all seeds, the same questions"

    named = Chosen(preset="tiny", model=str(held)).start()
    assert named == load_preset("tiny") == Chosen(model=str(policy)).start()
    assert Chosen(model=str(held)).start() == run.read_config() == Chosen().start(str(run.path))


@pytest.mark.usefixtures("cluster")
def test_eval_answers_as_the_evaluation_within_a_run(policy: Path) -> None:
    changes = {"model": str(policy), "per_group": 2, "game.attempts": 1}
    once = make_config(load_preset("tiny"), changes)
    rules, questions = open_run(once)
    greedy = partial(play, engine=engine_of(once, rules), temperature=0.0)
    apart = answer(rules, [*enumerate(questions)], greedy, [0, 0])

    config = make_config(load_preset("tiny"), {**changes, "game.attempts": 2})
    within = build(config).solve(questions)
    assert len(apart) == 8
    assert [record.trajectories for record in apart] == [record.trajectories for record in within]


def test_attempts_judges_and_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a count by hand over the games that were written."""
    out = tmp_path / "games.jsonl"
    warm = ("--temperature", "1", "--per-group", "6")
    found = figures(capsys, "--attempts", "3", "--out", str(out), *warm)["evaluations"][0]
    rows = {(row["judge"], row["group"]): row for row in found["rows"]}

    games = [saved.record for saved in read_games(out)]
    right = [[bool(a.verdict and a.verdict.correct) for a in g.attempts] for g in games]
    assert all(len(attempts) == 3 for attempts in right)
    row = rows["lenient", "all"]
    assert row["questions"] == 24
    assert row["avg@3"] == pytest.approx(sum(map(sum, right)) / 72)
    assert row["pass@3"] == pytest.approx(sum(map(any, right)) / 24)
    assert row["interval"][0] <= row["avg@3"] <= row["interval"][1]
    assert 0 < row["majority@3"] <= row["pass@3"]
    assert rows["exact", "all"]["avg@3"] <= row["avg@3"]


def test_search_is_worth_something(capsys: pytest.CaptureFixture[str]) -> None:
    """Without passages the tiny policy knows nothing."""
    for options, least, most in (((), 0.7, 1.0), (("--no-search",), 0.0, 0.3)):
        rows = figures(capsys, "--per-group", "10", *options)["evaluations"][0]["rows"]
        assert least <= next(row["avg@1"] for row in rows if row["group"] == "1") <= most


def test_two_policies_are_compared_question_by_question(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in "ab"]
    for file, policy in zip(files, (untrained, tiny_directory()), strict=True):
        evaluate(policy, Path(file))
    assert capsys.readouterr().err.count("ssp: none of 16 attempts gave an answer: ") == 1
    whole = figures(capsys, *files)["comparison"][-1]
    assert whole["group"] == "all"
    assert whole["questions"] == 16
    assert whole["difference"] > 0.2
    assert (whole["worse"], whole["p"] < 0.2) == (0, True)


def test_a_stopped_evaluation_goes_on_to_the_same_result(
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After Ctrl-C and after an outage; with other limits, it is another evaluation."""
    monkeypatch.setattr(answering, "CHUNK", 6)
    whole = evaluate(policy, tmp_path / "whole")
    words = ["eval", str(policy), "--per-group", "4", "--out", str(tmp_path / "x"), *SHORT]
    asked: list[int] = []

    def stopped(rules: Any, questions: Any, answers: Any, seed: Any) -> list[GameRecord]:
        asked.append(len(questions))
        if len(asked) == 3:
            raise KeyboardInterrupt
        first, *others = answer(rules, questions, answers, seed)
        return [replace(first, **VOID) if len(asked) == 2 else first, *others]

    def gone(*given: Any) -> list[GameRecord]:
        return [replace(record, **VOID) for record in answer(*given)]

    with monkeypatch.context() as patched:
        patched.setattr(answering, "answer", stopped)
        assert main(words) == 130
        assert "goes on after 12 of 16 questions" in capsys.readouterr().err
        patched.setattr(answering, "answer", gone)
        assert main(words) not in (0, 130)
        assert "6 questions in a row were void" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()

    other = evaluate(policy, tmp_path / "other", "--set", "game.max_response_tokens=16")
    assert other != whole
    assert evaluate(policy, tmp_path / "x") == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other", "whole", "x"]

    # A finished file is neither answered again nor replaced.
    assert main(words) == 2
    assert f"ssp eval {tmp_path / 'x'} shows games" in capsys.readouterr().err


def test_your_own_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, questions = open_run(make_config(load_preset("tiny")))
    known = next(question for question in questions if question.group == "1")
    lines = [
        {"question": known.text, "answers": list(known.answers), "group": "mine"},
        {"question": known.text + " ?", "answers": ["somebody else"], "group": "mine"},
        {"question": known.text + " of the" * 150, "answers": ["nobody"], "group": "long"},
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = figures(capsys, "--questions", str(file))["evaluations"][0]["rows"][0]
    assert (row["group"], row["questions"]) == ("mine", 2)
    assert row["avg@1"] <= 0.5

    assert main(["eval", "--questions", str(file), "--per-group", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ *mine +1 ", shown, re.MULTILINE), "one of the two is drawn"
    assert "group long is not in the table: its one question is void" in shown

    # A question without a group, beside others: its row is not the row of all.
    lines[1].pop("group")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    rows = figures(capsys, "--questions", str(file))["evaluations"][0]["rows"]
    counts = [(row["group"], row["questions"]) for row in rows if row["judge"] == rows[0]["judge"]]
    assert counts == [("mine", 1), ("group all", 1), ("all", 2)]

    # Text that the policy could only read as unknown tokens is no measure of it.
    file.write_text(json.dumps({"question": "Who directed Nighthawks?", "answers": ["Malmuth"]}))
    assert main(["eval", "--questions", str(file)]) == 2
    assert "no tokens for 1 of 1, such as 'Who directed" in capsys.readouterr().err
    assert main(["eval", *sets("game.prompts=plain", "game.max_prompt_tokens=999")]) == 2
    assert "no words for its proposer.txt" in capsys.readouterr().err


# -- scores of several attempts ------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.data())
def test_pass_at_k_counts_all_draws(made: tuple[int, int], data: st.DataObject) -> None:
    right, attempts = made
    k = data.draw(st.integers(1, attempts))
    draws = list(combinations(range(attempts), k))
    hit = sum(any(i < right for i in draw) for draw in draws)
    assert pass_at_k(right, attempts, k) == pytest.approx(hit / len(draws))


@pytest.mark.parametrize(
    ("answers", "right", "wins"),
    [
        (["Paris", "paris.", "Rome"], [True, True, False], True),
        (["Rome", "Paris", "the Rome"], [False, True, False], False),
        (["Rome", "Paris"], [False, True], False),
        ([None, "Paris", None], [False, True, False], True),
    ],
)
def test_majority(answers: list[str | None], right: list[bool], wins: bool) -> None:
    assert majority(answers, right) is wins
