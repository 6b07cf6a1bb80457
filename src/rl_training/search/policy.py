"""The policies of planners: one search for all environments at once, and what is made of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree
from rl_training.models.actor_critic import Acted
from rl_training.models.muzero import PlanningModel
from rl_training.ops.search import softmax, visit_policy, with_root_noise
from rl_training.search.rules import Rule, gumbel, puct
from rl_training.search.search import Roots, Searched, search

SEARCH_POLICY = "search_policy"  # the name of the policy target among a rollout's extras


class Plan(NamedTuple):
    """The actions at `B` roots, the policies to learn, and the values of the roots."""

    actions: NDArray[np.int64]
    policy: NDArray[np.floating]  # [B, A]
    values: NDArray[np.float32]


class SearchPolicy(nn.Module):
    """Acts by planning with its model. It reads its parameters whenever it plans, since controls may have moved them.

    `max_depth` bounds the search; `first_action` is the number that the environment's first action has.
    """

    def __init__(self, model: PlanningModel, params: Any, *, max_depth: int | None, first_action: int) -> None:
        super().__init__()
        self.model = model
        self.params = params
        self.max_depth = max_depth
        self.first_action = first_action

    def apply_controls(self, values: Mapping[str, float]) -> None:
        self.params.move(values)

    @property
    def device(self) -> torch.device:
        return self.model.device

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0, device=self.device)

    @torch.no_grad()
    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        plan = self.plan(obs, None if deterministic else _numpy_generator(generator, self.device))
        actions, policy, values = (torch.from_numpy(np.ascontiguousarray(part)).to(self.device) for part in plan)
        return Acted(actions, state, values=values, extras={SEARCH_POLICY: policy.float()})

    @torch.no_grad()
    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        """Acts without a search: the policy learns that all legal actions are alike, and values are the network's."""
        _, values, logits = self.model.root(obs)
        legal = (logits.softmax(-1) > 0.0).float()
        policy = legal / legal.sum(-1, keepdim=True)
        actions = torch.multinomial(policy, 1, generator=generator)[:, 0]
        return Acted(actions, state, values=values, extras={SEARCH_POLICY: policy})

    @torch.no_grad()
    def plan(self, obs: Tree, rng: np.random.Generator | None, *, model: PlanningModel | None = None) -> Plan:
        """Searches, without a generator free of noise and chance; another model may stand in for the policy's own."""
        model = self.model if model is None else model
        latents, values, logits = model.root(obs)
        roots = Roots(latents, logits.float().cpu().numpy(), values.float().cpu().numpy())
        roots, rule = self.prepare(roots, rng)
        searched = search(
            roots,
            model,
            rule=rule,
            num_simulations=self.params.num_simulations,
            discount=self.params.gamma,
            max_depth=self.max_depth,
        )
        return self.decide(searched, rng)

    @abstractmethod
    def prepare(self, roots: Roots, rng: np.random.Generator | None) -> tuple[Roots, Rule]:
        """The roots with their noise, and the rule of the search."""

    @abstractmethod
    def decide(self, searched: Searched, rng: np.random.Generator | None) -> Plan: ...

    @torch.no_grad()
    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        """The network's, without a search."""
        return self.model.initial(obs)[1]

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions + self.first_action


class PUCTPolicy(SearchPolicy):
    """MuZero's: Dirichlet noise at the root, actions drawn from the visits, sharpened by the temperature."""

    def __init__(self, model: PlanningModel, params: Any, **options: Any) -> None:
        super().__init__(model, params, **options)
        self.rule = puct(
            pb_c_init=params.pb_c_init, pb_c_base=params.pb_c_base, first_play=params.first_play, players=params.players
        )

    def prepare(self, roots: Roots, rng: np.random.Generator | None) -> tuple[Roots, Rule]:
        if rng is None:
            return roots, self.rule
        count, actions = roots.logits.shape
        noise = rng.dirichlet(np.full(actions, self.params.root_dirichlet_alpha), size=count)
        prior = with_root_noise(softmax(roots.logits), noise, self.params.root_exploration_fraction)
        return roots._replace(prior=prior), self.rule

    def decide(self, searched: Searched, rng: np.random.Generator | None) -> Plan:
        chances = visit_policy(searched.visits, 0.0 if rng is None else self.params.temperature)
        actions = chances.argmax(-1) if rng is None else _draw(chances, rng)
        return Plan(actions, visit_policy(searched.visits), searched.values)


class GumbelPolicy(SearchPolicy):
    """Gumbel MuZero's. The temperature scales the Gumbel noise: at 0 the root's choice is deterministic."""

    def __init__(self, model: PlanningModel, params: Any, **options: Any) -> None:
        super().__init__(model, params, **options)
        self.rule = gumbel(
            c_visit=params.c_visit,
            c_scale=params.c_scale,
            max_considered=params.max_considered_actions,
            players=params.players,
        )

    def prepare(self, roots: Roots, rng: np.random.Generator | None) -> tuple[Roots, Rule]:
        if rng is None:
            return roots, self.rule
        return roots._replace(gumbel=self.params.temperature * rng.gumbel(size=roots.logits.shape)), self.rule

    def decide(self, searched: Searched, rng: np.random.Generator | None) -> Plan:
        assert searched.improved_logits is not None
        return Plan(searched.actions, softmax(searched.improved_logits), searched.values)


def _numpy_generator(generator: torch.Generator | None, device: torch.device) -> np.random.Generator:
    """torch has no Dirichlet that draws from a generator; NumPy does, seeded by the one that a checkpoint keeps."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator, device=device)))


def _draw(chances: NDArray[np.floating], rng: np.random.Generator) -> NDArray[np.int64]:
    bounds = chances.cumsum(-1)
    return (rng.random((len(bounds), 1)) * bounds[:, -1:] >= bounds).sum(-1)
