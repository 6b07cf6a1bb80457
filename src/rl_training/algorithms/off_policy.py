"""The parameters of algorithms that learn action values from replayed transitions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rl_training.algorithms.params import (
    CRITICS_PRECISION,
    IMAGE_LAYOUT,
    PRECISION,
    TORSO,
    TORSO_KWARGS,
    idle_beside_own,
)
from rl_training.algorithms.replay import ReplayParams
from rl_training.envs.types import ImageLayout
from rl_training.models.precision import Precision
from rl_training.models.seams import OwnNetwork
from rl_training.models.torsos import CNN


class OffPolicyParams(ReplayParams):
    rollout_steps: PositiveInt = Field(4, description="rows of every environment in a rollout")
    learning_rate: PositiveFloat = Field(3e-4, description="step size of the optimizer")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a step")
    n_steps: PositiveInt = Field(1, description="real rewards in a target")
    replay_ratio: float = Field(1.0, ge=0, description="updates per environment step")
    tau: float = Field(0.005, gt=0, le=1, description="share of the way that the target network goes in a step")
    target_update_interval: PositiveInt = Field(1, description="updates between two steps of the target network")
    priority_alpha: float | None = Field(
        None, ge=0, description="how much errors decide what is replayed; default: all rows alike"
    )
    priority_beta: float = Field(0.4, ge=0, le=1, description="how much importance weights make up for it")
    her_ratio: float = Field(
        0.0, ge=0, le=1, description="share of replayed transitions with a goal that their episode reached later (HER)"
    )
    adam_eps: PositiveFloat = Field(1e-8, description="added to the optimizer's denominator")
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256), description="widths of the hidden layers")
    activation: Literal["tanh", "relu", "silu", "elu"] = Field("relu", description="between the layers of an MLP")
    cnn: CNN = Field("nature", description="convolutional network for images")
    image_layout: ImageLayout = Field("auto", description=IMAGE_LAYOUT)
    precision: Precision = Field("float32", description=PRECISION)
    torso: OwnNetwork = Field(None, description=TORSO)
    torso_kwargs: dict[str, Any] = Field({}, description=TORSO_KWARGS)

    def idle(self) -> dict[str, str]:
        without = {} if self.priority_alpha is not None else {"priority_beta": "without priority_alpha"}
        return without | idle_beside_own(self.torso, None)


class CriticParams(OffPolicyParams):
    """The parameters of an actor that learns through several critics."""

    of_targets: ClassVar[tuple[str, ...]] = ("tau", "target_update_interval")  # which only a lagging copy has

    batch_size: PositiveInt = Field(256)
    replay_capacity: PositiveInt = Field(1_000_000)
    random_steps: int = Field(1_000, ge=0)
    noise_correlation: float = Field(
        0.0, ge=0, lt=1, description="how much of its exploration noise a step keeps of the step before; 0: white noise"
    )
    precision: Precision = Field("float32", description=CRITICS_PRECISION)
    num_critics: PositiveInt = Field(2, description="networks that value actions; the least of them counts")
    policy_interval: PositiveInt = Field(1, description="updates of the critics for each of the policy")
    num_quantiles: PositiveInt = Field(1, description="of each critic; 1: it learns the mean of the return alone")
    dropped_quantiles: int = Field(
        2, ge=0, description="the highest of each critic that targets leave out, of all critics' together (TQC)"
    )
    layer_norm: bool = Field(False, description="in the critics")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the critics' hidden units that an update leaves out")
    batch_renorm: bool = Field(
        False, description="critics normalise every layer by the batch, and need no target network (CrossQ)"
    )

    @model_validator(mode="after")
    def _some_quantiles_remain(self) -> CriticParams:
        if self.num_quantiles > 1 and self.dropped_quantiles >= self.num_quantiles:
            raise ValueError("dropped_quantiles must be fewer than num_quantiles")
        return self

    def idle(self) -> dict[str, str]:
        """The layers of the critics follow the torso, whose own it is."""
        of_critics = ("hidden_sizes", "activation", "precision")
        others = {name: why for name, why in super().idle().items() if name not in of_critics}
        mean_alone = {"dropped_quantiles": "with num_quantiles 1"} if self.num_quantiles == 1 else {}
        without_target = dict.fromkeys(self.of_targets, "with batch_renorm") if self.batch_renorm else {}
        return others | mean_alone | without_target
