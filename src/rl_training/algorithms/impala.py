"""IMPALA: an actor-critic that corrects for the age of its data by V-trace (Espeholt et al., 2018, arXiv:1802.01561).

A batch is time-major `[T, B, …]`: obs, actions, behavior_logprobs, rewards, terminated; `done` and `valid` where
episodes end otherwise or rows never happened. What followed the rows comes as `next_values` `[T, B]`, or as the
`bootstrap_value` `[B]` of what follows the last, with `final_values` `[K]` at `final_rows` `[K, 2]` where an episode's
final observation is not the next row's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.actor_critic import BATCH_SIZE, ActorCriticAlgorithm, ActorCriticParams, idle_beside
from rl_training.algorithms.base import Batch, UpdateResult
from rl_training.data.rollout import next_values
from rl_training.data.trees import Tree, flatten_time, tree_map
from rl_training.models.actor_critic import Evaluated
from rl_training.ops.losses import approx_kl, clipped_value_loss, explained_variance
from rl_training.ops.returns import VTrace, vtrace
from rl_training.replaceable import replaceable


class VTraceParams(ActorCriticParams):
    """The parameters of IMPALA and its kin."""

    gae_lambda: float = Field(1.0, ge=0, le=1, description="decay of V-trace's traces, as in rlax; the paper's is 1")
    rho_bar: float = Field(1.0, ge=0, description="bound on the ratios in V-trace's temporal differences")
    c_bar: float = Field(1.0, ge=0, description="bound on the ratios in V-trace's traces")
    rollout_steps: PositiveInt = Field(20, description="rows of every environment in a rollout")
    num_minibatches: PositiveInt = Field(1, description="parts of each pass")
    batch_size: PositiveInt | None = Field(None, description=BATCH_SIZE)
    update_epochs: PositiveInt = Field(1, description="passes over each rollout")
    target_kl: PositiveFloat | None = Field(
        None, description="stop a rollout's passes once they raised approx_kl by more"
    )
    normalize_advantages: bool = False

    def idle(self) -> dict[str, str]:
        return super().idle() | idle_beside(self.batch_size)


class IMPALAParams(VTraceParams):
    pg_rho_bar: float = Field(1.0, ge=0, description="bound on the ratios in the policy gradient")
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL to the policy that acted")


class IMPALALoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


def impala_loss(
    evaluated: Evaluated,
    batch: Batch,
    *,
    ent_coef: float,
    vf_coef: float,
    pg_rho_bar: float = 1.0,
    kl_coef: float = 0.0,
) -> IMPALALoss:
    """Policy gradient, value error and entropy bonus, with V-trace's advantages and targets (section 4.2).

    The ratios of the policy gradient are those of the policy as it is now, also in later passes, and the penalty is on
    its KL from the policy that acted. Means over the rows, where the paper sums: a learning rate keeps its meaning when
    the rollout's size changes.
    """
    log_ratio = evaluated.logprobs - batch["behavior_logprobs"]
    weights = log_ratio.detach().exp().clamp(max=pg_rho_bar)
    policy_loss = -(weights * batch["advantages"] * evaluated.logprobs).mean()
    value_loss = clipped_value_loss(evaluated.values, evaluated.values, batch["returns"], None)
    entropy = evaluated.entropy.mean()
    total = policy_loss + vf_coef * value_loss - ent_coef * entropy
    if kl_coef:
        total = total + kl_coef * approx_kl(log_ratio)
    return IMPALALoss(total, policy_loss, value_loss, entropy)


class IMPALA(ActorCriticAlgorithm):
    """One gradient step on all rows of a batch per `update`, or on some whose traces are known per `gradient_step`."""

    params: IMPALAParams

    def update(self, batch: Batch) -> UpdateResult:
        return self.gradient_step(self.traced(batch))

    @torch.no_grad()
    def traced(self, batch: Batch) -> dict[str, Tree]:
        """The rows that happened, with V-trace's advantages and targets by policy and values as they are now."""
        obs, actions = flatten_time(batch["obs"]), flatten_time(batch["actions"])
        evaluated = self.policy.evaluate_actions(obs, actions)
        reference = self.reference(obs, evaluated)
        traces = self.traces(batch, evaluated.values, self.policy.head.log_probs(reference, actions))
        rows: dict[str, Tree] = {
            "obs": obs,
            "actions": actions,
            "behavior_logprobs": batch["behavior_logprobs"].flatten(),
            "values": evaluated.values,
            "advantages": traces.advantages.flatten(),
            "returns": traces.targets.flatten(),
            "rhos": traces.rhos.flatten(),
            "reference": reference,
        }
        if "valid" not in batch or batch["valid"].all():
            return rows
        kept = batch["valid"].flatten().nonzero()[:, 0]
        return tree_map(lambda leaf: leaf[kept], rows)

    @replaceable
    def gradient_step(self, rows: Batch) -> UpdateResult:
        """The gradient step on rows of `traced`, in any order."""
        evaluated = self.policy.evaluate_actions(rows["obs"], rows["actions"])
        loss = self.loss(evaluated, {**rows, "advantages": self.usable(rows["advantages"])})
        grad_norm = self.descend_along(loss.total)
        return UpdateResult({"grad_norm": grad_norm, **self.metrics(loss, evaluated, rows), **self.of_traces(rows)})

    def reference(self, obs: Tree, evaluated: Evaluated) -> Tensor:
        """The distributions `[N, P]` of the policy whose values the traces estimate."""
        return evaluated.dist

    def traces(self, batch: Batch, values: Tensor, logprobs: Tensor) -> VTrace:
        """V-trace of every row, by the values as they are now."""
        params, rewards, terminated = self.params, batch["rewards"], batch["terminated"]
        values = values.reshape(rewards.shape)
        log_rhos = logprobs.reshape(rewards.shape) - batch["behavior_logprobs"]
        if "valid" in batch:
            # No trace runs through a row that never happened: the row before it is an end. Its ratio may be anything.
            log_rhos = log_rhos.masked_fill(~batch["valid"], 0.0)
        return vtrace(
            log_rhos,
            rewards,
            values,
            batch["next_values"] if "next_values" in batch else _following(batch, values),
            terminated=terminated,
            done=batch.get("done", terminated),
            gamma=params.gamma,
            rho_bar=params.rho_bar,
            c_bar=params.c_bar,
            pg_rho_bar=None,  # the losses have ratios of their own
            gae_lambda=params.gae_lambda,
        )

    def loss(self, evaluated: Evaluated, batch: Batch) -> Any:
        params = self.params
        return impala_loss(
            evaluated,
            batch,
            ent_coef=params.ent_coef,
            vf_coef=params.vf_coef,
            pg_rho_bar=params.pg_rho_bar,
            kl_coef=params.kl_coef,
        )

    @torch.no_grad()
    def metrics(self, loss: Any, evaluated: Evaluated, rows: Batch) -> dict[str, float | Tensor]:
        return {
            "loss": loss.total.detach(),
            "policy_loss": loss.policy_loss.detach(),
            "value_loss": loss.value_loss.detach(),
            "entropy": loss.entropy.detach(),
            "approx_kl": approx_kl(evaluated.logprobs - rows["behavior_logprobs"]),
        }

    def of_traces(self, rows: Batch) -> dict[str, Any]:
        """The metrics of V-trace on these rows."""
        return {
            "explained_variance": explained_variance(rows["values"], rows["returns"]),
            "rho_mean": rows["rhos"].mean(),
            "rho_clipped": (rows["rhos"] > self.params.rho_bar).float().mean(),
        }


def _following(batch: Batch, values: Tensor) -> Tensor:
    nothing = torch.empty(0, 2, dtype=torch.int64)
    return next_values(
        values, batch["bootstrap_value"], batch.get("final_rows", nothing), batch.get("final_values", nothing)
    )
