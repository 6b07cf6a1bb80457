"""The policies of planners: one search for all environments at once, and what is made of it."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.data.trees import Tree, to_tensors
from rl_training.models.actor_critic import Acted
from rl_training.models.muzero import PlanningModel
from rl_training.models.sampled import SampledActions, SampledSearch
from rl_training.ops.search import softmax, visit_policy, with_root_noise
from rl_training.search.rules import Rule, gumbel, puct
from rl_training.search.search import Model, Roots, Searched, search

SEARCH_POLICY = "search_policy"  # the name of the policy target among a rollout's extras
SEARCH_ACTIONS = "search_actions"  # and of the actions that it is about, where they were sampled


class Plan(NamedTuple):
    """The actions at `B` roots, the policies to learn, and the values of the roots."""

    actions: NDArray[Any]
    policy: NDArray[np.floating]  # [B, A]
    values: NDArray[np.float32]
    noise: NDArray[np.floating] | None = None  # [B, A] of the roots, where the rule has any
    candidates: NDArray[Any] | None = None  # [B, A, …] the actions, where they were sampled

    @property
    def targets(self) -> dict[str, NDArray[Any]]:
        """The columns that the policy learns from, by name."""
        policy = {SEARCH_POLICY: self.policy.astype(np.float32)}
        return policy if self.candidates is None else policy | {SEARCH_ACTIONS: self.candidates}


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
        """The model's memory, and behind it the noise that may be kept for the next search."""
        noise = torch.zeros(batch, self.kept_noise, device=self.device)
        return torch.cat([self.model.initial_state(batch), noise], dim=-1)

    @property
    def kept_noise(self) -> int:
        """How many numbers of noise a state has."""
        return 0

    @torch.no_grad()
    def act(
        self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None, deterministic: bool = False
    ) -> Acted:
        plan = self.plan(obs, None if deterministic else _numpy_generator(generator, self.device), state=state)
        known = to_tensors({"actions": plan.actions, "values": plan.values, **plan.targets}, self.device)
        actions, values = known.pop("actions"), known.pop("values")
        return Acted(actions, self._next_state(state, obs, actions, plan.noise), values=values, extras=known)

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """(the model's memory, the noise that is kept)."""
        remembered, kept = state.tensor_split([self.model.state_size], dim=-1)
        return remembered, kept

    def _next_state(self, state: Tensor, obs: Tree, actions: Tensor, noise: NDArray[np.floating] | None) -> Tensor:
        remembered, kept = self._split(state)
        remembered = self.model.remember(remembered, obs, actions)
        if self.kept_noise and noise is not None:
            kept = torch.as_tensor(noise, dtype=kept.dtype, device=kept.device)
        return torch.cat([remembered, kept], dim=-1)

    @torch.no_grad()
    def act_randomly(self, obs: Tree, state: Tensor, *, generator: torch.Generator | None = None) -> Acted:
        """Acts without a search: the policy learns that all legal actions are alike, and values are the network's."""
        _, values, logits = self.model.root(obs, self._split(state)[0])
        if self.model.sampled is not None:
            return self._sampled_randomly(values, state, self.model.sampled, generator)
        legal = (logits.softmax(-1) > 0.0).float()
        policy = legal / legal.sum(-1, keepdim=True)
        actions = torch.multinomial(policy, 1, generator=generator)[:, 0]
        state = self._next_state(state, obs, actions, None)
        return Acted(actions, state, values=values, extras={SEARCH_POLICY: policy})

    def _sampled_randomly(
        self, values: Tensor, state: Tensor, sampled: SampledActions, generator: torch.Generator | None
    ) -> Acted:
        candidates = sampled.draw_evenly(len(values), generator, self.device)
        even = values.new_full((len(values), sampled.count), 1.0 / sampled.count)
        extras = {SEARCH_POLICY: even, SEARCH_ACTIONS: candidates}
        return Acted(candidates[:, 0], state, values=values, extras=extras)

    @torch.no_grad()
    def plan(
        self,
        obs: Tree,
        rng: np.random.Generator | None,
        *,
        model: PlanningModel | None = None,
        state: Tensor | None = None,
    ) -> Plan:
        """Searches, without a generator free of noise and chance; another model may stand in for the policy's own.

        Without a state the observations are taken for the first of their episodes.
        """
        model = self.model if model is None else model
        remembered, kept = (None, None) if state is None else self._split(state)
        latents, values, logits = model.root(obs, remembered)
        if model.sampled is not None:
            return self._plan_sampled(model, model.sampled, latents, values, logits, rng)
        return self._searched(model, latents, values, logits, rng, kept)

    def _plan_sampled(
        self,
        model: PlanningModel,
        sampled: SampledActions,
        latents: Tensor,
        values: Tensor,
        dist: Tensor,
        rng: np.random.Generator | None,
    ) -> Plan:
        """Searches among samples; without a generator what is seen decides which, and the policy's likeliest is one.

        The same chance at every step would leave out the same directions at every step.
        """
        seed = zlib.crc32(latents.cpu().numpy().tobytes()) if rng is None else int(rng.integers(2**62))
        generator = torch.Generator(self.device).manual_seed(seed)
        if rng is None:
            candidates, logits = sampled.draw(dist, generator), values.new_zeros(len(values), sampled.count)
            candidates[:, 0] = sampled.head.mode(dist)
        else:
            candidates, logits = sampled.explore(dist, generator)
        among = SampledSearch(model, sampled, generator)
        plan = self._searched(among, among.packed(latents, candidates), values, logits, rng)
        known = candidates.cpu().numpy()
        chosen = known[np.arange(len(known)), plan.actions]
        actions = sampled.greedy(known, plan.policy, chosen) if rng is None else chosen
        return plan._replace(actions=actions, candidates=known)

    def _searched(
        self,
        model: Model,
        latents: Tensor,
        values: Tensor,
        logits: Tensor,
        rng: np.random.Generator | None,
        kept: Tensor | None = None,
    ) -> Plan:
        roots = Roots(latents, logits.float().cpu().numpy(), values.float().cpu().numpy())
        roots, rule = self.prepare(roots, rng, None if kept is None else kept.cpu().numpy())
        searched = search(
            roots,
            model,
            rule=rule,
            num_simulations=self.params.num_simulations,
            discount=self.params.gamma,
            max_depth=self.max_depth,
        )
        return self.decide(searched, rng)._replace(noise=roots.gumbel)

    @abstractmethod
    def prepare(
        self, roots: Roots, rng: np.random.Generator | None, kept: NDArray[np.floating] | None = None
    ) -> tuple[Roots, Rule]:
        """The roots with their noise, and the rule of the search; `kept` is the noise of the search before."""

    @abstractmethod
    def decide(self, searched: Searched, rng: np.random.Generator | None) -> Plan: ...

    @torch.no_grad()
    def values(self, obs: Tree, state: Tensor | None = None) -> Tensor:
        """The network's, without a search."""
        return self.model.root(obs, None if state is None else self._split(state)[0])[1]

    def env_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        sampled = self.model.sampled
        return actions + self.first_action if sampled is None else sampled.head.to_env(actions)


class PUCTPolicy(SearchPolicy):
    """MuZero's: Dirichlet noise at the root, actions drawn from the visits, sharpened by the temperature."""

    def __init__(self, model: PlanningModel, params: Any, **options: Any) -> None:
        super().__init__(model, params, **options)
        self.rule = puct(
            pb_c_init=params.pb_c_init, pb_c_base=params.pb_c_base, first_play=params.first_play, players=params.players
        )

    def prepare(
        self, roots: Roots, rng: np.random.Generator | None, kept: NDArray[np.floating] | None = None
    ) -> tuple[Roots, Rule]:
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

    @property
    def kept_noise(self) -> int:
        """The noise of sampled actions is not kept: the next search has other samples."""
        return self.model.num_actions if self.params.noise_persistence and self.model.sampled is None else 0

    def prepare(
        self, roots: Roots, rng: np.random.Generator | None, kept: NDArray[np.floating] | None = None
    ) -> tuple[Roots, Rule]:
        if rng is None:
            return roots, self.rule
        noise = self.params.temperature * rng.gumbel(size=roots.logits.shape)
        if kept is not None and kept.shape[1]:
            stays = kept.any(-1) & (rng.random(len(kept)) < self.params.noise_persistence)  # all 0: it had none yet
            noise = np.where(stays[:, None], kept, noise)
        return roots._replace(gumbel=noise), self.rule

    def decide(self, searched: Searched, rng: np.random.Generator | None) -> Plan:
        assert searched.improved_logits is not None
        return Plan(searched.actions, softmax(searched.improved_logits), searched.values)


def _numpy_generator(generator: torch.Generator | None, device: torch.device) -> np.random.Generator:
    """torch has no Dirichlet that draws from a generator; NumPy does, seeded by the one that a checkpoint keeps."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator, device=device)))


def _draw(chances: NDArray[np.floating], rng: np.random.Generator) -> NDArray[np.int64]:
    bounds = chances.cumsum(-1)
    return (rng.random((len(bounds), 1)) * bounds[:, -1:] >= bounds).sum(-1)
