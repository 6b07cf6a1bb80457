"""Kernels of the recurrent state-space model: its sequence as one node of autograd, and a GRU's gates.

On the few rows of a step torch takes most of the time to launch its operations and to record them. Here buffers hold
the whole sequence, a step writes its rows into them by a few products and compiled passes, and the gradient of a
weight is one product for all steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rl_training.kernels import gru, normed, stochastic
from rl_training.kernels.table import replaces
from rl_training.kernels.tools.arrays import as_rows, as_tensor, suits_kernels
from rl_training.models import rssm as plain
from rl_training.models.normed import NORM_EPS, BlockLinear, NormedActivation
from rl_training.models.rssm import RSSM
from rl_training.ops.categorical import UNIFORM_SHARE


class Weights(NamedTuple):
    """The weights of layers that see the state: `hidden` and `gates` are `[blocks, in, out]`, others `[out, in]`."""

    from_deter: Tensor
    from_stoch: Tensor
    input_scale: Tensor
    hidden: Tensor
    hidden_bias: Tensor
    hidden_scale: Tensor
    gates: Tensor
    gates_bias: Tensor
    posterior_deter: Tensor
    posterior_scale: Tensor
    posterior_last: Tensor
    posterior_bias: Tensor


def is_own_rssm(rssm: RSSM, *tensors: Tensor) -> bool:
    """Exactly RSSM with its own layers, on float32 on the CPU."""
    if type(rssm) is not RSSM or not suits_kernels(tensors[0]):
        return False
    activations = (rssm.input_activation, rssm.hidden_activation, rssm.posterior_activation)
    linears = (rssm.from_deter, rssm.from_stoch, rssm.posterior_deter, rssm.posterior_last)
    return (
        all(type(layer) is NormedActivation for layer in activations)
        and all(type(layer) is nn.Linear for layer in linears)
        and type(rssm.hidden) is BlockLinear
        and type(rssm.gates) is BlockLinear
    )


@replaces(RSSM.filtered, when=is_own_rssm, tolerance=1e-4)
def filtered(
    rssm: RSSM, action_inputs: Tensor, token_inputs: Tensor, goes_on: Tensor, uniform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    weights = Weights(
        from_deter=rssm.from_deter.weight,
        from_stoch=rssm.from_stoch.weight,
        input_scale=rssm.input_activation.scale,
        hidden=rssm.hidden.weight,
        hidden_bias=rssm.hidden.bias.flatten(),
        hidden_scale=rssm.hidden_activation.scale,
        gates=rssm.gates.weight,
        gates_bias=rssm.gates.bias.flatten(),
        posterior_deter=rssm.posterior_deter.weight,
        posterior_scale=rssm.posterior_activation.scale,
        posterior_last=rssm.posterior_last.weight,
        posterior_bias=rssm.posterior_last.bias,
    )
    biases = [layer.bias.expand_as(action_inputs) for layer in (rssm.from_deter, rssm.from_stoch)]
    inputs = torch.cat([*biases, action_inputs], dim=-1)
    tokens = token_inputs + rssm.posterior_deter.bias
    return Filtered.apply(inputs, tokens, goes_on, uniform, *weights)  # type: ignore[no-untyped-call]


def wants_no_gradient(gates: Tensor, state: Tensor) -> bool:
    """Float32 on the CPU, and no gradient wanted."""
    return suits_kernels(gates) and not torch.is_grad_enabled()


@replaces(plain.gated, when=wants_no_gradient, tolerance=1e-6)
def gated(gates: Tensor, state: Tensor) -> Tensor:
    width = state.shape[-1]
    rows = as_rows(state, -1, width)
    output = np.empty_like(rows)
    gru.forward(as_rows(gates, -1, 3 * width), rows, output)
    return as_tensor(output, state.shape)


class Filtered(torch.autograd.Function):
    """`filtered` as a function of tensors.

    The products of the state are added to `inputs` `[T, N, 3H]` before the first activation and to `token_inputs`
    `[T, N, H]` before the posterior's.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, token_inputs: Tensor, goes_on: Tensor, uniform: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.steps = steps = Steps(Weights(*weights), inputs, token_inputs, goes_on, uniform)
        for t in range(len(inputs)):
            steps.forward(t)
        deter, stoch, probs = (x.all.view(*inputs.shape[:2], -1) for x in (steps.deter, steps.stoch, steps.probs))
        return deter, stoch, probs.unflatten(-1, (uniform.shape[2], -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_deter: Tensor, to_stoch: Tensor, to_probs: Tensor) -> tuple[Tensor | None, ...]:
        steps: Steps = ctx.steps
        steps.prepare_backward(to_deter, to_stoch, to_probs)
        for t in reversed(range(len(to_deter))):
            steps.backward(t)
        inputs, token_inputs = (x.to_x.all.view(*to_deter.shape[:2], -1) for x in (steps.first, steps.last))
        return inputs, token_inputs, None, None, *steps.weight_gradients()


class Buffer:
    """Memory for a sequence: `all` is `[T·N, W]`; of step t, `rows[t]` is `[N, W]` and `arrays[t]` `[-1, *shape]`."""

    def __init__(self, steps: int, rows: int, *shape: int, width: int | None = None) -> None:
        width = width or int(np.prod(shape))
        self.all = torch.empty(steps * rows, width, dtype=torch.float32, device="cpu")
        self.rows = self.all.view(steps, rows, width).unbind()
        self.arrays = list(self.all.numpy().reshape(steps, -1, *shape))

    def like(self) -> Buffer:
        rows, width = self.rows[0].shape
        return Buffer(len(self.rows), rows, *self.arrays[0].shape[1:], width=width)


class NormedSteps:
    """A `NormedActivation` at each step; others fill `x`, and on the way back `to_output`."""

    def __init__(self, steps: int, rows: int, scale: Tensor, groups: int = 1) -> None:
        self.scale = as_rows(scale, groups, -1)
        self.x, self.inverse = Buffer(steps, rows, *self.scale.shape), Buffer(steps, rows, groups)
        self.output = self.x.like()

    def forward(self, t: int) -> None:
        made = self.output.arrays[t], self.inverse.arrays[t]
        normed.forward(self.x.arrays[t], self.scale, NORM_EPS, *made)

    def prepare_backward(self) -> None:
        self.to_output, self.to_x, self.to_scale = self.x.like(), self.x.like(), np.zeros_like(self.scale)

    def backward(self, t: int) -> None:
        given = self.to_output.arrays[t], self.x.arrays[t], self.scale, self.inverse.arrays[t]
        normed.backward(*given, self.to_x.arrays[t], self.to_scale)

    def scale_gradient(self) -> Tensor:
        return torch.from_numpy(self.to_scale).flatten()


class Steps:
    """The computation of `Filtered`, step by step, and the way back."""

    def __init__(
        self, weights: Weights, inputs: Tensor, token_inputs: Tensor, goes_on: Tensor, uniform: Tensor
    ) -> None:
        self.weights = weights
        steps, rows, groups, _ = uniform.shape
        (units, deter), stoch = weights.from_deter.shape, weights.from_stoch.shape[1]
        block = deter // len(weights.hidden)
        self.of_deter, of_inputs = weights.hidden[:, :block], weights.hidden[:, block:]
        self.of_inputs = of_inputs.transpose(0, 1).flatten(1)  # every block sees all of them: one product
        self.from_deter, self.from_stoch = slice(0, units), slice(units, 2 * units)  # parts of the first activation
        self.first = NormedSteps(steps, rows, weights.input_scale, groups=3)
        self.first.x.all.copy_(inputs.flatten(0, 1))
        self.hidden = NormedSteps(steps, rows, weights.hidden_scale)
        self.last = NormedSteps(steps, rows, weights.posterior_scale)
        self.gates = Buffer(steps, rows, 3 * block, width=3 * deter)
        self.deter, self.deter_before = (Buffer(steps, rows, block, width=deter) for _ in range(2))
        self.logits = Buffer(steps, rows, stoch // groups, width=stoch)
        self.probs, self.stoch, self.stoch_before = (self.logits.like() for _ in range(3))
        self.token_inputs, self.goes_on, self.uniform = token_inputs, goes_on, as_rows(uniform, steps, -1)

    def forward(self, t: int) -> None:
        w, deter, stoch = self.weights, self.deter_before.rows[t], self.stoch_before.rows[t]
        if t:
            torch.mul(self.deter.rows[t - 1], self.goes_on[t], out=deter)
            torch.mul(self.stoch.rows[t - 1], self.goes_on[t], out=stoch)
        else:
            deter.zero_()
            stoch.zero_()
        inputs, hidden, gates = self.first.x.rows[t], self.hidden.x.rows[t], self.gates.rows[t]
        inputs[:, self.from_deter].addmm_(deter, w.from_deter.t())
        inputs[:, self.from_stoch].addmm_(stoch, w.from_stoch.t())
        self.first.forward(t)
        torch.addmm(w.hidden_bias, self.first.output.rows[t], self.of_inputs, out=hidden)
        add_block_product(hidden, deter, self.of_deter)
        self.hidden.forward(t)
        add_block_product(gates.copy_(w.gates_bias), self.hidden.output.rows[t], w.gates)
        gru.forward(self.gates.arrays[t], self.deter_before.arrays[t], self.deter.arrays[t])
        torch.addmm(self.token_inputs[t], self.deter.rows[t], w.posterior_deter.t(), out=self.last.x.rows[t])
        self.last.forward(t)
        torch.addmm(w.posterior_bias, self.last.output.rows[t], w.posterior_last.t(), out=self.logits.rows[t])
        stochastic.mix(self.logits.arrays[t], UNIFORM_SHARE, self.probs.arrays[t])
        stochastic.choose(self.probs.arrays[t], self.uniform[t], self.stoch.arrays[t])

    def prepare_backward(self, to_deter: Tensor, to_stoch: Tensor, to_probs: Tensor) -> None:
        for layer in (self.first, self.hidden, self.last):
            layer.prepare_backward()
        self.to_deter, self.to_deter_before, self.to_gates = self.deter.like(), self.deter.like(), self.gates.like()
        self.to_probs, self.to_logits = self.probs.like(), self.logits.like()
        self.to_deter.all.copy_(to_deter.flatten(0, 1))
        torch.add(to_stoch.flatten(0, 1), to_probs.flatten(0, 1).flatten(1), out=self.to_probs.all)

    def backward(self, t: int) -> None:
        """The gradients of all that step t has computed; they are added to those of the state before it."""
        w, to_deter, to_before = self.weights, self.to_deter.rows[t], self.to_deter_before.rows[t]
        given = self.to_probs.arrays[t], self.probs.arrays[t], UNIFORM_SHARE
        stochastic.mix_backward(*given, self.to_logits.arrays[t])
        torch.mm(self.to_logits.rows[t], w.posterior_last, out=self.last.to_output.rows[t])
        self.last.backward(t)
        to_deter.addmm_(self.last.to_x.rows[t], w.posterior_deter)
        gated = self.to_deter.arrays[t], self.gates.arrays[t], self.deter_before.arrays[t]
        gru.backward(*gated, self.to_gates.arrays[t], self.to_deter_before.arrays[t])
        add_block_product(self.hidden.to_output.rows[t].zero_(), self.to_gates.rows[t], w.gates.transpose(1, 2))
        self.hidden.backward(t)
        torch.mm(self.hidden.to_x.rows[t], self.of_inputs.t(), out=self.first.to_output.rows[t])
        self.first.backward(t)
        if t:
            to_first = self.first.to_x.rows[t]
            add_block_product(to_before, self.hidden.to_x.rows[t], self.of_deter.transpose(1, 2))
            to_before.addmm_(to_first[:, self.from_deter], w.from_deter)
            self.to_deter.rows[t - 1].addcmul_(to_before, self.goes_on[t])
            to_stoch = to_first[:, self.from_stoch] @ w.from_stoch
            self.to_probs.rows[t - 1].addcmul_(to_stoch, self.goes_on[t])

    def weight_gradients(self) -> Weights:
        first, hidden, last = (layer.to_x.all for layer in (self.first, self.hidden, self.last))
        gates, logits, deter_before = self.to_gates.all, self.to_logits.all, self.deter_before.all
        blocks = len(self.weights.hidden)
        to_of_inputs = (self.first.output.all.t() @ hidden).unflatten(1, (blocks, -1)).transpose(0, 1)
        return Weights(
            from_deter=first[:, self.from_deter].t() @ deter_before,
            from_stoch=first[:, self.from_stoch].t() @ self.stoch_before.all,
            input_scale=self.first.scale_gradient(),
            hidden=torch.cat([block_weight_gradient(deter_before, hidden, blocks), to_of_inputs], dim=1),
            hidden_bias=hidden.sum(0),
            hidden_scale=self.hidden.scale_gradient(),
            gates=block_weight_gradient(self.hidden.output.all, gates, blocks),
            gates_bias=gates.sum(0),
            posterior_deter=last.t() @ self.deter.all,
            posterior_scale=self.last.scale_gradient(),
            posterior_last=logits.t() @ self.last.output.all,
            posterior_bias=logits.sum(0),
        )


def add_block_product(output: Tensor, x: Tensor, weight: Tensor) -> None:
    """Adds to each part of `output` the product of the same part of `x` and a block of `weight` `[blocks, in, out]`."""
    if len(weight) == 1:
        output.addmm_(x, weight[0])
    else:
        parts, inputs = (rows.unflatten(1, (len(weight), -1)).transpose(0, 1) for rows in (output, x))
        parts.baddbmm_(inputs, weight)


def block_weight_gradient(x: Tensor, grad: Tensor, blocks: int) -> Tensor:
    inputs, grads = (rows.unflatten(1, (blocks, -1)).transpose(0, 1) for rows in (x, grad))
    return inputs.transpose(1, 2) @ grads
