"""What ScaleZero adds to Gumbel MuZero: a transformer that searches by its cache, experts, tasks and adapters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.scalezero import (
    ScaleZero,
    ScaleZeroParams,
    balance_loss,
    expert_use,
    expert_use_of_tasks,
    latent_loss,
)
from rl_training.envs.multitask import TaskObservations
from rl_training.envs.types import Spaces
from rl_training.kernels.planning_transformer import CompiledScaleZero, scalezero_weights
from rl_training.models.scalezero import ScaleZeroModel
from rl_training.models.transformer import AdaptedLinear, Experts
from rl_training.ops.unroll import observed_states
from rl_training.runtime.scalezero_trainer import ScaleZeroLearner
from rl_training.search.policy import SEARCH_POLICY, GumbelPolicy
from support import scalezero_options, transformer_options
from test_muzero_update import batch_of, column, rollout_of

ALONE = Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(3))
OTHER = Spaces(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2))
BOTH = Spaces(TaskObservations(["long", "short"], [ALONE, OTHER]), spaces.Discrete(3))


def small_model(space: Spaces = ALONE, *, noisy: bool = True, **options: int) -> ScaleZeroModel:
    torch.manual_seed(0)
    sizes = {"hidden_sizes": (16,), "latent_size": 16, "hidden_size": 24, "support_size": 3, "num_experts": 3}
    model = ScaleZeroModel(space, scalezero_options(**{**sizes, "unroll_steps": 4, **options}))
    if noisy:
        for parameter in model.parameters():
            parameter.data.normal_(0.0, 0.3)
    return model


def small_scalezero(space: Spaces = ALONE, *, learning_rate: float = 3e-3, **changes: Any) -> ScaleZero:
    acting = {"gamma": 0.9, "num_simulations": 8, "temperature": 1.0}
    rule = {"max_considered_actions": 16, "c_visit": 50.0, "c_scale": 0.1}
    params = ScaleZeroParams(learning_rate=learning_rate, **acting, **rule, **changes)
    model = small_model(space, noisy=False, adapter_stages=params.adapter_stages, adapter_rank=2)
    return ScaleZero(GumbelPolicy(model, params, max_depth=4, first_action=0), params)


def observations(space: Spaces, *shape: int) -> Any:
    """Random ones; of two tasks, every other row is the second one's."""
    if space is ALONE:
        return torch.randn(*shape, 4)
    tasks = (torch.arange(shape[-1]) % 2).expand(shape).contiguous()
    first = torch.randn(*shape, 4) * (tasks == 0)[..., None]
    return {"obs_0": first, "obs_1": torch.randn(*shape, 2) * (tasks == 1)[..., None], "task": tasks}


def unroll_batch(size: int = 32, steps: int = 2, space: Spaces = ALONE) -> dict[str, Any]:
    known = torch.ones(steps + 1, size, dtype=torch.bool)
    return batch_of(size, steps) | {"obs": observations(space, steps + 1, size), "has_obs": known}


# ---- the cache


@torch.no_grad()
@pytest.mark.parametrize("space", [ALONE, BOTH], ids=["one task", "two tasks"])
def test_steps_with_the_cache_equal_the_whole_sequence(space: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search imagines step by step, read again as one sequence, has the same features everywhere."""
    model, batch = small_model(space), 6
    obs, actions = observations(space, 5, batch), torch.randint(2, (4, batch))
    rows, value, policy = model.initial({k: v[0] for k, v in obs.items()} if space is BOTH else obs[0])
    steps = [(model.unpacked(rows).latents, torch.zeros(batch), value, policy)]
    for chosen in actions:
        rows, *answers = model.recurrent(rows, chosen)
        steps.append((model.unpacked(rows).latents, *answers))
    latents, rewards, values, policies = (torch.stack(part) for part in zip(*steps, strict=True))
    tasks = model.unpacked(rows).tasks.repeat(5)
    monkeypatch.setattr(model, "represent", lambda _: (latents.flatten(0, 1), tasks))
    whole = model.unroll(obs, actions)
    torch.testing.assert_close(whole.latents, latents, atol=1e-5, rtol=0)
    torch.testing.assert_close(model.scalar(whole.value), values, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.scalar(whole.reward), rewards[1:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(whole.policy, policies, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_search_leaves_the_parents_rows_as_they_are_and_rows_know_nothing_of_each_other() -> None:
    model, actions = small_model(BOTH), torch.tensor([0, 1, 1, 0])
    rows, *_ = model.initial(observations(BOTH, 4))
    before = rows.clone()
    deeper, *_ = model.recurrent(rows, actions)
    assert torch.equal(rows, before)
    mixed = torch.stack([rows[0], deeper[1], deeper[2], rows[3]])  # nodes of different depths in one call
    together = model.recurrent(mixed, actions)
    for index in range(4):
        alone = model.recurrent(mixed[index : index + 1], actions[index : index + 1])
        for part, own in zip(together, alone, strict=True):
            torch.testing.assert_close(part[index : index + 1], own, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("space", "options"),
    [
        (ALONE, {}),
        (BOTH, {"experts_per_token": 2, "num_layers": 3}),
        (BOTH, {"latent_size": 80, "hidden_size": 72, "num_heads": 4}),
        (ALONE, {"adapter_stages": 2, "adapter_rank": 2}),
    ],
    ids=["one task", "two experts a token", "wider than a tile", "with adapters"],
)
def test_the_compiled_network_equals_the_torch_one_at_every_depth(space: Spaces, options: dict[str, int]) -> None:
    model = small_model(space, **options)
    if "adapter_stages" in options:
        model.transformer.enter_stage(2)
    rows = model.initial(observations(space, 7))[0]
    compiled = CompiledScaleZero(scalezero_weights(model)).recurrent
    for depth in range(4):
        actions = torch.randint(2, (7,))
        expected, answers = model.recurrent(rows, actions), compiled(rows, actions)
        for part, own in zip(expected, answers, strict=True):
            torch.testing.assert_close(own, part, atol=1e-5, rtol=1e-5)
        alone = compiled(rows[2:3].contiguous(), actions[2:3])
        assert all(torch.equal(part[2:3], own) for part, own in zip(answers, alone, strict=True))
        rows = torch.cat([answers[0][:5], rows[5:]]) if depth else answers[0]  # nodes of different depths in one call


def test_later_tokens_do_not_reach_earlier_ones() -> None:
    model, actions = small_model(), torch.randint(3, (4, 5))
    obs = torch.randn(5, 5, 4)
    changed = obs.clone()
    changed[3:] = torch.randn(2, 5, 4)
    first, second = model.unroll(obs, actions), model.unroll(changed, actions)
    assert torch.equal(first.value[:3], second.value[:3])
    assert torch.equal(first.reward[:3], second.reward[:3])
    assert not torch.equal(first.value[3], second.value[3])


# ---- experts


@pytest.mark.parametrize("rows", [3, 200])
@pytest.mark.parametrize("per_token", [1, 2])
def test_a_token_goes_to_its_likeliest_experts(per_token: int, rows: int) -> None:
    """The sum over all experts, with a gate of 0 for those that were not chosen."""
    torch.manual_seed(0)
    layer = Experts(8, 12, transformer_options(num_experts=4, experts_per_token=per_token))
    x = torch.randn(rows, 8)
    mixed, chances = layer(x)
    gates = torch.where(chances >= chances.sort(descending=True).values[:, per_token - 1, None], chances, 0.0)
    expected = layer.shared(x) + sum(gates[:, e, None] * expert(x) for e, expert in enumerate(layer.experts))
    torch.testing.assert_close(mixed, expected)
    mixed.sum().backward()
    assert layer.router.weight.grad is not None
    assert layer.router.weight.grad.abs().sum() > 0  # one expert per token leaves the router something to learn


def test_the_balance_by_hand() -> None:
    # all tokens to expert 0, with certainty: 2 · (1 · 1 + 0 · 0); one to each: 2 · (½ · ½ + ½ · ½)
    assert balance_loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), 1).item() == pytest.approx(2.0)
    assert balance_loss(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 1).item() == pytest.approx(1.0)
    assert expert_use(torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]]), 1).tolist() == [0.75, 0.25]
    # Two windows of two tokens each, of the tasks 0 and 1: rows 0 and 2, and rows 1 and 3.
    chances = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]])
    assert expert_use_of_tasks(chances, 1, torch.tensor([0, 1]), 3).tolist() == [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]


def test_the_balance_spreads_tokens_over_the_experts() -> None:
    algorithm, batch = small_scalezero(balance_coef=10.0, learning_rate=1e-2), unroll_batch()
    for block in algorithm.model.transformer.blocks:
        block.experts.router.weight.data[0] += 0.5  # one expert to begin with
    before = float(algorithm.update(batch).metrics["balance_loss"])
    for _ in range(60):
        metrics = algorithm.update(batch).metrics
    assert float(metrics["balance_loss"]) < before
    assert sum(float(metrics[f"expert_use/0.{e}"]) for e in range(3)) == pytest.approx(1.0)


# ---- tasks


def test_a_task_never_takes_an_action_that_it_lacks() -> None:
    policy = small_scalezero(BOTH).policy
    for parameter in policy.parameters():
        parameter.data.normal_(0.0, 0.5)
    plans = [policy.plan(observations(BOTH, 16), np.random.default_rng(seed)) for seed in range(8)]
    lacking = np.arange(16) % 2 == 1
    assert all((plan.policy[lacking, 2] == 0).all() and (plan.actions[lacking] < 2).all() for plan in plans)
    assert any((plan.actions[~lacking] == 2).any() for plan in plans)


def test_tasks_have_encoders_statistics_and_heads_of_their_own() -> None:
    model = small_model(BOTH)
    obs = observations(BOTH, 400)
    obs["obs_1"] = (obs["obs_1"] * 5.0 + 3.0) * (obs["task"] == 1)[:, None]
    model.update_statistics(obs)
    assert model.encoders[1].normalizer.stats.mean.mean().item() == pytest.approx(3.0, abs=0.5)
    assert model.encoders[0].normalizer.stats.mean.mean().item() == pytest.approx(0.0, abs=0.2)
    value = model.initial(obs)[1]
    model.value_head.heads.bias.data[7:].copy_(torch.linspace(0, 3, 7))
    changed = model.initial(obs)[1] != value
    assert torch.equal(changed, obs["task"] == 1)


def test_what_two_tasks_teach_is_learned_at_once() -> None:
    algorithm, batch = small_scalezero(BOTH), unroll_batch(space=BOTH)
    batch["policies"][:, 1::2, 2] = 0.0
    batch["policies"] /= batch["policies"].sum(-1, keepdim=True)
    losses = [float(algorithm.update(batch).metrics["loss"]) for _ in range(80)]
    assert losses[-1] < 0.7 * losses[0]


# ---- targets


def test_latents_by_hand() -> None:
    imagined, observed = torch.tensor([[[1.0, 3.0], [5.0, 5.0]]]), torch.tensor([[[1.0, 1.0], [0.0, 0.0]]])
    assert latent_loss(imagined, observed, torch.tensor([[True, False]])).tolist() == [[2.0, 0.0]]


def test_imagined_latents_follow_the_network_that_lags_behind() -> None:
    algorithm, batch = small_scalezero(), unroll_batch()
    _, parts = algorithm.loss(algorithm.model.unroll(batch["obs"], batch["actions"]), batch)
    parts["latent_loss"].backward()
    assert algorithm.model.next_latent.weight.grad.abs().sum() > 0
    assert all(not parameter.requires_grad for parameter in algorithm.target.network.parameters())


def seen_of(written: int = 4, **ends: int) -> tuple[list[int], list[bool]]:
    rows = np.arange(4)
    names = ("terminated", "truncated", "is_first", "is_last")
    window = {name: column(*(rows == ends.get(name, -1)), dtype=bool) for name in names}
    at, known = observed_states(window, column(*(rows < written), dtype=bool))
    return at[:, 0].tolist(), known[:, 0].tolist()


def test_the_observation_that_ends_an_episode_stays_after_a_termination_only() -> None:
    assert seen_of() == ([0, 1, 2, 3], [True] * 4)
    assert seen_of(terminated=0, is_last=1) == ([0, 1, 1, 1], [True] * 4)
    assert seen_of(truncated=0, is_last=1) == ([0, 1, 1, 1], [True, True, False, False])
    assert seen_of(terminated=3) == ([0, 1, 2, 3], [True] * 4)
    # not written yet: nothing is known of where the termination led
    assert seen_of(terminated=1, written=2) == ([0, 1, 1, 1], [True, True, False, False])
    assert seen_of(is_first=2) == ([0, 1, 1, 1], [True, True, False, False])


def test_a_batch_has_the_observations_along_its_windows() -> None:
    params = ScaleZeroParams(unroll_steps=2, n_steps=1, hidden_sizes=(8,), latent_size=8, hidden_size=8)
    space = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(3))
    learner = ScaleZeroLearner(params, space, num_envs=1, seed=0, device=torch.device("cpu"))
    rollout = rollout_of(6, ends=(3,))
    learner.replay.add(replace(rollout, extras={**rollout.extras, SEARCH_POLICY: torch.ones(6, 1, 3) / 3}))
    batch = learner.batch((np.zeros(3, dtype=int), np.array([0, 3, 5])), np.ones(3))
    # row 3 terminates and leads to row 4; of row 5, the newest, nobody knows yet what follows
    assert batch["obs"][..., 0].T.tolist() == [[0, 1, 2], [3, 4, 4], [5, 5, 5]]
    assert batch["has_obs"].T.tolist() == [[True] * 3, [True] * 3, [True, False, False]]
    assert batch["has_value"].T.tolist() == [[True] * 3, [True] * 3, [True, False, False]]
    assert batch["has_reward"].T.tolist() == [[True] * 2, [True] * 2, [True, False]]


def test_past_a_termination_whose_observation_is_not_written_yet_nothing_is_learned() -> None:
    """MuZero knows that a terminal state is worth 0; a transformer that reads observations has nothing to read."""
    params = ScaleZeroParams(unroll_steps=3, n_steps=1, hidden_sizes=(8,), latent_size=8, hidden_size=8)
    space = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(3))
    learner = ScaleZeroLearner(params, space, num_envs=1, seed=0, device=torch.device("cpu"))
    rollout = rollout_of(6, ends=(5,))
    learner.replay.add(replace(rollout, extras={**rollout.extras, SEARCH_POLICY: torch.ones(6, 1, 3) / 3}))
    batch = learner.batch((np.zeros(1, dtype=int), np.array([4])), np.ones(1))
    assert batch["has_obs"][:, 0].tolist() == [True, True, False, False]
    assert batch["has_value"][:, 0].tolist() == [True, True, False, False]
    assert batch["has_reward"][:, 0].tolist() == [True, True, False]


# ---- adapters


def backbone(algorithm: ScaleZero) -> dict[str, Tensor]:
    names = ("down", "up", "scales", "stage")
    state = algorithm.model.transformer.state_dict()
    return {name: value.clone() for name, value in state.items() if not any(f".{part}" in name for part in names)}


def test_a_stage_begins_where_the_last_one_ended_and_moves_only_its_adapters() -> None:
    algorithm, batch = small_scalezero(adapter_stages=2, stage_updates=3), unroll_batch()
    for _ in range(3):
        algorithm.update(batch)
    frozen, before = backbone(algorithm), algorithm.model.unroll(batch["obs"], batch["actions"])
    algorithm.enter_stage(1)
    torch.testing.assert_close(algorithm.model.unroll(batch["obs"], batch["actions"]).value, before.value)
    first = [module for module in algorithm.model.transformer.modules() if isinstance(module, AdaptedLinear)]
    losses = [float(algorithm.update(batch).metrics["loss"]) for _ in range(6)]
    assert algorithm.stage == 2
    assert losses[-1] < losses[0]
    assert all(torch.equal(value, frozen[name]) for name, value in backbone(algorithm).items())
    assert all(module.up[0].abs().sum() > 0 for module in first[:2])
    kept = first[0].up[0].clone()
    algorithm.update(batch)
    assert torch.equal(first[0].up[0], kept)  # the first stage's adapter is frozen in the second
    assert first[0].up[1].abs().sum() > 0


def test_without_adapters_there_is_only_one_stage() -> None:
    algorithm, batch = small_scalezero(stage_updates=1), unroll_batch()
    for _ in range(3):
        algorithm.update(batch)
    assert algorithm.stage == 0
    assert not [m for m in algorithm.model.modules() if isinstance(m, AdaptedLinear)]


# ---- several tasks in the replay


def two_task_learner(size: int = 7) -> ScaleZeroLearner:
    """Two environments of the first task and one of the second, whose rows have priorities a hundred times as high."""
    params = ScaleZeroParams(
        hidden_sizes=(8,),
        latent_size=8,
        hidden_size=8,
        batch_size=size,
        unroll_steps=2,
        learning_starts=0,
        support_size=3,
    )
    learner = ScaleZeroLearner(params, BOTH, num_envs=3, seed=0, device=torch.device("cpu"))
    alone, rows = rollout_of(20), 20
    wide = {name: getattr(alone, name).expand(rows, 3) for name in ("rewards", "terminated", "truncated", "valid")}
    wide |= {name: getattr(alone, name).expand(rows, 3) for name in ("starts", "behavior_logprobs", "actions")}
    tasks = torch.tensor([0, 0, 1]).expand(rows, 3)
    obs = {"obs_0": torch.randn(rows, 3, 4), "obs_1": torch.randn(rows, 3, 2), "task": tasks}
    numbers = {name: torch.zeros(rows, 3) for name in ("values", "next_values", "policy_version")}
    extras = {SEARCH_POLICY: torch.full((rows, 3, 3), 1 / 3)}
    no_ends = {name: leaf[0, :0] for name, leaf in obs.items()}
    learner.store(replace(alone, obs=obs, final_obs=no_ends, extras=extras, **wide, **numbers))
    everywhere = (np.repeat([0, 1, 2], rows), np.tile(np.arange(rows), 3))
    learner.replay.set_priorities(everywhere, np.where(everywhere[0] == 2, 100.0, 1.0) * (1 + everywhere[1] % 3))
    return learner


def test_every_task_has_the_same_share_of_windows_and_of_the_loss() -> None:
    learner = two_task_learner()
    counts = np.zeros(2)
    for _ in range(40):
        (streams, places), chances = learner.draw(7)
        batch = learner.batch((streams, places), chances)
        tasks = np.where(streams == 2, 1, 0)
        assert batch["obs"]["task"][0].tolist() == tasks.tolist()
        assert sorted(np.bincount(tasks)) == [3, 4]
        counts += np.bincount(tasks)
        weights = [float(batch["weights"][torch.from_numpy(tasks == task)].mean()) for task in (0, 1)]
        assert weights == pytest.approx([1.0, 1.0])
    assert abs(counts[0] - counts[1]) < 24  # four standard deviations
    metrics = learner.update().metrics
    assert float(metrics["window_share/long"]) == pytest.approx(4 / 7, abs=1 / 6.9)
    assert float(metrics["loss_share/long"] + metrics["loss_share/short"]) == pytest.approx(1.0)


def test_within_a_task_windows_are_drawn_by_their_priorities() -> None:
    learner = two_task_learner()
    (streams, places), chances = learner.replay.draw(30_000, np.random.default_rng(0), among=np.array([0, 1]))
    assert set(streams) == {0, 1}
    weight = (1 + places % 3) ** 0.6
    total = 2 * ((1 + np.arange(20) % 3) ** 0.6).sum()
    np.testing.assert_allclose(chances, 40 * weight / total)
    np.testing.assert_allclose(np.bincount(streams) / 30_000, 0.5, atol=0.02)
    shares = np.bincount(places, minlength=20) / 30_000
    np.testing.assert_allclose(shares, 2 * (1 + np.arange(20) % 3) ** 0.6 / total, atol=0.01)
