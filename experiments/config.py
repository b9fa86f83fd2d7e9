"""Settings of a run: presets in YAML, overrides on the command line, one dataclass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import yaml

from agents.config import LearningConfig, check_sharding
from agents.engines.config import EngineConfig
from agents.health import HealthConfig
from ssp_env.checks import at_least
from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import GameConfig
from ssp_env.judge.chat import ChatConfig
from ssp_env.search.config import SearchConfig
from ssp_env.settings import check_path, check_types, named, plain, read, read_value


@dataclass(frozen=True)
class EvaluationConfig:
    """How the solver is measured on questions it never trains on."""

    every: int = 50
    """Training steps between two evaluations; there is always one before the first step and one
    after the last."""
    per_group: int = 150
    """Questions per hop count, or per benchmark."""
    seed: int = 0
    """Which questions are drawn."""
    temperature: float = 0.0
    """0 is greedy (the paper's)."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        "interval": "every",
        "evaluation_interval": "every",
        "questions": "per_group",
        "questions_per_hop": "per_group",
    }
    """What these settings are called elsewhere; an error offers the name here."""

    def __post_init__(self) -> None:
        check_types(self, "evaluation")
        at_least(self, "evaluation", 1, "every", "per_group")
        at_least(self, "evaluation", 0, "seed", "temperature")
        if not math.isfinite(self.temperature):
            fix = "give a finite number; 0 is greedy"
            raise ConfigError("evaluation.temperature", self.temperature, fix)


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
    sharding: str = "ddp"
    """How several learners hold the policy: ``ddp`` (each all of it) or ``fsdp2`` (each a share of
    weights, gradients, optimizer and reference, for policies that do not fit on one GPU)."""
    threads: int = 1
    """PyTorch threads per process. Small models run fastest, and always the same, with 1."""
    engine: str = "transformers"
    """What samples: ``transformers``, or ``vllm``, which needs its package."""
    engine_memory: float = 0.4
    """Share of a GPU's memory that vLLM may fill."""
    engine_check_every: int = 50
    """Steps between two comparisons of the engine's log-probabilities with the learner's; the first
    step of a run has one too."""
    engine_max_gap: float = 0.05
    """Mean distance of these log-probabilities, in nats, beyond which the run ends."""
    overlap: bool = False
    """Play each step while the one before is learnt from. Its games are one update old then, for
    which importance ratios make up (``learning.importance_cap``). It saves time where other
    processes play: with ``env_runners``."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        "num_env_runners": "env_runners",
        "workers": "env_runners",
        "num_workers": "env_runners",
        "num_learners": "learners",
        "num_gpus_per_env_runner": "gpus_per_env_runner",
        "num_gpus_per_learner": "gpus_per_learner",
        "fsdp": "sharding",
        "parallelism": "sharding",
        "num_threads": "threads",
        "backend": "engine",
        "rollout_engine": "engine",
        "inference_engine": "engine",
        "gpu_memory_utilization": "engine_memory",
        "one_step_off_policy": "overlap",
        "async_rollout": "overlap",
    }
    """What these settings are called elsewhere; an error offers the name here."""

    def __post_init__(self) -> None:
        check_types(self, "compute")
        at_least(self, "compute", 0, "env_runners", "learners")
        at_least(self, "compute", 0, "gpus_per_env_runner", "gpus_per_learner")
        at_least(self, "compute", 1, "threads")
        with named("compute"):
            check_sharding(self.sharding, self.learners)
        try:
            self.engine_config()
        except ConfigError as error:
            name = error.field.partition(".")[2]
            own = "engine" if name == "kind" else f"engine_{name}"
            raise ConfigError(f"compute.{own}", error.value, error.fix) from None

    def engine_config(self) -> EngineConfig:
        """The engine's settings, checked."""
        return EngineConfig(
            self.engine, self.engine_memory, self.engine_check_every, self.engine_max_gap
        )


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
    """Whether it also judges the solver's answers; the judge by rules does otherwise."""
    timeout: float = 60.0
    """Seconds that one call may take."""
    attempts: int = 4
    """Calls until a task counts as hit by an outage; the pauses between them double from a quarter
    of a second."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        "url": "base_url",
        "api_base": "base_url",
        "model_name": "model",
        "api_key": "api_key_env",
        "key_env": "api_key_env",
        "retries": "attempts",
    }
    """What these settings are called elsewhere; an error offers the name here."""

    def __post_init__(self) -> None:
        check_types(self, "openai")

    def chat(self) -> ChatConfig:
        """The client's settings.

        Raises:
            ConfigError: no address, no model, or a value that cannot work.
        """
        for name in ("base_url", "model"):
            if not getattr(self, name):
                use = "needed for game.verifier=openai and for openai.judge"
                raise ConfigError(f"openai.{name}", "", f"{use}; give --set openai.{name}=...")

        try:
            return ChatConfig(
                self.base_url,
                self.model,
                api_key_env=self.api_key_env,
                timeout=self.timeout,
                attempts=self.attempts,
            )
        except ConfigError as error:
            # The user of these settings does not know the client's own names.
            name = error.field.partition(".")[2]
            raise ConfigError(f"openai.{name}", error.value, error.fix) from None


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
    checkpoints_kept: int | None = 2
    """How many stay, the newest ones; ``null``: all, so that ``ssp league`` can let them play."""
    record_tokens: bool = True
    """Whether files of games hold token ids and log-probabilities. Without them they are smaller,
    and their games can be printed and rescored, but not replayed."""
    game: GameConfig = field(default_factory=GameConfig)
    """Rules of the game."""
    learning: LearningConfig = field(default_factory=LearningConfig)
    """How both roles learn."""
    health: HealthConfig = field(default_factory=HealthConfig)
    """When a run that has gone wrong is stopped."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """How the solver is measured."""
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    """What the run is spread over."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """Where searches are answered: an index directory or a server; else by the world's own."""
    openai: OpenAIConfig = field(default_factory=OpenAIConfig)
    """A judge or verifier behind an API."""

    SYNONYMS: ClassVar[Mapping[str, str]] = {
        "eval": "evaluation",
        "training": "learning",
        "env": "world",
        "model_dir": "model",
        "training_steps": "steps",
        "save_every": "checkpoint_every",
        "keep_checkpoints": "checkpoints_kept",
        "save_total_limit": "checkpoints_kept",
        "retriever": "search",
        "index": "search",
    }
    """What these settings are called elsewhere; an error offers the name here."""

    def __post_init__(self) -> None:
        check_types(self, "run")
        least = {"seed": 0, "steps": 1, "checkpoint_every": 1, "checkpoints_kept": 1}
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ConfigError(name, value, f"must be at least {minimum}")
        if self.game.verifier == "openai" or self.openai.judge:
            self.openai.chat()

        decay = self.learning.decay_steps
        if decay is not None and self.steps > decay:
            fix = f"give at least {self.steps}: the steps after it would change nothing"
            raise ConfigError("learning.decay_steps", decay, fix)

        hottest = max(self.learning.temperature, self.evaluation.temperature)
        if self.compute.engine == "vllm" and hottest > 2:
            fix = f"vLLM samples at temperatures of up to 2, and {hottest:g} is asked for"
            raise ConfigError("compute.engine", self.compute.engine, fix)

    @property
    def model_dir(self) -> Path:
        """The directory that the policy is loaded from."""
        if self.model:
            return Path(self.model)
        # Imported late: settings can be read, and refused, without loading PyTorch.
        from agents.models import tiny_directory

        return tiny_directory()


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
    assign(values, *parse_assignment(assignment))


def parse_assignment(text: str) -> tuple[str, Any]:
    """Name and value of ``section.field=value`` (the value is YAML).

    Raises:
        ConfigError: no ``=``, or a value that is not YAML.
    """
    path, equals, written = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise ConfigError("--set", text, "write it as section.field=value")
    try:
        return path, yaml.safe_load(written)
    except yaml.YAMLError:
        raise ConfigError(path, written, "the value is not YAML; put it in quotes") from None


def assign(values: dict[str, Any], path: str, value: Any) -> None:
    """Puts a value where a dotted name leads in plain settings, in place.

    Raises:
        ConfigError: a name that is not known (offers the nearest).
    """
    if path == "preset":
        raise ConfigError(path, value, "choose it by --preset")
    check_path(RunConfig, path, value)

    *sections, name = path.split(".")
    target = values
    for section in sections:
        held = target.get(section)
        if section == "search" and isinstance(held, str):
            held = name_search(held)
        # A single value where a section belongs could not have been read; it gives way.
        target[section] = held if isinstance(held, dict) else {}
        target = target[section]
    target[name] = value


def name_search(text: str, held: Any = None) -> dict[str, Any]:
    """The section ``search`` for an address or a directory, as plain settings.

    Args:
        text: the address, or the directory.
        held: the section so far. What it says beside the address or the directory stays, such as
            the token of a server that has moved.

    Raises:
        ConfigError: an address that cannot be one.
    """
    named: dict[str, Any] = plain(read_value(SearchConfig, text, "search"))
    if not isinstance(held, dict):
        return named

    server = held.get("server")
    if named["server"] is not None and isinstance(server, dict):
        return {**held, "server": {**server, "url": text}}
    if named["server"] is None and server is None:
        return {**held, "index": text}
    return named


def make_config(values: Mapping[str, Any]) -> RunConfig:
    """The typed settings.

    Raises:
        ConfigError: an unknown name, or a value that cannot work.
    """
    return read(RunConfig, values)
