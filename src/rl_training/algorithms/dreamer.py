"""DreamerV3 (Hafner et al., 2025, arXiv:2301.04104).

Replayed sequences are `[T, B]`, imagined trajectories `[H, N]` with N = T·B: one begins at every replayed state.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm, Batch, UpdateResult
from rl_training.algorithms.noise import NoiseStream
from rl_training.algorithms.optimizer import AdaptivelyClippedOptimizer
from rl_training.algorithms.params import IMAGE_LAYOUT, TORSO, TORSO_KWARGS
from rl_training.algorithms.replay import ReplayParams
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.data.trees import flatten_time
from rl_training.envs.types import ImageLayout
from rl_training.models.dreamer import DreamerModel
from rl_training.models.observation_codec import Seen
from rl_training.models.rssm import Latent, Observed
from rl_training.models.seams import OwnNetwork
from rl_training.ops.categorical import categorical_kl, symmetric_mean, two_hot_cross_entropy
from rl_training.ops.returns import lambda_returns

OUTCOMES = ("rewards", "terminal", "is_first", "is_last")  # that behaviour is learned from, beside the states


class DreamerParams(ReplayParams):
    renamed: ClassVar[dict[str, str]] = {
        "replay_ratio": "Dreamer counts replayed observations, and calls it train_ratio: "
        "updates per step times batch_size times sequence_length"
    }

    size: Literal["nano", "xxs", "xs", "s", "m", "l", "xl"] = Field("xs", description="of all networks")
    image_layout: ImageLayout = Field("auto", description=IMAGE_LAYOUT)
    num_bins: PositiveInt = Field(255, description="of the reward's and the value's distributions")
    bin_limit: PositiveFloat = Field(20.0, description="symlog of the outermost bin; 7 reaches to 1,096, 20 to 5e8")
    rollout_steps: PositiveInt = Field(16, description="rows of every environment in a rollout")
    batch_size: PositiveInt = Field(16, description="sequences in an update")
    sequence_length: PositiveInt = Field(64, ge=2, description="observations in each of them")
    train_ratio: float = Field(32.0, ge=0, description="observations replayed for each step of the environments")
    replay_capacity: PositiveInt = Field(1_000_000, description="rows that are kept")
    learning_rate: PositiveFloat = Field(4e-5, description="step size of the optimizer")
    optimizer: Literal["laprop", "adam"] = Field("laprop", description="how gradients become steps")
    optimizer_eps: PositiveFloat = Field(1e-20, description="added to the optimizer's denominator")
    agc: PositiveFloat = Field(0.3, description="largest gradient of a tensor, relative to the tensor")
    entropy_coef: float = Field(3e-4, ge=0, description="weight of the entropy bonus")
    dyn_scale: float = Field(1.0, ge=0, description="of the loss that teaches the prior")
    rep_scale: float = Field(0.1, ge=0, description="of the loss that makes the posterior predictable")
    free_nats: float = Field(1.0, ge=0, description="divergence that costs nothing")
    replay_value_scale: float = Field(0.3, ge=0, description="of the critic's loss on replayed states")
    gamma: float = Field(0.997, ge=0, le=1, description="discount of a step")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="decay of the traces of λ-returns")
    horizon: PositiveInt = Field(15, description="imagined steps")
    imagine_last: PositiveInt | None = Field(
        None, ge=2, description="states at the end of each sequence that dreams begin at; default: all"
    )
    torso: OwnNetwork = Field(None, description=f"{TORSO}; it takes the encoder's place")
    torso_kwargs: dict[str, Any] = Field({}, description=TORSO_KWARGS)
    slow_critic_rate: float = Field(0.02, gt=0, le=1, description="share by which the slow critic follows in an update")


def kl_losses(posterior: Tensor, prior: Tensor, *, free_nats: float) -> tuple[Tensor, Tensor]:
    """(dynamics, representation): one moves the prior, the other the posterior, neither below `free_nats` (eq. 3)."""
    log_posterior, log_prior = posterior.log(), prior.log()
    dynamics = categorical_kl(posterior.detach(), log_posterior.detach(), log_prior)
    representation = categorical_kl(posterior, log_posterior, log_prior.detach())
    return dynamics.clamp(min=free_nats).mean(), representation.clamp(min=free_nats).mean()


def reconstruction_loss(predicted: Seen, seen: Seen) -> Tensor:
    """Squared errors summed over each observation; `seen` has its numbers squashed by symlog already."""
    loss = (predicted.vector - seen.vector).square().sum(-1)
    for image, target in zip(predicted.images, seen.images, strict=True):
        loss = loss + (image - target).square().flatten(1).sum(-1)
    return loss.mean()


def reward_loss(logits: Tensor, rewards: Tensor, bins: Tensor) -> Tensor:
    """Cross entropy with the two-hot encoding of each reward."""
    return two_hot_cross_entropy(logits.log_softmax(-1), rewards, bins).mean()


def continue_loss(logits: Tensor, terminal: Tensor) -> Tensor:
    """An observation that a time limit made the last one is not terminal."""
    return F.binary_cross_entropy_with_logits(logits, (~terminal).to(logits.dtype))


def trajectory_weights(continues: Tensor, gamma: float) -> Tensor:
    """The probability, discounted, that an imagined trajectory `[H, N]` has not ended before each state."""
    discounts = continues * gamma
    discounts[0] = continues[0]
    return discounts.cumprod(0)


def actor_loss(
    logprobs: Tensor, entropy: Tensor, advantages: Tensor, *, weights: Tensor, entropy_coef: float
) -> Tensor:
    """REINFORCE with an entropy bonus, for discrete and continuous actions alike (eq. 6)."""
    return -(weights * (logprobs * advantages + entropy_coef * entropy)).mean()


def critic_loss(log_probs: Tensor, returns: Tensor, slow_values: Tensor, *, weights: Tensor, bins: Tensor) -> Tensor:
    """Towards the returns, and towards what the slow critic says."""
    errors = two_hot_cross_entropy(log_probs, returns, bins) + two_hot_cross_entropy(log_probs, slow_values, bins)
    return (weights * errors).mean()


def replay_returns(
    rewards: Tensor, terminal: Tensor, is_last: Tensor, bootstraps: Tensor, *, gamma: float, gae_lambda: float
) -> Tensor:
    """λ-returns of replayed states but the last, `[T − 1, B]`; the row after each has its reward and termination.

    Where an episode ends the return is bootstrapped from its last observation, unless that is terminal.
    """
    trace = gae_lambda * (~is_last[1:]).to(rewards.dtype)
    discounts = gamma * (~terminal[1:]).to(rewards.dtype)
    return lambda_returns(rewards[1:], bootstraps[1:], discounts=discounts, gae_lambda=trace)


class ReturnScale(nn.Module):
    """The range from the 5th to the 95th percentile of returns, averaged over updates and at least 1 (eq. 7)."""

    percentiles: Tensor
    averages: Tensor

    def __init__(self, rate: float = 0.01, low: float = 0.05, high: float = 0.95) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("percentiles", torch.tensor([low, high]), persistent=False)
        self.register_buffer("averages", torch.zeros(2))

    def update(self, returns: Tensor) -> Tensor:
        """Takes in the returns, and says by how much to divide advantages."""
        quantiles = returns.detach().flatten().quantile(self.percentiles)
        self.averages = torch.lerp(self.averages, quantiles, self.rate)
        return (self.averages[1] - self.averages[0]).clamp(min=1.0)


class BehaviourLoss(NamedTuple):
    actor: Tensor
    critic: Tensor
    replay_critic: Tensor
    entropy: Tensor
    returns: Tensor
    scale: Tensor


class Dreamer(Algorithm):
    """A gradient step on all networks per `update`. The batch is what `data.arrivals.arrivals` makes of a window."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "slow_critic", "return_scale", "noise")
    policy: DreamerModel

    params: DreamerParams

    def __init__(self, policy: DreamerModel, params: DreamerParams) -> None:
        self.policy = policy
        self.params = params
        self.optimizer = AdaptivelyClippedOptimizer(
            policy.parameters(), eps=params.optimizer_eps, kind=params.optimizer
        )
        self.slow_critic = TargetNetwork(policy.critic)
        self.return_scale = ReturnScale()
        self.noise = NoiseStream()

    def update(self, batch: Batch) -> UpdateResult:
        params = self.params
        seen = self.policy.reader(flatten_time(batch["obs"]))
        observed = self.observed(seen, batch)
        model_loss, metrics = self.model_loss(observed, seen, batch)
        behaviour = self.behaviour_loss(observed.latent, batch)
        loss = model_loss + behaviour.actor + behaviour.critic + params.replay_value_scale * behaviour.replay_critic
        grad_norm = self.optimizer.step(loss, learning_rate=params.learning_rate, max_grad_norm=params.agc)
        self.slow_critic.average(params.slow_critic_rate, self.policy.critic)
        metrics |= {
            "loss": loss.detach(),
            "model_loss": model_loss.detach(),
            "policy_loss": behaviour.actor.detach(),
            "value_loss": behaviour.critic.detach(),
            "replay_value_loss": behaviour.replay_critic.detach(),
            "entropy": behaviour.entropy.detach().mean(),
            "imagined_return": behaviour.returns.mean(),
            "return_scale": behaviour.scale,
            "grad_norm": grad_norm,
        }
        return UpdateResult(metrics)

    def observed(self, seen: Seen, batch: Batch) -> Observed:
        """The states that the world model infers from a sequence."""
        model, shape = self.policy, batch["is_first"].shape
        tokens = model.encode(flatten_time(batch["obs"]), seen).unflatten(0, shape)
        actions = model.encode_actions(batch["previous_actions"])
        uniform = model.uniform(*shape, generator=self.noise.generator)
        return model.rssm.observe(tokens, actions, batch["is_first"], uniform)

    def model_loss(self, observed: Observed, seen: Seen, batch: Batch) -> tuple[Tensor, dict[str, Any]]:
        model, features = self.policy, observed.latent.features.flatten(0, 1)
        dynamics, representation = kl_losses(observed.posterior, observed.prior, free_nats=self.params.free_nats)
        reconstruction = reconstruction_loss(model.decoder(features), seen)
        reward = reward_loss(model.reward(features), batch["rewards"].flatten(), model.bins)
        goes_on = continue_loss(model.goes_on(features)[:, 0], batch["terminal"].flatten())
        divergence = self.params.dyn_scale * dynamics + self.params.rep_scale * representation
        total = reconstruction + reward + goes_on + divergence
        losses = {"reconstruction_loss": reconstruction, "reward_loss": reward, "continue_loss": goes_on}
        losses |= {"dyn_loss": dynamics, "rep_loss": representation}
        return total, {name: loss.detach() for name, loss in losses.items()}

    def behaviour_loss(self, latent: Latent, batch: Batch) -> BehaviourLoss:
        """The actor and the critic learn in imagination, the critic also from the replayed states themselves."""
        model, params = self.policy, self.params
        kept = slice(-(params.imagine_last or 0), None)
        latent, batch = Latent(*(part[kept] for part in latent)), {name: batch[name][kept] for name in OUTCOMES}
        start = Latent(latent.deter.detach().flatten(0, 1), latent.stoch.detach().flatten(0, 1))
        imagined = model.imagine(start, params.horizon, self.noise.generator)
        rewards, continues = self.predict(imagined.features, batch["terminal"])
        log_probs = model.critic(imagined.features).log_softmax(-1)
        values = symmetric_mean(log_probs.detach().exp(), model.bins)
        discounts = params.gamma * continues[1:]
        returns = lambda_returns(rewards, values[1:], discounts=discounts, gae_lambda=params.gae_lambda)
        weights = trajectory_weights(continues[:-1], params.gamma)
        scale = self.return_scale.update(returns)
        dist = model.dreamt_policy(imagined.features[:-1], imagined.legal)
        entropy = model.head.entropy(dist)
        actor = actor_loss(
            model.head.log_probs(dist, imagined.actions),
            entropy,
            (returns - values[:-1]) / scale,
            weights=weights,
            entropy_coef=params.entropy_coef,
        )
        slow_values = self.slow_values(imagined.features[:-1])
        critic = critic_loss(log_probs[:-1], returns, slow_values, weights=weights, bins=model.bins)
        replay_critic = self.replay_critic_loss(latent, returns[0].unflatten(0, batch["is_first"].shape), batch)
        return BehaviourLoss(actor, critic, replay_critic, entropy, returns, scale)

    @torch.no_grad()
    def predict(self, features: Tensor, terminal: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards of the states after the first, and whether each goes on; of the first, that is known."""
        rewards = self.policy.expected(self.policy.reward(features[1:]))
        continues = self.policy.goes_on(features)[..., 0].sigmoid()
        continues[0] = (~terminal).flatten().to(continues.dtype)
        return rewards, continues

    def replay_critic_loss(self, latent: Latent, bootstraps: Tensor, batch: Batch) -> Tensor:
        """Unlike that in imagination, its gradient reaches the world model, as in the authors' code."""
        features = latent.features[:-1]
        returns = replay_returns(
            batch["rewards"],
            batch["terminal"],
            batch["is_last"],
            bootstraps,
            gamma=self.params.gamma,
            gae_lambda=self.params.gae_lambda,
        )
        weights = (~batch["is_last"][:-1]).to(returns.dtype)  # after a last observation comes another episode
        log_probs = self.policy.critic(features).log_softmax(-1)
        slow_values = self.slow_values(features)
        return critic_loss(log_probs, returns, slow_values, weights=weights, bins=self.policy.bins)

    @torch.no_grad()
    def slow_values(self, features: Tensor) -> Tensor:
        return self.policy.expected(self.slow_critic.network(features))
