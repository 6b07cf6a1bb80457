"""PPG's two phases: what each loss is, what each may touch, and that the auxiliary one leaves the policy alone."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.ppg import PPG, PPGParams, ppg_auxiliary_loss, ppg_loss
from rl_training.data.phase_memory import PhaseMemory
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.models.mlp_ppg import AuxiliaryEvaluated, MLPPPGModel
from rl_training.ops.losses import normalize
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.ppg_trainer import PPGLearner
from support import policy_options

FOUR_NUMBERS = Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2))
SPACES = {
    "vector": FOUR_NUMBERS,
    "image": Spaces(spaces.Box(0, 255, (36, 36, 1), np.uint8), spaces.Box(-1, 1, (2,), np.float32)),
    "dict": Spaces(
        spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32), "n": spaces.Discrete(3)}), spaces.MultiBinary(2)
    ),
}


def small_ppg(space: Spaces = FOUR_NUMBERS, **params: Any) -> PPG:
    torch.manual_seed(0)
    policy = MLPPPGModel(space, policy_options(hidden_sizes=(16,)))
    return PPG(policy, PPGParams(**{"clip_coef": 0.2, "learning_rate": 1e-2, "aux_learning_rate": 1e-2, **params}))


def policy_batch(ppg: PPG, rows: int = 64) -> dict[str, Tensor]:
    obs, actions = torch.rand(rows, 4) * 2 - 1, torch.randint(2, (rows,))
    with torch.no_grad():
        evaluated = ppg.policy.evaluate_actions(obs, actions)
    return {
        "obs": obs,
        "actions": actions,
        "behavior_logprobs": evaluated.logprobs,
        "values": evaluated.values,
        "advantages": normalize(torch.randn(rows)),
        "returns": 3 * obs.sum(-1),
    }


def auxiliary_batch(ppg: PPG, rows: int = 256) -> dict[str, Tensor]:
    obs = torch.rand(rows, 4) * 2 - 1
    return {"obs": obs, "returns": obs.sum(-1), "teacher": ppg.teacher(obs)}


# ---- the losses


def test_auxiliary_loss_by_hand() -> None:
    # values 0 and aux values 1 to a target of 2: 1/2 * 4 and 1/2 * 1
    # teacher (1/2, 1/2), policy (1/4, 3/4): KL = 1/2 log 2 + 1/2 log 2/3
    dist, teacher = torch.tensor([[0.25, 0.75]]).log(), torch.tensor([[0.5, 0.5]]).log()
    evaluated = AuxiliaryEvaluated(torch.zeros(1), torch.ones(1), dist)
    batch = {"returns": torch.tensor([2.0]), "teacher": teacher}
    loss = ppg_auxiliary_loss(evaluated, batch, head=small_ppg().policy.head, beta_clone=3.0)
    kl = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert loss.value_loss.item() == pytest.approx(2.0)
    assert loss.aux_value_loss.item() == pytest.approx(0.5)
    assert loss.clone_kl.item() == pytest.approx(kl)
    assert loss.total.item() == pytest.approx(2.5 + 3.0 * kl)


def test_policy_loss_takes_advantages_as_they_are() -> None:
    """They are normalised over the rollout, not over the minibatch: equal ones are still advantages."""
    ppg = small_ppg()
    batch = policy_batch(ppg) | {"advantages": torch.ones(64)}
    evaluated = ppg.policy.evaluate_actions(batch["obs"], batch["actions"])
    loss = ppg_loss(evaluated, batch, clip_coef=0.2, ent_coef=0.1, vf_coef=0.5)
    assert loss.policy_loss.item() == pytest.approx(-1.0)
    torch.testing.assert_close(loss.total, loss.policy_loss + 0.5 * loss.value_loss - 0.1 * loss.entropy)


# ---- what each phase may touch


def gradient_norms(model: MLPPPGModel, loss: Tensor) -> dict[str, float]:
    model.zero_grad()
    loss.backward(retain_graph=True)
    parts = {"trunk": model.actor_torso, "policy": model.head, "value": model.value_head, "aux": model.aux_value_head}
    return {
        name: sum(float(p.grad.norm()) for p in part.parameters() if p.grad is not None) for name, part in parts.items()
    }


@pytest.mark.parametrize("kind", SPACES)
def test_the_value_gradient_reaches_the_trunk_in_the_auxiliary_phase_only(kind: str) -> None:
    model = MLPPPGModel(SPACES[kind], policy_options())
    obs = {
        "vector": torch.rand(5, 4),
        "image": torch.randint(256, (5, 36, 36, 1), dtype=torch.uint8),
        "dict": {"x": torch.rand(5, 2), "n": torch.arange(5) % 3},
    }[kind]
    acted = model.act(obs, model.initial_state(5))
    evaluated = model.evaluate_actions(obs, acted.actions)
    torch.testing.assert_close(evaluated.logprobs, acted.logprobs)
    torch.testing.assert_close(evaluated.values, acted.values)
    norms = gradient_norms(model, evaluated.values.sum())
    assert norms["value"] > 0
    assert norms["trunk"] == norms["policy"] == norms["aux"] == 0
    auxiliary = model.evaluate_auxiliary(obs)
    torch.testing.assert_close(auxiliary.values, acted.values)
    for values, head in ((auxiliary.values, "value"), (auxiliary.aux_values, "aux")):
        norms = gradient_norms(model, values.sum())
        assert norms["trunk"] > 0
        assert norms[head] > 0


def test_a_policy_phase_without_advantages_moves_the_value_head_only() -> None:
    ppg = small_ppg()
    batch = policy_batch(ppg) | {"advantages": torch.zeros(64)}
    before = copy.deepcopy(ppg.policy.state_dict())
    ppg.update(batch)
    moved = {
        name.partition(".")[0] for name, new in ppg.policy.state_dict().items() if not torch.equal(new, before[name])
    }
    assert moved == {"value_head"}


# ---- the auxiliary phase


def run_auxiliary(beta_clone: float, *, scale: float = 1.0, steps: int = 200) -> tuple[float, float, float, PPG]:
    """(mean KL to the teacher, value error before, after) of an auxiliary phase on 256 rows."""
    ppg = small_ppg(beta_clone=beta_clone, aux_learning_rate=1e-3)
    for _ in range(20):  # a policy that depends on what it sees has something to lose
        ppg.update(policy_batch(ppg))
    batch = auxiliary_batch(ppg)
    batch["returns"] = scale * batch["returns"]
    losses = [ppg.auxiliary_update(batch).metrics for _ in range(steps)]
    with torch.no_grad():
        kl = ppg.policy.head.kl(batch["teacher"], ppg.policy.distribution(batch["obs"])).mean().item()
    return kl, losses[0]["aux_value_loss"].item(), losses[-1]["aux_value_loss"].item(), ppg


def test_it_lowers_the_value_errors_and_leaves_the_policy_where_it_was() -> None:
    held, before, after, ppg = run_auxiliary(1.0)
    assert held < 1e-3
    assert after < 0.2 * before
    assert ppg.auxiliary_updates == 200
    assert ppg.policy_updates == 20


def test_without_cloning_or_with_large_returns_the_policy_drifts() -> None:
    held, *_ = run_auxiliary(1.0)
    loose, *_ = run_auxiliary(0.0)
    large, *_ = run_auxiliary(1.0, scale=100.0)
    assert loose > 5 * held
    assert large > 5 * held


def test_on_cartpole_a_phase_moves_both_value_heads_and_not_the_policy() -> None:
    kls = {}
    for beta_clone in (1.0, 0.0):
        envs = make_envs(EnvSpec("CartPole-v1"), 8)
        params = PPGParams(policy_phases=9, beta_clone=beta_clone, update_epochs=4, learning_rate=1e-3)
        learner = PPGLearner(params, envs.spaces, num_envs=8, seed=0, device=torch.device("cpu"))
        collector = LocalCollector(envs, learner.algorithm.policy, seed=0)
        for _ in range(8):
            rollout = collector.collect(64)
            list(learner.learn(rollout))
        obs = rollout.flat()["obs"]
        teacher, before = learner.algorithm.teacher(obs), copy.deepcopy(learner.algorithm.policy.state_dict())
        list(learner.auxiliary_phase())
        policy = learner.algorithm.policy
        kls[beta_clone] = policy.head.kl(teacher, learner.algorithm.teacher(obs)).mean().item()
        for head in ("value_head", "aux_value_head"):
            assert not torch.equal(policy.state_dict()[f"{head}.weight"], before[f"{head}.weight"])
    assert kls[1.0] < 1e-3
    assert kls[0.0] > 5 * kls[1.0]


def test_the_teacher_of_a_phase_is_the_policy_before_it_in_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = make_envs(EnvSpec("CartPole-v1"), 2)
    params = PPGParams(policy_phases=1, aux_epochs=3, aux_minibatches=2, aux_learning_rate=0.01, beta_clone=0.0)
    learner = PPGLearner(params, envs.spaces, num_envs=2, seed=0, device=torch.device("cpu"))
    rollout = LocalCollector(envs, learner.algorithm.policy, seed=0).collect(32)
    learner.memory.add(learner.flat_advantages(rollout))
    before, update, seen = copy.deepcopy(learner.algorithm.policy), learner.algorithm.auxiliary_update, []
    monkeypatch.setattr(learner.algorithm, "auxiliary_update", lambda batch: seen.append(batch) or update(batch))
    list(learner.auxiliary_phase())
    assert len(seen) == 6
    for batch in seen:
        torch.testing.assert_close(batch["teacher"], before.distribution(batch["obs"]).detach())
    assert not torch.allclose(learner.algorithm.teacher(seen[0]["obs"]), seen[0]["teacher"])


# ---- state


def test_two_optimizers_share_the_parameters_and_not_the_moments() -> None:
    model = torch.nn.Linear(3, 1)
    twin = copy.deepcopy(model)
    first = FlatOptimizer(model.parameters(), eps=1e-5, kind="adam")
    second = FlatOptimizer(first, eps=1e-5, kind="adam")
    rates = (0.1, 0.01)
    theirs = [torch.optim.Adam(twin.parameters(), lr=rate, eps=1e-5) for rate in rates]
    inputs = torch.randn(8, 3)
    for turn in (0, 1, 1, 0, 1, 0):
        loss = (model(inputs) - 1).square().mean()
        (first, second)[turn].step(loss, learning_rate=rates[turn], max_grad_norm=None)
        twin.zero_grad()
        (twin(inputs) - 1).square().mean().backward()
        theirs[turn].step()
        for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_a_restored_algorithm_goes_on_bit_for_bit_in_both_phases() -> None:
    first, second = small_ppg(), small_ppg()
    second.update(policy_batch(second))  # weights and moments that are to be overwritten
    second.auxiliary_update(auxiliary_batch(second))
    batch, auxiliary = policy_batch(first), auxiliary_batch(first)
    for _ in range(3):
        first.update(batch)
        first.auxiliary_update(auxiliary)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.policy_updates == second.auxiliary_updates == 3
    for ppg in (first, second):
        ppg.update(batch)
        ppg.auxiliary_update(auxiliary)
    assert torch.equal(first.optimizer.flat, second.optimizer.flat)


def test_the_memory_copies_gives_back_all_rows_and_forgets() -> None:
    memory, buffer = PhaseMemory(), torch.zeros(2, 1)
    for number in (1.0, 2.0):
        buffer.fill_(number)
        memory.add({"obs": {"x": buffer}, "returns": buffer[:, 0]})
    other = PhaseMemory()
    other.load_state_dict(memory.state_dict())
    for one in (memory, other):
        assert len(one) == 2
        rows = one.pop_all()
        assert rows["obs"]["x"].tolist() == [[1.0], [1.0], [2.0], [2.0]]
        assert rows["returns"].tolist() == [1.0, 1.0, 2.0, 2.0]
        assert len(one) == 0
