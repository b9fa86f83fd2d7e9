"""Settings of a run: presets in YAML, overrides on the command line, one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from agents.config import EngineConfig, LearningConfig, Sharding, check_settings
from ssp_env.config import Settings
from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import GameConfig
from ssp_env.judge.chat import ChatConfig
from ssp_env.search.config import SearchConfig


class EvaluationConfig(Settings):
    """Measurement of the solver on questions it never trains on."""

    section: ClassVar[str] = "evaluation"

    every: PositiveInt = 50
    """Training steps between two evaluations; there is always one before the first step and one
    after the last."""
    per_group: PositiveInt = 150
    """Questions per hop count, or per benchmark."""
    seed: NonNegativeInt = 0
    """Seed that questions are drawn with."""
    temperature: NonNegativeFloat = 0.0
    """0 is greedy (the paper's)."""


class ComputeConfig(Settings):
    """Processes and devices of a run."""

    section: ClassVar[str] = "compute"

    env_runners: NonNegativeInt = 0
    """Remote env runners; 0 plays in the main process."""
    learners: NonNegativeInt = 0
    """Remote learners; 0 learns in the main process."""
    gpus_per_env_runner: NonNegativeFloat = 0.0
    """GPUs of each env runner (with 0 runners: of the main process)."""
    gpus_per_learner: NonNegativeFloat = 0.0
    """GPUs of each learner (with 0 learners: of the main process)."""
    sharding: Sharding = "ddp"
    """Way in which several learners hold the policy: ``ddp`` (each all of it) or ``fsdp2`` (each a
    share)."""
    threads: PositiveInt = 1
    """PyTorch threads per process. Small models run fastest, and always the same, with 1."""
    overlap: bool = False
    """Play each step while the one before is learnt from, with weights that are one update old.
    Saves time with ``env_runners``."""


class OpenAIConfig(ChatConfig):
    """A model behind an OpenAI-compatible API, for judging and verifying."""

    section: ClassVar[str] = "openai"

    judge: bool = False
    """Let the model judge the solver's answers too, in place of the judge by rules."""


def search_section(given: object) -> object:
    """The section ``search`` for a single text: a server's address, or an index directory."""
    if not isinstance(given, str):
        return given
    return {"server": {"url": given}} if given.startswith("http") else {"index": given}


class RunConfig(Settings):
    """Everything that decides a run's result."""

    preset: str = "tiny"
    """Preset that the other settings started from."""
    seed: NonNegativeInt = 0
    """Seed of all randomness."""
    steps: PositiveInt = 80
    """Training steps."""
    world: str = "mini"
    """``mini``, ``small``, ``wiki-mini``, or ``files`` with paths in ``world_options``."""
    world_options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the world."""
    rules: str = ""
    """``MODULE:FUNCTION`` that makes the rules from world, tokenizer and ``game``, with parts of
    your own."""
    model: str = ""
    """A causal LM directory; empty: the tiny policy that ships."""
    checkpoint_every: PositiveInt = 50
    """Steps between two checkpoints; the last step always has one."""
    checkpoints_kept: PositiveInt | None = 2
    """Checkpoints that stay, the newest ones; ``null``: all, as ``ssp league`` needs."""
    patience: PositiveInt | None = 5
    """Steps in a row that show the same sign of ill health, after which a run stops; ``null``:
    never."""
    record_tokens: bool = True
    """Keep token ids and log-probabilities in files of games; needed to replay them."""
    game: GameConfig = GameConfig()
    """Rules of the game."""
    learning: LearningConfig = LearningConfig()
    """Learning of both roles."""
    engine: EngineConfig = EngineConfig()
    """Engine that samples tokens."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Measurement of the solver."""
    compute: ComputeConfig = ComputeConfig()
    """Processes and devices."""
    search: Annotated[SearchConfig, BeforeValidator(search_section)] = SearchConfig()
    """An index directory or a server that answers searches, in place of the world's own."""
    openai: OpenAIConfig | None = None
    """A judge or verifier behind an API."""

    @model_validator(mode="after")
    def _check_sections_together(self) -> Self:
        if self.game.verifier == "openai":
            self.served_model()

        decay = self.learning.decay_steps
        if decay is not None and self.steps > decay:
            fix = f"give at least {self.steps}: the steps after it would change nothing"
            raise ConfigError("learning.decay_steps", decay, fix)

        hottest = max(self.learning.temperature, self.evaluation.temperature)
        if self.engine.kind == "vllm" and hottest > 2:
            fix = f"vLLM samples at temperatures of up to 2, and {hottest:g} is asked for"
            raise ConfigError("engine.kind", self.engine.kind, fix)
        return self

    def check(self) -> None:
        """Makes sure that game, learning, engine and processes fit together."""
        check_settings(
            self.game,
            self.learning,
            engine=self.engine.kind,
            env_runners=self.compute.env_runners,
            overlap=self.compute.overlap,
            learners=self.compute.learners,
            sharding=self.compute.sharding,
        )

    def served_model(self) -> OpenAIConfig:
        """The model behind an API.

        Raises:
            ConfigError: none is named.
        """
        if self.openai is None:
            fix = "name a model that is served: --set openai.base_url=... --set openai.model=..."
            raise ConfigError("openai.base_url", None, fix)
        return self.openai

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
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """A preset's settings as plain data.

    Raises:
        ConfigError: no such preset (offers the nearest).
    """
    if name not in presets():
        raise ConfigError("preset", name, nearest(name, presets()))
    text = (resources.files("experiments") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    return {"preset": name, **yaml.safe_load(text)}


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
    """Puts a value where a dotted name leads in plain settings, in place."""
    if path == "preset":
        raise ConfigError(path, value, "choose it by --preset")

    *sections, name = path.split(".")
    for section in sections:
        held = search_section(values.get(section)) if section == "search" else values.get(section)
        # A single value where a section belongs could not have been read; it gives way.
        values[section] = held if isinstance(held, dict) else {}
        values = values[section]
    values[name] = value


def make_config(
    values: Mapping[str, Any],
    *,
    seed: int | None = None,
    steps: int | None = None,
    world: str | None = None,
    model: str | None = None,
    rules: str | None = None,
    verifier: str | None = None,
    search: str | None = None,
    solver_only: bool = False,
    set: Sequence[str] = (),
) -> RunConfig:
    """Typed settings: what to start from, then a command's own options, then ``--set``.

    Args:
        values: plain settings, such as :func:`load_preset` returns.
        seed, steps, world, model, rules, verifier: settings of these names; ``None`` leaves them.
        search: a server's address, or an index directory.
        solver_only: the paper's Solver-Only: the proposer plays, but is not trained.
        set: ``section.field=value``, each.

    Raises:
        ConfigError: an unknown name, or a value that cannot work.
    """
    values = {name: dict(v) if isinstance(v, dict) else v for name, v in values.items()}
    named = {"seed": seed, "steps": steps, "world": world, "model": model, "rules": rules}
    values |= {name: value for name, value in named.items() if value is not None}

    if verifier is not None:
        assign(values, "game.verifier", verifier)
    if search is not None:
        if search.startswith("http"):
            # The address of a server that has moved; its token and limits stay.
            assign(values, "search.index", "")
            assign(values, "search.server.url", search)
        else:
            assign(values, "search.server", None)
            assign(values, "search.index", search)
    if solver_only:
        assign(values, "learning.learning_roles", ["solver"])
    for text in set:
        assign(values, *parse_assignment(text))
    return RunConfig(**values)
