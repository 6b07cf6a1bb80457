"""TD3 (Fujimoto et al., 2018, arXiv:1802.09477): a point in place of a distribution, and a smoothed, delayed one."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt

from rl_training.algorithms.off_policy import CriticParams
from rl_training.algorithms.sac import ActorThroughCritics
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.models.actors import Candidates, PointActor
from rl_training.models.critics import Critics


class TD3Params(CriticParams):
    of_targets = ()  # the policy has one in any case
    learning_rate: PositiveFloat = Field(1e-3)
    policy_interval: PositiveInt = Field(2)
    exploration_noise: float = Field(0.1, ge=0, description="deviation of the noise on actions, of half their range")
    target_noise: float = Field(0.2, ge=0, description="deviation of the noise on the target policy's actions")
    target_noise_clip: PositiveFloat = Field(0.5, description="bound on that noise")


class TD3(ActorThroughCritics):
    """Critics learn around the actions of a lagging policy; the policy climbs the first of them."""

    state_parts: ClassVar[tuple[str, ...]] = (*ActorThroughCritics.state_parts, "target_policy")
    climbed_critics = 1
    params: TD3Params

    def __init__(self, policy: PointActor, critics: Critics, params: TD3Params) -> None:
        super().__init__(policy, critics, params)
        self.target_policy = TargetNetwork(policy)

    @property
    def next_actor(self) -> PointActor:
        return self.target_policy.network

    def smoothed(self, candidates: Candidates) -> Candidates:
        """Target policy smoothing (eq. 14)."""
        actions = candidates.actions
        assert actions is not None
        noise = torch.empty_like(actions).normal_(generator=self.noise.generator).mul_(self.params.target_noise)
        clip = self.params.target_noise_clip
        return candidates._replace(actions=(actions + noise.clamp_(-clip, clip)).clamp_(-1.0, 1.0))

    def follow(self) -> None:
        """The lagging networks move when the policy does."""
        if self.updates % self.params.policy_interval == 0:
            super().follow()
            self.target_policy.average_every(self.params.target_update_interval, self.params.tau, self.policy)
