"""A2C: the loss by hand, and one update per rollout."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training import A2C
from rl_training.algorithms.a2c import A2C as UpdateRule
from rl_training.algorithms.a2c import A2CParams, a2c_loss
from rl_training.algorithms.base import UpdateResult
from rl_training.models.actor_critic import Evaluated
from rl_training.ops.returns import n_step_returns
from rl_training.runtime.session import Session
from support import zero_policy

LOGPROBS = torch.tensor([-0.5, -2.0])
EVALUATED = Evaluated(LOGPROBS, entropy=torch.tensor([0.3, 0.5]), values=torch.tensor([1.0, 2.0]), dist=torch.empty(0))
BATCH = {
    "advantages": torch.tensor([2.0, -1.0]),
    "values": torch.tensor([1.0, 2.0]),
    "returns": torch.tensor([2.0, 0.0]),
}


def session_of(agent: A2C) -> Session:
    return agent._session


def test_the_loss_by_hand() -> None:
    loss = a2c_loss(EVALUATED, BATCH, ent_coef=0.1, vf_coef=0.5)
    assert loss.policy_loss == pytest.approx(-0.5)  # -(2 * -0.5 + -1 * -2) / 2
    assert loss.value_loss == pytest.approx(1.25)  # half the mean of 1 and 4
    assert loss.entropy == pytest.approx(0.4)
    assert loss.total == pytest.approx(-0.5 + 0.5 * 1.25 - 0.1 * 0.4)


@pytest.mark.parametrize(("asked", "expected"), [(True, (1.0, -1.0)), (False, (2.0, -1.0))])
def test_advantages_are_normalised_only_on_request(asked: bool, expected: tuple[float, float]) -> None:
    # Mean 0.5, deviation 1.5: the advantages become 1 and -1.
    algorithm = UpdateRule(zero_policy(), A2CParams(normalize_advantages=asked))
    used = algorithm.usable(BATCH["advantages"])
    torch.testing.assert_close(used, torch.tensor(expected))
    loss = a2c_loss(EVALUATED, {**BATCH, "advantages": used}, ent_coef=0.0, vf_coef=0.0)
    assert loss.policy_loss == pytest.approx(-(expected[0] * -0.5 + expected[1] * -2.0) / 2)
    # The update uses them so: with both actions alike the policy loss is log 2 times their mean.
    rows = {"obs": torch.ones(2, 1), "actions": torch.zeros(2, dtype=torch.int64)}
    policy_loss = algorithm.update({**BATCH, **rows}).metrics["policy_loss"]
    assert policy_loss == pytest.approx(math.log(2) * sum(expected) / 2, abs=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_step_makes_good_actions_likelier_and_bad_ones_rarer(sign: float) -> None:
    agent = A2C("CartPole-v1", vf_coef=0.0)
    obs, actions = torch.randn(16, 4), torch.ones(16, dtype=torch.int64)
    before = agent.policy.evaluate_actions(obs, actions).logprobs.mean()
    column = torch.zeros(16)
    batch = {"obs": obs, "actions": actions, "advantages": column + sign, "returns": column, "values": column}
    session_of(agent).learner.algorithm.update(batch)
    moved = agent.policy.evaluate_actions(obs, actions).logprobs.mean() - before
    assert sign * moved > 0


def test_the_first_step_of_rmsprop_by_hand() -> None:
    """v = 0.01 g² after one step, so a gradient far above eps moves its parameter by 10 learning rates."""
    algorithm = session_of(A2C("CartPole-v1", learning_rate=0.001)).learner.algorithm
    before = algorithm.optimizer.flat.detach().clone()
    loss = 3.0 * algorithm.policy.value_head.bias.sum()
    algorithm.optimizer.step(loss, learning_rate=algorithm.params.learning_rate, max_grad_norm=9.0)
    moved = (algorithm.optimizer.flat.detach() - before).abs()
    assert moved.max() == pytest.approx(0.001 * 3.0 / (0.3 + 1e-5), rel=1e-3)
    assert (moved > 0).sum() == 1


def test_a_rollout_is_learned_from_once_with_n_step_returns() -> None:
    session = session_of(A2C("CartPole-v1", seed=3))
    rollout = session.collector.collect(session.learner.rollout_steps)
    batch = session.learner.flat_advantages(rollout)
    expected = n_step_returns(
        rollout.rewards, rollout.next_values, terminated=rollout.terminated, done=rollout.done, gamma=0.99, n=5
    )
    torch.testing.assert_close(batch["returns"], expected.reshape(-1))
    results: list[UpdateResult] = list(session.learner.learn(rollout))
    assert sum(result.num_gradient_steps for result in results) == 1
