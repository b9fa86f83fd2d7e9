"""The OpenAPI document tells the truth about the server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.checks import CHECKS
from serverkit import Served, free_port, raw, start_stub, stub
from starlette.routing import Route

from ssp_env.search.server.app import SearchApp
from ssp_env.search.server.config import ServerConfig
from ssp_env.search.server.openapi import openapi

TOKEN = "correct-horse-battery"
CONFORMANCE = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
LIMITS: dict[str, Any] = {
    "max_body_bytes": 2**20,
    "max_queries": 8,
    "max_waiting": 8,
    "max_batch": 1,
    "read_seconds": 0.5,
    "answer_seconds": 1.0,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stub(tmp_path_factory.mktemp("openapi") / "log", token=TOKEN, **LIMITS) as served:
        yield served


def test_the_document_names_every_route_and_method() -> None:
    config = ServerConfig()
    routes = [route for route in SearchApp(config)._starlette.routes if isinstance(route, Route)]
    served = {
        (route.path, method.lower())
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {
        (path, method) for path, item in openapi(config)["paths"].items() for method in item
    }


def test_the_limits_in_the_document_are_the_servers(served: Served) -> None:
    document = httpx.get(
        f"{served.url}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}
    ).json()
    assert document == openapi(ServerConfig(token=TOKEN, **LIMITS))
    properties = document["components"]["schemas"]["Query"]["properties"]
    assert properties["queries"]["maxItems"] == 8
    assert properties["topk"]["maximum"] == ServerConfig.max_k


def answers(served: Served, tmp_path: Path) -> Iterator[httpx.Response]:
    """One answer of each status that ``POST /retrieve`` has."""
    head = {"Authorization": f"Bearer {TOKEN}"}
    as_json = {**head, "Content-Type": "application/json"}
    url = f"{served.url}/retrieve"
    yield served.retrieve("a", headers=head)
    yield served.retrieve("a", "b", return_scores=True, headers=head)
    yield httpx.post(url, content=b"{", headers=as_json)
    yield served.retrieve("a")
    yield httpx.post(url, content=b" " * (2**20 + 1), headers=as_json)
    yield httpx.post(url, content=b"{}", headers=head)
    yield served.retrieve("a", topk=0, headers=head)
    yield served.retrieve("poison", headers=head)
    yield served.retrieve("outage", headers=head)
    slow = (
        f"POST /retrieve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        f"{TOKEN}\r\nContent-Type: application/json\r\n"
    )
    yield _parsed(raw(served.port, f"{slow}Content-Length: 9\r\n\r\n".encode()))
    with ThreadPoolExecutor(12) as pool:
        yield from pool.map(lambda _: served.retrieve("slow", headers=head), range(12))
    yield served.retrieve("hang", headers=head)
    loading = start_stub(tmp_path / "log", loading=60)
    try:
        for _ in range(200):
            try:
                yield loading.retrieve("a")
                break
            except httpx.ConnectError:
                pass
    finally:
        loading.process.kill()
        loading.process.wait()


def _parsed(answer: bytes) -> httpx.Response:
    top, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = top.decode().split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    response = httpx.Response(int(status.split()[1]), headers=headers, content=body)  # type: ignore[arg-type]
    response.elapsed = timedelta(0)
    return response


def test_every_status_that_is_documented_occurs_as_it_is_documented(
    served: Served, tmp_path: Path
) -> None:
    document = openapi(ServerConfig(token=TOKEN, **LIMITS))
    operation = schemathesis.openapi.from_dict(document)["/retrieve"]["POST"]
    checks = CHECKS.get_by_names([name for name in CONFORMANCE if name != "not_a_server_error"])
    seen = set()
    for answer in answers(served, tmp_path):
        answer.request = httpx.Request("POST", f"{served.url}/retrieve")
        operation.Case(body={"queries": []}).validate_response(answer, checks=checks)
        seen.add(str(answer.status_code))
    assert seen == set(document["paths"]["/retrieve"]["post"]["responses"])


@pytest.mark.parametrize("token", [None, TOKEN])
def test_nothing_that_the_document_allows_or_forbids_surprises_the_server(
    tmp_path: Path, token: str | None
) -> None:
    with stub(
        tmp_path / "log", token=token, port=free_port(), max_query_length=200, max_queries=16
    ) as served:
        command = [str(Path(sys.executable).with_name("st")), "run", f"{served.url}/openapi.json"]
        command += [
            "--max-examples",
            "60",
            "--generation-deterministic",
            "--no-color",
            "--request-timeout",
            "10",
        ]
        if token is not None:
            command += ["--header", f"Authorization: Bearer {token}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert result.returncode == 0, result.stdout
        assert "No issues found" in result.stdout
        assert "Tested: 5" in result.stdout
        assert (
            served.retrieve("still there", headers={"Authorization": f"Bearer {token}"}).status_code
            == 200
        )
        assert "Traceback" not in served.log.read_text()


def test_the_document_can_be_written_as_json() -> None:
    assert json.loads(json.dumps(openapi(ServerConfig())))["openapi"] == "3.1.0"
