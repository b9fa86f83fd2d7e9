"""Settings of a run: presets in YAML, overrides on the command line, one model."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from importlib import resources
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from yaml.error import MarkedYAMLError

from ssp_agents.checks import check_settings
from ssp_agents.config import (
    ALGORITHMS,
    SHIPPED,
    ComputeConfig,
    EngineConfig,
    LearningConfig,
)
from ssp_env import removed
from ssp_env.config import Settings, setting_names
from ssp_env.errors import ConfigError, DataError, ModelError, nearest
from ssp_env.game.config import GameConfig, world_defaults
from ssp_env.judge.chat import ChatConfig
from ssp_env.search.index import SearchConfig

CODE = ("rules", "learning.proposer_algorithm", "learning.solver_algorithm", "learning.credit")
"""Settings that may name code of a user's, as ``module:name``."""
POLICIES = {"solver": "policy", "proposer": "proposer"}
"""Folder of a checkpoint that holds a role's policy as a model directory; a policy that both roles
share is in the solver's."""
TrackerName = Literal["tensorboard", "wandb", "mlflow"]


class RunConfig(Settings):
    """Everything that decides a run's result."""

    seed: NonNegativeInt = 0
    """Seed of all randomness."""
    steps: PositiveInt = 80
    """Training steps."""
    world: str = "mini"
    """``mini``, ``small``, ``wiki-sentences``, ``wiki-mini``, or ``files`` with paths in
    ``world_options``."""
    world_options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the world."""
    rules: str = ""
    """``MODULE:FUNCTION`` that makes the rules, with parts of your own."""
    model: str = ""
    """A causal LM directory, or a GGUF file; empty: the policy that ships for the world."""
    checkpoint_every: PositiveInt = 50
    """Steps between two checkpoints; the last step always has one."""
    checkpoints_kept: PositiveInt | None = 2
    """Newest checkpoints that stay; ``null``: all, as ``ssp league`` needs."""
    evaluate_every: PositiveInt = 50
    """Steps between two evaluations of the solver; one always comes before the first step and one
    after the last."""
    per_group: PositiveInt = 150
    """Evaluation questions per hop count or benchmark, each answered once, greedily; unseen in
    training."""
    judge: Literal["own", "lenient", "exact", "f1", "openai"] = "own"
    """Judge of the solver's answers: ``own`` (the world's), one by rules (``lenient``, ``exact``,
    ``f1``) or ``openai`` (a model behind an API)."""
    patience: PositiveInt | None = 5
    """Steps in a row with the same sign of ill health after which a run stops; ``null``: never."""
    tracker: TrackerName = "tensorboard"
    """Where the metrics are shown, too: ``tensorboard``, ``wandb`` or ``mlflow``."""
    game: GameConfig = GameConfig()
    """Rules of the game."""
    learning: LearningConfig = LearningConfig()
    """Learning of both roles."""
    engine: EngineConfig = EngineConfig()
    """Engine that samples tokens."""
    compute: ComputeConfig = ComputeConfig()
    """Processes and devices."""
    search: SearchConfig = SearchConfig()
    """Search in place of the world's own."""
    openai: ChatConfig | None = None
    """A model behind an API."""

    @model_validator(mode="before")
    @classmethod
    def _suit_the_world(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Rules that are not given are those that suit the world."""
        game, world = given.get("game", {}), given.get("world", "mini")
        if not isinstance(game, Mapping) or not isinstance(world, str):
            return given
        return {**given, "game": world_defaults(world)[0].model_dump() | dict(game)}

    @model_validator(mode="after")
    def _check_sections_together(self) -> Self:
        served = "openai" in (self.game.verifier, self.judge)
        if self.rules and (served or self.judge != "own" or self.search.source):
            fix = "your function chooses retriever, judge and verifier: make them there, such as "
            fix += "HTTPRetriever(url) for a server, and leave out --search (search.source), judge "
            fix += "and openai as verifier; or leave out --rules"
            raise ConfigError("rules", self.rules, fix)
        if served:
            self.served_model()

        learning = self.learning
        if learning.policies == "separate" and len(learning.learning_roles) < 2:
            fix = "one role alone learns: share the policy, or name another as learning.partner"
            raise ConfigError("learning.policies", learning.policies, fix)
        decay = learning.decay_steps
        if decay is not None and self.steps > decay:
            fix = f"give at least {self.steps}: the steps after it would change nothing"
            raise ConfigError("learning.decay_steps", decay, fix)
        return self

    def check(self) -> None:
        """Makes sure that game, learning, engine and processes fit together."""
        check_settings(self.game, self.learning, self.engine, self.compute)

    def served_model(self) -> ChatConfig:
        """The model behind an API; refused where none is named."""
        if self.openai is None:
            fix = "name a model that is served: --set openai.base_url=... --set openai.model=..."
            raise ConfigError("openai.base_url", None, fix)
        return self.openai

    @property
    def has_policy(self) -> bool:
        """True if a policy is named, or ships for the world."""
        return bool(self.model) or self.world in SHIPPED

    @property
    def model_dir(self) -> Path:
        """The directory that the policy is loaded from; a GGUF file is converted to one."""
        if self.model and not is_gguf(self.model):
            return Path(self.model)
        # Imported late: settings can be read, and refused, without loading PyTorch.
        from ssp_agents.models import from_gguf, shipped_directory

        return from_gguf(self.model) if self.model else shipped_directory(self.world)


def shipped(kind: str) -> dict[str, Path]:
    """Files of the ``presets`` or ``sweeps`` that ship, by name."""
    folder = Path(str(resources.files("ssp_experiments") / kind))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def load_preset(name: str) -> dict[str, Any]:
    """A preset's settings as plain data; one that names another has its settings too."""
    known = shipped("presets")
    if name not in known:
        raise ConfigError("preset", name, nearest(name, known))
    values: dict[str, Any] = yaml.safe_load(known[name].read_text(encoding="utf-8"))
    base = load_preset(values.pop("preset")) if "preset" in values else {}
    for path, value in flat(values).items():
        assign(base, path, value)
    return base


def parse_assignment(text: str) -> tuple[str, Any]:
    """Name and value of ``section.field=value`` (the value is YAML)."""
    path, equals, written = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise ConfigError("--set", text, "write it as section.field=value")
    try:
        return path, yaml.safe_load(written)
    except yaml.YAMLError:
        raise ConfigError(path, written, "the value is not YAML; put it in quotes") from None


OPEN_SECTIONS = ("world_options", "learning.schedules")
"""Settings that hold others by names of their own."""


def assign(values: dict[str, Any], path: str, value: Any) -> None:
    """Puts a value where a dotted name leads in plain settings, in place."""
    *sections, name = path.split(".")
    if gone := removed.SETTINGS.get(path):
        raise ConfigError(path, value, f"no such setting any more; {gone}")
    known = setting_names(RunConfig)
    if path not in known and ".".join(sections) not in OPEN_SECTIONS:
        meant = [other for other in known if other.endswith(f".{name}")]
        if meant:
            fix = f"no such setting; did you mean {' or '.join(meant)}?"
            raise ConfigError(path, value, fix)

    for section in sections:
        # Null, or a single value where a section belongs, gives way.
        if not isinstance(values.get(section), dict):
            values[section] = {}
        values = values[section]
    values[name] = value


class _EachOnce(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML would keep the last, and an arm would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise MarkedYAMLError(
                    problem=f"{key!r} is there twice", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(file: Path, kind: type[Settings] | None = None) -> dict[str, Any]:
    """The settings in a file, as plain data; those of a ``kind`` are checked."""
    try:
        values = yaml.load(file.read_text(encoding="utf-8"), _EachOnce)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(file, f"cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise DataError(file, "holds no settings")
    try:
        if kind is not None:
            kind(**values)
    except ConfigError as error:
        raise DataError(file, str(error)) from None
    return values


def settings_beside(policy: str | Path) -> Path | None:
    """The settings of the run that a policy is a checkpoint of; of a run directory, its own."""
    place = Path(policy).resolve()
    if place.name in POLICIES.values():
        place = place.parent
    elif not (place / "checkpoints").is_dir():
        return None
    return file if (file := place / "config.yaml").is_file() else None


def make_config(values: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Typed settings: plain ``values``, such as a preset's, with ``changes`` by dotted name."""
    plain = copy.deepcopy(dict(values))
    for path, value in flat(changes or {}).items():
        assign(plain, path, value)
    return RunConfig(**plain)


def code_named(config: RunConfig) -> dict[str, str]:
    """The settings whose values name code to import, as ``module:name``."""
    values = ((name, str(attrgetter(name)(config))) for name in CODE)
    return {name: value for name, value in values if value not in ("", *ALGORITHMS)}


def check_code(config: RunConfig, allowed: Collection[tuple[str, Any]]) -> None:
    """Refuses settings that would import code, but for the ``(name, value)`` pairs that the command
    line has: a file of settings may be a stranger's."""
    for name, value in code_named(config).items():
        if (name, value) not in allowed:
            fix = "a file names this code, which may do anything: if you trust it, repeat it on "
            fix += f"the command line (--set {name}={value})"
            raise ConfigError(name, value, fix)


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``; so a section that is given keeps its other fields."""
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            flattened.update({f"{name}.{inner}": deep for inner, deep in flat(value).items()})
        else:
            flattened[name] = value
    return flattened


def nearest_preset(config: RunConfig) -> tuple[str, dict[str, Any]]:
    """The preset from which the fewest settings differ, and those that do, by dotted name."""
    ours, candidates = flat(config.model_dump(mode="json")), []
    for preset in shipped("presets"):
        theirs = flat(make_config(load_preset(preset)).model_dump(mode="json"))
        changed = {name: value for name, value in ours.items() if theirs.get(name) != value}
        candidates.append((preset, changed))
    return min(candidates, key=lambda item: len(item[1]))


def is_gguf(model: str) -> bool:
    return model.endswith(".gguf")


def proposer_beside(policy: Path) -> Path | None:
    """The proposer's policy beside a solver's one, in a checkpoint of a run with separate ones."""
    place = policy.resolve()
    proposer = place.parent / POLICIES["proposer"]
    return proposer if place.name == POLICIES["solver"] and proposer.is_dir() else None


def check_policy(config: RunConfig) -> None:
    """Makes sure that there is a policy that can read the world; loads nothing."""
    if config.model:
        check_model_directory(config.model_dir)
    elif not config.has_policy:
        fix = f"name a causal LM by --model DIR: no policy ships for {config.world!r}"
        raise ConfigError("model", None, fix)


def check_model_directory(directory: Path) -> None:
    """Makes sure that a model directory is there; where it holds a run, names the policy in it."""
    if is_gguf(str(directory)) and directory.is_file():
        what = "is a GGUF file, which only the setting model (--model) takes: name a directory"
        raise ModelError(f"{directory} {what}")
    if directory.is_file():
        raise ModelError(f"{directory} is a file: name its directory, or a GGUF file")
    if not directory.is_dir():
        hub = "fetch one of the Hugging Face hub by hf download NAME --local-dir DIR"
        raise ModelError(f"there is no model directory {directory} ({hub})")
    if not (directory / "config.json").is_file():
        inside = [*directory.glob("checkpoints/step_*/policy"), *directory.glob("policy")]
        hint = f"; did you mean {max(inside)}?" if inside else ""
        raise ModelError(f"{directory} is not a model directory (config.json is missing){hint}")
