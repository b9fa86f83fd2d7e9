"""Settings of a run: presets in YAML, overrides on the command line, one dataclass."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from agents.config import LearningConfig
from agents.models import tiny_directory
from ssp_env.config import GameConfig, at_least, from_mapping
from ssp_env.errors import ConfigError, nearest
from ssp_env.judge.chat import ChatConfig
from ssp_env.retry import RetryPolicy


@dataclass(frozen=True)
class EvaluationConfig:
    """How the solver is measured on questions it never trains on."""

    every: int = 50
    """Training steps between two evaluations; there is always one before the first step and one after the last."""
    per_group: int = 150
    """Questions a hop count, or a benchmark."""
    seed: int = 0
    """Which questions are drawn."""
    temperature: float = 0.0
    """0 is greedy (the paper's)."""

    def __post_init__(self) -> None:
        at_least(self, "evaluation", 1, "every", "per_group")
        at_least(self, "evaluation", 0, "seed", "temperature")


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
        at_least(self, "compute", 0, "env_runners", "learners", "gpus_per_env_runner", "gpus_per_learner")
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

    def chat(self) -> ChatConfig:
        """The client's settings.

        Raises:
            ConfigError: no address or no model.
        """
        for name in ("base_url", "model"):
            if not getattr(self, name):
                raise ConfigError(f"openai.{name}", "", "needed for game.verifier=openai and for openai.judge")
        return ChatConfig(
            self.base_url, self.model, api_key_env=self.api_key_env, timeout=self.timeout, retry=RetryPolicy()
        )


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result."""

    preset: str = "tiny"
    """Where the other settings started from."""
    seed: int = 0
    """Decides all randomness."""
    steps: int = 160
    """Training steps."""
    world: str = "mini"
    """``mini``, ``wiki-mini``, or ``files`` with paths in ``world_options``."""
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
        at_least(self, "run", 0, "seed")
        at_least(self, "run", 1, "steps", "checkpoint_every")
        if self.game.verifier == "openai" or self.openai.judge:
            self.openai.chat()

    @property
    def model_dir(self) -> Path:
        """The directory that the policy is loaded from."""
        return Path(self.model) if self.model else tiny_directory()


SECTIONS = {
    "game": GameConfig,
    "learning": LearningConfig,
    "evaluation": EvaluationConfig,
    "compute": ComputeConfig,
    "openai": OpenAIConfig,
}


def presets() -> list[str]:
    """Names of the presets that ship."""
    folder = resources.files("experiments") / "presets"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


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
        ConfigError: no ``=``, or a name that is not known (offers the nearest).
    """
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError("--set", assignment, "write it as section.field=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(path, text, f"the value is not YAML: {error}") from None
    *sections, name = path.strip().split(".")
    target = values
    for section in sections:
        if section not in {*SECTIONS, "world_options", "tags"}:
            raise ConfigError(path, value, nearest(section, [*SECTIONS, "world_options"]))
        target = target.setdefault(section, {})
    if sections[:1] != ["world_options"]:
        known = [f.name for f in fields(SECTIONS[sections[0]] if sections else RunConfig)]
        if len(sections) < 2 and name not in known:
            raise ConfigError(path, value, nearest(name, known))
    target[name] = value


def make_config(values: dict[str, Any]) -> RunConfig:
    """The typed settings.

    Raises:
        ConfigError: an unknown name, or a value that cannot work.
    """
    values = dict(values)
    typed = {name: from_mapping(kind, dict(values.pop(name, None) or {}), name) for name, kind in SECTIONS.items()}
    plain = from_mapping(RunConfig, values, "run")
    return RunConfig(**{f.name: getattr(plain, f.name) for f in fields(RunConfig) if f.name not in SECTIONS}, **typed)


def to_plain(config: Any) -> dict[str, Any]:
    """A config as plain data for YAML and JSON, tuples as lists."""
    assert is_dataclass(config), "only config dataclasses are turned into plain data"
    return {key: _plain(value) for key, value in asdict(config).items()}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
