"""The assembled losses of the planners, as the papers write them: slow, one window and one step at a time.

Only networks are taken from the package. What is between them (transforms, recursions, masks, weights, sums) is
written anew, so that a mistake in the package's is not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def hyperbolic(x: float) -> float:
    """h(x) = sign(x)(√(|x| + 1) − 1) + 0.001 x (Pohlen et al., 2018)."""
    return math.copysign(math.sqrt(abs(x) + 1.0) - 1.0, x) + 0.001 * x


def cross_entropy_with_scalar(logits: Tensor, scalar: float, support_size: int) -> Tensor:
    """−Σ target · log softmax, the target on the two integers around h(scalar) (Schrittwieser et al., 2020, app. F)."""
    transformed = min(max(hyperbolic(scalar), -support_size), support_size)
    low = min(math.floor(transformed), support_size - 1)
    log_probs = logits - logits.exp().sum().log()
    share = transformed - low
    return -((1.0 - share) * log_probs[low + support_size] + share * log_probs[low + 1 + support_size])


def cross_entropy_with_policy(logits: Tensor, policy: Tensor) -> Tensor:
    log_probs = logits - logits.exp().sum().log()
    return -sum(float(p) * log_prob for p, log_prob in zip(policy, log_probs, strict=True))


def half_gradient(x: Tensor) -> Tensor:
    return x / 2.0 + (x / 2.0).detach()


Unroll = Callable[[int], tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]]


def muzero_unroll(model: Any, batch: dict[str, Any]) -> Unroll:
    """(policies, values, rewards, latents) of one window; the gradient is halved where it enters the dynamics."""

    def of_window(b: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        latents, rewards = [model.represent(batch["obs"][b : b + 1])], []
        for action in batch["actions"][:, b]:
            latent, hidden = model.next_latents(half_gradient(latents[-1]), action[None])
            latents.append(latent)
            rewards.append(model.reward_head(hidden)[0])
        policies, values = zip(*(model.predict(latent) for latent in latents), strict=True)
        return [p[0] for p in policies], [v[0] for v in values], rewards, latents

    return of_window


def efficientzero_unroll(model: Any, batch: dict[str, Any]) -> Unroll:
    """As MuZero's, with an LSTM over the steps since the last multiple of the horizon in place of the rewards."""

    def of_window(b: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        latents, prefixes, memory = [model.represent(batch["obs"][b : b + 1])], [], None
        for k, action in enumerate(batch["actions"][:, b]):
            latent, features = model.next_latents(half_gradient(latents[-1]), action[None])
            memory = model.lstm(features, None if k % model.lstm_horizon == 0 else memory)
            latents.append(latent)
            prefixes.append(model.reward_head(memory[0])[0])
        policies, values = zip(*(model.predict(latent) for latent in latents), strict=True)
        return [p[0] for p in policies], [v[0] for v in values], prefixes, latents

    return of_window


def planner_loss(unroll: Unroll, batch: dict[str, Any], *, value_coef: float, support_size: int) -> Tensor:
    """Schrittwieser et al. (2020), eq. 1 and appendix G: windows by their importance, imagined steps by 1/K."""
    steps, size = batch["actions"].shape
    total = torch.zeros(())
    for b in range(size):
        policies, values, rewards, _ = unroll(b)
        for k in range(steps + 1):
            scale = float(batch["weights"][b]) * (1.0 if k == 0 else 1.0 / steps) / size
            if batch["has_state"][k, b]:
                total = total + scale * cross_entropy_with_policy(policies[k], batch["policies"][k, b])
            if batch["has_value"][k, b]:
                error = cross_entropy_with_scalar(values[k], float(batch["value_targets"][k, b]), support_size)
                total = total + value_coef * scale * error
            if k > 0 and batch["has_reward"][k - 1, b]:
                wanted = float(batch["reward_targets"][k - 1, b])
                total = total + scale * cross_entropy_with_scalar(rewards[k - 1], wanted, support_size)
    return total


def consistency(model: Any, batch: dict[str, Any]) -> Tensor:
    """Ye et al. (2021), eq. 3: −cosine of what was imagined and what was seen, which gets no gradient (plus 1)."""
    unroll, (steps, size) = efficientzero_unroll(model, batch), batch["actions"].shape
    total = torch.zeros(())
    for b in range(size):
        latents = unroll(b)[3]
        for k in range(1, steps + 1):
            if batch["has_state"][k, b]:
                imagined = model.predictor(model.projector(latents[k]))[0]
                seen = model.projector(model.represent(batch["next_obs"][k - 1, b : b + 1]))[0].detach()
                cosine = (imagined @ seen) / (imagined.square().sum().sqrt() * seen.square().sum().sqrt())
                total = total + float(batch["weights"][b]) / steps / size * (1.0 - cosine)
    return total


def layer_norm(x: Tensor) -> Tensor:
    centered = x - x.mean()
    return centered / (centered.square().mean() + 1e-5).sqrt()


def row_of(obs: Any, k: int, b: int) -> Any:
    """The observation of one state, as a batch of one."""
    return {key: leaf[k, b : b + 1] for key, leaf in obs.items()} if isinstance(obs, dict) else obs[k, b : b + 1]


class ScaleZeroReference:
    """One window at a time: tokens z₀ a₀ z₁ a₁ … z_K, each with the task's token added (Pu et al., 2025)."""

    def __init__(self, model: Any, target: Any, batch: dict[str, Any]) -> None:
        self.model, self.target, self.batch = model, target, batch
        self.steps, self.size = batch["actions"].shape
        self.windows = [self._window(b) for b in range(self.size)]

    def _window(self, b: int) -> dict[str, Any]:
        model, batch = self.model, self.batch
        states = [model.represent(row_of(batch["obs"], k, b)) for k in range(self.steps + 1)]
        latents, task = [latent[0] for latent, _ in states], int(states[0][1][0])
        tokens = []
        for k, latent in enumerate(latents):
            tokens.append(latent + model.task_tokens[task])
            if k < self.steps:
                tokens.append(model.action_tokens[task, batch["actions"][k, b]] + model.task_tokens[task])
        features, routing = model.transformer(torch.stack(tokens)[:, None])
        return {"latents": latents, "task": torch.tensor([task]), "features": features[:, 0], "routing": routing}

    def unroll(self, b: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        window, model = self.windows[b], self.model
        task, features = window["task"], window["features"]
        states = [model.predict(features[2 * k : 2 * k + 1], task) for k in range(self.steps + 1)]
        rewards = [model.reward_head(features[2 * k + 1 : 2 * k + 2], task)[0] for k in range(self.steps)]
        return [policy[0] for policy, _ in states], [value[0] for _, value in states], rewards, window["latents"]

    def latent_loss(self) -> Tensor:
        """The next latent, from the one before and its action's features, against the lagging network's."""
        total, batch = torch.zeros(()), self.batch
        for b, window in enumerate(self.windows):
            for k in range(1, self.steps + 1):
                if batch["has_obs"][k, b]:
                    change = self.model.next_latent(window["features"][2 * k - 1])
                    imagined = layer_norm(window["latents"][k - 1] + change)
                    seen = self.target.represent(row_of(batch["obs"], k, b))[0][0].detach()
                    error = (imagined - seen).square().mean()
                    total = total + float(batch["weights"][b]) / self.steps / self.size * error
        return total

    def balance_loss(self) -> Tensor:
        """E Σ use · mean probability of each layer (Fedus et al., 2022, eq. 4), for one expert a token."""
        layers = len(self.windows[0]["routing"])
        total = torch.zeros(())
        for layer in range(layers):
            chances = torch.cat([window["routing"][layer] for window in self.windows])
            experts = chances.shape[1]
            chosen = chances.argmax(1)
            uses = [float((chosen == e).float().mean()) for e in range(experts)]
            total = total + experts * sum(use * chances[:, e].mean() for e, use in enumerate(uses)) / layers
        return total
