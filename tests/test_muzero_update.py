"""MuZero's update: targets at ends of episodes, the replay they come from, the loss, and acting by a search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from conformance import differences
from rl_training import MuZero as Agent
from rl_training.algorithms.muzero import MuZero, MuZeroParams, muzero_loss
from rl_training.algorithms.params import LiveParams
from rl_training.data.replay import StreamReplay
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.models.muzero import MuZeroModel, scale_gradient, unit_range
from rl_training.ops.unroll import UnrollTargets, unroll_targets
from rl_training.runtime.muzero_trainer import MuZeroLearner
from rl_training.search.policy import PUCTPolicy
from support import IdentityEnv, TruncationEnv, muzero_options

FOUR_NUMBERS = Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(3))
# A planner that learns a trivial environment in a thousand steps.
QUICK: dict[str, Any] = {
    "gamma": 0.5,
    "n_steps": 1,
    "batch_size": 64,
    "learning_starts": 200,
    "replay_ratio": 1.0,
    "priority_alpha": 0.0,
    "learning_rate": 5e-3,
    "latent_size": 32,
    "hidden_size": 64,
    "support_size": 3,
    "eval_episodes": 0,
}


# ---- value targets


def column(*numbers: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(numbers, dtype=dtype)[:, None]


def targets_of(written: int = 5, n_steps: int = 2, **ends: int) -> UnrollTargets:
    """Rewards 1, 2, …, values 0, 10, …, next values 10, 20, …; `ends` are rows of flags. Unroll 3, gamma 0.5."""
    rows = np.arange(5)
    flags = {
        name: column(*(rows == ends.get(name, -1)), dtype=bool)
        for name in ("terminated", "truncated", "is_first", "is_last")
    }
    window = _values() | flags
    return unroll_targets(window, column(*(rows < written), dtype=bool), unroll_steps=3, n_steps=n_steps, gamma=0.5)


def test_value_targets_take_n_rewards_and_then_the_value_of_what_followed() -> None:
    # z_0 = 1 + .5 * 2 + .25 * 20, z_1 = 2 + .5 * 3 + .25 * 30, …
    targets = targets_of()
    np.testing.assert_allclose(targets.values, column(7, 11, 15, 19))
    np.testing.assert_allclose(targets.rewards, column(1, 2, 3))
    assert targets.has_state.all()
    assert targets.has_value.all()


def test_a_termination_has_no_bootstrap_and_absorbs_what_comes_after() -> None:
    # Row 1 terminates: z_0 = 1 + .5 * 2, z_1 = 2; states 2 and 3 are worth 0 and pay 0, and have no policy.
    targets = targets_of(terminated=1, is_last=2)
    np.testing.assert_allclose(targets.values, column(2, 2, 0, 0))
    np.testing.assert_allclose(targets.rewards, column(1, 2, 0))
    assert targets.has_state[:, 0].tolist() == [True, True, False, False]
    assert targets.has_value.all()
    assert targets.has_reward.all()


def test_a_time_limit_bootstraps_from_the_final_observation_and_says_nothing_of_what_comes_after() -> None:
    # z_0 = 1 + .5 * 2 + .25 * 20, z_1 = 2 + .5 * 20: as a termination they would be 2 and 2.
    targets = targets_of(truncated=1, is_last=2)
    np.testing.assert_allclose(targets.values[:2], column(7, 12))
    assert targets.has_value[:, 0].tolist() == [True, True, False, False]
    assert targets.has_reward[:, 0].tolist() == [True, True, False]


@pytest.mark.parametrize("cut", [{"written": 2}, {"is_first": 2}], ids=["the newest row", "a restart"])
def test_the_edge_of_what_is_known_bootstraps_like_a_time_limit(cut: dict[str, int]) -> None:
    targets = targets_of(**cut)
    np.testing.assert_allclose(targets.values[:2], column(7, 12))
    assert targets.has_value[:, 0].tolist() == [True, True, False, False]


def test_a_target_of_no_steps_is_what_the_search_said_of_the_state_itself() -> None:
    found = targets_of(n_steps=0, terminated=1)
    np.testing.assert_allclose(found.values[:, 0], [0, 10, 0, 0])  # and past the termination 0
    np.testing.assert_allclose(targets_of(n_steps=0).values[:, 0], [0, 10, 20, 30])


def test_the_number_of_steps_may_differ_between_windows() -> None:
    both = {name: np.repeat(array, 2, axis=1) for name, array in _window().items()}
    written = np.ones((5, 2), dtype=bool)
    found = unroll_targets(both, written, unroll_steps=3, n_steps=np.array([1, 2]), gamma=0.5)
    # one step: z_0 = 1 + .5 * 10, z_1 = 2 + .5 * 20, …
    np.testing.assert_allclose(found.values, np.array([[6, 7], [12, 11], [18, 15], [24, 19]]))


def _window() -> dict[str, np.ndarray]:
    flags = {name: column(*[False] * 5, dtype=bool) for name in ("terminated", "truncated", "is_first", "is_last")}
    return _values() | flags


def _values() -> dict[str, np.ndarray]:
    following = column(10, 20, 30, 40, 50)
    return {"rewards": column(1, 2, 3, 4, 5), "values": following - 10, "next_values": following}


# ---- the replay


def rollout_of(rows: int, *, start: int = 0, ends: tuple[int, ...] = ()) -> Rollout:
    """One environment whose observation is the row's number; after an end the row that only reset itself."""
    numbers = torch.arange(start, start + rows)
    done = torch.tensor([[int(n) in ends] for n in numbers])
    resets = torch.tensor([[int(n) - 1 in ends] for n in numbers])
    starts = torch.tensor([[int(n) - 2 in ends or int(n) == 0] for n in numbers])
    zeros = torch.zeros(rows, 1)
    return Rollout(
        obs=numbers[:, None, None].float(),
        actions=numbers[:, None] % 3,
        rewards=torch.where(resets, 0.0, 1.0),
        terminated=done,
        truncated=torch.zeros_like(done),
        valid=~resets,
        starts=starts,
        behavior_logprobs=zeros,
        values=zeros,
        next_values=zeros,
        last_obs=torch.zeros(1, 1),
        final_rows=torch.empty(0, 2, dtype=torch.int64),
        final_obs=torch.empty(0, 1),
        policy_version=zeros,
        extras={"values": zeros, "next_values": zeros},
    )


def test_windows_begin_where_an_action_was_taken_in_proportion_to_their_priorities() -> None:
    replay = StreamReplay(100, 1, priority_alpha=0.5)
    replay.add(rollout_of(10, ends=(4,)))
    replay.set_priorities((np.array([0]), np.array([7])), np.array([9.0]))
    rows, chances = replay.draw(20_000, np.random.default_rng(0))
    counts = np.bincount(rows[1], minlength=10)
    # Row 5 only reset itself. Weights 1 for eight rows, sqrt(9) = 3 for row 7, of 11 in all.
    assert counts[5] == 0
    np.testing.assert_allclose(counts[7] / 20_000, 3 / 11, atol=0.02)
    np.testing.assert_allclose(chances[rows[1] == 7], 10 * 3 / 11)
    for alpha in (0.0, 1.0):
        replay = StreamReplay(100, 1, priority_alpha=alpha)
        replay.add(rollout_of(10, ends=(4,)))
        assert 5 not in replay.draw(1_000, np.random.default_rng(0))[0][1]


def test_a_saved_and_loaded_replay_draws_the_same_after_the_ring_has_wrapped() -> None:
    replay, twin = (StreamReplay(12, 1, priority_alpha=1.0) for _ in range(2))
    for start in (0, 8, 16):
        replay.add(rollout_of(8, start=start, ends=(4, 12)))
        rows = replay.draw(3, np.random.default_rng(start))[0]
        replay.set_priorities(rows, np.array([0.5, 1.0, 2.0]) + start)
    state = replay.state_dict()
    assert len(state["columns"]["obs"]) == 12
    twin.load_state_dict(state)
    assert differences(state, twin.state_dict()) == []
    for each in (replay, twin):
        each.add(rollout_of(2, start=24))
    drawn = [each.draw(50, np.random.default_rng(1))[0] for each in (replay, twin)]
    first, second = (each.column("obs", rows) for each, rows in zip((replay, twin), drawn, strict=True))
    np.testing.assert_array_equal(first, second)


def test_windows_stop_at_the_newest_row_and_predecessors_at_the_oldest_and_at_beginnings() -> None:
    replay = StreamReplay(6, 1)
    for start in (0, 5):
        replay.add(rollout_of(5, start=start, ends=(4,)))
    # Rows 4 … 9 are left: 5 only reset itself, 6 is the first of an episode.
    (_, places), written = replay.following((np.zeros(1, dtype=int), np.array([7])), 4)
    assert places[:, 0].tolist() == [7, 8, 9, 9]
    assert written[:, 0].tolist() == [True, True, True, False]
    _, kept = replay.predecessors((np.zeros(4, dtype=int), np.array([4, 5, 6, 7])))
    assert kept.tolist() == [False, True, False, True]


# ---- the loss


def small_muzero(space: Spaces = FOUR_NUMBERS, **changes: Any) -> MuZero:
    torch.manual_seed(0)
    sizes = muzero_options(hidden_sizes=(16,), latent_size=8, hidden_size=16, support_size=3)
    acting = {"gamma": 0.9, "num_simulations": 8, "temperature": 1.0}
    noise = {"root_dirichlet_alpha": 0.3, "root_exploration_fraction": 0.25, "pb_c_init": 1.25, "pb_c_base": 19652.0}
    params = LiveParams(MuZeroParams(**acting, **noise, **{"learning_rate": 1e-2, **changes}))
    return MuZero(PUCTPolicy(MuZeroModel(space, sizes), params, max_depth=None, first_action=0), params)


def batch_of(size: int = 32, steps: int = 2) -> dict[str, Tensor]:
    return {
        "obs": torch.rand(size, 4) * 2 - 1,
        "actions": torch.randint(3, (steps, size)),
        "policies": torch.rand(steps + 1, size, 3).softmax(-1),
        "value_targets": torch.rand(steps + 1, size),
        "reward_targets": torch.rand(steps, size),
        "has_state": torch.ones(steps + 1, size, dtype=torch.bool),
        "has_value": torch.ones(steps + 1, size, dtype=torch.bool),
        "has_reward": torch.ones(steps, size, dtype=torch.bool),
        "weights": torch.ones(size),
    }


def test_the_loss_of_a_new_model_by_hand() -> None:
    """Heads that start at 0 are uniform: log 3 actions, log 7 bins. One state counts 1, two imagined ones 1/2 each."""
    algorithm, batch = small_muzero(), batch_of()
    loss = muzero_loss(
        algorithm.model.unroll(batch["obs"], batch["actions"]), batch, model=algorithm.model, value_coef=0.25
    )
    assert loss.policy_loss.item() == pytest.approx(2 * math.log(3), rel=1e-5)
    assert loss.value_loss.item() == pytest.approx(2 * math.log(7), rel=1e-5)
    assert loss.reward_loss.item() == pytest.approx(math.log(7), rel=1e-5)
    assert loss.total.item() == pytest.approx(2 * math.log(3) + 0.5 * math.log(7) + math.log(7), rel=1e-5)


def test_what_is_not_known_has_no_gradient() -> None:
    algorithm, batch = small_muzero(), batch_of()
    nothing = batch | {name: torch.zeros_like(batch[name]) for name in ("has_state", "has_value", "has_reward")}
    assert algorithm.loss(algorithm.model.unroll(nothing["obs"], nothing["actions"]), nothing)[0].item() == 0.0


def test_updates_lower_the_loss_and_the_target_follows_at_its_interval() -> None:
    algorithm, batch = small_muzero(target_update_interval=50), batch_of()
    old = algorithm.target.network.value_head.bias.clone()
    losses = []
    for _ in range(49):
        losses.append(float(algorithm.update(batch).metrics["loss"]))
    assert torch.equal(algorithm.target.network.value_head.bias, old)
    result = algorithm.update(batch)
    assert float(result.metrics["loss"]) < 0.7 * losses[0]
    assert torch.equal(algorithm.target.network.value_head.bias, algorithm.model.value_head.bias)
    assert result.errors.shape == (32,)


def test_values_of_a_new_model_are_exactly_zero_and_latents_fill_the_unit_range() -> None:
    model = small_muzero().model
    latents, values, logits = model.initial(torch.randn(5, 4))
    assert (values == 0).all()
    assert (logits == 0).all()
    torch.testing.assert_close(latents.amax(-1), torch.ones(5), atol=1e-3, rtol=0)
    assert (latents.amin(-1) == 0).all()
    assert (unit_range(torch.ones(2, 3)) == 0).all()


def test_scalars_survive_their_categorical_form() -> None:
    model = small_muzero().model
    scalars = torch.tensor([-5.0, -0.3, 0.0, 1.0, 7.5])
    torch.testing.assert_close(
        model.scalar(model.categorical(scalars).clamp_min(1e-9).log()), scalars, atol=1e-3, rtol=1e-4
    )


def test_the_gradient_is_halved_at_the_entry_to_the_dynamics() -> None:
    x = torch.ones(3, requires_grad=True)
    scale_gradient(x, 0.5).sum().backward()
    assert x.grad is not None
    assert (x.grad == 0.5).all()


# ---- acting


def test_the_temperature_decides_how_actions_follow_the_visits() -> None:
    policy = small_muzero().policy
    obs = torch.zeros(512, 4)
    shares = {}
    for temperature in (0.0, 1.0):
        policy.params.move({"temperature": temperature})
        plan = policy.plan(obs, np.random.default_rng(0))
        shares[temperature] = float((plan.actions == plan.policy.argmax(-1)).mean())
    assert shares[0.0] == 1.0
    assert shares[1.0] < 0.8


def test_a_deterministic_action_has_neither_noise_nor_chance() -> None:
    policy = small_muzero().policy
    obs, state = torch.randn(16, 4), torch.zeros(16, 0)
    first, second = (policy.act(obs, state, deterministic=True) for _ in range(2))
    assert torch.equal(first.actions, second.actions)
    assert torch.equal(first.extras["search_policy"], second.extras["search_policy"])


def test_noise_at_the_root_moves_the_visits_and_a_fraction_of_zero_does_not() -> None:
    policy = small_muzero().policy
    obs = torch.randn(16, 4)
    plain = policy.plan(obs, None).policy
    assert (policy.plan(obs, np.random.default_rng(0)).policy != plain).any()
    policy.params.move({"root_exploration_fraction": 0.0})
    np.testing.assert_array_equal(policy.plan(obs, np.random.default_rng(0)).policy, plain)


def test_images_go_through_a_cnn() -> None:
    space = Spaces(spaces.Box(0, 255, (36, 36, 1), np.uint8), spaces.Discrete(3))
    policy = small_muzero(space).policy
    acted = policy.act(torch.zeros(2, 36, 36, 1, dtype=torch.uint8), torch.zeros(2, 0), deterministic=True)
    assert acted.actions.shape == (2,)


def test_a_control_that_the_learner_moves_is_what_search_and_update_read() -> None:
    small = MuZeroParams(hidden_sizes=(8,), latent_size=8, hidden_size=8, num_simulations=8, learning_rate=1e-2)
    learner = MuZeroLearner(small, FOUR_NUMBERS, num_envs=1, seed=0, device=torch.device("cpu"))
    algorithm, policy = learner.algorithm, learner.algorithm.policy
    assert learner.params is algorithm.params is policy.params
    assert policy.plan(torch.zeros(1, 4), None).policy.max() < 1.0
    learner.params.move({"num_simulations": 1, "learning_rate": 0.0})
    assert policy.plan(torch.zeros(1, 4), None).policy.max() == 1.0  # one simulation is one visit
    before = algorithm.optimizer.flat.detach().clone()
    algorithm.update(batch_of())
    assert torch.equal(algorithm.optimizer.flat, before)
    learner.params.move({"learning_rate": 1e-2})
    algorithm.update(batch_of())
    assert not torch.equal(algorithm.optimizer.flat, before)


# ---- reanalyse


def untouched_learner(**params: Any) -> MuZeroLearner:
    """With eight rows of replay, an end after row 4, whose targets were never written. Row 5 only reset itself."""
    spaces_ = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(3))
    small = MuZeroParams(hidden_sizes=(8,), latent_size=8, hidden_size=8, num_simulations=4, **params)
    learner = MuZeroLearner(small, spaces_, num_envs=1, seed=0, device=torch.device("cpu"))
    rollout = rollout_of(8, ends=(4,))
    untouched = {**rollout.extras, "search_policy": torch.zeros(8, 1, 3), "next_values": torch.full((8, 1), -7.0)}
    learner.replay.add(Rollout(**{**vars(rollout), "extras": untouched}))
    return learner


def test_reanalyse_writes_policies_and_the_values_that_led_there() -> None:
    learner = untouched_learner()
    learner.reanalyse(200)
    everything = (np.zeros(8, dtype=int), np.arange(8))
    assert (learner.replay.column("search_policy", everything).sum(-1) > 0.99).all()
    # Row 6 begins an episode: nothing led there from 5. Row 7 has no successor yet.
    old = learner.replay.column("next_values", everything) == -7.0
    assert [place for place in np.flatnonzero(old) if place != 5] == [7]


def test_fresh_bootstraps_are_the_target_networks_where_value_targets_end() -> None:
    learner = untouched_learner(n_steps=2, unroll_steps=1, fresh_bootstraps=True)
    target = learner.algorithm.target.network
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.normal_(0.0, 0.5)
    rows = (np.array([0]), np.array([1]))
    learner.refresh_bootstraps(rows)
    everything = (np.zeros(8, dtype=int), np.arange(8))
    written = learner.replay.column("next_values", everything)
    changed = [place for place in np.flatnonzero(written != -7.0) if place != 5]
    assert changed == [2, 3]  # the targets of rows 1 and 2 end in states 3 and 4
    obs = torch.from_numpy(learner.replay.column("obs", (np.zeros(2, dtype=int), np.array([3, 4]))))
    np.testing.assert_allclose(written[[2, 3]], target.initial(obs)[1].detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("first", [2, 3, 4])
def test_fresh_bootstraps_reach_the_observation_at_a_time_limit(first: int) -> None:
    """Row 4 is the last of an episode, whose final observation row 5 holds: targets near it end there."""
    learner = untouched_learner(n_steps=2, unroll_steps=1, fresh_bootstraps=True)
    target = learner.algorithm.target.network
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.normal_(0.0, 0.5)
    last = (np.zeros(1, dtype=int), np.array([4]))
    learner.replay.write("terminated", last, np.array([False]))
    learner.replay.write("truncated", last, np.array([True]))
    learner.refresh_bootstraps((np.array([0]), np.array([first])))
    written = learner.replay.column("next_values", last)
    final = torch.from_numpy(learner.replay.column("obs", (np.zeros(1, dtype=int), np.array([5]))))
    np.testing.assert_allclose(written, target.initial(final)[1].detach().numpy(), rtol=1e-5)


# ---- learning what is known


def test_muzero_learns_which_action_pays() -> None:
    """A search that forgets the rewards on its edges stays at chance."""
    agent = Agent(IdentityEnv, **QUICK, num_simulations=4)
    agent.train(1_000)
    assert agent.evaluate(episodes=20, seed=0)["return_mean"] > 7.0  # chance 2, perfect 8


def test_a_time_limit_is_not_a_death() -> None:
    """Every state is worth 1 / (1 - gamma) = 5; with the ends taken for deaths the mean over an episode is 3.2."""
    changes = {"gamma": 0.8, "n_steps": 10, "support_size": 5, "reanalyse_fraction": 0.5, "num_simulations": 2}
    agent = Agent(TruncationEnv, **{**QUICK, **changes})
    agent.train(1_000)
    assert 4.4 < agent.policy.values(torch.ones(1, 1)).item() < 5.4
