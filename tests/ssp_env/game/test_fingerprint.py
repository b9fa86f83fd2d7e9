"""The fingerprint that every result carries."""

from __future__ import annotations

import json
from typing import Any

from ssp_env.doors.setup import set_up
from ssp_env.game.parts import fingerprint
from ssp_env.judge.exact import F1Judge
from ssp_env.search.client import HTTPRetriever


def test_a_fingerprint_tells_what_differs() -> None:
    def of(**setup: Any) -> dict[str, Any]:
        return fingerprint(set_up({"world": "mini", **setup}).rules)

    base = of()
    assert base == of()
    assert {"corpus", "retriever", "top_k", "max_searches", "judge", "prompts"} < set(base)
    json.dumps(base)
    for change in (
        {"game": {"top_k": 3}},
        {"game": {"max_searches": 3}},
        {"game": {"verifier": "none"}},
        {"world_options": {"seed": 1}},
        {"judge": F1Judge(0.5)},
        {"retriever": HTTPRetriever("http://127.0.0.1:9")},
    ):
        assert of(**change)["hash"] != base["hash"], change
    # Games at other sizes are the same task.
    assert of(game={"attempts": 2})["hash"] == base["hash"]
