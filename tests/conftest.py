"""How `make test` deals the tests to its workers (pytest-xdist, `--dist loadgroup`).

A plain `pytest PATH` is not affected: it runs in one process, in the order of the files.
"""

from __future__ import annotations

import pytest

COSTLY = ("cluster", "whole_run")
"""Session fixtures that take long to make: a local Ray, a whole training run."""

TIMED = ("tests/ssp_env/search/", "tests/ssp_env/judge/test_openai.py")
"""Where tests start servers or hold a clock against them; two of these never run at once."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives each test the group that one worker runs alone, and starts the longest groups first."""
    if config.getoption("dist", "no") != "loadgroup":
        return

    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))

    order = {"runs": 0, "agents on Ray": 1, "servers and clocks": 2}
    items.sort(key=lambda item: order.get(_marked(item), len(order)))


def _group(item: pytest.Item) -> str:
    """Tests that share a costly fixture stay together, then those that measure time, then files."""
    file = item.nodeid.partition("::")[0]

    if any(name in getattr(item, "fixturenames", ()) for name in COSTLY):
        return "agents on Ray" if file.startswith("tests/agents/") else "runs"

    if file.startswith(TIMED):
        return "servers and clocks"

    return file


def _marked(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None

    return str(marker.args[0] if marker.args else marker.kwargs["name"])
