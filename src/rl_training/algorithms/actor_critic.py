"""The base of all algorithms with a policy and a value function: their parameters, and one optimizer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms import rnd
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.params import (
    IMAGE_LAYOUT,
    POLICY,
    PRECISION,
    TORSO,
    TORSO_KWARGS,
    Params,
    idle_beside_own,
)
from rl_training.algorithms.peers import ALONE, Peers
from rl_training.envs.types import ImageLayout
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.precision import Precision
from rl_training.models.seams import OwnNetwork
from rl_training.models.torsos import CNN
from rl_training.ops.losses import normalize


class PolicyParams(Params):
    """The parameters of every algorithm with an `ActorCritic` policy."""

    spellings: ClassVar[dict[str, str]] = {"n_steps": "rollout_steps"}  # Stable-Baselines3's
    learning_rate: PositiveFloat = Field(3e-4, description="step size of the optimizer")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a step")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="decay of the traces of advantages")
    ent_coef: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    max_grad_norm: PositiveFloat = Field(0.5, description="bound on the norm of the gradient")
    normalize_advantages: bool = Field(True, description="bring advantages to mean 0 and deviation 1, batch by batch")
    rollout_steps: PositiveInt = Field(128, description="rows of every environment in a rollout")
    optimizer: Literal["adam", "rmsprop"] = Field("adam", description="how gradients become steps")
    adam_eps: PositiveFloat = Field(1e-5, description="added to the optimizer's denominator, RMSprop's too")
    hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64), description="widths of the hidden layers for vectors")
    activation: Literal["tanh", "relu", "silu", "elu"] = Field("tanh", description="between the layers of an MLP")
    cnn: CNN = Field("nature", description="convolutional network for images")
    image_layout: ImageLayout = Field("auto", description=IMAGE_LAYOUT)
    precision: Precision = Field("float32", description=PRECISION)
    torso: OwnNetwork = Field(None, description=TORSO)
    torso_kwargs: dict[str, Any] = Field({}, description=TORSO_KWARGS)
    policy: OwnNetwork = Field(None, description=POLICY)
    policy_kwargs: dict[str, Any] = Field({}, description="passed to a policy of your own behind the spaces")
    share_torso: bool | None = Field(None, description="policy and value share features; default: for images only")
    log_std_init: float = Field(0.0, description="first logarithm of the deviation of Box actions")
    state_dependent_std: bool = Field(False, description="let the deviation of Box actions depend on the observation")
    squash_actions: bool = Field(
        False, description="sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds"
    )
    normalize_obs: bool = Field(
        False, description="bring observations to mean 0 and deviation 1, by running statistics"
    )
    normalize_reward: bool = Field(False, description="divide rewards by the deviation of their discounted sum")
    rnd: bool = Field(False, description="also pay for new observations, by random network distillation")
    rnd_coef: float = Field(0.1, ge=0, description="weight of that bonus beside the reward")
    rnd_learning_rate: PositiveFloat = Field(1e-3, description="step size of the network that predicts the random one")
    rnd_updates: PositiveInt = Field(16, description="its steps on each rollout")
    rnd_batch: PositiveInt = Field(256, description="rows in each of them")
    rnd_features: PositiveInt = Field(64, description="outputs of the random network")

    def idle(self) -> dict[str, str]:
        without = {} if self.rnd else dict.fromkeys(rnd.OPTIONS, "without rnd; set rnd to true")
        return idle_beside_own(self.torso, self.policy) | without


class ActorCriticParams(PolicyParams):
    """The parameters of those with one loss for policy and value."""

    vf_coef: float = Field(0.5, ge=0, description="weight of the value error")


BATCH_SIZE = "rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch"


def idle_beside(batch_size: int | None) -> dict[str, str]:
    """The parameter that the size of a minibatch stands in place of."""
    return {} if batch_size is None else {"num_minibatches": "beside batch_size; give one of the two"}


class ActorCriticAlgorithm(Algorithm):
    """Holds a policy with its value function, and the optimizer of both."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer")
    policy: ActorCritic
    params: Any
    peers: Peers = ALONE

    def __init__(self, policy: ActorCritic, params: Any) -> None:
        self.policy = policy
        self.params = params
        self.optimizer = FlatOptimizer(policy.parameters(), eps=params.adam_eps, kind=params.optimizer)

    def join(self, peers: Peers) -> None:
        """Shares every batch from here on: a mean over rows becomes one over the rows of all learners."""
        self.peers = peers
        self.optimizer.combine_ = peers.mean_

    def descend_along(self, loss: Tensor) -> Tensor:
        """One step of the optimizer; returns the gradient's norm before clipping."""
        params = self.params
        return self.optimizer.step(loss, learning_rate=params.learning_rate, max_grad_norm=params.max_grad_norm)

    def usable(self, advantages: Tensor) -> Tensor:
        """The advantages as losses take them: normalised over the rows of all learners, if the parameters say so."""
        if not self.params.normalize_advantages:
            return advantages
        return normalize(advantages, mean_of=lambda x: self.peers.mean_(x.mean()))
