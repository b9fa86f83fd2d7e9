"""Learner: RLlib's frame around one update of ``ssp_agents.update``; calls to all learners."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayActorError, RayError
from ray.rllib.core import COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from torch import Tensor

from ssp_agents import models, sharding
from ssp_agents.architecture import shares_prefix
from ssp_agents.batches import Columns, columns_of
from ssp_agents.config import LearningConfig
from ssp_agents.losses import find_algorithm
from ssp_agents.precision import autocasting, is_small, passes_dtype, round_frozen
from ssp_agents.rllib.compat import HookedLearner, await_actor, workers_of
from ssp_agents.rllib.module import ENTROPY, MODULE_ID, LLMModule, pack
from ssp_agents.rllib.policies import Policies
from ssp_agents.rows import Row, split_updates, with_advantages, with_loss_weights
from ssp_agents.scoring import Scores, TokenScorer, checkpoint_layers
from ssp_agents.update import Scorer, Update, adam, give_back_memory
from ssp_env.errors import ConfigError, LearnerDied, RunError
from ssp_env.game.config import GameConfig

Weights = dict[str, Any]
"""Tensors or arrays, named as the module names them."""
UpdateFigures = Mapping[str, Sequence[dict[str, Any]]]
"""Figures of an optimizer update: of each policy, those of each learner."""
DIED = "learner", "a learner died; go on from the last checkpoint"


class SSPLearner(HookedLearner):
    """One update of each policy, over a batch whose rows carry role, advantage and weight.

    The frozen references live here, and are neither synchronised nor checkpointed. Where a policy
    has adapters, they alone are.
    """

    def policy(self, name: str) -> LLMModule:
        """A policy's module without DDP, which would wait for the other learners in each pass."""
        policy: LLMModule = self.module[name].unwrapped()
        return policy

    def build(self) -> None:
        """Also loads the references, and prepares the updates."""
        self.policies: Policies = self.config.resolved_policies()
        super().build()
        self.updates = {name: self._make_update(name) for name in self.policies.trained}
        """The update of each policy; all learners make them in this order."""
        if self.config.num_learners:  # this process is its own
            freeze_collected()

    def _make_update(self, name: str) -> Update:
        learning, policy = self.policies.trained[name], self.policy(name)
        algorithms = [find_algorithm(learning, role) for role in learning.learning_roles]
        reference: Scorer | None = None
        if learning.kl_coeff > 0 and any(algorithm.kl for algorithm in algorithms):
            # With adapters, no second copy of the policy is needed.
            unadapted = partial(self._score_unadapted, name)
            reference = unadapted if learning.lora_rank else self._load_reference(name)
        if learning.gradient_checkpointing:
            try:
                checkpoint_layers(policy)
            except ValueError as error:
                fix = f"{error}; set it to false, or checkpoint in the module's own forward pass"
                raise ConfigError("learning.gradient_checkpointing", True, fix) from None

        most = partial(sharding.agreed_maximum, device=self.torch_device)
        return Update(
            partial(self._score, name),
            self.get_optimizer(name),
            learning,
            reference=reference,
            autocast=policy.passes_in,
            learners=max(1, self.config.num_learners),
            no_sync=getattr(self.module[name], "no_sync", None),
            max_over_learners=most if self.config.is_sharded else None,
            loss=partial(self._loss_of_hook, name),
            after_pass=give_back_memory if self._holds_much else None,
        )

    def _load_reference(self, name: str) -> TokenScorer:
        device, sharded, policy = self.torch_device, self.config.is_sharded, self.policy(name)
        load = sharding.load_first if sharded else models.load_model
        lm = load(self.policies[name].model_dir)
        at, size = self.policies.trained[name].temperature, policy.vocab_size
        share = policy.shares_prefix
        reference = TokenScorer(
            lm.requires_grad_(False), at, size, entropies=False, share_prefix=share
        )
        if sharded:
            sharding.shard(reference, device, policy.passes_in)
        return reference.to(device)

    # -- RLlib's hooks -------------------------------------------------------------------------

    def place(self, modules: Any) -> None:
        """A policy that learners share goes there layer by layer, as shares. Before, the dtype of
        its passes is found."""
        self._holds_much = False
        for name, learning in self.policies.trained.items():
            self._prepare(modules[name], learning)
        if self.config.is_sharded:
            return

        # Last, because policies may have their frozen weights in common.
        for name, learning in self.policies.trained.items():
            if (dtype := modules[name].passes_in) is not None and learning.lora_rank:
                round_frozen(modules[name], dtype)
        super().place(modules)

    def _prepare(self, policy: LLMModule, learning: LearningConfig) -> None:
        small = is_small(policy.lm)
        # Passes of a large policy on a CPU leave memory behind, which is given back after each.
        self._holds_much |= self.torch_device.type == "cpu" and not small
        policy.passes_in = passes_dtype(learning.dtype, self.torch_device, small=small)
        if self.config.is_sharded:
            # The method by which updates have rows scored.
            sharding.shard(policy, self.torch_device, policy.passes_in, forward="forward_train")
            return
        again = bool(learning.gradient_checkpointing)
        policy.shares_prefix = shares_prefix(policy.lm, policy.vocab_size, checkpointed=again)

    def is_wrapped(self) -> bool:
        """A policy that is shared is not wrapped."""
        return not self.config.is_sharded

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam; the update sets its learning rate."""
        learning = self.policies.trained[module_id]
        params = [p for p in self.get_parameters(self.module[module_id]) if p.requires_grad]
        self.register_optimizer(
            module_id=module_id,
            optimizer=adam(params, learning),
            params=params,
            lr_or_lr_schedule=learning.lr,
        )

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Leaves the learning rate alone: RLlib's schedules know nothing of steps."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Keeps the number of the training step, of which the learning rate is a function."""
        self._training_step = int(timesteps["training_step"])

    def learn(self, batch: Mapping[str, Columns]) -> dict[str, Tensor]:
        """One optimizer step of each policy that has rows."""
        losses = {}
        for name, update in self.updates.items():
            if name in batch:
                figures = update(batch[name], self._training_step)
                self.metrics.log_dict(figures, key=name, window=1)
                losses[name] = torch.tensor(figures["loss"])
        return losses

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Columns, fwd_out: dict[str, Any]
    ) -> Tensor:
        """The loss of one micro-batch from the module's log-probabilities, to be overridden:
        ``fwd_out["action_logp"]`` has those of all tokens that the policy wrote, (tokens,), row by
        row. Losses of micro-batches add up."""
        part, logprobs, loss = fwd_out["objective"]
        # What an override has changed is computed anew.
        if batch is not part or fwd_out["action_logp"] is not logprobs:
            loss, _ = self.updates[module_id].objective(batch, fwd_out["action_logp"])
        stock: Tensor = loss
        return stock

    def _loss_of_hook(self, name: str, part: Columns, scores: Scores, loss: Tensor) -> Tensor:
        fwd_out = {
            "action_logp": scores.logprobs,
            ENTROPY: scores.entropies,
            "objective": (part, scores.logprobs, loss),
        }
        about = {"module_id": name, "config": self.config.get_config_for_module(name)}
        return self.compute_loss_for_module(**about, batch=part, fwd_out=fwd_out)

    # -- scores --------------------------------------------------------------------------------

    def _score(self, name: str, part: Columns, *, alone: bool = False) -> Scores:
        """A policy's log-probabilities, through its module, which may be the user's own; through
        DDP unless ``alone``."""
        module = self.policy(name) if alone else self.module[name]
        temperature = self.policies.trained[name].temperature
        out = module.forward_train({**part, "temperature": temperature})
        return Scores(out["action_logp"], out.get(ENTROPY))

    def _score_unadapted(self, name: str, part: Columns) -> Scores:
        """Those of the policy without its adapters."""
        with models.without_adapters(self.policy(name)):
            return self._score(name, part, alone=True)

    def score(self, rows: Sequence[Row]) -> np.ndarray:
        """Log-probabilities, by the policy of each row's role, of what it wrote: float32 (tokens,),
        row by row.

        Computed as in an update, one row at a time, without gradients.
        """
        device, scores = self.torch_device, []
        for row in rows:
            # Padding and neighbours would change last digits, and a difference is looked for.
            columns, name = columns_of([row]), self.policies.playing(row.role)
            part = {n: torch.as_tensor(c, device=device) for n, c in columns.items()}
            with torch.no_grad(), autocasting(device, self.policy(name).passes_in):
                scores.append(self._score(name, part).logprobs.float().cpu().numpy())

        return np.concatenate(scores)

    # -- weights that leave a learner ----------------------------------------------------------

    def _gathered(self, policy: str) -> Iterator[tuple[str, Tensor]]:
        """The present weights of a policy, one at a time whole: on the first learner, for which all
        others have to ask as well."""
        for name, tensor in models.state_of(self.policy(policy)).items():
            gathered = sharding.full_tensor(tensor)
            if sharding.is_first():
                yield name, gathered

    def publish(self, half: bool) -> dict[str, Weights] | ray.ObjectRef | None:
        """The present weights of each policy; ``half`` rounds what plays to bfloat16, as engines do
        anyway.

        All learners have to be asked. One in the main process gives its own tensors, the first
        remote one a reference to arrays in Ray's object store, and the others nothing.
        """
        # The engine of this process reads them where they lie.
        if self.config.num_learners == 0:
            return {name: models.state_of(self.policy(name)) for name in self.updates}

        arrays = {
            policy: {name: pack(name, tensor, half) for name, tensor in self._gathered(policy)}
            for policy in self.updates
        }
        if self.config.gpus == "shared":
            torch.cuda.empty_cache()  # the engine is another process
        return ray.put(arrays) if sharding.is_first() else None

    def save_policy(self, directory: str, name: str = MODULE_ID) -> None:
        """Writes a policy as a model directory, with adapters merged, in the dtype that it is
        played in; all learners have to be asked."""
        weights = models.lm_weights({n: tensor.cpu() for n, tensor in self._gathered(name)})
        if weights:
            source, engine = self.policies[name].model_dir, self.config.engine_config()
            dtype = torch.bfloat16 if engine.in_half(self.config.gpus != "none") else None
            models.save_policy(models.plain_weights(weights, source), source, directory, dtype)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state; without weights and moments where this learner has only a share."""
        if not self.config.is_sharded:
            state: dict[str, Any] = super().get_state(*args, **kwargs)
            return state

        state = super().get_state(not_components=[COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER])
        # RLlib asks one learner for all weights, to hand them to env runners; they get them later.
        return {**state, COMPONENT_RL_MODULE: {}}

    def save(self, directory: str) -> None:
        """Writes weights and moments; all learners are asked, with the same directory."""
        if not Path(directory).is_dir():
            where = f"a learner on {socket.gethostname()} does not see {directory}"
            raise RunError(f"{where}: learners on several machines need a common file system")
        # Each writes its share; where all learners hold everything, the first one writes it.
        for name in self.updates if self.config.is_sharded or sharding.is_first() else ():
            folder = sharding.weights_folder(Path(directory), name)
            sharding.save_shares(self.policy(name), self.get_optimizer(name), folder)

    def load(self, directory: str) -> None:
        """Takes weights and moments that any number of learners have saved."""
        for name in self.updates:
            folder = sharding.weights_folder(Path(directory), name)
            sharding.load_shares(self.policy(name), self.get_optimizer(name), folder)


# -- calls to all learners of RLlib's learner group --------------------------------------------


def learn_from(
    rows: Sequence[Row],
    learner_group: Any,
    config: Any,
    policies: Policies,
    game: GameConfig,
    step: int,
    averages: dict[str, float],
) -> list[UpdateFigures]:
    """Figures of a step's optimizer updates on these rows, from games by these rules. An update
    without rows to learn from is left out, and so is a policy in it. ``averages`` of each role's
    rewards move on."""
    learning, updates = config.learning(), list[UpdateFigures]()
    for part, num_games in split_updates(with_advantages(rows, learning, averages), learning):
        # Its games were void, or taught nothing: Adam takes no step.
        if not part:
            continue
        # Weights hold B and n of the whole update, so shards may be of any size.
        weighted = with_loss_weights(part, learning, num_games, game)
        batches = policies.batches(weighted, config.num_learners)
        given: dict[str, Any] = {"batches": batches}
        if not config.num_learners:
            given = {"batch": batches[0]}
        with naming_dead_learners(learner_group):
            results = learner_group.update(**given, timesteps={"training_step": step})
        # ``results`` are by learner, then by policy; an update's figures are by policy first.
        names = batches[0].policy_batches
        updates.append({name: [result[name] for result in results] for name in names})
    return updates


def ask_learners(learner_group: Any, ask: Callable[[Any], Any]) -> list[Any]:
    """Answers of all learners; an error of one of them is raised."""
    with naming_dead_learners(learner_group):
        results = list(learner_group.foreach_learner(ask))
        if len(results) < len(learner_group):
            raise LearnerDied(*DIED)  # those that are known to be dead are not asked
        for result in results:
            if not result.ok:
                # Ray wraps an error in another one whose message is a traceback.
                raise getattr(result.get(), "cause", result.get())
        return [result.get() for result in results]


@contextmanager
def naming_dead_learners(learner_group: Any) -> Iterator[None]:
    """Turns any error that comes of a dead learner into one that says so."""
    try:
        yield
    except Exception as error:
        # Which error it is depends on who noticed: Ray, RLlib, or the other learners.
        manager = workers_of(learner_group)
        for actor in manager.actors().values() if manager else ():
            try:
                # An actor that is alive and idle answers within these seconds.
                await_actor(actor, 10.0)
            except RayActorError:
                raise LearnerDied(*DIED) from error
            except RayError:
                continue  # busy, or failing in some other way
        raise


def freeze_collected() -> bool:
    """Keeps Python's garbage collector from going through the half a million objects that PyTorch,
    transformers and RLlib leave behind, which takes as long as a fair part of a tiny step.

    True if nobody else had frozen anything, so that :func:`gc.unfreeze` undoes this.
    """
    alone = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    return alone
