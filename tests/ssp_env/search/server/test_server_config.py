"""Settings of the search server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssp_env.errors import ConfigError
from ssp_env.search.config import ServerConfig, read_token

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((f"max_{name}", 0) for name in ("k", "queries", "query_length", "body_bytes", "batch")),
        *(("max_k", 20_000), ("max_queries", 20_000), ("default_k", 0), ("default_k", 101)),
        *(("port", 65536), ("answer_seconds", float("inf"))),
        *(("token", "short"), ("token", TOKEN + " ")),
        *(("host", "0.0.0.0"), ("host", "example.org")),
    ],
)
def test_a_setting_that_cannot_work_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(**{field: value})
    assert caught.value.field == field


def test_who_may_ask() -> None:
    for host in ("127.1.2.3", "::1", "localhost"):
        assert ServerConfig(host=host).token is None
    assert TOKEN not in repr(ServerConfig(host="0.0.0.0", token=TOKEN))
    assert ServerConfig(host="0.0.0.0", no_token=True).token is None
    with pytest.raises(ConfigError, match="leave one of them out"):
        ServerConfig(token=TOKEN, no_token=True)


def test_the_token_comes_from_the_file_or_else_from_the_environment(tmp_path: Path) -> None:
    file, environment = tmp_path / "token", {"SSP_SERVE_TOKEN": "from-the-environment"}
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, environment) == TOKEN
    assert read_token(None, environment) == "from-the-environment"
    assert read_token(None, {}) is None
    file.write_text("with spaces")
    for source, name in ((None, "SSP_SERVE_TOKEN"), (file, "token-file")):
        with pytest.raises(ConfigError, match="16 or more") as caught:
            read_token(source, {"SSP_SERVE_TOKEN": "geheim"})
        assert caught.value.field == name
        assert "geheim" not in str(caught.value)
    with pytest.raises(ConfigError):
        read_token(tmp_path / "none", environment)
