"""Tests for parts of your own: one mixin per kind of part, in the manner of dm_env's.

Subclass a mixin in your test suite, name the subclass ``Test...``, override what it asks for (a
``make_...`` method, a few attributes), and let pytest collect it; ``docs/parts.md`` has
an example of each. Every failure names the broken promise and the fix. Importing them needs neither
pytest nor torch nor Ray.

:mod:`ssp_env.probe` plays scripted cheats against rules of your own (``docs/probe.md``)."""

from __future__ import annotations

from ssp_env.testing.play import BatchStrategyTests, NoiseSourceTests, PlayerTests
from ssp_env.testing.services import JudgeTests, RetrieverTests, VerifierTests
from ssp_env.testing.worlds import TokenizerTests, WorldTests

__all__ = [
    "BatchStrategyTests",
    "JudgeTests",
    "NoiseSourceTests",
    "PlayerTests",
    "RetrieverTests",
    "TokenizerTests",
    "VerifierTests",
    "WorldTests",
]
