"""TRPO: the bounded step, the line search that restores, the critic, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import TRPO
from rl_training.algorithms.base import UpdateResult
from rl_training.errors import ConfigError
from rl_training.kernels import using
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.session import Session
from support import BitsEnv, DictEnv, IdentityImageEnv, TargetEnv, TwoAnswersEnv

CRITIC = ("critic_torso", "value_head")


def session_of(agent: TRPO) -> Session:
    return agent._session


class VectorOfBits(BitsEnv):
    """Bits to answer, seen as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)

    def ask(self) -> Any:
        return super().ask().astype(np.float32)


class VectorOfChoices(TwoAnswersEnv):
    """Two answers to choose, asked for by numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 3, (2,), np.float32)

    def ask(self) -> Any:
        return super().ask().astype(np.float32)


def collected(env: Any = "CartPole-v1", **overrides: Any) -> tuple[Session, dict[str, Any]]:
    """A session and the batch of its first rollout."""
    session = session_of(TRPO(env, num_envs=4, rollout_steps=64, **overrides))
    return session, session.learner.flat_advantages(session.collector.collect(64))


def parameters_of(session: Session, *, critic: bool) -> dict[str, torch.Tensor]:
    named = session.policy.named_parameters()
    return {name: p.detach().clone() for name, p in named if name.startswith(CRITIC) == critic}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_the_policys_fisher_vector_product_is_the_hessian_of_its_kl() -> None:
    """The whole policy, in single precision, against the explicit Hessian in double."""
    session, batch = collected(hidden_sizes=(2,))
    policy, parameters = session.policy, session.learner.algorithm.actor
    product = session.learner.algorithm.fisher_product(policy.distribution(batch["obs"]), batch)
    double = copy.deepcopy(policy).double()
    obs = batch["obs"].double()
    old = double.head(double.actor_torso.mlp.layers[0](obs).tanh()).detach()

    def kl(w: torch.Tensor, b: torch.Tensor, w_head: torch.Tensor, b_head: torch.Tensor) -> torch.Tensor:
        logits = (obs @ w.T + b).tanh() @ w_head.T + b_head
        return double.head.kl(old, logits.log_softmax(-1)).mean()

    point = tuple(p.detach().double() for p in parameters)
    blocks = torch.autograd.functional.hessian(kl, point)
    rows = zip(point, blocks, strict=True)
    hessian = torch.cat([torch.cat([block.reshape(p.numel(), -1) for block in row], dim=1) for p, row in rows])
    products = torch.stack([product(row) for row in torch.eye(16)])
    torch.testing.assert_close(products.double(), hessian, rtol=1e-3, atol=1e-6)
    assert hessian.abs().max() > 1e-3


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", VectorOfBits, VectorOfChoices])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_products_in_numpy_are_those_of_autograd(activation: str, env: Any) -> None:
    session, batch = collected(env, hidden_sizes=(8, 6), activation=activation)
    algorithm = session.learner.algorithm
    dist = session.policy.distribution(batch["obs"])
    plain = algorithm.fisher_product(dist, batch)
    with using("auto"):
        kernel = algorithm.fisher_product(dist, batch)
    for vector in torch.randn(3, sum(p.numel() for p in algorithm.actor)):
        torch.testing.assert_close(kernel(vector), plain(vector), rtol=1e-4, atol=1e-6)


def test_a_step_raises_the_surrogate_within_the_bound_and_leaves_the_critic_alone() -> None:
    session, batch = collected()
    algorithm, critic = session.learner.algorithm, parameters_of(session, critic=True)
    old = session.policy.distribution(batch["obs"]).detach()
    metrics = algorithm.update(batch).metrics
    new = session.policy.distribution(batch["obs"]).detach()
    assert metrics["line_search_accepted"] == 1.0
    assert metrics["surrogate_gain"] > 0
    assert metrics["step_kl"] == pytest.approx(session.policy.head.kl(old, new).mean().item(), rel=1e-4)
    assert 0.001 < metrics["step_kl"] <= 0.01
    assert equal(critic, parameters_of(session, critic=True))


def test_the_critic_moves_without_the_policy_and_its_loss_falls() -> None:
    session, batch = collected(learning_rate=0.01)
    actor = parameters_of(session, critic=False)
    losses = [float(session.learner.algorithm.update_critic(batch).metrics["value_loss"]) for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    assert equal(actor, parameters_of(session, critic=False))


def test_the_critics_step_without_autograd_is_the_same_step() -> None:
    sessions, batch = [collected(learning_rate=0.01)[0] for _ in range(2)], collected(learning_rate=0.01)[1]
    for _ in range(3):
        results = []
        for session, mode in zip(sessions, ("auto", "off"), strict=True):
            with using(mode):
                results.append(session.learner.algorithm.update_critic(batch).metrics)
        for name in results[1]:
            assert float(results[0][name]) == pytest.approx(float(results[1][name]), rel=1e-4)


@pytest.mark.parametrize("fault", ["worse", "nan"])
def test_a_rejected_step_restores_the_parameters_exactly(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, batch = collected()
    before = parameters_of(session, critic=False)
    bad = float("nan") if fault == "nan" else -1e9
    algorithm = session.learner.algorithm
    surrogate, calls = algorithm._surrogate, []

    def spoiled(*args: Any) -> Any:
        calls.append(1)
        value, entropy = surrogate(*args)
        return (value if len(calls) == 1 else value * 0 + bad), entropy

    monkeypatch.setattr(algorithm, "_surrogate", spoiled)
    metrics = algorithm.update(batch).metrics
    assert (metrics["line_search_accepted"], metrics["step_kl"], metrics["surrogate_gain"]) == (0.0, 0.0, 0.0)
    assert equal(before, parameters_of(session, critic=False))


def test_without_advantages_there_is_no_step() -> None:
    session, batch = collected()
    before = parameters_of(session, critic=False)
    metrics = session.learner.algorithm.update({**batch, "advantages": torch.zeros_like(batch["advantages"])}).metrics
    assert metrics["line_search_accepted"] == 0.0
    assert equal(before, parameters_of(session, critic=False))


@pytest.mark.parametrize("normalize", [True, False])
def test_advantages_are_normalised_if_the_parameters_say_so(normalize: bool) -> None:
    """Before the step every ratio is 1: the surrogate is the advantages' mean, which is 0 once they are normalised."""
    session, batch = collected(normalize_advantages=normalize)
    batch = {**batch, "advantages": batch["advantages"] + 3.0}
    surrogate = -float(session.learner.algorithm.update(batch).metrics["policy_loss"])
    assert surrogate == pytest.approx(0.0 if normalize else float(batch["advantages"].mean()), abs=1e-5)


def test_the_entropy_bonus_is_part_of_what_the_step_raises() -> None:
    """With nothing else to gain, a policy that leans to one side is moved back to the middle."""
    session, batch = collected(ent_coef=1.0)
    with torch.no_grad():
        session.policy.head.linear.bias.copy_(torch.tensor([1.0, -1.0]))
    dist = session.policy.distribution(batch["obs"])
    behavior = session.policy.head.log_probs(dist, batch["actions"]).detach()
    batch = {**batch, "advantages": torch.zeros_like(batch["advantages"]), "behavior_logprobs": behavior}
    before = session.policy.head.entropy(dist).mean()
    assert session.learner.algorithm.update(batch).metrics["line_search_accepted"] == 1.0
    assert session.policy.head.entropy(session.policy.distribution(batch["obs"])).mean() > before + 0.01


class Steps(Callback):
    def __init__(self) -> None:
        self.kls: list[float] = []
        self.accepted: list[float] = []

    def on_update(self, session: Session, result: UpdateResult) -> None:
        if "step_kl" in result.metrics:
            self.kls.append(float(result.metrics["step_kl"]))
            self.accepted.append(float(result.metrics["line_search_accepted"]))


def test_every_accepted_step_of_a_run_keeps_the_bound() -> None:
    steps = Steps()
    TRPO("CartPole-v1", rollout_steps=128, cg_damping=0.001, eval_episodes=0).train(20_000, callbacks=[steps])
    assert len(steps.kls) >= 19
    assert max(steps.kls) <= 0.01 + 1e-4
    assert sum(steps.accepted) / len(steps.accepted) > 0.9


@pytest.mark.parametrize("env", [TargetEnv, TwoAnswersEnv, BitsEnv, DictEnv, IdentityImageEnv])
def test_second_derivatives_reach_through_every_space(env: type[gym.Env]) -> None:
    """Images too: their policy and value have a CNN each."""
    agent = TRPO(env, num_envs=4, rollout_steps=16, critic_updates=1, eval_episodes=0, threads=1)
    assert not agent.policy.shares_torso
    steps = Steps()
    agent.train(128, callbacks=[steps])
    assert max(steps.accepted) == 1.0


def test_a_shared_torso_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="share_torso: TRPO needs separate torsos"):
        TRPO("CartPole-v1", share_torso=True)


def test_the_weight_of_a_joint_loss_is_no_parameter_of_trpo() -> None:
    with pytest.raises(ConfigError, match="unknown algo_kwargs key 'vf_coef'"):
        TRPO("CartPole-v1", vf_coef=0.5)
