"""The whole error model of the package.

A bad *rollout* is data, never an exception: an unparsable turn, a forbidden question or a spent
budget ends a game as ``invalid`` with a reason code (see :mod:`ssp_env.game.outcome`).

An *outage* is not data either. A retriever, judge, verifier or engine that fails is retried with
back-off where it is called (:mod:`ssp_env.net`). If it still fails, :class:`ServiceError`
voids the attempt that was hit (or the game, where too few attempts remain); it never becomes a
reward or an observation. A service that works and refuses a player's text is no outage: that
counts against the text (``fault``).

Everything else is raised to the caller, as early as it can be known."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Literal


class SSPError(Exception):
    """Base class of every error that this package raises on purpose."""


class ConfigError(SSPError, ValueError):
    """A setting that cannot work: its dotted name, its value, and what to do instead."""

    def __init__(self, field: str, value: object, fix: str) -> None:
        super().__init__(field, value, fix)
        self.field, self.value, self.fix = field, value, fix

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r:.300}: {self.fix}"


class RenderModeError(ConfigError, TypeError):
    """A render mode that an environment does not have.

    Stable-Baselines3 asks every environment for ``rgb_array`` and takes a ``TypeError`` for
    "unsupported". Gymnasium re-raises with only the message, so it must suffice."""

    def __init__(self, field: str, value: object = None, fix: str = "") -> None:
        super().__init__(field, value, fix)

    def __str__(self) -> str:
        return super().__str__() if self.fix else self.field


class DataError(SSPError, ValueError):
    """A data file that cannot be read, what is wrong with it, and the line, if one is at fault."""

    def __init__(self, path: object, what: str, line: int | None = None) -> None:
        super().__init__(str(path), what, line)
        self.path, self.what, self.line = str(path), what, line

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f':{self.line}'}: {self.what}"


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


Fault = Literal["service", "text"]


class ServiceError(SSPError):
    """A search, judge, verifier or engine call that failed for good; it voids what it hit.

    Args:
        service: ``"search"``, ``"judge"``, ``"verifier"`` or ``"engine"``.
        what: what went wrong, for the log; a policy never sees it.
        calls: how many calls were made before giving up, where someone counted them.
        fault: what is to blame: ``"service"``, an outage; or ``"text"``, if the service works and
            has no result for this very text, which then counts against the player who wrote it.
    """

    def __init__(
        self, service: str, what: str, calls: int | None = None, fault: Fault = "service"
    ) -> None:
        super().__init__(service, what, calls, fault)
        self.service, self.what, self.calls, self.fault = service, what, calls, fault

    def __str__(self) -> str:
        return f"{self.service}: {self.what}"


class LearnerDied(ServiceError):
    """A learner that died. A run goes on from its last checkpoint."""


class TransientServiceError(ServiceError):
    """A failure worth another try (time-out, connection refused, HTTP 429 or 5xx).

    ``retry_after``: seconds for which the service asks to be left alone, if it says so."""

    def __init__(self, service: str, what: str, retry_after: float | None = None) -> None:
        super().__init__(service, what)
        self.args = service, what, retry_after  # a pickle makes it anew from these
        self.retry_after = retry_after


class MissingExtra(SSPError, ImportError):
    """A feature whose packages are not installed; the message says how to install them."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(feature, extra)
        self.feature, self.extra = feature, extra

    def __str__(self) -> str:
        install = f"pip install 'ssp-env[{self.extra}]'"
        return f"{self.feature} needs a package that is not installed; run: {install}"


# -- what comes in at an interface -----------------------------------------------------------------


def expect(field: str, value: object, kind: Any, fix: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(field, value, fix)


def whole_number(field: str, value: Any, least: int) -> int:
    """A whole number, Python's or NumPy's, from ``least`` up."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(field, value, f"give a whole number, at least {least}")
    return number


def named_values(field: str, given: Any, fix: str) -> dict[str, Any]:
    """A mapping by names as a dictionary, such as settings."""
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return dict(given)
    raise ConfigError(field, given, fix)


def check_part(name: str, part: object, method: str) -> None:
    """Refuses an exchangeable part that has not the method that it is used by."""
    # A class has the method too, but cannot be called without an object.
    if isinstance(part, type) and callable(getattr(part, method, None)):
        raise ConfigError(name, part, f"give an instance of the class: {part.__name__}()")
    if not callable(getattr(part, method, None)):
        what = "a function" if method == "__call__" else f"an object with a {method}()"
        raise ConfigError(name, part, f"give {what}, or leave it out")


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known ones, or all of them if none is near.

    >>> nearest("atempts", ["attempts", "top_k"]), nearest("x", ["attempts", "top_k"])
    ("did you mean 'attempts'?", 'known: attempts, top_k')
    """
    names = sorted(known)
    # `learning_rate` is nearer to `lr` than its letters say.
    initials = "".join(word[:1] for word in str(name).split("_"))
    short = [initials] if len(initials) > 1 and initials in names else []
    close = short or difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known: {', '.join(names)}"


def one_of(field: str, value: str, known: Iterable[str]) -> None:
    """Refuses a name that is not a known one, and offers the nearest."""
    if value not in known:
        raise ConfigError(field, value, nearest(value, known))


def require_version(distribution: str, works: str) -> None:
    """Refuses a partner's package whose major or minor version is not the one that works."""
    from importlib.metadata import version

    installed = version(distribution)
    if installed.split(".")[:2] != works.split(".")[:2]:
        fix = f"this adapter works with {works}; run: pip install '{distribution}=={works}'"
        raise ConfigError(distribution, installed, fix)
