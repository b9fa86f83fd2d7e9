"""Settings of a run: presets in YAML, overrides on the command line, one dataclass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from agents.config import LearningConfig
from ssp_env.checks import at_least, from_mapping
from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import GameConfig
from ssp_env.game.protocol import Tags
from ssp_env.judge.chat import ChatConfig
from ssp_env.net.retry import RetryPolicy


@dataclass(frozen=True)
class EvaluationConfig:
    """How the solver is measured on questions it never trains on."""

    every: int = 50
    """Training steps between two evaluations; there is always one before the first step and one
    after the last."""
    per_group: int = 150
    """Questions a hop count, or a benchmark."""
    seed: int = 0
    """Which questions are drawn."""
    temperature: float = 0.0
    """0 is greedy (the paper's)."""

    def __post_init__(self) -> None:
        at_least(self, "evaluation", 1, "every", "per_group")
        at_least(self, "evaluation", 0, "seed", "temperature")
        if not math.isfinite(self.temperature):
            raise ConfigError(
                "evaluation.temperature", self.temperature, "give a finite number; 0 is greedy"
            )


@dataclass(frozen=True)
class ComputeConfig:
    """What a run is spread over."""

    env_runners: int = 0
    """Remote env runners; 0 plays in the main process."""
    learners: int = 0
    """Remote learners; 0 learns in the main process."""
    gpus_per_env_runner: float = 0.0
    """GPUs of each env runner (with 0 runners: of the main process)."""
    gpus_per_learner: float = 0.0
    """GPUs of each learner (with 0 learners: of the main process)."""
    threads: int = 1
    """PyTorch threads of a process. Small models run fastest, and always the same, with 1."""

    def __post_init__(self) -> None:
        at_least(
            self, "compute", 0, "env_runners", "learners", "gpus_per_env_runner", "gpus_per_learner"
        )
        at_least(self, "compute", 1, "threads")


@dataclass(frozen=True)
class OpenAIConfig:
    """A model behind an OpenAI-compatible API, for judging and verifying."""

    base_url: str = ""
    """Such as ``http://localhost:8000/v1``; empty: no such model."""
    model: str = ""
    """Its name there."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    judge: bool = False
    """Whether it also judges the solver's answers; exact match does otherwise."""
    timeout: float = 60.0
    """Seconds that one call may take."""
    attempts: int = 4
    """Calls until a task counts as hit by an outage; the pauses between them double from a quarter
    of a second."""

    def chat(self) -> ChatConfig:
        """The client's settings.

        Raises:
            ConfigError: no address, no model, or a value that cannot work.
        """
        for name in ("base_url", "model"):
            if not getattr(self, name):
                fix = (
                    f"needed for game.verifier=openai and for openai.judge; give --set "
                    f"openai.{name}=..."
                )
                raise ConfigError(f"openai.{name}", "", fix)
        try:
            retry = RetryPolicy(attempts=self.attempts)
            return ChatConfig(
                self.base_url,
                self.model,
                api_key_env=self.api_key_env,
                timeout=self.timeout,
                retry=retry,
            )
        except ConfigError as error:
            # The client's own names mean nothing to whoever wrote these settings.
            raise ConfigError(
                f"openai.{error.field.partition('.')[2]}", error.value, error.fix
            ) from None


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result."""

    preset: str = "tiny"
    """Where the other settings started from."""
    seed: int = 0
    """Decides all randomness."""
    steps: int = 80
    """Training steps."""
    world: str = "mini"
    """``mini``, ``small``, ``wiki-mini``, or ``files`` with paths in ``world_options``."""
    world_options: dict[str, Any] = field(default_factory=dict)
    """Settings of the world."""
    model: str = ""
    """A causal LM directory; empty: the tiny policy that ships."""
    checkpoint_every: int = 50
    """Steps between two checkpoints; the last step always has one."""
    game: GameConfig = field(default_factory=GameConfig)
    """Rules of the game."""
    learning: LearningConfig = field(default_factory=LearningConfig)
    """How both roles learn."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How the solver is measured."""
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    """What the run is spread over."""
    openai: OpenAIConfig = field(default_factory=OpenAIConfig)
    """A judge or verifier behind an API."""

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("steps", 1), ("checkpoint_every", 1)):
            if getattr(self, name) < least:
                raise ConfigError(name, getattr(self, name), f"must be at least {least}")
        if self.game.verifier == "openai" or self.openai.judge:
            self.openai.chat()

    @property
    def model_dir(self) -> Path:
        """The directory that the policy is loaded from."""
        if self.model:
            return Path(self.model)
        # Imported late: settings can be read, and refused, without loading PyTorch.
        from agents.models import tiny_directory

        return tiny_directory()


SECTIONS: dict[str, type] = {
    "game": GameConfig,
    "learning": LearningConfig,
    "evaluation": EvaluationConfig,
    "compute": ComputeConfig,
    "openai": OpenAIConfig,
}


def presets() -> list[str]:
    """Names of the presets that ship."""
    folder = resources.files("experiments") / "presets"
    return sorted(
        file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")
    )


def load_preset(name: str) -> dict[str, Any]:
    """A preset's settings as plain data.

    Raises:
        ConfigError: no such preset (offers the nearest).
    """
    if name not in presets():
        raise ConfigError("preset", name, nearest(name, presets()))
    text = (resources.files("experiments") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    return {"preset": name, **yaml.safe_load(text)}


def override(values: dict[str, Any], assignment: str) -> None:
    """Applies one ``section.field=value`` (the value is YAML) to plain settings, in place.

    Raises:
        ConfigError: no ``=``, a value that is not YAML, or a name that is not known (offers the
            nearest).
    """
    path, equals, text = assignment.partition("=")
    path = path.strip()
    if not equals or not path:
        raise ConfigError("--set", assignment, "write it as section.field=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(path, text, "the value is not YAML; put it in quotes") from None
    *sections, name = path.split(".")
    if path == "preset":
        raise ConfigError(path, value, "choose it by --preset")
    _check_known(sections, name, path, value)
    target = values
    for section in sections:
        target = target.setdefault(section, {})
    target[name] = value


def _check_known(sections: list[str], name: str, path: str, value: Any) -> None:
    """
    Raises:
        ConfigError: no setting has this dotted name.
    """
    if sections == ["world_options"]:
        # The world knows its own settings, and says so when it is opened.
        return
    if not sections:
        known = [f.name for f in fields(RunConfig) if f.name != "preset"]
    elif sections[0] not in (*SECTIONS, "world_options"):
        raise ConfigError(path, value, nearest(sections[0], [*SECTIONS, "world_options"]))
    elif sections == ["game", "tags"]:
        known = [f.name for f in fields(Tags)]
    elif len(sections) > 1:
        raise ConfigError(path, value, "no setting lies so deep; write section.field=value")
    else:
        known = [f.name for f in fields(SECTIONS[sections[0]])]
    if name not in known:
        raise ConfigError(path, value, nearest(name, known))


def make_config(values: Mapping[str, Any]) -> RunConfig:
    """The typed settings.

    Raises:
        ConfigError: an unknown name, or a value that cannot work.
    """
    plain = dict(values)
    typed: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        typed[name] = from_mapping(kind, _mapping(name, plain.pop(name, None)), name)
    for name, value in plain.items():
        if name not in (f.name for f in fields(RunConfig)):
            raise ConfigError(name, value, nearest(name, (f.name for f in fields(RunConfig))))
    options = _mapping("world_options", plain.pop("world_options", None))
    try:
        top = from_mapping(RunConfig, plain, "run")
        own = {name: getattr(top, name) for name in plain}
        return RunConfig(**own, world_options=options, **typed)
    except ConfigError as error:
        # Settings at the top have no section in front of them.
        raise ConfigError(error.field.removeprefix("run."), error.value, error.fix) from None


def _mapping(name: str, value: Any) -> dict[str, Any]:
    """
    Raises:
        ConfigError: not a mapping of names to values.
    """
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(name, value, "a section of named settings is needed here")
    return dict(value)


def to_plain(config: Any) -> dict[str, Any]:
    """A config as plain data for YAML and JSON, tuples as lists."""
    return {key: _plain(value) for key, value in asdict(config).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
