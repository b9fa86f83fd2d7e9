"""``ssp serve``: what it says where an optional package is missing, and the ways to a token."""

from __future__ import annotations

import sys

import pytest

from ssp_env.commands.cli import main


def test_ray_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    assert main(["serve", "--world", "mini", "--ray"]) == 2
    assert "pip install '.[serve-ray]' in the checkout" in " ".join(capsys.readouterr().err.split())


def test_a_token_and_no_token_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--no-token", "--token-file", "x"]) == 2
    assert "not allowed with" in capsys.readouterr().err
