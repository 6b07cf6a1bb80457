"""The NumPy forms say what the torch forms say: forward, gradients, actions, whole updates."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.a2c import A2C
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.ppo import PPO, ppo_loss
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.models.actor_critic import ActorCritic, Evaluated, PolicyOptions
from rl_training.models.mlp import MLP
from rl_training.models.torsos import TorsoOptions
from rl_training.ops.fused import categorical, categorical_gradient, ppo_gradient
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.session import limit_threads

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
ACTIVATIONS = ["tanh", "relu"]


def twins(activation: str, hidden_sizes: tuple[int, ...] = (16, 8, 8)) -> tuple[MLP, MLP]:
    """One network twice: fused, and layer by layer."""
    torch.manual_seed(0)
    fused = MLP(5, hidden_sizes, activation)
    for parameter in fused.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    plain = copy.deepcopy(fused)
    plain.fused = False
    return fused, plain


def gradients(network: MLP, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    weights = torch.linspace(-1, 1, network.out_features)
    (network(x).square() @ weights).sum().backward()
    return [x.grad, *(p.grad for p in network.parameters())]  # type: ignore[list-item]


# ---- the layers


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_fused_layers_equal_plain_ones(activation: str, mode: Callable[[], Any]) -> None:
    fused, plain = twins(activation)
    x = torch.randn(33, 5)
    with mode():
        torch.testing.assert_close(fused(x), plain(x), **CLOSE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden_sizes", [(8,), (16, 8), (8, 8, 8)])
def test_fused_gradients_equal_autograds(activation: str, hidden_sizes: tuple[int, ...]) -> None:
    fused, plain = twins(activation, hidden_sizes)
    x = torch.randn(33, 5)
    for ours, theirs in zip(gradients(fused, x), gradients(plain, x), strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_graph_that_is_kept_gives_the_same_gradient_again(activation: str) -> None:
    fused, _ = twins(activation)
    loss = fused(torch.randn(7, 5)).square().sum()
    first = torch.autograd.grad(loss, list(fused.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, list(fused.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_second_derivative_of_fused_layers_is_refused() -> None:
    fused, plain = twins("tanh")
    x = torch.randn(3, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="set `fused` of the MLP to False"):
        torch.autograd.grad(fused(x).sum(), x, create_graph=True)
    torch.autograd.grad(plain(x).sum(), x, create_graph=True)[0].square().sum().backward()
    assert x.grad is not None


# ---- acting


def make_policy(**options: Any) -> ActorCritic:
    torch.manual_seed(0)
    space = Spaces(spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(3))
    policy = ActorCritic(space, PolicyOptions(**options))
    policy.head.linear.weight.data *= 100  # a policy with opinions
    policy.head.linear.bias.data += torch.tensor([0.5, -0.5, 0.0])
    return policy


def plain_twin(policy: ActorCritic) -> ActorCritic:
    plain = copy.deepcopy(policy)
    plain.fused = None
    for torso in (plain.actor_torso, plain.critic_torso):
        torso.mlp.fused = False
    return plain


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("normalize_obs", [False, True])
@torch.no_grad()
def test_fused_acting_draws_the_same_actions(deterministic: bool, normalize_obs: bool) -> None:
    policy = make_policy(normalize_obs=normalize_obs)
    policy.observe(3 + 2 * torch.randn(100, 4))
    plain = plain_twin(policy)
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    for rows in (1, 8, 300, 8):
        obs, state = torch.randn(rows, 4), policy.initial_state(rows)
        ours, theirs = (
            p.act(obs, state, generator=g, deterministic=deterministic)
            for p, g in zip((policy, plain), generators, strict=True)
        )
        assert torch.equal(ours.actions, theirs.actions)
    assert torch.equal(*(g.get_state() for g in generators))


def test_fused_acting_works_in_every_mode_in_turn() -> None:
    policy = make_policy()
    obs, state = torch.randn(8, 4), policy.initial_state(8)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            policy.act(obs, state, generator=torch.Generator().manual_seed(0))


def test_the_collector_asks_once_for_the_log_probs_that_fused_acting_leaves_out() -> None:
    envs = make_envs(EnvSpec("Acrobot-v1"), 1)
    policy = ActorCritic(envs.spaces, PolicyOptions())
    rollouts = [LocalCollector(envs, p, seed=0).collect(20) for p in (policy, plain_twin(policy))]
    for name in ("actions", "behavior_logprobs", "values", "next_values"):
        torch.testing.assert_close(getattr(rollouts[0], name), getattr(rollouts[1], name), **CLOSE)
    assert rollouts[0].behavior_logprobs.lt(0).all()


def test_the_numpy_form_follows_the_weights_wherever_they_go() -> None:
    """In place, with `.data`, into an optimizer's flat tensor, from a checkpoint, in a copy."""
    policy = make_policy()
    obs = torch.randn(8, 4)

    def assert_current(policy: ActorCritic) -> None:
        assert policy.fused is not None
        dist = torch.from_numpy(policy.fused.actor(obs.numpy()).T.copy()).log_softmax(-1)
        torch.testing.assert_close(dist, plain_twin(policy).distribution(obs).detach(), **CLOSE)

    assert_current(policy)
    policy.head.linear.bias.data[0] += 1.0
    assert_current(policy)
    policy.head.linear.weight.data = torch.randn(3, 64)
    assert_current(policy)
    optimizer = FlatOptimizer(policy.parameters(), learning_rate=0.1, eps=1e-5)
    optimizer.flat.data += 0.01
    assert_current(policy)
    copied = copy.deepcopy(policy)
    optimizer.flat.data += 0.01
    assert_current(policy)
    assert_current(copied)
    policy.load_state_dict(make_policy().state_dict())
    assert_current(policy)


# ---- PPO's loss and update


def rows(count: int, *, actions: int = 3) -> dict[str, Tensor]:
    """Ratios on both sides of the clip, and old values on both sides of the value clip."""
    generator = torch.Generator().manual_seed(2)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return {
        "obs": normal(count, 4),
        "actions": torch.randint(0, actions, (count,), generator=generator),
        "behavior_logprobs": -1.1 + 0.3 * normal(count),
        "values": 0.3 * normal(count),
        "advantages": normal(count),
        "returns": normal(count),
    }


OPTIONS = [
    {"clip_value_loss": clip, "normalize_advantages": normalize}
    for clip in (False, True)
    for normalize in (False, True)
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_handwritten_gradient_is_autograds(options: dict[str, bool]) -> None:
    batch = rows(200)
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(3)).requires_grad_()
    values = (0.3 * torch.randn(200)).requires_grad_()
    coefficients = {"clip_coef": 0.2, "ent_coef": 0.1, "vf_coef": 0.5, **options}
    dist = torch.log_softmax(logits, dim=0)
    logprobs, entropy = dist.gather(0, batch["actions"][None])[0], -(dist.exp() * dist).sum(0)
    loss = ppo_loss(Evaluated(logprobs, entropy, values, dist), batch, **coefficients)
    loss.total.backward()

    arrays = {name: column.numpy() for name, column in batch.items()}
    policy = categorical(logits.detach().numpy(), arrays["actions"])
    ours = ppo_gradient(policy.logprobs, policy.entropy, values.detach().numpy(), arrays, **coefficients)
    to_logits = categorical_gradient(policy, ours.to_logprobs, ours.to_entropy)
    assert ours.metrics["loss"] == pytest.approx(loss.total.item(), abs=1e-6)
    assert 0.05 < ours.metrics["clip_fraction"] < 0.95
    torch.testing.assert_close(torch.from_numpy(to_logits), logits.grad, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(torch.from_numpy(ours.to_values), values.grad, rtol=1e-5, atol=1e-7)


SHAPES = [{"hidden": ()}, {"hidden": (32, 8)}, {"activation": "relu"}]
UPDATES = [(PPO, {"clip_coef": 0.2, **options}) for options in (*OPTIONS, *SHAPES)]
UPDATES += [(A2C, {"normalize_advantages": normalize, "optimizer": "rmsprop"}) for normalize in (False, True)]


@pytest.mark.parametrize(("algorithm", "options"), UPDATES, ids=str)
def test_fused_updates_equal_plain_ones(algorithm: type[PPO | A2C], options: dict[str, Any]) -> None:
    options = dict(options)
    torso = TorsoOptions(options.pop("hidden", (16, 16)), options.pop("activation", "tanh"))
    policy = make_policy(torso=torso, normalize_obs=True) if torso.hidden_sizes else make_linear_policy()
    common = {"learning_rate": 1e-3, "ent_coef": 0.1, **options}
    theirs = algorithm(plain_twin(policy), **common)
    ours = algorithm(policy, **common)
    assert ours.policy.fused is not None
    assert theirs.policy.fused is None
    for count in (64, 200, 64, 1):  # a batch may be larger or smaller than the memory kept from the one before
        results = [either.update(rows(count)).metrics for either in (ours, theirs)]
        assert results[0].keys() == results[1].keys()
        for name in results[1]:
            assert float(results[0][name]) == pytest.approx(float(results[1][name]), rel=1e-4, abs=1e-5), name
        torch.testing.assert_close(ours.optimizer.grad, theirs.optimizer.grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(ours.optimizer.flat, theirs.optimizer.flat, rtol=1e-3, atol=1e-4)


def make_linear_policy() -> ActorCritic:
    space = Spaces(spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(3))
    return ActorCritic(space, PolicyOptions(torso=TorsoOptions(hidden_sizes=())))


def test_a_constant_advantage_becomes_zero_as_in_the_plain_loss() -> None:
    policy = make_policy()
    ppo = PPO(policy, clip_coef=0.2, learning_rate=1e-3)
    metrics = ppo.update({**rows(16), "advantages": torch.full((16,), 0.1)}).metrics
    assert float(metrics["policy_loss"]) == 0.0


def test_a_loss_of_its_own_takes_the_plain_path() -> None:
    class Other(PPO):
        def loss(self, evaluated: Evaluated, batch: Any) -> Any:
            loss = super().loss(evaluated, batch)
            return loss._replace(total=0.0 * loss.total)

    other = Other(make_policy(), clip_coef=0.2, learning_rate=1e-3)
    assert float(other.update(rows(16)).metrics["grad_norm"]) == 0.0


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Box(-1, 1, (2,), np.float32)), {}),
        (Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.MultiDiscrete([2, 3])), {}),
        (Spaces(spaces.Discrete(4), spaces.Discrete(2)), {}),
        (Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)), {"share_torso": True}),
        (Spaces(spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)), {"torso": TorsoOptions(activation="silu")}),
    ],
)
def test_other_policies_have_no_fused_form(space: Spaces, options: dict[str, Any]) -> None:
    assert ActorCritic(space, PolicyOptions(**options)).fused is None


def test_double_precision_observations_take_the_plain_path() -> None:
    policy = make_policy()
    with torch.no_grad():
        acted = policy.act(torch.randn(8, 4).double(), policy.initial_state(8))
    assert acted.logprobs is not None


# ---- the optimizer and threads


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        ("adam", lambda params: torch.optim.Adam(params, lr=0.01, eps=1e-5, fused=True)),
        ("rmsprop", lambda params: torch.optim.RMSprop(params, lr=0.01, eps=1e-5)),
    ],
)
def test_optimizers_without_their_wrappers_step_as_torchs(kind: str, plain: Any) -> None:
    start, pulls = torch.randn(50), torch.randn(10, 50)
    ours = FlatOptimizer([torch.nn.Parameter(start.clone())], learning_rate=0.01, eps=1e-5, kind=kind)
    theirs = torch.nn.Parameter(start.clone())
    optimizer = plain([theirs])
    for pull in pulls:
        ours.grad.copy_(pull)
        ours.apply_gradient(max_grad_norm=None)
        theirs.grad = pull.clone()
        optimizer.step()
    torch.testing.assert_close(ours.flat, theirs, rtol=0, atol=0 if kind == "adam" else 1e-6)


def test_one_thread_is_one_thread_for_numpy_too() -> None:
    from threadpoolctl import threadpool_info

    limit_threads(1)
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
