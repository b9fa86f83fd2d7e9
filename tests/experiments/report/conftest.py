"""Runs that several tests of the report only read."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import make_run

from experiments.report.page import report


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two finished runs that differ in their seed."""
    folder = tmp_path_factory.mktemp("report")
    return [str(make_run(folder / f"seed{seed}", seed).path) for seed in (0, 1)]


@pytest.fixture(scope="session")
def page(two_runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of both, with tokens."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    report(two_runs, str(path), tokens=True)
    return path
