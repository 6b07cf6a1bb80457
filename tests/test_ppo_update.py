"""PPO's update on batches written by hand, and the optimizer that all policy-gradient algorithms step with."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.params import LiveParams
from rl_training.algorithms.ppo import PPO, PPOParams
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.ppo_trainer import PPOLearner
from support import ContextualBandit, ScriptedEnv, policy_options

LINEAR = policy_options(hidden_sizes=())  # features are the observation itself


def linear_ppo(observation_size: int = 1, num_actions: int = 2, **params: Any) -> PPO:
    """Both heads linear in the observation and zero: all actions are alike, all values 0."""
    space = Spaces(spaces.Box(-1, 1, (observation_size,), np.float32), spaces.Discrete(num_actions))
    policy = ActorCritic(space, LINEAR)
    for parameter in policy.parameters():
        parameter.data.zero_()
    defaults = {"clip_coef": 0.2, "learning_rate": 0.1, "normalize_advantages": False, "max_grad_norm": 1e9}
    return PPO(policy, LiveParams(PPOParams(**{**defaults, **params})))


def hand_batch(
    ratios: list[float], advantages: list[float], *, returns: Sequence[float] = (), values: Sequence[float] = ()
) -> dict[str, Tensor]:
    """Rows with observation 1 and action 0, whose probability is 1/2 now and was 1/2 / ratio."""
    rows = len(ratios)
    return {
        "obs": torch.ones(rows, 1),
        "actions": torch.zeros(rows, dtype=torch.int64),
        "behavior_logprobs": torch.tensor([math.log(0.5 / ratio) for ratio in ratios]),
        "advantages": torch.tensor(advantages),
        "returns": torch.tensor(returns or [0.0] * rows),
        "values": torch.tensor(values or [0.0] * rows),
    }


def policy_weights(ppo: PPO) -> list[Tensor]:
    return [p.detach().clone() for p in ppo.policy.head.parameters()]


def prob_of_action_0(ppo: PPO) -> float:
    return ppo.policy.evaluate_actions(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64)).logprobs.exp().item()


# ---- the loss


def test_loss_terms_by_hand() -> None:
    # ratio 1.5, A = 2: min(3, 1.2 * 2) = 2.4;  ratio 0.5, A = -1: min(-0.5, -0.8) = -0.8;  -(2.4 - 0.8) / 2 = -0.8
    # values 0, returns 1 and 3: 0.5 * (1 + 9) / 2 = 2.5;  two actions alike: entropy log 2
    ppo = linear_ppo(ent_coef=0.1, vf_coef=0.5)
    metrics = ppo.update(hand_batch([1.5, 0.5], [2.0, -1.0], returns=[1.0, 3.0])).metrics
    assert metrics["policy_loss"].item() == pytest.approx(-0.8)
    assert metrics["value_loss"].item() == pytest.approx(2.5)
    assert metrics["entropy"].item() == pytest.approx(math.log(2))
    assert metrics["loss"].item() == pytest.approx(-0.8 + 0.5 * 2.5 - 0.1 * math.log(2))


def test_diagnostics_by_hand() -> None:
    # |ratio - 1| > 0.2 for 1.5 and 0.5;  k3 = mean(ratio - 1 - log ratio), the ratios' sum being 4.1
    metrics = linear_ppo().update(hand_batch([1.5, 0.5, 1.1, 1.0], [1.0] * 4)).metrics
    assert metrics["clip_fraction"].item() == pytest.approx(0.5)
    expected_kl = (0.1 - math.log(1.5) - math.log(0.5) - math.log(1.1)) / 4
    assert metrics["approx_kl"].item() == pytest.approx(expected_kl, abs=1e-6)


def test_the_gradient_norm_by_hand() -> None:
    # ratio 1, A = 1: d(-log p_0)/d logits = (p_0 - 1, p_1) = (-0.5, 0.5), once for the weight and once for the bias;
    # value: 0.5 * d(0.5 * (0 - 2)^2) = -1, again twice. Norm = sqrt(2 * 0.5 + 2 * 1) = sqrt(3).
    metrics = linear_ppo(vf_coef=0.5).update(hand_batch([1.0], [1.0], returns=[2.0])).metrics
    assert metrics["grad_norm"].item() == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"), [(1.5, 1.0, 0), (0.5, -1.0, 0), (1.5, -1.0, -1), (0.5, 1.0, +1), (1.0, 1.0, +1)]
)
def test_the_policy_moves_unless_the_clip_holds_it(ratio: float, advantage: float, moves: int) -> None:
    ppo = linear_ppo()
    before = policy_weights(ppo)
    ppo.update(hand_batch([ratio], [advantage]))
    if moves == 0:
        assert all(torch.equal(a, b) for a, b in zip(before, policy_weights(ppo), strict=True))
    else:
        assert (prob_of_action_0(ppo) - 0.5) * moves > 0.01


def test_the_value_moves_where_the_policy_is_clipped() -> None:
    ppo = linear_ppo()
    ppo.update(hand_batch([1.5], [1.0], returns=[3.0]))
    assert ppo.policy.values(torch.ones(1, 1)).item() > 0.1


def test_clipped_values_take_the_worse_error() -> None:
    # value 0, old value 1, clip 0.2: clipped value 0.8; return 1: max(1, 0.04) = 1;  return -1: max(1, 3.24) = 3.24
    batch = hand_batch([1.0, 1.0], [0.0, 0.0], returns=[1.0, -1.0], values=[1.0, 1.0])
    assert linear_ppo(clip_value_loss=True).update(batch).metrics["value_loss"].item() == pytest.approx(0.5 * 4.24 / 2)
    assert linear_ppo(clip_value_loss=False).update(batch).metrics["value_loss"].item() == pytest.approx(0.5)


def test_advantages_are_normalised_within_the_minibatch() -> None:
    # A = 10, 30 becomes -1, 1; with ratios 1.1 and 0.9: -(-1.1 + 0.9) / 2 = 0.1
    metrics = linear_ppo(normalize_advantages=True).update(hand_batch([1.1, 0.9], [10.0, 30.0])).metrics
    assert metrics["policy_loss"].item() == pytest.approx(0.1)


def test_the_entropy_coefficient_moves_the_update() -> None:
    for ent_coef, expected in ((0.0, 0), (0.5, 1)):
        ppo = linear_ppo(ent_coef=ent_coef)
        ppo.policy.head.linear.bias.data.copy_(torch.tensor([1.0, 0.0]))
        before = prob_of_action_0(ppo)
        ppo.update(hand_batch([1.0], [0.0]))
        assert (before - prob_of_action_0(ppo) > 0.01) == bool(expected)  # towards 1/2, or not at all


def test_the_value_coefficient_scales_the_value_loss_only() -> None:
    ppo = linear_ppo(vf_coef=0.0)
    ppo.update(hand_batch([1.0], [1.0], returns=[5.0]))
    assert ppo.policy.values(torch.ones(1, 1)).item() == 0.0
    assert prob_of_action_0(ppo) > 0.5


def test_controls_reach_the_next_update() -> None:
    ppo = linear_ppo()
    ppo.params.move({"learning_rate": 0.0, "clip_coef": 0.6})
    before = policy_weights(ppo)
    metrics = ppo.update(hand_batch([1.5], [1.0])).metrics
    assert metrics["clip_fraction"].item() == 0.0  # 1.5 lies within 0.6
    assert all(torch.equal(a, b) for a, b in zip(before, policy_weights(ppo), strict=True))


# ---- learning


def bandit_batch(ppo: PPO, sign: float) -> dict[str, Tensor]:
    """Every context with every arm; the right arm's advantage is 3/4, the others' -1/4."""
    contexts, arms = torch.arange(4).repeat_interleave(4), torch.arange(4).repeat(4)
    right = torch.tensor(ContextualBandit.BEST)[contexts] == arms
    obs = torch.eye(4)[contexts]
    with torch.no_grad():
        evaluated = ppo.policy.evaluate_actions(obs, arms)
    return {
        "obs": obs,
        "actions": arms,
        "behavior_logprobs": evaluated.logprobs,
        "advantages": sign * (right.float() - 0.25),
        "returns": right.float(),
        "values": evaluated.values,
    }


def accuracy(ppo: PPO) -> float:
    probs = ppo.policy.evaluate_actions(torch.eye(4), torch.tensor(ContextualBandit.BEST)).logprobs.exp()
    return probs.mean().item()


@pytest.mark.parametrize(("sign", "low", "high"), [(1.0, 0.9, 1.0), (-1.0, 0.0, 0.05)])
def test_the_right_arm_is_learned_and_unlearned_with_flipped_advantages(sign: float, low: float, high: float) -> None:
    ppo = linear_ppo(4, 4)
    assert accuracy(ppo) == pytest.approx(0.25)
    for _ in range(60):
        ppo.update(bandit_batch(ppo, sign))
    assert low <= accuracy(ppo) <= high


def ppo_learner(**params: Any) -> tuple[PPOLearner, dict[str, Any]]:
    """A learner and a batch that its own policy collected on CartPole."""
    envs = make_envs(EnvSpec("CartPole-v1"), 4)
    learner = PPOLearner(PPOParams(**params), envs.spaces, num_envs=4, seed=0, device=torch.device("cpu"))
    rollout = LocalCollector(envs, learner.algorithm.policy, seed=0).collect(64)
    return learner, learner.flat_advantages(rollout)


@pytest.mark.parametrize("share_torso", [False, True])
def test_the_first_minibatch_has_the_ratio_one(share_torso: bool) -> None:
    learner, batch = ppo_learner(share_torso=share_torso)
    first = next(learner.minibatches(batch, 4))
    logprobs = learner.algorithm.policy.evaluate_actions(first["obs"], first["actions"]).logprobs
    torch.testing.assert_close(
        (logprobs - first["behavior_logprobs"]).exp(), torch.ones(len(logprobs)), atol=1e-6, rtol=0
    )
    metrics = learner.algorithm.update(first).metrics
    assert metrics["approx_kl"].item() == pytest.approx(0.0, abs=1e-6)
    assert metrics["clip_fraction"].item() == 0.0


def test_each_epoch_sees_every_row_once() -> None:
    learner, batch = ppo_learner()
    rows = len(batch["actions"])
    batch["row"] = torch.arange(rows)
    for count in (1, 3, 4):
        parts = [part["row"] for part in learner.minibatches(batch, count)]
        assert len(parts) == count
        assert sorted(torch.cat(parts).tolist()) == list(range(rows))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert torch.cat(parts).tolist() != list(range(rows))


def test_every_epoch_is_run_unless_the_policy_has_moved_too_far() -> None:
    def updates(target_kl: float | None) -> int:
        learner, batch = ppo_learner(target_kl=target_kl, update_epochs=3, num_minibatches=4, learning_rate=1e-2)
        return sum(1 for _ in learner.epochs(batch))

    assert updates(None) == 12
    assert updates(1e9) == 12
    # The first minibatch is the policy's own; the second already sees a policy that has moved.
    assert updates(1e-6) == 2


@pytest.mark.parametrize(("terminates", "last"), [(False, 1.0), (True, -1.0)])
def test_a_termination_cuts_the_bootstrap_and_a_truncation_does_not(terminates: bool, last: float) -> None:
    # Every state is worth 4, gamma 0.5, lambda 0: A = r + 0.5 * 4 - 4 for r = 1, 2, 3; a terminal state is worth 0.
    envs = SyncEnvs([partial(ScriptedEnv, 3, terminates)])
    params = PPOParams(gamma=0.5, gae_lambda=0.0, hidden_sizes=())
    learner = PPOLearner(params, envs.spaces, num_envs=1, seed=0, device=torch.device("cpu"))
    learner.algorithm.policy.value_head.weight.data.zero_()
    learner.algorithm.policy.value_head.bias.data.fill_(4.0)
    batch = learner.flat_advantages(LocalCollector(envs, learner.algorithm.policy, seed=0).collect(4))
    assert batch["advantages"].tolist() == [-1.0, 0.0, last, -1.0]
    assert batch["returns"].tolist() == [3.0, 4.0, 4.0 + last, 3.0]


def test_reset_rows_do_not_enter_the_reward_statistics() -> None:
    envs = make_envs(EnvSpec("CartPole-v1", backend="native"), 4)
    params = PPOParams(normalize_reward=True)
    learner = PPOLearner(params, envs.spaces, num_envs=4, seed=0, device=torch.device("cpu"))
    rollout = LocalCollector(envs, learner.algorithm.policy, seed=0).collect(64)
    learner.flat_advantages(rollout)
    assert rollout.num_steps < 256
    assert learner.reward_normalizer.stats.count == rollout.num_steps


# ---- the optimizer


def problem(seed: int = 0) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(32, 4)


def loss_of(model: nn.Module, inputs: Tensor) -> Tensor:
    return (model(inputs)[:, 0] - 10 * inputs.sum(1)).square().mean()


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
@pytest.mark.parametrize("max_grad_norm", [0.5, 1e9, None])
def test_the_flat_optimizer_steps_as_torch_does(kind: str, max_grad_norm: float | None) -> None:
    model, inputs = problem()
    reference = copy.deepcopy(model)
    flat = FlatOptimizer(model.parameters(), eps=1e-5, kind=kind)
    if kind == "adam":
        theirs: torch.optim.Optimizer = torch.optim.Adam(reference.parameters(), lr=0.01, eps=1e-5)
    else:
        theirs = torch.optim.RMSprop(reference.parameters(), lr=0.01, eps=1e-5, alpha=0.99)
    for _ in range(20):
        norm = flat.step(loss_of(model, inputs), learning_rate=0.01, max_grad_norm=max_grad_norm)
        theirs.zero_grad()
        loss_of(reference, inputs).backward()
        expected = nn.utils.clip_grad_norm_(reference.parameters(), max_grad_norm or math.inf)
        theirs.step()
        torch.testing.assert_close(norm, expected)
        for mine, other in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_the_learning_rate_can_be_moved_between_steps() -> None:
    model, inputs = problem()
    optimizer = FlatOptimizer(model.parameters(), eps=1e-5, kind="adam")
    optimizer.step(loss_of(model, inputs), learning_rate=0.01, max_grad_norm=None)
    before = optimizer.flat.detach().clone()
    optimizer.step(loss_of(model, inputs), learning_rate=0.0, max_grad_norm=None)
    assert torch.equal(optimizer.flat, before)


def test_a_parameter_that_two_modules_share_is_stepped_once() -> None:
    model, inputs = problem()
    optimizer = FlatOptimizer([*model.parameters(), *model.parameters()], eps=1e-5, kind="adam")
    assert optimizer.flat.numel() == sum(p.numel() for p in model.parameters())
    before = loss_of(model, inputs).item()
    optimizer.step(loss_of(model, inputs), learning_rate=0.01, max_grad_norm=None)
    assert loss_of(model, inputs).item() < before


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_restored_optimizer_goes_on_bit_for_bit(kind: str, steps_before: int) -> None:
    (model, inputs), (other, _) = problem(), problem(1)
    optimizer = FlatOptimizer(model.parameters(), eps=1e-5, kind=kind)
    for _ in range(steps_before):
        optimizer.step(loss_of(model, inputs), learning_rate=0.01, max_grad_norm=0.5)
    restored = FlatOptimizer(other.parameters(), eps=1e-5, kind=kind)
    restored.step(loss_of(other, inputs), learning_rate=0.5, max_grad_norm=0.5)
    other.load_state_dict(model.state_dict())
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(3):
        optimizer.step(loss_of(model, inputs), learning_rate=0.02, max_grad_norm=0.5)
        restored.step(loss_of(other, inputs), learning_rate=0.02, max_grad_norm=0.5)
        assert torch.equal(optimizer.flat, restored.flat)


def test_a_restored_optimizer_has_moments_of_its_own() -> None:
    (model, inputs), (other, _) = problem(), problem()
    optimizer, restored = (FlatOptimizer(m.parameters(), eps=1e-5, kind="adam") for m in (model, other))
    optimizer.step(loss_of(model, inputs), learning_rate=0.01, max_grad_norm=None)
    state = optimizer.state_dict()
    restored.load_state_dict(state)
    before = {name: tensor.clone() for name, tensor in state["moments"].items()}
    restored.step(loss_of(other, inputs), learning_rate=0.01, max_grad_norm=None)
    assert all(torch.equal(before[name], tensor) for name, tensor in optimizer.state_dict()["moments"].items())


def test_a_parameter_that_is_not_finite_is_noticed() -> None:
    model, _ = problem()
    optimizer = FlatOptimizer(model.parameters(), eps=1e-5, kind="adam")
    assert optimizer.is_finite()
    for value in (math.nan, math.inf):
        next(model.parameters()).data[0, 0] = value
        assert not optimizer.is_finite()
