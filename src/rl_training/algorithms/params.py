"""An algorithm's hyper-parameters: as they were given, and as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rl_training.experiment.validation import Validated
from rl_training.models.seams import is_own

IMAGE_LAYOUT = (
    "which axis of images has the channels; auto: the one that differs from the other two, or the shorter end"
)
PRECISION = (
    "of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and "
    "coarser; auto: where it has it"
)
CRITICS_PRECISION = (
    "of the CNN for images and grids and of the products between hidden layers, whose weights stay float32: bfloat16 "
    "is quicker where the processor has it, and coarser; auto: where it has it"
)
TORSO = (
    "network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), "
    "module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: "
    "the space decides"
)
TORSO_KWARGS = "passed to the torso behind the space; for each key where the torsos are"
POLICY = "policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs"


class Params(Validated):
    """The base of every algorithm's parameters. A default is written here and nowhere else."""

    spellings: ClassVar[dict[str, str]] = {}  # names that fields have elsewhere, and the fields, which mean the same
    renamed: ClassVar[dict[str, str]] = {}  # keys that one may expect here, and what to give in their place

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A field that only has another default means what it meant."""
        for name, field in cls.model_fields.items():
            bases = (base for base in cls.__mro__[1:] if issubclass(base, Params) and name in base.model_fields)
            field.description = field.description or next((b.model_fields[name].description for b in bases), None)

    def idle(self) -> dict[str, str]:
        """Names of parameters that have no effect beside the others, and why; to give one is refused."""
        return {}


OF_TORSOS = ("hidden_sizes", "activation", "cnn", "precision")
OF_READING = (*OF_TORSOS, "torso", "torso_kwargs", "image_layout")
OF_POLICIES = (*OF_READING, "share_torso", "log_std_init", "state_dependent_std", "squash_actions")


def idle_beside_own(torso: Any, policy: Any) -> dict[str, str]:
    """The parameters of networks that the user's own take the place of."""
    if policy is not None:
        return dict.fromkeys(OF_POLICIES, "on a policy of your own; give it by policy_kwargs")
    if is_own(torso) and not isinstance(torso, Mapping):
        return dict.fromkeys(OF_TORSOS, "on a torso of your own; give it by torso_kwargs")
    return {}


class LiveParams:
    """The parameters as they are now: those of a frozen `Params`, some of which controls have moved.

    The learner owns it. Its algorithm and its policy read it whenever they need a number and keep no copy, so that
    none of them can be stale.
    """

    def __init__(self, params: Params) -> None:
        vars(self).update(vars(params))

    def move(self, values: Mapping[str, float]) -> None:
        """Gives controls their values."""
        if unknown := values.keys() - vars(self).keys():
            raise AttributeError(f"no such parameter: {', '.join(sorted(unknown))}")
        vars(self).update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} is a parameter: only controls move it")
