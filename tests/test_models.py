"""Heads against torch.distributions, torsos for every observation space, normalisers against the whole data at once."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, kl_divergence

from rl_training.data.trees import to_tensors, tree_map
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.heads import ActionHead, GaussianHead, make_head
from rl_training.models.normalization import ObsNormalizer, RewardNormalizer, RunningMeanStd
from rl_training.models.torsos import make_torso
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.evaluation import evaluate
from support import DictEnv, TargetEnv, policy_options, torso_options

# ---- heads

ACTION_SPACES = {
    "discrete": spaces.Discrete(5),
    "discrete-from-3": spaces.Discrete(4, start=3),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-discrete-from": spaces.MultiDiscrete([3, 2], start=[5, -1]),
    "multi-binary": spaces.MultiBinary(3),
    "box": spaces.Box(-2, 5, (2,), np.float32),
    "box-matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "box-scalar": spaces.Box(-1, 1, (), np.float32),
    "box-unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "box-double": spaces.Box(0, 1, (2,), np.float64),
}


def head_and_params(name: str, *, rows: int = 64, seed: int = 0) -> tuple[ActionHead, Tensor]:
    """A head with random weights and the parameters it gives for random features."""
    torch.manual_seed(seed)
    head = make_head(ACTION_SPACES[name], 8, log_std_init=-0.3)
    for parameter in head.parameters():
        parameter.data.normal_(0.0, 0.7)
    return head, head(torch.randn(rows, 8)).detach()


def reference(name: str, params: Tensor) -> list[Distribution]:
    """The independent parts of the same distribution, as torch writes them."""
    space = ACTION_SPACES[name]
    if isinstance(space, spaces.Discrete):
        return [Categorical(logits=params)]
    if isinstance(space, spaces.MultiDiscrete):
        return [Categorical(logits=part) for part in params.split(space.nvec.tolist(), dim=-1)]
    if isinstance(space, spaces.MultiBinary):
        return [Independent(Bernoulli(logits=params), 1)]
    mean, log_std = params.chunk(2, dim=-1)
    return [Independent(Normal(mean, log_std.exp()), 1)]


def columns(name: str, actions: Tensor) -> list[Tensor]:
    """The actions of each independent part."""
    if isinstance(ACTION_SPACES[name], spaces.MultiDiscrete):
        return list(actions.unbind(-1))
    if isinstance(ACTION_SPACES[name], spaces.Box):
        return [actions.reshape(len(actions), -1)]
    return [actions.float()]


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_log_probs_entropy_and_kl_are_those_of_torch_distributions(name: str) -> None:
    head, old = head_and_params(name)
    _, new = head_and_params(name, seed=1)
    actions = head.sample(old, torch.Generator().manual_seed(0))
    assert actions.shape == (64, *head.action_shape)
    assert actions.dtype == head.action_dtype
    olds, news = reference(name, old), reference(name, new)
    log_probs = sum(d.log_prob(a) for d, a in zip(news, columns(name, actions), strict=True))
    torch.testing.assert_close(head.log_probs(new, actions), log_probs)
    torch.testing.assert_close(head.entropy(new), sum(d.entropy() for d in news))
    torch.testing.assert_close(head.kl(old, new), sum(map(kl_divergence, olds, news)))
    torch.testing.assert_close(head.kl(old, old), torch.zeros(64))


@pytest.mark.parametrize("name", ["discrete", "multi-discrete", "multi-binary", "box"])
def test_the_gradient_of_the_entropy_is_that_of_torch_distributions(name: str) -> None:
    head, params = head_and_params(name)
    ours, theirs = params.clone().requires_grad_(), params.clone().requires_grad_()
    head.entropy(ours).sum().backward()
    sum(d.entropy() for d in reference(name, theirs)).sum().backward()
    if name in ("discrete", "multi-discrete"):
        # torch normalises the logits once more, so its gradient has no component along the constant vectors.
        sizes = head.classes
        parts = zip(ours.grad.split(sizes, -1), params.exp().split(sizes, -1), strict=True)
        ours.grad = torch.cat([g - p * g.sum(-1, keepdim=True) for g, p in parts], -1)
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("name", ["discrete", "multi-discrete", "multi-binary"])
def test_sampling_frequencies_match_probabilities(name: str) -> None:
    head, params = head_and_params(name, rows=1)
    actions = head.sample(params.expand(40_000, -1), torch.Generator().manual_seed(0))
    for distribution, chosen in zip(reference(name, params[0]), columns(name, actions), strict=True):
        if name == "multi-binary":
            expected, frequencies = distribution.mean, chosen.mean(0)
        else:
            expected = distribution.probs
            frequencies = torch.bincount(chosen.long(), minlength=len(expected)) / 40_000
        # three standard errors at p = 1/2 are 3 * sqrt(0.25 / 40 000) = 0.0075
        torch.testing.assert_close(frequencies, expected, atol=0.0075, rtol=0)


def test_gaussian_samples_have_the_mean_and_the_deviation() -> None:
    head, params = head_and_params("box", rows=1)
    samples = head.sample(params.expand(40_000, -1), torch.Generator().manual_seed(0))
    mean, log_std = params[0].chunk(2)
    torch.testing.assert_close(samples.mean(0), mean, atol=3 * 2.5 / 200, rtol=0)
    torch.testing.assert_close(samples.std(0), log_std.exp(), rtol=0.02, atol=0)


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_the_mode_is_the_likeliest_action(name: str) -> None:
    head, params = head_and_params(name)
    best = head.log_probs(params, head.mode(params))
    assert head.mode(params).dtype == head.action_dtype
    for seed in range(20):
        sampled = head.sample(params, torch.Generator().manual_seed(seed))
        assert (head.log_probs(params, sampled) <= best + 1e-6).all()


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_what_reaches_the_environment_lies_in_its_space(name: str) -> None:
    space = ACTION_SPACES[name]
    head, params = head_and_params(name)
    params = params * 3
    executed = head.to_env(head.sample(params, torch.Generator().manual_seed(0)).numpy())
    assert executed.dtype == space.dtype
    for action in executed:
        assert space.contains(np.asarray(action)), action


def test_a_discrete_space_is_executed_from_its_start() -> None:
    head = make_head(spaces.Discrete(4, start=3), 8)
    assert head.to_env(np.array([0, 3])).tolist() == [3, 6]
    head = make_head(spaces.MultiDiscrete([3, 2], start=[5, -1]), 8)
    assert head.to_env(np.array([[0, 0], [2, 1]])).tolist() == [[5, -1], [7, 0]]


def test_a_bounded_box_is_scaled_from_minus_one_and_one() -> None:
    head = make_head(ACTION_SPACES["box"], 8)  # [-2, 5]: -1 -> -2, 0 -> 1.5, 1 -> 5
    executed = head.to_env(np.array([[-1, 0], [0.5, 1], [-7, 7]], dtype=np.float32))
    np.testing.assert_allclose(executed, [[-2, 1.5], [3.25, 5], [-2, 5]])


def test_an_unbounded_box_is_not_scaled_and_a_half_bounded_one_is_clipped() -> None:
    assert make_head(ACTION_SPACES["box-unbounded"], 8).to_env(np.array([[-7.0, 7.0]])).tolist() == [[-7, 7]]
    half = make_head(spaces.Box(0, np.inf, (2,), np.float32), 8)
    assert half.to_env(np.array([[-7.0, 7.0]])).tolist() == [[0, 7]]


def test_a_partly_bounded_box_is_scaled_on_its_bounded_axes() -> None:
    space = spaces.Box(np.array([-2, -np.inf, 0], np.float32), np.array([5, np.inf, np.inf], np.float32))
    head = make_head(space, 8)
    executed = head.to_env(np.array([[-1, -1, -1], [0, 7, 7], [9, 0.5, 0.5]], dtype=np.float32))
    np.testing.assert_allclose(executed, [[-2, -1, 0], [1.5, 7, 7], [5, 0.5, 0.5]])
    inside = np.array([[1.5, -7, 0.5]], dtype=np.float32)
    np.testing.assert_allclose(head.to_env(head.from_env(inside)), inside, atol=1e-6)


def test_the_greatest_float_as_a_bound_means_none() -> None:
    largest = np.finfo(np.float32).max
    head = make_head(spaces.Box(-largest, largest, (2,), np.float32), 8)
    assert head.to_env(np.array([[-7.0, 7.0]], dtype=np.float32)).tolist() == [[-7, 7]]
    assert head.from_env(np.array([[-7.0, 7.0]], dtype=np.float32)).tolist() == [[-7, 7]]


def test_rounding_does_not_leave_the_bounds() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, high = np.sort(rng.normal(size=(2, 3)), axis=0).astype(np.float32)
        space = spaces.Box(low, high)
        edges = make_head(space, 1).to_env(np.array([[-1, -1, -1], [1, 1, 1]], dtype=np.float32))
        assert all(space.contains(edge) for edge in edges), (low, high)


def test_a_box_of_integers_is_rounded_not_cut_off() -> None:
    head = make_head(spaces.Box(0, 2, (1,), np.int32), 8)
    executed = head.to_env(np.array([[-1.0], [-0.6], [-0.4], [0.0], [0.4], [0.6], [1.0]], dtype=np.float32))
    assert executed.dtype == np.int32
    assert executed[:, 0].tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Text(3),
        spaces.MultiBinary([2, 2]),
        spaces.MultiDiscrete([[2, 2], [2, 2]]),
    ],
)
def test_an_unsupported_action_space_is_named(space: gym.Space) -> None:
    with pytest.raises(ValueError, match=type(space).__name__):
        make_head(space, 8)


# ---- torsos

OBSERVATION_SPACES = {
    "vector": spaces.Box(-1, 1, (3,), np.float32),
    "double": spaces.Box(-1, 1, (3,), np.float64),
    "matrix": spaces.Box(-1, 1, (3, 2), np.float32),
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "discrete": spaces.Discrete(4),
    "discrete-from-2": spaces.Discrete(4, start=2),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "multi-discrete-from": spaces.MultiDiscrete([3, 2], start=[4, -2]),
    "multi-binary": spaces.MultiBinary(3),
    "image-last": spaces.Box(0, 255, (36, 40, 3), np.uint8),
    "image-first": spaces.Box(0, 255, (3, 36, 40), np.uint8),
    "small-image": spaces.Box(0, 255, (7, 5, 2), np.uint8),
    "dict": DictEnv().observation_space,
    "nested": spaces.Dict({"in": spaces.Dict({"a": spaces.Discrete(2)}), "out": spaces.Box(-1, 1, (2,), np.float32)}),
    "awkward-keys": spaces.Dict({"a.b": spaces.Discrete(2), "type": spaces.Discrete(2), "values": spaces.Discrete(2)}),
}


def sampled_obs(space: gym.Space, rows: int) -> Any:
    """A batch of observations of the space, as the collector's buffers hold them."""
    space.seed(0)
    samples = [space.sample() for _ in range(rows)]
    return to_tensors(tree_map(lambda *leaves: np.stack(leaves), *samples))


@pytest.mark.parametrize("cnn", ["nature", "impala", "shallow"])
@pytest.mark.parametrize("name", OBSERVATION_SPACES)
def test_every_observation_changes_the_features_of_its_own_row(name: str, cnn: str) -> None:
    obs = sampled_obs(OBSERVATION_SPACES[name], 16)
    torso = make_torso(OBSERVATION_SPACES[name], torso_options(cnn=cnn))
    features = torso(obs)
    assert features.shape == (16, torso.out_features)
    assert features.dtype == torch.float32
    last = torso(tree_map(lambda leaf: leaf[-1:], obs))
    torch.testing.assert_close(features[-1:], last, atol=1e-5, rtol=1e-5)  # rows do not look at each other
    assert len(torch.unique(features, dim=0)) > 1


@pytest.mark.parametrize("name", OBSERVATION_SPACES)
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_a_policy_acts_and_values_in_every_observation_space(name: str, normalize_obs: bool) -> None:
    space = OBSERVATION_SPACES[name]
    policy = ActorCritic(Spaces(space, spaces.Discrete(2)), policy_options(normalize_obs=normalize_obs))
    obs = sampled_obs(space, 6)
    policy.update_statistics(obs)
    acted = policy.act(obs, policy.initial_state(6))
    evaluated = policy.evaluate_actions(obs, acted.actions)
    if policy.shares_torso:  # otherwise it is cheaper to ask once for a whole rollout
        torch.testing.assert_close(evaluated.logprobs, acted.logprobs)
        torch.testing.assert_close(evaluated.values, acted.values)
    else:
        assert acted.logprobs is None
    torch.testing.assert_close(evaluated.values, policy.values(obs))
    assert evaluated.values.shape == (6,)


def test_discrete_observations_are_one_hot() -> None:
    torso = make_torso(spaces.Discrete(4, start=2), torso_options(hidden_sizes=()))
    assert torso(torch.tensor([2, 5])).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    torso = make_torso(spaces.MultiDiscrete([3, 2], start=[4, -2]), torso_options(hidden_sizes=()))
    assert torso(torch.tensor([[4, -1], [6, -2]])).tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 1, 0]]


@pytest.mark.parametrize("cnn", ["nature", "impala", "shallow"])
def test_channels_first_and_last_see_the_same_picture(cnn: str) -> None:
    torsos = []
    for name in ("image-last", "image-first"):
        torch.manual_seed(0)
        torsos.append(make_torso(OBSERVATION_SPACES[name], torso_options(cnn=cnn)))
    last = sampled_obs(OBSERVATION_SPACES["image-last"], 4)
    torch.testing.assert_close(torsos[0](last), torsos[1](last.permute(0, 3, 1, 2)))


def test_pixels_are_scaled_to_one_and_left_alone() -> None:
    torso = make_torso(OBSERVATION_SPACES["image-first"], torso_options())
    obs = torch.full((1, 3, 36, 40), 255, dtype=torch.uint8)
    torch.testing.assert_close(torso(obs), torch.relu(torso.project(torso.cnn(torch.ones(1, 3, 36, 40)))))
    assert (obs == 255).all()


def test_features_of_a_mapping_come_from_each_key() -> None:
    space = DictEnv().observation_space
    torso = make_torso(space, torso_options())
    obs = sampled_obs(space, 1)
    before = torso(obs)
    for key in space:
        changed = {**obs, key: 1 - obs[key] if key == "number" else obs[key] * 0}
        assert not torch.equal(torso(changed), before), key


@pytest.mark.parametrize("space", [spaces.Tuple([spaces.Discrete(2)]), spaces.Text(3)])
def test_an_unsupported_observation_space_is_named(space: gym.Space) -> None:
    with pytest.raises(ValueError, match=type(space).__name__):
        make_torso(space, torso_options())
    with pytest.raises(ValueError, match=type(space).__name__):
        make_torso(spaces.Dict({"inside": space}), torso_options())


def test_the_torso_is_shared_for_images_only_unless_one_says_so() -> None:
    image, vector = (Spaces(OBSERVATION_SPACES[name], spaces.Discrete(2)) for name in ("image-last", "vector"))
    assert ActorCritic(image, policy_options()).shares_torso
    assert not ActorCritic(vector, policy_options()).shares_torso
    assert ActorCritic(vector, policy_options(share_torso=True)).shares_torso


def test_a_new_policy_is_nearly_uniform() -> None:
    policy = ActorCritic(Spaces(OBSERVATION_SPACES["vector"], spaces.Discrete(4)), policy_options())
    obs = sampled_obs(OBSERVATION_SPACES["vector"], 100)
    logprobs = policy.evaluate_actions(obs, torch.zeros(100, dtype=torch.int64)).logprobs
    torch.testing.assert_close(logprobs.exp(), torch.full((100,), 0.25), atol=0.02, rtol=0)


# ---- normalisers


def test_running_statistics_are_those_of_all_rows_at_once() -> None:
    torch.manual_seed(0)
    rows = torch.randn(1000, 3) * torch.tensor([1.0, 100.0, 0.01]) + torch.tensor([0.0, 1e4, -3.0])
    stats = RunningMeanStd((3,))
    for part in rows.split([1, 499, 7, 493]):
        stats.update(part)
    torch.testing.assert_close(stats.mean, rows.double().mean(0))
    torch.testing.assert_close(stats.var, rows.double().var(0, correction=0))
    assert stats.count == 1000


def test_observations_are_centred_scaled_and_clipped() -> None:
    normalizer = ObsNormalizer(spaces.Box(-np.inf, np.inf, (1,), np.float32))
    normalizer.update(torch.tensor([[1.0], [3.0]]))  # mean 2, deviation 1
    torch.testing.assert_close(normalizer(torch.tensor([[3.0], [0.5], [99.0]])), torch.tensor([[1.0], [-1.5], [10.0]]))


def test_before_the_first_statistics_observations_are_only_clipped() -> None:
    normalizer = ObsNormalizer(spaces.Box(-np.inf, np.inf, (1,), np.float32))
    assert normalizer(torch.tensor([[7.0], [123.0]])).tolist() == [[7.0], [10.0]]


def test_an_empty_batch_leaves_the_statistics_finite() -> None:
    stats = RunningMeanStd((2,))
    stats.update(torch.zeros(0, 2))
    assert torch.isfinite(stats.var).all()


def test_only_floating_numbers_of_a_mapping_are_normalised() -> None:
    space = DictEnv().observation_space
    normalizer = ObsNormalizer(space)
    obs = sampled_obs(space, 50)
    normalizer.update(obs)
    normal = normalizer(obs)
    assert torch.equal(normal["image"], obs["image"])
    assert torch.equal(normal["number"], obs["number"])
    torch.testing.assert_close(normal["noise"].mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal["noise"].std(0, correction=0), torch.ones(2))


def normalising_collector() -> LocalCollector:
    envs = make_envs(EnvSpec(TargetEnv), 4)
    torch.manual_seed(0)
    return LocalCollector(envs, ActorCritic(envs.spaces, policy_options(normalize_obs=True)), seed=0)


def test_acting_and_evaluating_do_not_move_the_statistics() -> None:
    collector = normalising_collector()
    collector.policy.update_statistics(torch.randn(100, 1))
    before = copy.deepcopy(collector.policy.state_dict())
    collector.collect(20)
    evaluate(collector.policy, collector.envs, episodes=8, seed=0)
    after = collector.policy.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_policy_that_is_updated_is_the_one_that_acted() -> None:
    """With statistics that have moved between rollouts the ratio of the first update is still 1."""
    collector = normalising_collector()
    for _ in range(2):
        batch = collector.collect(20).flat()
        ratio = (
            collector.policy.evaluate_actions(batch["obs"], batch["actions"]).logprobs - batch["behavior_logprobs"]
        ).exp()
        torch.testing.assert_close(ratio, torch.ones(80), atol=1e-6, rtol=0)
        collector.policy.update_statistics(batch["obs"])
    # ... which would not be so had the statistics moved before the update:
    batch = collector.collect(20).flat()
    collector.policy.update_statistics(batch["obs"] + 3)
    moved = collector.policy.evaluate_actions(batch["obs"], batch["actions"]).logprobs
    assert (moved - batch["behavior_logprobs"]).abs().max() > 1e-4


def test_statistics_are_saved_with_the_policy() -> None:
    first, second = (normalising_collector().policy for _ in range(2))
    first.update_statistics(torch.randn(100, 1) * 5 + 2)
    second.load_state_dict(first.state_dict())
    obs = torch.randn(10, 1)
    assert torch.equal(first.values(obs), second.values(obs))


def column(*values: float) -> Tensor:
    return torch.tensor(values)[:, None]


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sum() -> None:
    # gamma 0.5; the trace of 1, 2, [end] 4, 4 is 1, 2.5, 4, 6: the end cut it. Mean 3.375, variance 3.421875.
    normalizer = RewardNormalizer()
    done = column(0, 1, 0, 0).bool()
    scaled = normalizer(column(1, 2, 4, 4), done=done, gamma=0.5)
    torch.testing.assert_close(scaled, column(1, 2, 4, 4) / 3.421875**0.5)
    assert normalizer.stats.count == 4
    # The next rollout goes on with 6: 0.5 * 6 + 1 = 4. Variance of 1, 2.5, 4, 6, 4 is 2.8.
    scaled = normalizer(column(1), done=column(0).bool(), gamma=0.5)
    torch.testing.assert_close(scaled, column(1) / 2.8**0.5)


def test_every_environment_has_a_trace_of_its_own() -> None:
    # Environment 0: 1, 1.5; environment 1: 3, [end] 5. Variance of 1, 3, 1.5, 5 is 2.421875.
    normalizer = RewardNormalizer()
    rewards = torch.tensor([[1.0, 3.0], [1.0, 5.0]])
    done = torch.tensor([[False, True], [False, False]])
    torch.testing.assert_close(normalizer(rewards, done=done, gamma=0.5), rewards / 2.421875**0.5)


def test_reset_rows_are_no_rewards() -> None:
    """The zeros in which an environment only reset itself would make rewards look rarer than they are."""
    plain, with_resets = RewardNormalizer(), RewardNormalizer()
    expected = plain(column(1, 2, 4), done=column(0, 1, 0).bool(), gamma=0.5)
    valid = column(1, 1, 0, 1).bool()
    scaled = with_resets(column(1, 2, 0, 4), done=column(0, 1, 0, 0).bool(), gamma=0.5, valid=valid)
    torch.testing.assert_close(scaled[valid], expected[:, 0])
    assert with_resets.stats.count == 3


def test_large_scaled_rewards_are_clipped() -> None:
    normalizer = RewardNormalizer(clip=2.0)
    rewards = torch.cat([torch.zeros(99, 1), torch.full((1, 1), 100.0)])
    assert normalizer(rewards, done=torch.ones(100, 1, dtype=torch.bool), gamma=0.9)[-1].item() == 2.0


def test_traces_of_each_collector_survive_saving() -> None:
    normalizer, restored = RewardNormalizer(), RewardNormalizer()
    none = torch.zeros(3, 2, dtype=torch.bool)
    for source in (0, 1):
        normalizer(torch.randn(3, 2), done=none, gamma=0.9, source=source)
    restored.load_state_dict(normalizer.state_dict())
    rewards = torch.randn(3, 2)
    for source in (1, 0):
        expected = normalizer(rewards, done=none, gamma=0.9, source=source)
        assert torch.equal(restored(rewards, done=none, gamma=0.9, source=source), expected)


def test_log_std_is_a_parameter_of_its_own() -> None:
    head = make_head(ACTION_SPACES["box"], 8, log_std_init=-1.5)
    assert isinstance(head, GaussianHead)
    assert head(torch.randn(3, 8))[:, 2:].tolist() == [[-1.5, -1.5]] * 3
