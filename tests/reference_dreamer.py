"""Dreamer's whole loss as the paper writes it: loops over time and over rows, with the random draws fixed.

Only networks are taken from the package. Equations are those of Hafner et al. (2025); where the authors' code says
what the paper leaves open, the comment says so.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rl_training.models.rssm import Latent


def two_hot_error(logits: Tensor, target: float, bins: list[float]) -> Tensor:
    """−log p of a target between two bins, by its distance to each."""
    log_probs = logits - logits.exp().sum().log()
    target = min(max(target, bins[0]), bins[-1])
    above = next((i for i, bound in enumerate(bins) if bound > target), len(bins) - 1)
    share = (target - bins[above - 1]) / (bins[above] - bins[above - 1])
    return -((1.0 - share) * log_probs[above - 1] + share * log_probs[above])


def expected(logits: Tensor, bins: list[float]) -> float:
    probs = torch.softmax(logits.detach().double(), dim=-1)
    return sum(float(p) * bound for p, bound in zip(probs, bins, strict=True))


def mixed(logits: Tensor) -> Tensor:
    """99 % of what the network says, 1 % uniform."""
    return 0.99 * torch.softmax(logits, dim=-1) + 0.01 / logits.shape[-1]


def drawn(probs: Tensor, uniform: Tensor) -> Tensor:
    """One-hot rows of [G, K]: the class in whose share the number lies, with the gradient of the probabilities."""
    hot = torch.zeros_like(probs)
    for g in range(len(probs)):
        bound, chosen = 0.0, probs.shape[1] - 1
        for k in range(probs.shape[1]):
            bound += float(probs[g, k].detach())
            if float(uniform[g, 0]) < bound:
                chosen = k
                break
        hot[g, chosen] = 1.0
    return hot + probs - probs.detach()


def lambda_return(
    rewards: list[float], values: list[float], discounts: list[float], traces: list[float]
) -> list[float]:
    """R_t = r_t + c_t ((1 − λ) v_t + λ R_{t+1}), the last from its value alone; `values` are of what followed."""
    returns, following = [0.0] * len(rewards), values[-1]
    for t in reversed(range(len(rewards))):
        trace = 1.0 if t == len(rewards) - 1 else traces[t]
        following = rewards[t] + discounts[t] * ((1.0 - trace) * values[t] + trace * following)
        returns[t] = following
    return returns


class DreamerReference:
    """`total` is the sum that one update minimises."""

    def __init__(self, algorithm: Any, batch: dict[str, Any]) -> None:
        self.model, self.params, self.batch = algorithm.policy, algorithm.params, batch
        self.slow, self.averages = algorithm.slow_critic.network, algorithm.return_scale.averages.clone()
        self.random = torch.Generator()
        self.random.set_state(algorithm.noise.generator.get_state())
        self.bins = [float(bound) for bound in self.model.bins]
        self.steps, self.rows = batch["is_first"].shape

    def total(self) -> Tensor:
        features, world = self.world_model()
        if last := self.params.imagine_last:  # the authors' `imag_last`: behaviour is learned from the last states only
            features, self.steps = features[-last:], last
            self.batch = {name: column[-last:] for name, column in self.batch.items()}
        actor, critic, returns = self.behaviour(features)
        replay = self.replay_critic(features, returns)
        return world + actor + critic + self.params.replay_value_scale * replay

    def world_model(self) -> tuple[list[list[Tensor]], Tensor]:
        """(features [T][B], the loss): eq. 1 to 5, a mean over all observations."""
        model, batch, rssm = self.model, self.batch, self.model.rssm
        shape = (rssm.size.groups, rssm.size.classes)
        uniform = torch.rand(self.steps, self.rows, rssm.size.groups, 1, generator=self.random)
        features: list[list[Tensor]] = []
        loss = torch.zeros(())
        state = [(torch.zeros(1, rssm.size.deter), torch.zeros(1, rssm.size.stoch)) for _ in range(self.rows)]
        for t in range(self.steps):
            features.append([])
            for b in range(self.rows):
                action = model.encode_actions(batch["previous_actions"][t, b : b + 1])
                if batch["is_first"][t, b]:  # nothing was before
                    state[b] = (torch.zeros(1, rssm.size.deter), torch.zeros(1, rssm.size.stoch))
                    action = torch.zeros_like(action)
                seen = model.reader(batch["obs"][t, b : b + 1])
                deter = rssm.advance(Latent(*state[b]), action)
                token = model.encoder(seen)
                hidden = rssm.posterior_activation(rssm.posterior_deter(deter) + rssm.posterior_token(token))
                posterior = mixed(rssm.posterior_last(hidden).reshape(shape))
                prior = mixed(rssm.prior_net(deter).reshape(shape))
                stoch = drawn(posterior, uniform[t, b]).reshape(1, -1)
                state[b] = (deter, stoch)
                feature = torch.cat([deter, stoch], dim=-1)
                features[t].append(feature)
                loss = loss + self.prediction(feature, seen, t, b) + self.divergence(posterior, prior)
        return features, loss / (self.steps * self.rows)

    def prediction(self, feature: Tensor, seen: Any, t: int, b: int) -> Tensor:
        """−ln p of the observation, the reward and whether the episode goes on."""
        model, decoded = self.model, self.model.decoder(feature)
        error = (decoded.vector - seen.vector).square().sum()
        for image, target in zip(decoded.images, seen.images, strict=True):
            error = error + (image - target).square().sum()
        reward = two_hot_error(model.reward(feature)[0], float(self.batch["rewards"][t, b]), self.bins)
        chance = torch.sigmoid(model.goes_on(feature)[0, 0])
        goes_on = -torch.log(1.0 - chance if self.batch["terminal"][t, b] else chance)
        return error + reward + goes_on

    def divergence(self, posterior: Tensor, prior: Tensor) -> Tensor:
        """β_dyn max(free, KL[sg(q) ‖ p]) + β_rep max(free, KL[q ‖ sg(p)])."""

        def kl(q: Tensor, p: Tensor) -> Tensor:
            return (q * (q.log() - p.log())).sum()

        free = torch.tensor(float(self.params.free_nats))
        dynamics = torch.maximum(free, kl(posterior.detach(), prior))
        representation = torch.maximum(free, kl(posterior, prior.detach()))
        return self.params.dyn_scale * dynamics + self.params.rep_scale * representation

    def behaviour(self, features: list[list[Tensor]]) -> tuple[Tensor, Tensor, list[float]]:
        """(actor, critic, the first return of every trajectory): eq. 6 to 11, from every observed state."""
        model, horizon, count = self.model, self.params.horizon, self.steps * self.rows
        imagined, actions = self.imagined([feature.detach() for row in features for feature in row])
        rewards = [
            [expected(model.reward(imagined[h + 1][n])[0], self.bins) for n in range(count)] for h in range(horizon)
        ]
        goes_on = [[float(torch.sigmoid(model.goes_on(x)).detach()) for x in row] for row in imagined]
        goes_on[0] = [float(not self.batch["terminal"].flatten()[n]) for n in range(count)]
        values = [[expected(model.critic(x)[0], self.bins) for x in row] for row in imagined]
        gamma, trace = self.params.gamma, self.params.gae_lambda
        returns = [
            lambda_return(
                [rewards[h][n] for h in range(horizon)],
                [values[h + 1][n] for h in range(horizon)],
                [gamma * goes_on[h + 1][n] for h in range(horizon)],
                [trace] * horizon,
            )
            for n in range(count)
        ]
        scale = self.return_range(returns)
        actor = critic = torch.zeros(())
        for n in range(count):
            weight = goes_on[0][n]
            for h in range(horizon):
                weight = weight * gamma * goes_on[h][n] if h else weight
                dist = model.head(model.actor(imagined[h][n]))
                advantage = (returns[n][h] - values[h][n]) / scale
                gain = model.head.log_probs(dist, actions[h][n : n + 1])[0] * advantage
                actor = actor - weight * (gain + self.params.entropy_coef * model.head.entropy(dist)[0])
                critic = critic + weight * self.critic_error(imagined[h][n], returns[n][h])
        return actor / (count * horizon), critic / (count * horizon), [each[0] for each in returns]

    @torch.no_grad()
    def imagined(self, starts: list[Tensor]) -> tuple[list[list[Tensor]], list[Tensor]]:
        """States `[H + 1][N]` and sampled actions `[H]`; nothing in a dream has a gradient."""
        model, rssm, horizon = self.model, self.model.rssm, self.params.horizon
        shape, split = (rssm.size.groups, rssm.size.classes), [rssm.size.deter, rssm.size.stoch]
        uniform = torch.rand(horizon, len(starts), rssm.size.groups, 1, generator=self.random)
        states, actions = [starts], []
        for h in range(horizon):
            chosen = model.head.sample(model.head(model.actor(torch.cat(states[-1]))), self.random)
            actions.append(chosen)
            row = []
            for n, feature in enumerate(states[-1]):
                deter, stoch = feature.split(split, dim=-1)
                deter = rssm.advance(Latent(deter, stoch), model.encode_actions(chosen[n : n + 1]))
                stoch = drawn(mixed(rssm.prior_net(deter).reshape(shape)), uniform[h, n]).reshape(1, -1)
                row.append(torch.cat([deter, stoch], dim=-1))
            states.append(row)
        return states, actions

    def return_range(self, returns: list[list[float]]) -> float:
        """max(1, per95 − per5), each percentile a moving average that begins at 0 (eq. 7)."""
        flat = sorted(value for row in returns for value in row)
        moved = []
        for average, share in zip(self.averages.tolist(), (0.05, 0.95), strict=True):
            place = share * (len(flat) - 1)
            low = math.floor(place)
            quantile = flat[low] + (place - low) * (flat[min(low + 1, len(flat) - 1)] - flat[low])
            moved.append(0.99 * average + 0.01 * quantile)
        return max(1.0, moved[1] - moved[0])

    def critic_error(self, feature: Tensor, target: float) -> Tensor:
        """Towards the return, and towards what the slow critic says of the state."""
        logits = self.model.critic(feature)[0]
        slow = expected(self.slow(feature)[0], self.bins)
        return two_hot_error(logits, target, self.bins) + two_hot_error(logits, slow, self.bins)

    def replay_critic(self, features: list[list[Tensor]], imagined_returns: list[float]) -> Tensor:
        """The critic on the replayed states, bootstrapped from imagined returns, as the authors' code has it."""
        batch, params, loss = self.batch, self.params, torch.zeros(())
        for b in range(self.rows):
            following = range(1, self.steps)
            returns = lambda_return(
                [float(batch["rewards"][t, b]) for t in following],
                [imagined_returns[t * self.rows + b] for t in following],
                [0.0 if batch["terminal"][t, b] else params.gamma for t in following],
                [0.0 if batch["is_last"][t, b] else params.gae_lambda for t in following],
            )
            for t in range(self.steps - 1):
                if not batch["is_last"][t, b]:
                    loss = loss + self.critic_error(features[t][b], returns[t])
        return loss / ((self.steps - 1) * self.rows)
