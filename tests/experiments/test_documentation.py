"""What the documents say about a run is what a run has; README's Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import all_games, metrics

ROOT = Path(__file__).resolve().parents[2]


def documented(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9…]+)`", text))


def test_every_figure_of_a_run_is_documented(whole_run: tuple[Path, str]) -> None:
    names = documented((ROOT / "docs" / "run_directory.md").read_text(encoding="utf-8"))
    used = {name for line in metrics(whole_run[0]) for name in line}
    used |= {name for line in metrics(whole_run[0]) for name in line["seconds"]}
    hops = {f"share_{hops}hop" for hops in range(1, 5)}
    unknown = {name for name in used - names - hops if not name.startswith("invalid_")}
    assert not unknown


def test_every_field_of_a_game_is_documented(whole_run: tuple[Path, str]) -> None:
    names = documented((ROOT / "docs" / "run_directory.md").read_text(encoding="utf-8"))
    assert not set(all_games(whole_run[0])[0]) - names


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "docs/run_directory.md"])
def test_files_that_documents_name_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = set(
        re.findall(r"`((?:ssp_env|agents|experiments|benchmarks|docs|tests)/[\w./-]+)`", text)
    )
    paths |= {
        target for target in re.findall(r"\]\(([^)#:]+)\)", text) if not target.startswith("http")
    }
    base = (ROOT / name).parent
    missing = [path for path in paths if not (ROOT / path).exists() and not (base / path).exists()]
    assert not missing


def test_python_in_the_readme_runs(cluster: None, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "<information>" in capsys.readouterr().out
