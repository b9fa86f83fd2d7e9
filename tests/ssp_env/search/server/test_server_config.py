"""Settings of the search server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssp_env.errors import ConfigError
from ssp_env.search.server.config import ServerConfig, is_loopback, read_token

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("default_k", 0),
        ("default_k", 101),
        ("max_k", 0),
        ("max_queries", 0),
        ("max_queries", 20_000),
        ("max_query_length", 0),
        ("max_body_bytes", 0),
        ("max_batch", 0),
        ("max_waiting", 10),
        ("batch_window", -1.0),
        ("batch_window", float("nan")),
        ("read_seconds", 0.0),
        ("answer_seconds", float("inf")),
        ("drain_seconds", -0.1),
        ("token", ""),
        ("token", "short"),
        ("token", TOKEN + " "),
        ("token", TOKEN + "é"),
        ("host", "0.0.0.0"),
        ("host", "::"),
        ("host", "example.org"),
        ("host", ""),
    ],
)
def test_a_setting_that_cannot_work_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(**{field: value})
    assert caught.value.field in (field, "max_waiting")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_no_token_is_needed(host: str) -> None:
    assert is_loopback(host)
    assert ServerConfig(host=host).token is None


def test_with_a_token_any_host_will_do_and_it_is_not_shown() -> None:
    config = ServerConfig(host="0.0.0.0", token=TOKEN)
    assert TOKEN not in repr(config)
    with pytest.raises(ConfigError) as caught:
        ServerConfig(token="geheim")
    assert "geheim" not in str(caught.value)


def test_others_may_ask_without_a_token_only_where_that_is_said() -> None:
    assert ServerConfig(host="0.0.0.0", no_token=True).token is None
    with pytest.raises(ConfigError, match="leave one of them out"):
        ServerConfig(token=TOKEN, no_token=True)


def test_the_token_comes_from_the_file_or_else_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    environment = {"SSP_SERVE_TOKEN": "from-the-environment"}
    assert read_token(file, environment) == TOKEN
    assert read_token(None, environment) == "from-the-environment"
    assert read_token(None, {}) is None
    with pytest.raises(ConfigError):
        read_token(tmp_path / "none", environment)


@pytest.mark.parametrize("token", ["", "geheim", "with spaces in between"])
def test_what_is_no_token_is_said_of_where_it_came_from(tmp_path: Path, token: str) -> None:
    with pytest.raises(
        ConfigError, match=r"SSP_SERVE_TOKEN = .* 16 or more .*unset the environment variable"
    ) as caught:
        read_token(None, {"SSP_SERVE_TOKEN": token})
    assert not token or token not in str(caught.value)
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(
        ConfigError, match=r"token-file = .*/token': it holds no token: .* 16 or more"
    ) as caught:
        read_token(file, {})
    assert not token or token not in str(caught.value)
