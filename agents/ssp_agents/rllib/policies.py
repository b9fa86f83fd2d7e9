"""Policies of an algorithm, as RLlib's ``multi_agent()`` names them: who plays which role, what
each begins with, and which of them learn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.policy import PolicySpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from ssp_agents.batches import columns_of
from ssp_agents.config import ROLES, LearningConfig
from ssp_agents.rllib.compat import HookedConfig
from ssp_agents.rllib.module import MODULE_ID, LLMModule, multi_spec
from ssp_agents.rows import Row, shard_rows
from ssp_env.errors import ConfigError, nearest
from ssp_env.types import Role

NO_SPEC = (None, None, None, None)
"""Value of each policy in ``AlgorithmConfig.policies``: settings of ours say what it is."""
OVERRIDES = ("lr", "warmup_steps", "decay_steps", "beta2")
"""Settings that ``algorithm_config_overrides_per_module`` may change for one policy."""


def play_both(*_: Any, **__: Any) -> str:
    """Maps every role to the policy that is shared."""
    return MODULE_ID


def play_own(agent_id: str, *_: Any, **__: Any) -> str:
    """Maps each role to the policy of its name."""
    return agent_id


VERIFIER = "verifier"
"""Name of a frozen policy that verifies (``game.verifier: frozen``)."""
KINDS = {"shared": ((MODULE_ID,), play_both), "separate": (ROLES, play_own)}
"""Values of ``learning.policies``: names of policies, and who plays which role."""


@dataclass(frozen=True)
class Policy:
    """A policy, before it is built."""

    roles: tuple[str, ...]
    """Roles that it plays: ``proposer``, ``solver`` or both; ``verifier`` if it is frozen."""
    model_dir: str
    """Directory of the causal LM that it begins with."""
    learning: LearningConfig | None
    """How it learns; ``None`` if it does not."""


class Policies(Mapping[str, Policy]):
    """The policies of a config by name, in the order of the roles that they play."""

    def __init__(self, config: Any) -> None:
        """``ConfigError`` where a role has no policy, or a policy no role."""
        self._of_role = _mapped(config)
        learning: LearningConfig = config.learning()
        self._policies: dict[str, Policy] = {}
        for name in dict.fromkeys(self._of_role.values()):
            roles = tuple(role for role in ROLES if self._of_role[role] == name)
            trained = any(role in learning.learning_roles for role in roles)
            own = learning.proposer_model if roles == ("proposer",) else ""
            overrides = config.algorithm_config_overrides_per_module.get(name, {})
            settings = learning.of_policy(roles).replace(**overrides) if trained else None
            self._policies[name] = Policy(roles, own or config.model_dir, settings)
        if config.game().verifier == "frozen":
            before = learning.verifier_model or self[self.playing("solver")].model_dir
            self._policies[VERIFIER] = Policy((VERIFIER,), before, None)

    def __getitem__(self, name: str) -> Policy:
        return self._policies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    @property
    def trained(self) -> dict[str, LearningConfig]:
        """Learning settings of each policy that is trained."""
        return {name: p.learning for name, p in self.items() if p.learning is not None}

    def playing(self, role: str) -> str:
        """Name of the policy that writes in a role. The closed book is the solver's, and so is
        verification where no frozen policy has it."""
        if role == Role.VERIFIER and VERIFIER in self:
            return VERIFIER
        return self._of_role["proposer" if role == Role.PROPOSER else "solver"]

    def learns(self, role: str) -> bool:
        """True if a policy that is trained writes in a role, and no partner."""
        learning = self[self.playing(role)].learning
        return learning is not None and learning.plays(role)

    def batches(self, rows: Sequence[Row], learners: int = 0) -> list[MultiAgentBatch]:
        """The batch of each learner (0: one, in this process), with columns by policy.

        A policy without rows is in no batch. Any other is in all of them, if need be with a row of
        weight 0, because a learner without it would hang the others."""
        shards = {}
        for name in self:
            if own := [row for row in rows if self.playing(row.role) == name]:
                shards[name] = shard_rows(own, learners) if learners else [own]
        return [
            MultiAgentBatch(
                {name: SampleBatch(columns_of(parts[i])) for name, parts in shards.items()},
                env_steps=sum(len(parts[i]) for parts in shards.values()),
            )
            for i in range(max(1, learners))
        ]


def _mapped(config: Any) -> dict[str, str]:
    """The policy of each role, by ``policy_mapping_fn``."""
    if config.policy_mapping_fn is play_both and MODULE_ID not in config.policies:
        fix = f"give a function from {' and '.join(ROLES)} to {' or '.join(config.policies)}"
        raise ConfigError("policy_mapping_fn", None, fix)
    of_role: dict[str, str] = {role: config.policy_mapping_fn(role, None) for role in ROLES}
    for role, name in of_role.items():
        if name not in config.policies:
            fix = f"no policy has this name, so nobody plays the {role}; "
            raise ConfigError("policy_mapping_fn", name, fix + nearest(str(name), config.policies))
    for name in config.policies:
        if name not in of_role.values():
            fix = f"policy_mapping_fn gives it no role, of {' and '.join(ROLES)}: leave it out"
            raise ConfigError("policies", name, fix)
    return of_role


def trained_roles(config: Any, roles: tuple[str, ...]) -> tuple[str, ...]:
    """Leaves out the roles whose policy is not one of RLlib's ``policies_to_train``."""
    asked = config.policies_to_train
    if asked is None:
        return roles
    for name in () if callable(asked) else asked:
        if name not in config.policies:
            fix = f"no such policy; {nearest(name, config.policies)}"
            raise ConfigError("policies_to_train", name, fix)
    of_role = _mapped(config)
    trains = asked if callable(asked) else lambda name, batch: name in asked
    trained = tuple(role for role in roles if trains(of_role[role], None))
    if roles and not trained:
        can = " or ".join(dict.fromkeys(of_role[role] for role in roles))
        raise ConfigError("policies_to_train", asked, f"nothing would learn: name {can}")
    return trained


def check_policies(config: Any) -> None:
    """Refuses roles that nobody plays, and settings of single policies that nobody reads."""
    _mapped(config)
    everyone = config.algorithm_config_overrides_per_module
    _check_names("algorithm_config_overrides_per_module", everyone, config.policies)
    for name, overrides in everyone.items():
        _check_overrides(f"algorithm_config_overrides_per_module.{name}", overrides)

    policies = config.resolved_policies()
    if config.game().verifier == "frozen":
        if VERIFIER in config.policies:
            fix = "a frozen verifier (game.verifier) has this name: choose another one"
            raise ConfigError("policies", VERIFIER, fix)
        if config.verifier_refresh and policies.playing("solver") not in policies.trained:
            fix = "the solver's policy does not learn: leave it out, or train the solver too"
            raise ConfigError("learning.verifier_refresh", config.verifier_refresh, fix)
    # A frozen verifier may be a module of the user's, too.
    modules = getattr(config.given_module_spec, "rl_module_specs", ())
    _check_names("rl_module_spec", modules, policies)
    for name, overrides in everyone.items():
        where, trained = f"algorithm_config_overrides_per_module.{name}", policies.trained
        if name not in trained:
            fix = f"only {' and '.join(trained)} learns, so nobody reads them: leave them out"
            raise ConfigError(where, dict(overrides), fix)
        rate = config.proposer_lr
        if "lr" in overrides and trained[name].learning_roles == ("proposer",) and rate is not None:
            fix = f"training(proposer_lr={rate}) gives it another: leave one of them out"
            raise ConfigError(f"{where}.lr", overrides["lr"], fix)


def _check_names(field: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuses names that no policy has."""
    for name in names:
        if name not in known:
            fix = f"no such policy; {nearest(name, known)}"
            raise ConfigError(field, name, fix)


def _check_overrides(where: str, overrides: Mapping[str, Any]) -> None:
    """Refuses settings that a policy cannot have alone, and values that they cannot have."""
    for setting, value in overrides.items():
        if setting not in OVERRIDES:
            is_ours = setting in LearningConfig.model_fields
            hint = "others are of training()" if is_ours else nearest(setting, OVERRIDES)
            fix = f"a policy alone may have {', '.join(OVERRIDES)}; {hint}"
            raise ConfigError(f"{where}.{setting}", value, fix)
        try:
            LearningConfig(**{setting: value})
        except ConfigError as error:
            raise ConfigError(f"{where}.{setting}", value, error.fix) from None


class PoliciesConfig(HookedConfig):
    """RLlib's settings of policies and their modules."""

    def share_or_separate(self, policies: Any) -> None:
        """Sets the policies that ``learning.policies`` asks for. A search space of Tune's is kept
        until Tune has chosen."""
        if not isinstance(policies, str):
            self.policies = policies
            return
        if policies not in KINDS:
            raise ConfigError("training.policies", policies, nearest(policies, KINDS))
        names, self.policy_mapping_fn = KINDS[policies]
        self.policies = dict.fromkeys(names, NO_SPEC)

    def refuse_other_names(self, policies: Any) -> None:
        """Refuses ``training(policies=...)`` after ``multi_agent()`` has named others."""
        named = [name for name, spec in self.policies.items() if spec == NO_SPEC]
        if named and sorted(named) not in [sorted(names) for names, _ in KINDS.values()]:
            fix = f"multi_agent() has named {' and '.join(self.policies)}: leave one of them out"
            raise ConfigError("training.policies", policies, fix)

    def multi_agent(self, *, policies: Any = None, **kwargs: Any) -> Self:
        """As RLlib's, with the names of one policy or two; ``training()`` and ``rl_module()`` say
        what they are."""
        if isinstance(trained := kwargs.get("policies_to_train"), str):
            raise ConfigError("policies_to_train", trained, f"give a list: [{trained!r}]")
        if isinstance(policies, str):
            fix = "give the names of policies as a set"
            if policies in KINDS:
                fix += f", or set training(policies={policies!r})"
            raise ConfigError("policies", policies, fix)
        if policies is not None:
            for name, spec in policies.items() if isinstance(policies, dict) else ():
                parts = vars(spec).values() if isinstance(spec, PolicySpec) else spec or ()
                if any(part is not None for part in parts):
                    fix = "give names alone; training() and rl_module() say what policies are"
                    raise ConfigError(f"policies.{name}", spec, fix)
            # A set has another order in each process; optimizers step in this one.
            kwargs["policies"] = dict.fromkeys(sorted(policies), NO_SPEC)
        super().multi_agent(**kwargs)
        return self

    def update_from_dict(self, config_dict: dict[str, Any]) -> Self:
        """As RLlib's; also from what Tune has written as JSON, without tuples. As ``policies``, it
        also takes ``shared`` and ``separate``."""
        policies = config_dict.get("policies")
        if isinstance(policies, str):
            self.share_or_separate(policies)
            mapping = {"policy_mapping_fn": self.policy_mapping_fn}
            config_dict = {**config_dict, "policies": self.policies, **mapping}
        elif policies:
            config_dict = {**config_dict, "policies": dict.fromkeys(policies, NO_SPEC)}
        super().update_from_dict(config_dict)
        return self

    def resolved_policies(self) -> Policies:
        """The policies that there are, with the roles that each plays and how it learns."""
        return Policies(self)

    @property
    def has_own_module(self) -> bool:
        """True if a module is a class of the user's."""
        specs = map(self.module_spec_of, self.resolved_policies())
        return any(spec.module_class is not LLMModule for spec in specs)

    def module_spec_of(self, policy: str) -> RLModuleSpec:
        """Class and settings of a policy's module."""
        given, spec = self.given_module_spec, self.get_default_rl_module_spec()
        if isinstance(given, MultiRLModuleSpec):
            given = given.rl_module_specs.get(policy)
        if given is not None:
            spec.update(given)
        model = {"model": self.resolved_policies()[policy].model_dir}
        # RLlib itself completes only the learners'.
        spec.model_config = {**self.model_config, **(spec.model_config or {}), **model}
        return spec

    def get_multi_rl_module_spec(self, **_: Any) -> MultiRLModuleSpec:
        """Modules of the policies that learn, as learners build them."""
        return multi_spec({p: self.module_spec_of(p) for p in self.resolved_policies().trained})
