"""ScaleZero (Pu et al., 2025, arXiv:2509.07945): Gumbel MuZero's update of a transformer with experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from rl_training.algorithms.base import Batch
from rl_training.algorithms.gumbel_muzero import GumbelMuZero, GumbelMuZeroParams
from rl_training.algorithms.muzero import unroll_scale
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.algorithms.target_network import TargetNetwork
from rl_training.data.trees import flatten_time, tree_map
from rl_training.envs.multitask import TASK
from rl_training.models.muzero import Unrolled
from rl_training.models.scalezero import ScaleZeroModel
from rl_training.search.policy import GumbelPolicy


def expert_use(chances: Tensor, per_token: int) -> Tensor:
    """[E]: the share of tokens `[N, E]` that each expert is chosen for; of no tokens, 0."""
    chosen = F.one_hot(chances.topk(per_token).indices, chances.shape[-1])
    return chosen.sum((0, 1)) / chosen.sum().clamp_min(1)


def expert_use_of_tasks(chances: Tensor, per_token: int, tasks: Tensor, num_tasks: int) -> Tensor:
    """[T, E]: `expert_use` of each task's tokens; tokens `[S · B]` are of windows with these tasks `[B]`."""
    of_tokens = tasks.repeat(len(chances) // len(tasks))
    return torch.stack([expert_use(chances[of_tokens == task], per_token) for task in range(num_tasks)])


def balance_loss(chances: Tensor, per_token: int) -> Tensor:
    """E · Σ use · mean probability (Fedus et al., 2022, eq. 4): 1 when all experts are used alike, E when one is."""
    return chances.shape[-1] * (expert_use(chances, per_token) * chances.mean(0)).sum()


def latent_loss(imagined: Tensor, observed: Tensor, known: Tensor) -> Tensor:
    """Mean squared distance of latents `[K, B, D]`, 0 where nothing was observed."""
    return (imagined - observed).square().mean(-1) * known


class ScaleZeroParams(GumbelMuZeroParams):
    chooses_latents = False
    num_simulations: PositiveInt = 8
    fresh_bootstraps: bool = True
    latent_size: PositiveInt = Field(64, description="width of the transformer")
    hidden_size: PositiveInt = Field(128, description="of an expert")
    num_layers: PositiveInt = Field(2, description="of the transformer")
    num_heads: PositiveInt = Field(2, description="of attention")
    num_experts: PositiveInt = Field(4, description="of each mixture")
    experts_per_token: PositiveInt = Field(1, description="besides the one that all tokens share")
    context_steps: int = Field(
        0, ge=0, description="past observations and actions of the episode that a search begins with"
    )
    latent_coef: float = Field(10.0, ge=0, description="weight of the error of imagined latents")
    balance_coef: float = Field(0.01, ge=0, description="weight of using all experts alike")
    adapter_stages: int = Field(0, ge=0, description="stages of low-rank changes to a frozen transformer")
    adapter_rank: PositiveInt = Field(8, description="of a low-rank change")
    stage_updates: PositiveInt = Field(5_000, description="updates after which the next stage begins at the latest")
    target_returns: float | dict[str, float] | None = Field(
        None,
        description="mean return of 20 training episodes at which a task is solved: one for all, or one by task; "
        "default: no task ever is",
    )
    solved_share: float = Field(0.25, ge=0, le=1, description="windows of a solved task for one of an unsolved task")

    def idle(self) -> dict[str, str]:
        names = ("latent", "residual_blocks")
        idle = dict.fromkeys(names, "in ScaleZero, whose latents are tokens of a transformer")
        return super().idle() | idle | {"sampled_actions": "in ScaleZero, whose searches try every action"}

    @model_validator(mode="after")
    def _sizes_fit(self) -> ScaleZeroParams:
        if self.latent_size % self.num_heads:
            raise ValueError(f"latent_size {self.latent_size} is not a multiple of num_heads {self.num_heads}")
        if self.experts_per_token > self.num_experts:
            raise ValueError(f"experts_per_token {self.experts_per_token} exceeds num_experts {self.num_experts}")
        return self


class ScaleZero(GumbelMuZero):
    """A stage adds low-rank changes to the frozen transformer; none lasts longer than `stage_updates` updates."""

    state_scalars = ("stage", "updates")
    target: TargetNetwork[ScaleZeroModel]  # type: ignore[assignment]

    params: ScaleZeroParams

    def __init__(self, policy: GumbelPolicy, params: ScaleZeroParams) -> None:
        super().__init__(policy, params)
        self.stage, self.updates = 0, 0  # the updates are the stage's own

    @property
    def model(self) -> ScaleZeroModel:
        assert isinstance(self.policy.model, ScaleZeroModel)
        return self.policy.model

    @property
    def remaining_stages(self) -> int:
        return self.params.adapter_stages - self.stage

    def update(self, batch: Batch) -> PrioritizedResult:
        if self.remaining_stages and self.updates >= self.params.stage_updates:
            self.enter_stage(self.stage + 1)
        self.updates += 1
        return super().update(batch)

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """`obs` are of all K + 1 states; `has_obs` says which of them are known."""
        total, parts = super().loss(unrolled, batch)
        scale = unroll_scale(len(batch["actions"]), total)[1:] * batch["weights"]
        errors = latent_loss(unrolled.latents[1:], self.observed_latents(batch), batch["has_obs"][1:])
        latent = (errors * scale).sum(0).mean()
        per_token = self.model.experts_per_token
        balance = torch.stack([balance_loss(chances, per_token) for chances in unrolled.routing]).mean()
        parts |= {"latent_loss": latent, "balance_loss": balance, "adapter_stage": torch.tensor(float(self.stage))}
        for layer, chances in enumerate(unrolled.routing):
            parts |= {f"expert_use/{layer}.{e}": use for e, use in enumerate(expert_use(chances, per_token))}
            parts |= self.task_experts(layer, chances, batch)
        parts |= self.task_shares(batch)
        return total + self.params.latent_coef * latent + self.params.balance_coef * balance, parts

    def task_experts(self, layer: int, chances: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Metrics of several tasks: the share of each task's tokens that a layer's experts are chosen for."""
        names = self.model.task_names
        if not names:
            return {}
        uses = expert_use_of_tasks(chances, self.model.experts_per_token, batch["obs"][TASK][0], len(names))
        return {
            f"expert_use/{layer}.{e}/{name}": use
            for name, of_task in zip(names, uses, strict=True)
            for e, use in enumerate(of_task)
        }

    def task_shares(self, batch: Batch) -> dict[str, Tensor]:
        """Metrics of several tasks: the share of each in the windows, and in their weights in the loss."""
        shares: dict[str, Tensor] = {}
        for task, name in enumerate(self.model.task_names):
            own = (batch["obs"][TASK][0] == task).float()
            shares[f"window_share/{name}"] = own.mean()
            shares[f"loss_share/{name}"] = (own * batch["weights"]).sum() / batch["weights"].sum()
        return shares

    @torch.no_grad()
    def observed_latents(self, batch: Batch) -> Tensor:
        """Where the imagined latents should have ended, by the network that lags behind."""
        following = flatten_time(tree_map(lambda leaf: leaf[1:], batch["obs"]))
        return self.target.network.represent(following)[0].unflatten(0, batch["actions"].shape)

    def enter_stage(self, stage: int) -> None:
        """Begins a stage: a new optimizer trains its adapters, the encoders and the heads."""
        self.stage, self.updates = stage, 0
        self.model.transformer.enter_stage(stage)
        trained = [p for p in self.policy.parameters() if p.requires_grad]
        self.optimizer = FlatOptimizer(trained, eps=self.params.adam_eps, kind="adam")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["stage"] > self.stage:
            self.enter_stage(state["stage"])
        super().load_state_dict(state)
