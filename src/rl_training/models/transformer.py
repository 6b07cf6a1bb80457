"""A transformer whose feed-forward layers are mixtures of experts. Tokens are `[S, B, D]`: sequence, batch, width."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALE_RANGE = 0.2  # how far training may move the weight of what is frozen


@dataclass(frozen=True)
class TransformerOptions:
    num_layers: int
    num_heads: int
    num_experts: int
    experts_per_token: int
    adapter_stages: int
    adapter_rank: int


class AdaptedLinear(nn.Linear):
    """Uses a₀ W + Σ_{j<s} aⱼ Bⱼ Aⱼ + Bₛ Aₛ in place of W from stage s on, with a = 1 + 0.2 tanh(·): W stays as it was.

    B begins at 0, so that a stage begins where the last one ended (Hu et al., 2021; the stages: Pu et al., 2025).
    """

    stage: Tensor

    def __init__(self, in_features: int, out_features: int, *, stages: int, rank: int) -> None:
        super().__init__(in_features, out_features)
        self.down = nn.ParameterList(torch.randn(rank, in_features) * in_features**-0.5 for _ in range(stages))
        self.up = nn.ParameterList(torch.zeros(out_features, rank) for _ in range(stages))
        self.scales = nn.Parameter(torch.zeros(stages))
        self.register_buffer("stage", torch.tensor(0))  # travels with the weights to target network and actors

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.adapted(), self.bias)

    def adapted(self) -> Tensor:
        stage, weight = int(self.stage), self.weight
        if stage:
            scales = 1.0 + SCALE_RANGE * self.scales[:stage].tanh()
            weight = scales[0] * weight + self.up[stage - 1] @ self.down[stage - 1]
            for j in range(1, stage):
                weight = weight + scales[j] * (self.up[j - 1] @ self.down[j - 1])
        return weight

    def enter_stage(self, stage: int) -> None:
        """Trains this stage's adapter and the weights of what came before."""
        self.stage.fill_(stage)
        for part in (self.up[stage - 1], self.down[stage - 1], self.scales):
            part.requires_grad_(True)


def linear(in_features: int, out_features: int, options: TransformerOptions) -> nn.Linear:
    if not options.adapter_stages:
        return nn.Linear(in_features, out_features)
    return AdaptedLinear(in_features, out_features, stages=options.adapter_stages, rank=options.adapter_rank)


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, options: TransformerOptions) -> None:
        super().__init__()
        self.up, self.down = linear(width, hidden, options), linear(hidden, width, options)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x)))


class Experts(nn.Module):
    """A shared expert for every token, and for each the few that its router finds likeliest, by their probability."""

    def __init__(self, width: int, hidden: int, options: TransformerOptions) -> None:
        super().__init__()
        self.per_token = options.experts_per_token
        self.router = nn.Linear(width, options.num_experts, bias=False)
        self.shared = FeedForward(width, hidden, options)
        self.experts = nn.ModuleList(FeedForward(width, hidden, options) for _ in range(options.num_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(outputs, the router's probabilities `[N, E]`) of tokens `[N, D]`; an expert computes its own tokens only."""
        chances = self.router(x).softmax(-1)
        gates, chosen = chances.topk(self.per_token)
        mixed = self.shared(x)
        for index, expert in enumerate(self.experts):
            rows, slots = (chosen == index).nonzero(as_tuple=True)
            mixed = mixed.index_add(0, rows, expert(x[rows]) * gates[rows, slots, None])
        return mixed, chances


class Attention(nn.Module):
    def __init__(self, width: int, options: TransformerOptions) -> None:
        super().__init__()
        self.num_heads = options.num_heads
        self.inputs, self.output = linear(width, 3 * width, options), linear(width, width, options)

    def forward(self, x: Tensor) -> Tensor:
        """Every token attends to itself and those before it."""
        query, key, value = self._heads(x)
        return self._merged(F.scaled_dot_product_attention(query, key, value, is_causal=True))

    def step(self, x: Tensor, memory: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        """One token `[1, B, D]` a row, at its place; its key and value go into the memory `[B, 2, H, S, D/H]`."""
        query, *pair = self._heads(x)
        memory[torch.arange(place.shape[0], device=place.device), :, :, place] = torch.cat(pair, dim=2).transpose(1, 2)
        return self._merged(F.scaled_dot_product_attention(query, memory[:, 0], memory[:, 1], attn_mask=seen))

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values `[B, H, S, D/H]`."""
        parts = self.inputs(x).unflatten(-1, (3, self.num_heads, -1))
        return parts.permute(2, 1, 3, 0, 4).unbind(0)

    def _merged(self, x: Tensor) -> Tensor:
        return self.output(x.permute(2, 0, 1, 3).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, options: TransformerOptions) -> None:
        super().__init__()
        self.attention_norm, self.experts_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, options)
        self.experts = Experts(width, hidden, options)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._mixed(x + self.attention(self.attention_norm(x)))

    def step(self, x: Tensor, memory: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        return self._mixed(x + self.attention.step(self.attention_norm(x), memory, place, seen))[0]

    def _mixed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mixed, chances = self.experts(self.experts_norm(x).flatten(0, 1))
        return x + mixed.view_as(x), chances


class Transformer(nn.Module):
    """`length` is the most tokens of a sequence; positions are learned."""

    def __init__(self, width: int, hidden: int, length: int, options: TransformerOptions) -> None:
        super().__init__()
        self.length, self.width = length, width
        self.memory_shape = (options.num_layers, 2, options.num_heads, length, width // options.num_heads)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, hidden, options) for _ in range(options.num_layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(outputs, the routers' probabilities `[S·B, E]` of each layer) of whole sequences."""
        x, routing = x + self.positions[: len(x), None], []
        for block in self.blocks:
            x, chances = block(x)
            routing.append(chances)
        return self.norm(x), tuple(routing)

    def step(self, x: Tensor, memory: Tensor, place: Tensor) -> Tensor:
        """Outputs of one token `[B, D]` a row, at its place.

        The memory `[B, L, 2, H, S, D/H]` has keys and values of the tokens before it, and gets the token's own.
        """
        x = (x + self.positions[place])[None]
        seen = (torch.arange(self.length, device=place.device) <= place[:, None])[:, None, None]
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x = block.step(x, memory[:, layer], place, seen)
        return self.norm(x[0])

    def enter_stage(self, stage: int) -> None:
        """Freezes all but the adapters of the stage."""
        self.requires_grad_(False)
        for module in self.modules():
            if isinstance(module, AdaptedLinear):
                module.enter_stage(stage)
