"""IMPALA's update on rollouts written by hand: V-trace in the loss, old data, rows that never happened."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms.a2c import A2C, A2CParams
from rl_training.algorithms.impala import IMPALA, IMPALAParams
from rl_training.data.rollout import Rollout
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.ops.returns import gae, n_step_returns
from rl_training.runtime.appo_trainer import APPOLearner
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.impala_trainer import IMPALALearner
from support import column, hand_batch, logit_gap, zero_policy


def linear_impala(**params: Any) -> IMPALA:
    defaults = {"learning_rate": 0.1, "max_grad_norm": 1e9, "gamma": 0.5, "gae_lambda": 1.0}
    return IMPALA(zero_policy(), IMPALAParams(**{**defaults, **params}))


def cartpole(
    num_envs: int = 4, backend: Any = "auto", learner_class: type[IMPALALearner] = IMPALALearner, **params: Any
) -> tuple[IMPALALearner, LocalCollector]:
    envs = make_envs(EnvSpec("CartPole-v1", backend=backend), num_envs)
    parsed = learner_class.Params(**params)
    learner = learner_class(parsed, envs.spaces, num_envs=num_envs, seed=0, device=torch.device("cpu"))
    return learner, LocalCollector(envs, learner.algorithm.policy, seed=0)


def test_loss_terms_by_hand() -> None:
    # Values 0, gamma 1/2, ratios 2 and 1/2 (rho_bar = c_bar = pg_rho_bar = 1): rho = c = 1, 1/2.
    # delta = 1 * 4, 1/2 * 2 = 4, 1;  v_1 = 1, v_0 = 4 + 1/2 * 1 * 1 = 4.5
    # advantages: 1 * (4 + 1/2 * v_1) = 4.5, 1/2 * (2 + 0) = 1;  all log-probs are log 1/2
    impala = linear_impala(ent_coef=0.1, vf_coef=0.5)
    metrics = impala.update(hand_batch([2.0, 0.5], [4.0, 2.0])).metrics
    policy_loss, value_loss = math.log(2) * (4.5 + 1) / 2, 0.5 * (4.5**2 + 1) / 2
    assert metrics["policy_loss"].item() == pytest.approx(policy_loss)
    assert metrics["value_loss"].item() == pytest.approx(value_loss)
    assert metrics["loss"].item() == pytest.approx(policy_loss + 0.5 * value_loss - 0.1 * math.log(2))
    assert metrics["rho_mean"].item() == pytest.approx(1.25)
    assert metrics["rho_clipped"].item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        # ratio 2 everywhere, rewards 1, 1: deltas min(2, rho_bar); v_0 = delta (1 + 1/2 min(2, c_bar)), v_1 = delta
        ({"rho_bar": 2.0}, (3.0, 2.0)),
        ({"c_bar": 2.0}, (2.0, 1.0)),
        ({"rho_bar": 2.0, "c_bar": 2.0}, (4.0, 2.0)),
        # and of the second target half, of its value, which is 0, the other half:
        ({"rho_bar": 2.0, "gae_lambda": 0.5}, (2.5, 2.0)),
    ],
)
def test_the_bars_bound_the_ratios(bar: dict[str, float], expected: tuple[float, float]) -> None:
    impala = linear_impala(**bar)
    batch = hand_batch([2.0, 2.0], [1.0, 1.0])
    traces = impala.traces(batch, torch.zeros(2), torch.full((2,), math.log(0.5)))
    torch.testing.assert_close(traces.targets, column(*expected))
    following = bar.get("gae_lambda", 1.0) * expected[1]
    torch.testing.assert_close(traces.advantages, column(1 + 0.5 * following, 1.0))


@pytest.mark.parametrize(("pg_rho_bar", "weight"), [(1.0, 1.0), (2.0, 2.0), (3.0, 2.0)])
def test_the_ratio_of_the_policy_gradient_has_its_own_bound(pg_rho_bar: float, weight: float) -> None:
    # One row of advantage 3 whose action was half as likely: minus min(2, pg_rho_bar) * 3 * log 1/2.
    metrics = linear_impala(pg_rho_bar=pg_rho_bar).update(hand_batch([2.0], [3.0])).metrics
    assert metrics["policy_loss"].item() == pytest.approx(weight * 3.0 * math.log(2))


def test_the_ratio_is_that_of_the_policy_as_it_is_at_the_step() -> None:
    """An action that became unlikely in earlier steps on the same rows is hardly pushed away any further."""
    impala = linear_impala(learning_rate=0.5)
    rows = impala.traced(hand_batch([1.0], [-1.0]))
    norms = [float(impala.gradient_step(rows).metrics["grad_norm"]) for _ in range(12)]
    # The gradient by the logits is min(ratio, 1) · (1 − p) · (1, −1): about p² where p is small, and not p.
    probability = torch.softmax(torch.tensor([logit_gap(impala), 0.0]), 0)[0].item()
    assert probability < 0.05
    assert norms[-1] < 0.2 * norms[0]


def test_the_penalty_on_the_kl_by_hand_and_in_effect() -> None:
    # Ratio 2: KL's estimate is 2 − 1 − log 2; without rewards it is all there is beside the value error of 0.
    metrics = linear_impala(kl_coef=3.0).update(hand_batch([2.0], [0.0])).metrics
    assert metrics["loss"].item() == pytest.approx(3.0 * (1 - math.log(2)))
    gaps = []
    for kl_coef in (0.0, 10.0):
        impala = linear_impala(kl_coef=kl_coef, learning_rate=0.01, vf_coef=0.0)
        for _ in range(100):
            impala.update(hand_batch([1.0], [1.0]))
        gaps.append(logit_gap(impala))
    # Where the gradients meet, 1 · ρ̄ = 10 · (ratio − 1): a ratio of 1.1, a probability of 0.55.
    assert gaps[1] == pytest.approx(math.log(0.55 / 0.45), rel=0.2)
    assert gaps[0] > 3 * gaps[1]


def test_the_mean_is_taken_and_not_the_sum() -> None:
    """Twice the same environment is the same gradient."""
    once = hand_batch([2.0, 0.5], [4.0, 2.0])
    twice = {name: torch.cat([leaf, leaf], dim=min(leaf.dim() - 1, 1)) for name, leaf in once.items()}
    first, second = linear_impala(), linear_impala()
    one, two = first.update(once).metrics, second.update(twice).metrics
    assert one["grad_norm"].item() == pytest.approx(two["grad_norm"].item())


def test_on_policy_targets_are_n_step_returns() -> None:
    learner, collector = cartpole()
    rollout = collector.collect(32)
    assert rollout.done.any()
    batch = learner.batch(rollout)
    traces = learner.algorithm.traces(batch, rollout.values, rollout.behavior_logprobs)
    ends = {"terminated": rollout.terminated, "done": rollout.done, "gamma": 0.99}
    expected = n_step_returns(rollout.rewards, rollout.next_values, n=32, **ends)
    torch.testing.assert_close(traces.targets[rollout.valid], expected[rollout.valid], rtol=1e-5, atol=1e-4)


def gradients(rollout: Rollout, learner: IMPALALearner) -> tuple[Tensor, Tensor]:
    """(IMPALA's, A2C's) of the same rollout and weights."""
    impala = learner.algorithm
    params = A2CParams(learning_rate=1e-3, vf_coef=0.5, ent_coef=0.01, max_grad_norm=1e9, optimizer="adam")
    a2c = A2C(copy.deepcopy(impala.policy), params)
    advantages = gae(
        rollout.rewards,
        rollout.values,
        rollout.next_values,
        terminated=rollout.terminated,
        done=rollout.done,
        gamma=0.99,
        gae_lambda=1.0,
    )
    a2c.update(rollout.flat(advantages=advantages, returns=advantages + rollout.values))
    learner.params.move({"ent_coef": 0.01, "max_grad_norm": 1e9})
    impala.update(learner.batch(rollout))
    return impala.optimizer.grad, a2c.optimizer.grad


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_without_lag_the_gradient_is_that_of_a2c(backend: Any) -> None:
    learner, collector = cartpole(backend=backend)
    rollout = collector.collect(64)
    assert rollout.done.any()
    impala, a2c = gradients(rollout, learner)
    torch.testing.assert_close(impala / a2c.norm(), a2c / a2c.norm(), rtol=0, atol=1e-6)


def test_with_lag_it_is_not_and_the_ratios_are_not_ones() -> None:
    """The negative control of the test above: the policy has moved since it acted."""
    learner, collector = cartpole(learning_rate=1e-2)
    rollout = collector.collect(64)
    for _ in range(5):
        metrics = learner.algorithm.update(learner.batch(rollout)).metrics
    assert metrics["approx_kl"] > 1e-4
    assert metrics["rho_clipped"] > 0.1
    impala, a2c = gradients(rollout, learner)
    assert (impala / a2c.norm() - a2c / a2c.norm()).norm() > 1e-2


def test_rows_that_never_happened_change_nothing() -> None:
    """Row 1 only reset the environment: its reward, ratio and observation may be anything."""
    ends = {"terminated": torch.tensor([[True], [False], [False]]), "valid": torch.tensor([[True], [False], [True]])}
    results = []
    for ratio, reward, seen in ((1.0, 0.0, 1.0), (1e30, 7.0, -5.0)):
        impala = linear_impala(ent_coef=0.1)
        batch = hand_batch([2.0, ratio, 0.5], [4.0, reward, 2.0], **ends)
        batch["obs"][1] = seen
        metrics = impala.update(batch).metrics
        results.append([impala.optimizer.grad.clone(), *metrics.values()])
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second)
    # Two rows are left; both are ends of what is known: v_0 = 4, v_2 = 1/2 * 2, advantages 4 and 1.
    assert metrics["policy_loss"].item() == pytest.approx(math.log(2) * (4 + 1) / 2)


def test_a_time_limit_bootstraps_from_the_final_observation() -> None:
    # Row 0 is truncated and its final observation is worth 6, whatever the next row is worth: v_0 = 1 + 1/2 * 6
    done = torch.tensor([[True], [False]])
    final = {"final_rows": torch.tensor([[0, 0]]), "final_values": torch.tensor([6.0])}
    batch = hand_batch([1.0, 1.0], [1.0, 1.0], done=done, bootstrap_value=torch.tensor([8.0]), **final)
    traces = linear_impala().traces(batch, torch.zeros(2), torch.full((2,), math.log(0.5)))
    torch.testing.assert_close(traces.targets, column(4.0, 5.0))
    given = {**batch, "next_values": column(6.0, 8.0)}
    torch.testing.assert_close(linear_impala().traces(given, torch.zeros(2), torch.full((2,), math.log(0.5))), traces)


def test_a_pass_takes_every_row_once_with_the_traces_of_the_whole_rollout() -> None:
    learner, collector = cartpole(num_envs=5, backend="sync", num_minibatches=3)
    rollout = collector.collect(64)
    assert len(rollout.final_rows)
    parts = list(learner.passes(rollout))
    assert sorted(len(part["returns"]) for part in parts) == [106, 107, 107]
    traces = learner.algorithm.traces(learner.batch(rollout), rollout.values, rollout.behavior_logprobs)
    taken = torch.cat([torch.cat([part["obs"], part["returns"][:, None]], dim=1) for part in parts])
    whole = torch.cat([rollout.obs, traces.targets[..., None]], dim=-1).flatten(0, 1)
    torch.testing.assert_close(taken[taken[:, 0].argsort()], whole[whole[:, 0].argsort()], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("learner_class", "passes"), [(IMPALALearner, 2), (APPOLearner, 1)])
def test_every_pass_of_impala_has_traces_of_its_own(learner_class: Any, passes: int) -> None:
    """They are those of the policy before the pass. APPO keeps those before the first, and clips its own ratio."""
    options = {"update_epochs": 2, "num_minibatches": 2, "learning_rate": 0.05}
    learner, collector = cartpole(learner_class=learner_class, **options)
    traced, seen = learner.algorithm.traced, []

    def watched(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(traced(batch))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner.algorithm, "traced", watched)
        assert sum(1 for _ in learner.learn(collector.collect(32))) == 4
    assert len(seen) == passes
    torch.testing.assert_close(seen[0]["rhos"], torch.ones_like(seen[0]["rhos"]))
    if passes == 2:
        assert not torch.allclose(seen[0]["rhos"], seen[1]["rhos"], atol=1e-3)
        assert not torch.allclose(seen[0]["returns"], seen[1]["returns"], atol=1e-3)


def test_the_passes_end_once_the_policy_has_moved_too_far() -> None:
    def updates(target_kl: float | None) -> int:
        learner, collector = cartpole(target_kl=target_kl, update_epochs=3, num_minibatches=2, learning_rate=1e-2)
        return sum(1 for _ in learner.learn(collector.collect(8)))

    assert updates(None) == updates(1e9) == 6
    assert updates(1e-6) == 2  # the first part is the policy's own


def test_the_values_of_what_followed_are_those_of_the_policy_as_it_is_before_each_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, collector = cartpole(num_envs=3, backend="sync", update_epochs=3, learning_rate=0.05)
    rollout = collector.collect(64)
    assert len(rollout.final_rows)
    traced, seen = learner.algorithm.traced, []

    def watched(batch: dict[str, Any]) -> Any:
        with torch.no_grad():
            torch.testing.assert_close(batch["bootstrap_value"], learner.algorithm.policy.values(rollout.last_obs))
            torch.testing.assert_close(batch["final_values"], learner.algorithm.policy.values(rollout.final_obs))
        seen.append(batch["bootstrap_value"])
        return traced(batch)

    monkeypatch.setattr(learner.algorithm, "traced", watched)
    list(learner.learn(rollout))
    assert not torch.allclose(seen[0], seen[-1])


def test_the_age_of_a_rollout_does_not_end_its_passes() -> None:
    """What the policy moved since it acted is not counted: asynchronous data would be left after one update."""
    learner, collector = cartpole(target_kl=0.02, update_epochs=3, num_minibatches=2, learning_rate=1e-6)
    rollout = collector.collect(128)
    with torch.no_grad():
        learner.algorithm.policy.head.linear.bias.add_(torch.tensor([0.6, 0.0]))
    kls = [float(result.metrics["approx_kl"]) for result in learner.learn(rollout)]
    assert len(kls) == 6
    assert min(kls) > 0.02


@pytest.mark.parametrize("normalize", [True, False])
def test_rewards_are_divided_by_the_deviation_of_returns_if_the_parameters_say_so(
    normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, collector = cartpole(backend="sync", normalize_reward=normalize)
    traced, seen = learner.algorithm.traced, []
    monkeypatch.setattr(learner.algorithm, "traced", lambda batch: seen.append(batch["rewards"]) or traced(batch))
    list(learner.learn(collector.collect(64)))
    deviation = learner.reward_normalizer.stats.var.sqrt().item()
    assert deviation > 1.5 or not normalize
    torch.testing.assert_close(seen[0], torch.full((64, 4), 1.0 / deviation if normalize else 1.0))
