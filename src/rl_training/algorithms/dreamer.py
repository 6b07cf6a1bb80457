"""DreamerV3 (Hafner et al., 2025, arXiv:2301.04104).

Replayed sequences are `[T, B]`, imagined trajectories `[H, N]` with N = T·B: one begins at every replayed state.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Batch, UpdateResult
from rl_training.algorithms.laprop import AdaptivelyClippedOptimizer
from rl_training.data.trees import flatten_time
from rl_training.models.dreamer import DreamerModel
from rl_training.models.observation_codec import Seen
from rl_training.models.rssm import Latent, Observed
from rl_training.ops.categorical import categorical_kl, symmetric_mean, two_hot_cross_entropy
from rl_training.ops.returns import lambda_returns


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


class ReturnScale:
    """The range from the 5th to the 95th percentile of returns, averaged over updates and at least 1 (eq. 7)."""

    def __init__(self, rate: float = 0.01, low: float = 0.05, high: float = 0.95) -> None:
        self.rate = rate
        self.percentiles = torch.tensor([low, high])
        self.averages = torch.zeros(2)

    def update(self, returns: Tensor) -> Tensor:
        """Takes in the returns, and says by how much to divide advantages."""
        quantiles = returns.detach().flatten().quantile(self.percentiles)
        self.averages = torch.lerp(self.averages, quantiles, self.rate)
        return (self.averages[1] - self.averages[0]).clamp(min=1.0)

    def state_dict(self) -> dict[str, Tensor]:
        return {"averages": self.averages}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.averages = state["averages"].to(self.averages.device)


class NoiseStream:
    """A generator on the device of the networks, part of a checkpoint."""

    def __init__(self) -> None:
        """Seeded by the global stream, which `build_seeded` has set."""
        device = torch.empty(0).device
        self.generator = torch.Generator(device).manual_seed(int(torch.randint(2**62, (), device="cpu")))

    def state_dict(self) -> dict[str, Tensor]:
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["state"])


class BehaviourLoss(NamedTuple):
    actor: Tensor
    critic: Tensor
    replay_critic: Tensor
    entropy: Tensor
    returns: Tensor
    scale: Tensor


class Dreamer(Algorithm):
    """A gradient step on all networks per `update`. The batch is what `data.replay.arrivals` makes of a window."""

    state_parts: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "slow_critic", "return_scale", "noise")
    policy: DreamerModel

    def __init__(
        self,
        policy: DreamerModel,
        *,
        learning_rate: float,
        entropy_coef: float = 3e-4,
        dyn_scale: float = 1.0,
        rep_scale: float = 0.1,
        free_nats: float = 1.0,
        replay_value_scale: float = 0.3,
        gamma: float = 0.997,
        gae_lambda: float = 0.95,
        horizon: int = 15,
        slow_critic_rate: float = 0.02,
        agc: float = 0.3,
        optimizer: str = "laprop",
        optimizer_eps: float = 1e-20,
        replay_ratio: float = 32.0,
    ) -> None:
        self.policy = policy
        self.optimizer = AdaptivelyClippedOptimizer(
            policy.parameters(), learning_rate=learning_rate, eps=optimizer_eps, kind=optimizer
        )
        self.slow_critic = copy.deepcopy(policy.critic).requires_grad_(False)
        self.return_scale = ReturnScale()
        self.noise = NoiseStream()
        self.entropy_coef = entropy_coef
        self.dyn_scale = dyn_scale
        self.rep_scale = rep_scale
        self.free_nats = free_nats
        self.replay_value_scale = replay_value_scale
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.horizon = horizon
        self.slow_critic_rate = slow_critic_rate
        self.agc = agc
        self.replay_ratio = replay_ratio  # read by whoever decides how many updates there are

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        seen = self.policy.reader(flatten_time(batch["obs"]))
        observed = self.observe(seen, batch)
        model_loss, metrics = self.model_loss(observed, seen, batch)
        behaviour = self.behaviour_loss(observed.latent, batch)
        loss = model_loss + behaviour.actor + behaviour.critic + self.replay_value_scale * behaviour.replay_critic
        grad_norm = self.optimizer.step(loss, max_grad_norm=self.agc)
        self.follow_critic()
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

    def observe(self, seen: Seen, batch: Batch) -> Observed:
        model, shape = self.policy, batch["is_first"].shape
        tokens = model.encoder(seen).unflatten(0, shape)
        actions = model.encode_actions(batch["previous_actions"])
        uniform = model.uniform(*shape, generator=self.noise.generator)
        return model.rssm.observe(tokens, actions, batch["is_first"], uniform)

    def model_loss(self, observed: Observed, seen: Seen, batch: Batch) -> tuple[Tensor, dict[str, Any]]:
        model, features = self.policy, observed.latent.features.flatten(0, 1)
        dynamics, representation = kl_losses(observed.posterior, observed.prior, free_nats=self.free_nats)
        reconstruction = reconstruction_loss(model.decoder(features), seen)
        reward = reward_loss(model.reward(features), batch["rewards"].flatten(), model.bins)
        goes_on = continue_loss(model.goes_on(features)[:, 0], batch["terminal"].flatten())
        total = reconstruction + reward + goes_on + self.dyn_scale * dynamics + self.rep_scale * representation
        losses = {"reconstruction_loss": reconstruction, "reward_loss": reward, "continue_loss": goes_on}
        losses |= {"dyn_loss": dynamics, "rep_loss": representation}
        return total, {name: loss.detach() for name, loss in losses.items()}

    def behaviour_loss(self, latent: Latent, batch: Batch) -> BehaviourLoss:
        """The actor and the critic learn in imagination, the critic also from the replayed states themselves."""
        model = self.policy
        start = Latent(latent.deter.detach().flatten(0, 1), latent.stoch.detach().flatten(0, 1))
        imagined = model.imagine(start, self.horizon, self.noise.generator)
        rewards, continues = self.predict(imagined.features, batch["terminal"])
        log_probs = model.critic(imagined.features).log_softmax(-1)
        values = symmetric_mean(log_probs.detach().exp(), model.bins)
        discounts = self.gamma * continues[1:]
        returns = lambda_returns(rewards, values[1:], discounts=discounts, gae_lambda=self.gae_lambda)
        weights = trajectory_weights(continues[:-1], self.gamma)
        scale = self.return_scale.update(returns)
        dist = model.head(model.actor(imagined.features[:-1]))
        entropy = model.head.entropy(dist)
        actor = actor_loss(
            model.head.log_probs(dist, imagined.actions),
            entropy,
            (returns - values[:-1]) / scale,
            weights=weights,
            entropy_coef=self.entropy_coef,
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
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
        )
        weights = (~batch["is_last"][:-1]).to(returns.dtype)  # after a last observation comes another episode
        log_probs = self.policy.critic(features).log_softmax(-1)
        slow_values = self.slow_values(features)
        return critic_loss(log_probs, returns, slow_values, weights=weights, bins=self.policy.bins)

    @torch.no_grad()
    def slow_values(self, features: Tensor) -> Tensor:
        return self.policy.expected(self.slow_critic(features))

    @torch.no_grad()
    def follow_critic(self) -> None:
        """The slow critic is an average of the critic over updates."""
        slow, fast = (tuple(critic.parameters()) for critic in (self.slow_critic, self.policy.critic))
        torch._foreach_lerp_(slow, fast, self.slow_critic_rate)
