"""The weights of MuZero's and EfficientZero's models as arrays, laid out as the compiled search reads them."""

from __future__ import annotations

from typing import NamedTuple

from rl_training.kernels.tools.arrays import Floats, as_array
from rl_training.models.efficientzero import EfficientZeroModel
from rl_training.models.muzero import MuZeroModel


class RecurrentWeights(NamedTuple):
    """The parameters of dynamics and prediction."""

    hidden: Floats  # [L + A, H]
    hidden_bias: Floats
    latent: Floats  # [H, L]
    latent_bias: Floats
    features: Floats  # [L, H]
    features_bias: Floats
    reward: Floats  # [bins, H]
    reward_bias: Floats
    policy: Floats  # [A, H]
    policy_bias: Floats
    value: Floats  # [bins, H]
    value_bias: Floats


class PrefixWeights(NamedTuple):
    """The LSTM behind EfficientZero's value prefix; its gates are input, forget, cell and output."""

    of_input: Floats  # [H, 4U]
    of_state: Floats  # [U, 4U]
    input_bias: Floats
    state_bias: Floats
    horizon: int  # steps until it begins anew


class MLPWeights(NamedTuple):
    """All weights that a compiled search needs."""

    weights: RecurrentWeights
    prefix: PrefixWeights | None = None


def weights_of(model: MuZeroModel) -> MLPWeights:
    wide = (model.dynamics.layers[0], model.next_latent, model.prediction.layers[0])
    pairs = [(layer.weight.t(), layer.bias) for layer in wide]  # type: ignore[operator]
    pairs += [(head.weight, head.bias) for head in (model.reward_head, model.policy_head, model.value_head)]
    weights = RecurrentWeights(*(as_array(part) for pair in pairs for part in pair))  # type: ignore[arg-type]
    return MLPWeights(weights, prefix_weights(model) if isinstance(model, EfficientZeroModel) else None)


def prefix_weights(model: EfficientZeroModel) -> PrefixWeights:
    lstm = model.lstm
    return PrefixWeights(
        of_input=as_array(lstm.weight_ih.t()),
        of_state=as_array(lstm.weight_hh.t()),
        input_bias=as_array(lstm.bias_ih),
        state_bias=as_array(lstm.bias_hh),
        horizon=model.lstm_horizon,
    )
