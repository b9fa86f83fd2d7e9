"""The OpenAPI document is true of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from serverkit import stub

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize("token", [None, TOKEN])
def test_nothing_that_the_document_allows_or_forbids_surprises_the_server(
    tmp_path: Path, token: str | None
) -> None:
    head = {} if token is None else {"Authorization": f"Bearer {token}"}
    with stub(tmp_path / "log", token=token, max_query_length=200, max_queries=16) as served:
        document = httpx.get(f"{served.url}/openapi.json", headers=head).json()
        properties = document["components"]["schemas"]["Query"]["properties"]
        assert properties["queries"]["maxItems"] == 16
        answers = set(document["paths"]["/retrieve"]["post"]["responses"])
        assert answers == {"200", "400", "413", "422", "500", "503", "504"} | (
            set() if token is None else {"401"}
        )

        command = [str(Path(sys.executable).with_name("st")), "run", f"{served.url}/openapi.json"]
        command += ["--max-examples", "25", "--generation-deterministic", "--no-color"]
        for name, value in head.items():
            command += ["--header", f"{name}: {value}"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout
        assert "Tested: 4" in ran.stdout
        assert served.retrieve("still there", headers=head).status_code == 200
        assert "Traceback" not in served.log.read_text()
