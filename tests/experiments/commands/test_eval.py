"""``ssp eval``: a policy on fixed questions, alone, from memory, against another."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agents.engines.base import StopRule
from agents.engines.opening import open_engine
from agents.models import tiny_directory
from experiments.config import load_preset, make_config
from experiments.evaluation import answers as answering
from experiments.evaluation.answers import answer, by_engine, by_player
from experiments.run.checks import check
from experiments.run.cluster import build
from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.outcome import Outage, Outcome
from ssp_env.game.record import GameRecord
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import scripted_player
from ssp_env.replay import read_games
from ssp_env.replay.files import game_lines

SHORT = ("--set", "game.max_response_tokens=64")


def evaluate(policy: Path, out: Path, *more: str) -> list[GameRecord]:
    """Runs ``ssp eval``; returns the games that it wrote."""
    per_group = () if "--per-group" in more else ("--per-group", "4")
    assert main(["eval", str(policy), *per_group, "--out", str(out), *SHORT, *more]) == 0
    return [saved.record for saved in read_games(out)]


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[dict[str, object]]]:
    """What ``ssp eval --json`` prints."""
    capsys.readouterr()
    assert main(["eval", *words, "--json"]) == 0
    data: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return data


def test_eval_prints_a_row_per_group_and_writes_every_game(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = evaluate(policy, tmp_path / "games.jsonl")
    shown = capsys.readouterr().out
    assert "accuracy on unseen questions" in shown
    for group in "1234":
        assert re.search(rf"^{group} +4 +[01]\.\d\d\d ", shown, re.MULTILINE)
        assert sum(game.question_group == group for game in played) == 4
    assert all(game.origin == "given" and len(game.trajectories) == 1 for game in played)
    assert [file.name for file in tmp_path.iterdir()] == ["games.jsonl"]


@pytest.mark.usefixtures("cluster")
def test_eval_answers_as_the_evaluation_within_a_run(policy: Path, tmp_path: Path) -> None:
    small = {"per_group": 2}
    config = make_config({**load_preset("tiny"), "model": str(policy), "evaluation": small})
    once = config.replace(game=config.game.replace(attempts=1))
    rules, questions = check(once)
    stop = StopRule.of(once.game, rules.tokenizer)
    engine = open_engine(once.engine, policy, rules.tokenizer, stop)
    apart = answer(rules, questions, by_engine(engine, 0.0), [once.evaluation.seed, 0])

    within = build(config).solve(questions)
    assert len(apart) == 8
    assert [record.trajectories for record in apart] == [record.trajectories for record in within]


def test_evaluation_knobs_turn(policy: Path, tmp_path: Path) -> None:
    """``evaluation.per_group``, ``evaluation.seed`` and ``evaluation.temperature``."""
    base = evaluate(policy, tmp_path / "base")
    assert evaluate(policy, tmp_path / "again") == base
    assert len(evaluate(policy, tmp_path / "fewer", "--per-group", "2")) == 8
    drawn = evaluate(policy, tmp_path / "seed", "--seed", "3")
    assert {game.question for game in drawn} != {game.question for game in base}
    sampled = evaluate(policy, tmp_path / "warm", "--set", "evaluation.temperature=1.5")
    assert [game.question for game in sampled] == [game.question for game in base]
    assert [game.trajectories for game in sampled] != [game.trajectories for game in base]


def test_eval_of_real_questions(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = evaluate(untrained, tmp_path / "games", "--world", "wiki-mini", "--per-group", "2")
    groups = {"2wiki", "bamboogle", "hotpotqa", "musique", "nq", "popqa", "triviaqa"}
    assert {game.question_group for game in played} == groups
    assert len(played) == 14
    assert "RetrieverBM25" in (shown := capsys.readouterr().out) or "BM25Retriever" in shown


def test_attempts_judges_memory_and_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against a count by hand over the games that were written."""
    out = tmp_path / "games.jsonl"
    warm = ("--set", "evaluation.temperature=1", "--per-group", "6")
    options = ("--attempts", "3", "--closed-book", "--out", str(out), *warm)
    (found,) = figures(capsys, *options)["evaluations"]
    rows = {(row["judge"], row["group"]): row for row in found["rows"]}  # type: ignore[attr-defined]

    games = [saved.record for saved in read_games(out)]
    assert all(len(game.attempts) == 3 for game in games)
    right = [[bool(a.verdict and a.verdict.correct) for a in game.attempts] for game in games]
    row = rows["lenient", "all"]
    assert row["questions"] == 24
    assert row["avg@3"] == pytest.approx(sum(map(sum, right)) / 72)
    assert row["pass@3"] == pytest.approx(sum(map(any, right)) / 24)
    assert row["interval"][0] <= row["avg@3"] <= row["interval"][1]
    assert 0 < row["majority@3"] <= row["pass@3"]
    assert rows["exact", "all"]["avg@3"] <= row["avg@3"]

    # Made-up names cannot be known by heart.
    assert found["closed_book"]["all"] < rows["lenient", "1"]["avg@3"]  # type: ignore[index]


def test_search_is_worth_something(capsys: pytest.CaptureFixture[str]) -> None:
    """Without passages the tiny policy knows nothing, and it believes what it reads."""

    def accuracy(*options: str) -> float:
        (found,) = figures(capsys, "--per-group", "10", *options)["evaluations"]
        first = next(row for row in found["rows"] if row["group"] == "1")  # type: ignore[attr-defined]
        return float(first["avg@1"])

    assert accuracy() > 0.7
    assert accuracy("--retriever", "empty") < 0.3
    assert accuracy("--retriever", "lying") < 0.3


def test_two_policies_are_compared_question_by_question(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, policy in (("a", untrained), ("b", tiny_directory())):
        evaluate(policy, tmp_path / name)
    data = figures(capsys, str(tmp_path / "a"), str(tmp_path / "b"))
    whole = data["comparison"][-1]
    assert whole["group"] == "all"
    assert whole["questions"] == 16
    assert whole["difference"] > 0.2  # type: ignore[operator]
    assert (whole["worse"], whole["p_value"] < 0.2) == (0, True)  # type: ignore[operator]

    assert main(["eval", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "the second against the first" in capsys.readouterr().out


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
        records = answer(rules, questions, answers, seed)
        return [void(records[0]), *records[1:]] if len(asked) == 2 else records

    def gone(rules: Any, questions: Any, answers: Any, seed: Any) -> list[GameRecord]:
        return [void(record) for record in answer(rules, questions, answers, seed)]

    def void(record: GameRecord) -> GameRecord:
        return replace(record, outcome=Outcome.VOID, outage=Outage("engine", "it was gone"))

    with monkeypatch.context() as patched:
        patched.setattr(answering, "answer", stopped)
        assert main(words) == 130
        said = "ssp: stopped; the same command goes on after 12 of 16 questions"
        assert said in capsys.readouterr().err
        patched.setattr(answering, "answer", gone)
        assert main(words) not in (0, 130)
        said = "6 questions in a row were void, the first by: it was gone"
        assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()

    other = evaluate(policy, tmp_path / "other", "--set", "game.max_response_tokens=16")
    assert other != whole
    assert evaluate(policy, tmp_path / "x") == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other", "whole", "x"]

    # A finished file is neither answered again nor replaced.
    assert main(words) == 2
    assert f"ssp eval {tmp_path / 'x'} shows it" in capsys.readouterr().err


def test_groups_and_attempts_that_an_outage_took_are_told(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(policy, tmp_path / "all", "--attempts", "3", "--set", "evaluation.temperature=1")
    games = list(read_games(tmp_path / "all"))
    out = Outage("engine", "it was gone")
    hit = games[0].record
    (first, *rest) = hit.trajectories
    records = [replace(hit, trajectories=(replace(first, outage=out), *rest))]
    for game in games[1:]:
        gone = {"outcome": Outcome.VOID, "outage": out} if game.record.question_group == "4" else {}
        records.append(replace(game.record, **gone))
    (tmp_path / "some").write_text(
        "".join(game_lines((replace(g, record=r) for g, r in zip(games, records, strict=True))))
    )

    assert main(["eval", str(tmp_path / "some")]) == 0
    shown = capsys.readouterr().out
    assert "group 4 is not in the table: all 4 questions are void" in shown
    assert "4 void questions (4 by engine)" in shown
    assert "1 attempt at other questions is void" in shown
    assert "\u2026" not in shown, "all heads are readable at 80 columns"
    assert max(map(len, shown.split("fingerprint")[0].splitlines()[1:])) <= 80
    assert "accuracy on its questions, judge recorded: ExactMatchJudge: " in shown

    (found,) = figures(capsys, str(tmp_path / "some"))["evaluations"]
    assert found["void_groups"] == {"4": 4}
    row = found["rows"][-1]  # type: ignore[index]
    assert row["intervals"].keys() == {"pass@2", "majority@2", "f1"}


def test_your_own_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, questions = check(make_config(load_preset("tiny")))
    known = next(question for question in questions if question.group == "1")
    lines = [
        {"question": known.text, "answers": list(known.answers), "group": "mine"},
        {"question": known.text + " ?", "answers": ["somebody else"], "group": "mine"},
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = figures(capsys, "--questions", str(file))["evaluations"]
    row = found["rows"][0]  # type: ignore[index]
    assert (row["group"], row["questions"]) == ("mine", 2)
    assert row["avg@1"] <= 0.5

    long = {"question": known.text + " very" * 300, "answers": ["nobody"], "group": "long"}
    file.write_text("".join(json.dumps(line) + "\n" for line in (*lines, long)))
    assert main(["eval", "--questions", str(file), "--per-group", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"accuracy on the questions of {file}, judge exact:" in shown
    assert re.search(r"^mine +1 ", shown, re.MULTILINE), "one of the two is drawn"
    assert "group long is not in the table: its one question is void" in shown
    assert "1 void question (1 by a prompt longer than game.max_prompt_tokens)" in shown


def test_your_own_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = """
        from ssp_env.game.rules import Rules
        from ssp_env.judge.base import Verdict

        class Never:
            def judge(self, tasks):
                return [Verdict(False, "never") for _ in tasks]

        def make(world, tokenizer, game):
            return Rules.build(world, tokenizer, game, judge=Never())
    """
    (tmp_path / "rules_of_this_test.py").write_text(dedent(module))
    monkeypatch.chdir(tmp_path)
    words = ("--rules", "rules_of_this_test:make", "--per-group", "2")
    (found,) = figures(capsys, *words)["evaluations"]
    row = found["rows"][0]  # type: ignore[index]
    assert (row["judge"], row["avg@1"]) == ("Never", 0.0)


def test_prompts_of_another_project(stranger: Path, tmp_path: Path) -> None:
    """With a policy that has never seen them: what it is asked, by which rules."""
    rows = {
        "corpus": {"id": "1", "title": "Paris", "text": "Paris lies on the Seine."},
        "answers": {"answer": "Paris"},
        "questions": {"question": "Which river runs through Paris?", "answers": ["the Seine"]},
    }
    words = ["--world", "files", "--set", "world_options.name=rivers", "--prompts", "r-search"]
    for name, row in rows.items():
        (tmp_path / name).write_text(json.dumps(row))
        words += ["--set", f"world_options.{name}_path={tmp_path / name}"]
    # The world has no questions of its own.
    words[-2:] = ["--questions", str(tmp_path / "questions")]
    words += ["--preset", "wiki", "--set", "game.top_k=2", "--out", str(tmp_path / "games")]

    assert main(["eval", str(stranger), *words, *SHORT]) == 0
    (saved,) = read_games(tmp_path / "games")
    config = saved.rules.config
    assert (config.prompts, config.max_searches) == ("r-search", 10)
    assert config.top_k == 2, "--set decides"
    assert "<observation>" in saved.rules.prompts.texts["solver_opening"]


def test_a_player_in_place_of_a_model_and_its_outages() -> None:
    """``--player api`` plays so: whoever was not answered is void, all others count."""
    config = make_config(load_preset("tiny"))
    rules, questions = check(config.replace(game=config.game.replace(attempts=1)))
    script = scripted_player(rules)
    calls = 0

    class Flaky:
        def play(self, trajectories: list[Trajectory]) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                script.play(trajectories[:3])
                raise ServiceError("player", "it was out")
            script.play(trajectories)

    records = answer(rules, questions[:5], by_player(Flaky()), [0])
    assert [record.outcome for record in records] == ["valid"] * 3 + ["void"] * 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a", "b", "c"], "at most two are compared"),
        (["a", "b", "--out", "c"], "one policy at a time"),
        (["--attempts", "2"], "greedy attempts are all alike"),
        (["--player", "api", "--closed-book"], "not behind an API"),
        (["a/b", "nowhere"], "there is no model directory nowhere"),
        (["--retriever", "emtpy"], "did you mean 'empty'"),
        (["--questions", "nowhere"], "nowhere"),
    ],
)
def test_mistakes(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["eval", *words]) == 2
    assert says in capsys.readouterr().err
