"""The examples in docstrings of the packages give what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT, ROOT / "agents", ROOT / "experiments")
FILES = [
    (source, file)
    for source, package in zip(SOURCES, ("ssp_env", "ssp_agents", "ssp_experiments"), strict=True)
    for file in sorted((source / package).rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]
NAMES = [".".join(file.relative_to(source).with_suffix("").parts) for source, file in FILES]


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_a_module(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".__init__"))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testmod(module, optionflags=flags)
    assert tried, "a property's or an inner function's example is not found"
    assert not failed
