"""Adapters are imported from examples/integrations; their tests share a search that is gone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssp_env import Rules, ServiceError

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "integrations"))


@pytest.fixture
def without_search(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rules], None]:
    """Takes the search server away from games of these rules."""

    def gone(queries: Any, k: int) -> Any:
        raise ServiceError("search", "gone")

    return lambda rules: monkeypatch.setattr(rules.retriever, "search", gone)
