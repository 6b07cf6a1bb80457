"""A memory by attention: the last k observations' features, of which the newest asks the others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rl_training.errors import ConfigError


class AttentionCore(nn.Module):
    """One pre-norm block of a transformer (Vaswani et al., 2017; Parisotto et al., 2020) over the last `length` rows.

    The state `[N, (k − 1)(F + 1)]` holds the features of the k − 1 rows before, each with a 1 if it was there: an
    episode that begins has none. A row sees its own window only, so that acting and updating give the same outputs.
    """

    def __init__(self, in_features: int, size: int, *, length: int, heads: int) -> None:
        super().__init__()
        if size % heads:
            raise ConfigError(f"attention_heads: {heads} heads cannot share recurrent_size {size} evenly")
        self.in_features, self.length, self.heads = in_features, length, heads
        self.state_size = (length - 1) * (in_features + 1)
        self.embed = nn.Linear(in_features, size)
        self.before = nn.LayerNorm(size)
        self.query, self.keys_values = nn.Linear(size, size), nn.Linear(size, 2 * size)
        self.distance = nn.Parameter(torch.zeros(heads, length))  # how much each head likes rows so far back
        self.mix = nn.Linear(size, size)
        self.after = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs [T, N, H], state after the last row) of inputs [T, N, F] without episode starts."""
        steps, rows = inputs.shape[:2]
        present = torch.cat([inputs, inputs.new_ones(steps, rows, 1)], dim=-1)
        remembered = state.unflatten(-1, (self.length - 1, self.in_features + 1)).transpose(0, 1)
        whole = torch.cat([remembered, present])  # [k − 1 + T, N, F + 1]
        features = self.embed(whole[..., :-1])
        attended = self._attend(self.before(features), whole[..., -1] > 0, steps)
        hidden = features[self.length - 1 :] + attended
        outputs = hidden + self.mlp(self.after(hidden))
        return outputs, whole[len(whole) - (self.length - 1) :].transpose(0, 1).flatten(1)

    def _attend(self, features: Tensor, is_there: Tensor, steps: int) -> Tensor:
        """`[T, N, H]` from features `[k − 1 + T, N, H]`; row t may look at the k that end with it."""
        query = self._by_head(self.query(features[self.length - 1 :]))
        keys, values = map(self._by_head, self.keys_values(features).chunk(2, dim=-1))
        last = torch.arange(steps, device=features.device)[:, None] + self.length - 1
        back = last - torch.arange(len(features), device=features.device)  # [T, k − 1 + T]
        visible = (back >= 0) & (back < self.length)
        allowed = visible & is_there.T[:, None, None, :]  # [N, 1, T, k − 1 + T]
        liking = self.distance[:, back.clamp(0, self.length - 1)].expand(allowed.shape[0], -1, -1, -1)
        attended = F.scaled_dot_product_attention(query, keys, values, liking.masked_fill(~allowed, -torch.inf))
        return self.mix(attended.permute(2, 0, 1, 3).flatten(2))

    def _by_head(self, x: Tensor) -> Tensor:
        """[T, N, H] → [N, heads, T, H / heads]"""
        return x.unflatten(-1, (self.heads, -1)).permute(1, 2, 0, 3)
