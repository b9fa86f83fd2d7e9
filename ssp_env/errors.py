"""The whole error model of the package.

A bad *rollout* is data, never an exception: an unparsable turn, a forbidden question or a spent
budget ends a game as ``invalid`` with a reason code (see :mod:`ssp_env.game.outcome`).

An *outage* is not data either. A retriever, judge, verifier or engine that fails is retried with
back-off where it is called (:mod:`ssp_env.net`). If it still fails, :class:`ServiceError`
voids the attempt that was hit (or the game, where too few attempts remain); it never becomes a
reward or an observation. A service that works and refuses a player's text is no outage: that
counts against the text (``fault``).

Everything else is raised to the caller, as early as it can be known:

=================== ============================================================================
``ConfigError``     a setting that cannot work; names the field, the value and the fix
``RenderModeError`` a render mode that an environment does not have; a ``ConfigError`` too
``DataError``       a corpus, answer or question file that cannot be read; names file and line
``TokenizerError``  a tokenizer that cannot spell the protocol's tags or its prompts
``ModelError``      a model directory that cannot be loaded or sampled from
``RunError``        a run directory that cannot be written, resumed or read
``UnhealthyRun``    a training run that was stopped because it had gone wrong; says what helps
``UsageError``      a call in the wrong order (a step after the end, an action outside the space)
``ServiceError``    an outage that outlasted its retries
``LearnerDied``     a learner that died; a ``ServiceError`` too
``MissingExtra``    a feature whose optional dependency is not installed; says what to install
=================== ============================================================================
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SSPError(Exception):
    """Base class of every error that this package raises on purpose."""


class ConfigError(SSPError, ValueError):
    """A setting that cannot work.

    Args:
        field: dotted name of the setting.
        value: what was given.
        fix: what to do instead, as a sentence.
    """

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field, self.value, self.fix = field, value, fix
        super().__init__(f"{field} = {value!r}: {fix}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.fix)


class RenderModeError(ConfigError, TypeError):
    """A render mode that an environment does not have.

    It is a ``TypeError`` as well: Stable-Baselines3 asks every environment for ``rgb_array`` and
    treats this as "unsupported". Gymnasium re-raises with only the message, so it must suffice.
    """

    def __init__(self, field: str, value: object = None, fix: str = "") -> None:
        super().__init__(field, value, fix)
        if not fix:
            self.args = (field,)


class DataError(SSPError, ValueError):
    """A data file that cannot be read.

    Args:
        path: the file.
        what: what is wrong with it.
        line: number of the line at fault, if it is a single one.
    """

    def __init__(self, path: object, what: str, line: int | None = None) -> None:
        self.path, self.what, self.line = str(path), what, line
        where = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{where}: {what}")

    def __reduce__(self) -> tuple[type[DataError], tuple[str, str, int | None]]:
        return type(self), (self.path, self.what, self.line)


class TokenizerError(SSPError, ValueError):
    """A tokenizer that cannot spell what the game needs (tags, prompts)."""


class ModelError(SSPError):
    """A model directory that cannot be loaded or sampled from."""


class RunError(SSPError):
    """A run directory that cannot be written, resumed or read."""


class UnhealthyRun(SSPError):
    """A training run that was stopped, with a checkpoint, because its figures went wrong."""


class UsageError(SSPError, RuntimeError):
    """A call that does not fit the game's state, such as a step after the end."""


FAULTS = ("service", "text")
"""Faults that a :class:`ServiceError` can name."""


class ServiceError(SSPError):
    """A search, judge, verifier or engine call that failed for good; it voids what it hit.

    Args:
        service: ``"search"``, ``"judge"``, ``"verifier"`` or ``"engine"``.
        what: what went wrong, for the log; a policy never sees it.
        calls: how many calls were made before giving up, where someone counted them.
        fault: what is to blame: ``"service"``, an outage; or ``"text"``, if the service works and
            has no result for this very text, which then counts against the player who wrote it.

    Raises:
        UsageError: another fault than these.
    """

    def __init__(
        self, service: str, what: str, calls: int | None = None, fault: str = "service"
    ) -> None:
        if fault not in FAULTS:
            raise UsageError(f"a ServiceError's fault is one of {', '.join(FAULTS)}, not {fault!r}")
        self.service, self.what, self.calls, self.fault = service, what, calls, fault
        super().__init__(f"{service}: {what}")

    def __reduce__(self) -> tuple[type[ServiceError], tuple[str, str, int | None, str]]:
        return type(self), (self.service, self.what, self.calls, self.fault)


class LearnerDied(ServiceError):
    """A learner that died. A run goes on from its last checkpoint."""


class TransientServiceError(ServiceError):
    """A failure worth another try (time-out, connection refused, HTTP 429 or 5xx).

    Args:
        service, what, fault: as for :class:`ServiceError`.
        retry_after: how many seconds the service asks to be left alone, if it says so.
    """

    def __init__(
        self, service: str, what: str, retry_after: float | None = None, fault: str = "service"
    ) -> None:
        self.retry_after = retry_after
        super().__init__(service, what, None, fault)

    def __reduce__(self) -> tuple[type[TransientServiceError], tuple[str, str, float | None, str]]:  # type: ignore[override]
        return type(self), (self.service, self.what, self.retry_after, self.fault)


class MissingExtra(SSPError, ImportError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, install: str) -> None:
        self.feature, self.install = feature, install
        super().__init__(f"{feature} needs a package that is not installed; run: {install}")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.feature, self.install)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known ones, or all of them if none is near."""
    names = sorted(known)

    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"

    return "known: " + ", ".join(names)
