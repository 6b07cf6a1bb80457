"""MuZero (Schrittwieser et al., 2020, arXiv:1911.08265): one gradient step on unrolled windows of replay."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Batch
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.params import IMAGE_LAYOUT, TORSO, TORSO_KWARGS, idle_beside_own
from rl_training.algorithms.replay import PrioritizedResult, ReplayParams
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.envs.types import ImageLayout
from rl_training.models.muzero import PlanningModel, Unrolled
from rl_training.models.seams import OwnNetwork
from rl_training.models.torsos import CNN
from rl_training.ops.categorical import cross_entropy
from rl_training.ops.transforms import signed_hyperbolic
from rl_training.search.policy import SearchPolicy


class PlannerParams(ReplayParams):
    """The parameters of MuZero and its kin."""

    chooses_latents: ClassVar[bool] = True  # whether latents may be vectors or planes

    learning_rate: PositiveFloat = Field(1e-3, description="step size of the optimizer")
    gamma: float = Field(0.997, ge=0, le=1, description="discount of a step")
    players: Literal[1, 2] = Field(
        1,
        description="2: they move by turns; observations and rewards are the mover's, who wins what the other loses",
    )
    num_simulations: PositiveInt = Field(25, description="simulations of each search")
    temperature: float = Field(1.0, ge=0, description="chance in the choice of actions; 0: none")
    sampled_actions: PositiveInt | None = Field(
        None,
        description="actions that a node samples of the policy; default: 16 of Box and MultiDiscrete, all of Discrete",
    )
    max_depth: PositiveInt | None = Field(None, description="of the search; default: no limit")
    augmentation: Literal["none", "shift", "intensity", "shift_intensity", "mirror", "square"] = Field(
        "none",
        description="of replayed images: shift by a few pixels, scale brightness by up to a tenth, or both; of boards "
        "and the moves on them: mirror, or all eight symmetries of a square",
    )
    unroll_steps: PositiveInt = Field(5, description="imagined steps that an update trains")
    n_steps: PositiveInt = Field(5, description="real rewards in a value target")
    correction_interval: PositiveInt | None = Field(
        None, description="age in steps that takes a step off a value target; default: none does"
    )
    fresh_bootstraps: bool = Field(
        False, description="value targets end in what the target network says now, not in what a search said then"
    )
    replay_ratio: float = Field(0.1, ge=0, description="updates per environment step")
    reanalyse_fraction: float = Field(
        0.0, ge=0, le=1, description="replayed rows searched again, as a share of a batch"
    )
    priority_alpha: float = Field(0.6, ge=0, description="how much value errors decide what is replayed; 0: not at all")
    priority_beta: float = Field(0.4, ge=0, le=1, description="how much importance weights make up for it")
    target_update_interval: PositiveInt = Field(100, description="updates between copies to the target network")
    value_coef: float = Field(0.25, ge=0, description="weight of the value error")
    max_grad_norm: PositiveFloat = Field(5.0, description="bound on the norm of the gradient")
    adam_eps: PositiveFloat = Field(1e-5, description="added to the optimizer's denominator")
    hidden_sizes: tuple[PositiveInt, ...] = Field((128,), description="of the representation of vectors")
    cnn: CNN = Field("nature", description="convolutional network for images")
    image_layout: ImageLayout = Field("auto", description=IMAGE_LAYOUT)
    torso: OwnNetwork = Field(None, description=TORSO)
    torso_kwargs: dict[str, Any] = Field({}, description=TORSO_KWARGS)
    latent: Literal["auto", "vector", "planes"] = Field(
        "auto",
        description="form of latent states: a vector, or planes between residual towers; auto: planes for images and "
        "boards, unless a cnn or a torso is named",
    )
    latent_size: PositiveInt | None = Field(
        None, description="width of a latent vector (default 64), or channels of latent planes (16)"
    )
    residual_blocks: PositiveInt = Field(1, description="of each tower of latent planes")
    hidden_size: PositiveInt = Field(128, description="of dynamics and prediction")
    normalize_obs: bool = Field(True, description="bring observations to mean 0 and deviation 1, by running statistics")
    support_size: PositiveInt = Field(25, description="bins on each side of 0; a return of 500 is about 22")

    @model_validator(mode="before")
    @classmethod
    def _a_named_network_ends_in_a_vector(cls, given: Any) -> Any:
        is_named = cls.chooses_latents and (given.get("cnn") is not None or given.get("torso") is not None)
        return {**given, "latent": "vector"} if is_named and "latent" not in given else given

    def idle(self) -> dict[str, str]:
        """The parameters of the form that latents do not have."""
        names = {"planes": ("cnn", "hidden_sizes", "torso", "torso_kwargs"), "vector": ("residual_blocks",)}
        idle = dict.fromkeys(names.get(self.latent, ()), f"with latent {self.latent!r}")
        return idle | idle_beside_own(self.torso, None)


class MuZeroParams(PlannerParams):
    root_dirichlet_alpha: PositiveFloat = Field(0.3, description="how even the noise at the root is")
    root_exploration_fraction: float = Field(0.25, ge=0, le=1, description="share of noise in the priors at the root")
    pb_c_init: PositiveFloat = Field(1.25, description="weight of the prior in PUCT")
    pb_c_base: PositiveFloat = Field(19652.0, description="visits at which that weight begins to grow")
    first_play: Literal["mean", "worst"] = Field(
        "mean",
        description="value of an unvisited action: the mean of what its node knows, or the worst (mctx)",
    )


class MuZeroLoss(NamedTuple):
    total: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    reward_loss: Tensor


def unroll_scale(unroll_steps: int, like: Tensor) -> Tensor:
    """[K + 1, 1]: the first state counts fully, each of the K imagined ones as 1 / K."""
    scale = like.new_full((unroll_steps + 1, 1), 1.0 / max(unroll_steps, 1))
    scale[0] = 1.0
    return scale


def muzero_loss(unrolled: Unrolled, batch: Batch, *, model: PlanningModel, value_coef: float) -> MuZeroLoss:
    """Policy, value and reward cross-entropies along the unroll, each window by its importance weight."""
    scale = unroll_scale(len(batch["actions"]), unrolled.policy) * batch["weights"]
    policy = model.policy_error(unrolled.policy, batch) * batch["has_state"]
    value = cross_entropy(unrolled.value, model.categorical(batch["value_targets"])) * batch["has_value"]
    reward = cross_entropy(unrolled.reward, model.categorical(batch["reward_targets"])) * batch["has_reward"]
    parts = [(part * scale[-len(part) :]).sum(0).mean() for part in (policy, value, reward)]
    return MuZeroLoss(parts[0] + value_coef * parts[1] + parts[2], *parts)


class MuZero(Algorithm):
    """Holds the model that plans, its optimizer, and a copy that lags behind, which searches replayed states again."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "target")
    policy: SearchPolicy

    params: PlannerParams

    def __init__(self, policy: SearchPolicy, params: PlannerParams) -> None:
        self.policy = policy
        self.params = params
        self.optimizer = FlatOptimizer(policy.parameters(), eps=params.adam_eps, kind="adam")
        self.target = TargetNetwork(policy.model)
        self._has_warned = False

    @property
    def model(self) -> PlanningModel:
        return self.policy.model

    def update(self, batch: Batch) -> PrioritizedResult:
        unrolled = self.model.unroll(batch["obs"], batch["actions"])
        total, parts = self.loss(unrolled, batch)
        params = self.params
        grad_norm = self.optimizer.step(total, learning_rate=params.learning_rate, max_grad_norm=params.max_grad_norm)
        self.target.copy_every(params.target_update_interval, self.model)
        metrics = {name: part.detach() for name, part in parts.items()}
        with torch.no_grad():
            values = self.model.scalar(unrolled.value[0])
            errors = (values - batch["value_targets"][0]).abs()
            metrics |= {"loss": total.detach(), "grad_norm": grad_norm, "value_mean": values.mean()}
            metrics["clipped_targets"] = self.clipped_targets(batch)
        return PrioritizedResult(metrics, errors=errors)

    def clipped_targets(self, batch: Batch) -> Tensor:
        """The share of known targets that the support has no bins for; the first time it also says what would fit."""
        values, rewards = (batch[f"{name}_targets"][batch[f"has_{name}"]] for name in ("value", "reward"))
        targets = torch.cat([values, rewards]).abs()
        clipped = targets > self.model.largest_scalar
        if not self._has_warned and bool(clipped.any()):
            self._has_warned = True
            fitting = math.ceil(float(signed_hyperbolic(targets.max())))
            warnings.warn(
                f"targets of up to {float(targets.max()):.4g} are learned as less: the support ends at "
                f"{self.model.largest_scalar:.4g}; give support_size {fitting} or more",
                stacklevel=2,
            )
        return clipped.float().mean()

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """(what is minimised, its parts as metrics)."""
        total, *parts = muzero_loss(unrolled, batch, model=self.model, value_coef=self.params.value_coef)
        return total, dict(zip(MuZeroLoss._fields[1:], parts, strict=True))
