"""The kernels of actor-critics say what the plain code says: actions, gradients, whole updates, optimizer steps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.algorithms.a2c import A2C, A2CParams
from rl_training.algorithms.appo import APPO, APPOParams
from rl_training.algorithms.impala import IMPALA, IMPALAParams
from rl_training.algorithms.optimizer import FlatOptimizer
from rl_training.algorithms.ppo import PPO, PPOParams, ppo_loss
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import Spaces
from rl_training.kernels import using
from rl_training.kernels.heads import ArrayCategorical
from rl_training.kernels.losses import ppo_gradient
from rl_training.kernels.policies import array_policy
from rl_training.models.actor_critic import ActorCritic, Evaluated
from rl_training.runtime.collector import LocalCollector
from rl_training.runtime.threads import limit_threads
from support import policy_options

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
BOX = spaces.Box(-np.inf, np.inf, (4,), np.float32)


ACTIONS = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-binary": spaces.MultiBinary(4),
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 2), np.float32),
}
EVERY_ACTION = pytest.mark.parametrize("action", ACTIONS)


def make_policy(action: str = "discrete", **options: Any) -> ActorCritic:
    torch.manual_seed(0)
    policy = ActorCritic(Spaces(BOX, ACTIONS[action]), policy_options(**options))
    policy.head.linear.weight.data *= 100  # a policy with opinions
    for parameter in policy.head.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return policy


def some_actions(policy: ActorCritic, count: int) -> Tensor:
    with torch.no_grad():
        obs, generator = torch.randn(count, 4), torch.Generator().manual_seed(4)
        return policy.act(obs, policy.initial_state(count), generator=generator).actions


# ---- acting


@EVERY_ACTION
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("normalize_obs", [False, True])
@torch.no_grad()
def test_the_kernel_draws_the_same_actions(action: str, deterministic: bool, normalize_obs: bool) -> None:
    policy = make_policy(action, normalize_obs=normalize_obs)
    policy.update_statistics(3 + 2 * torch.randn(100, 4))
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    for rows in (1, 8, 300, 8):
        obs, state = torch.randn(rows, 4), policy.initial_state(rows)
        with using("auto"):
            ours = policy.act(obs, state, generator=generators[0], deterministic=deterministic)
        theirs = policy.act(obs, state, generator=generators[1], deterministic=deterministic)
        assert ours.actions.dtype == theirs.actions.dtype
        torch.testing.assert_close(ours.actions, theirs.actions, **CLOSE)
    assert torch.equal(*(g.get_state() for g in generators))


def test_the_kernel_acts_in_every_mode_in_turn() -> None:
    policy = make_policy()
    obs, state = torch.randn(8, 4), policy.initial_state(8)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode(), using("auto"):
            policy.act(obs, state, generator=torch.Generator().manual_seed(0))


@EVERY_ACTION
@torch.no_grad()
def test_evaluations_distributions_and_values_are_the_plain_ones(action: str) -> None:
    policy = make_policy(action)
    obs, actions = torch.randn(33, 4), some_actions(policy, 33)
    plain = [*policy.evaluate_actions(obs, actions), policy.distribution(obs), policy.values(obs)]
    with using("auto"):
        ours = [*policy.evaluate_actions(obs, actions), policy.distribution(obs), policy.values(obs)]
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("normalize_obs", [False, True])
@torch.no_grad()
def test_mappings_of_vectors_are_joined_as_their_torso_joins_them(normalize_obs: bool) -> None:
    narrow, wide = (spaces.Box(-np.inf, np.inf, (size,), np.float32) for size in (1, 3))
    seen = spaces.Dict({"velocity": wide, "position": narrow})
    policy = ActorCritic(Spaces(seen, ACTIONS["box"]), policy_options(normalize_obs=normalize_obs))
    obs = {"velocity": torch.randn(33, 3), "position": torch.randn(33, 1)}
    policy.update_statistics({key: 3 + 2 * part for key, part in obs.items()})
    assert array_policy(policy) is not None
    plain = policy.values(obs)
    with using("auto"):
        torch.testing.assert_close(policy.values(obs), plain, **CLOSE)


GRIDS = {
    "bits": (torch.bool, spaces.Box(0, 1, (5, 4, 3), np.bool_)),
    "bytes": (torch.uint8, spaces.Box(0, 9, (7,), np.uint8)),
}


@pytest.mark.parametrize("kind", GRIDS)
@torch.no_grad()
def test_kernels_read_bits_and_bytes_as_the_torso_does(kind: str) -> None:
    dtype, space = GRIDS[kind]
    policy = ActorCritic(Spaces(space, ACTIONS["discrete"]), policy_options(torso="mlp"))
    obs = torch.randint(2 if kind == "bits" else 10, (33, *space.shape)).to(dtype)
    plain = policy.values(obs)
    policy.actor_torso.register_forward_pre_hook(lambda *_: pytest.fail("the plain path"))
    with using("auto"):
        policy.act(obs, policy.initial_state(33))
        torch.testing.assert_close(policy.values(obs), plain, **CLOSE)


@EVERY_ACTION
def test_the_handwritten_gradient_of_a_head_is_autograds(action: str) -> None:
    """Of a sum over rows with weights of their own for log-probabilities, and one for the entropies."""
    policy = make_policy(action)
    obs, actions = torch.randn(33, 4), some_actions(policy, 33)
    weights = torch.linspace(-1.0, 2.0, 33)
    optimizer = FlatOptimizer(policy.parameters(), eps=1e-5, kind="adam")
    evaluated = policy.evaluate_actions(obs, actions)
    (weights @ evaluated.logprobs + 0.3 * evaluated.entropy.sum()).backward()
    expected = optimizer.grad.clone()
    optimizer.grad.zero_()
    arrays = array_policy(policy)
    assert arrays is not None
    said = arrays.head.evaluate(arrays.actor.forward(obs.numpy()), actions.numpy())
    arrays.actor.backward(arrays.head.gradient(said, weights.numpy(), 0.3))
    torch.testing.assert_close(optimizer.grad, expected, rtol=1e-4, atol=1e-4)


def test_the_collector_asks_once_for_log_probs_and_values() -> None:
    envs = make_envs(EnvSpec("Acrobot-v1"), 1)
    policy = ActorCritic(envs.spaces, policy_options())
    rollouts = []
    for mode in ("auto", "off"):
        with using(mode):
            rollouts.append(LocalCollector(envs, policy, seed=0).collect(20))
    for name in ("actions", "behavior_logprobs", "values", "next_values"):
        torch.testing.assert_close(getattr(rollouts[0], name), getattr(rollouts[1], name), **CLOSE)
    assert rollouts[0].behavior_logprobs.lt(0).all()


def test_the_numpy_form_follows_the_weights_wherever_they_go() -> None:
    """In place, with `.data`, into an optimizer's flat tensor, from a checkpoint, in a copy, in another layer."""
    policy = make_policy()
    obs = torch.randn(8, 4)

    @torch.no_grad()
    def assert_current(policy: ActorCritic) -> None:
        with using("auto"):
            ours = policy.distribution(obs)
        torch.testing.assert_close(ours, policy.distribution(obs), **CLOSE)

    assert_current(policy)
    policy.head.linear.bias.data[0] += 1.0
    assert_current(policy)
    policy.head.linear.weight.data = torch.randn(3, 64)
    assert_current(policy)
    optimizer = FlatOptimizer(policy.parameters(), eps=1e-5, kind="adam")
    optimizer.flat.data += 0.01
    assert_current(policy)
    copied = copy.deepcopy(policy)
    optimizer.flat.data += 0.01
    assert_current(policy)
    assert_current(copied)
    policy.load_state_dict(make_policy().state_dict())
    assert_current(policy)
    policy.head = copy.deepcopy(policy.head)
    policy.head.linear.bias.data -= 1.0
    assert_current(policy)


# ---- losses and updates


def rows(count: int) -> dict[str, Tensor]:
    """Ratios on both sides of the clip, and old values on both sides of the value clip."""
    generator = torch.Generator().manual_seed(2)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return {
        "obs": normal(count, 4),
        "actions": torch.randint(0, 3, (count,), generator=generator),
        "behavior_logprobs": -1.1 + 0.3 * normal(count),
        "values": 0.3 * normal(count),
        "advantages": normal(count),
        "returns": normal(count),
        "rhos": normal(count).exp(),
    }


@pytest.mark.parametrize("clip_value_loss", [False, True])
def test_the_handwritten_gradient_is_autograds(clip_value_loss: bool) -> None:
    batch = rows(200)
    logits = torch.randn(3, 200, generator=torch.Generator().manual_seed(3)).requires_grad_()
    values = (0.3 * torch.randn(200)).requires_grad_()
    coefficients = {"clip_coef": 0.2, "ent_coef": 0.1, "vf_coef": 0.5, "clip_value_loss": clip_value_loss}
    dist = torch.log_softmax(logits, dim=0)
    logprobs, entropy = dist.gather(0, batch["actions"][None])[0], -(dist.exp() * dist).sum(0)
    loss = ppo_loss(Evaluated(logprobs, entropy, values, dist), batch, **coefficients)
    loss.total.backward()

    arrays = {name: column.numpy() for name, column in batch.items()}
    head = ArrayCategorical(make_policy().head)  # type: ignore[arg-type]
    policy = head.evaluate(logits.detach().numpy(), arrays["actions"])
    ours = ppo_gradient(policy.logprobs, policy.entropy, values.detach().numpy(), arrays, **coefficients)
    to_logits = head.gradient(policy, ours.to_logprobs, ours.to_entropy)
    assert ours.metrics["loss"] == pytest.approx(loss.total.item(), abs=1e-6)
    assert 0.05 < ours.metrics["clip_fraction"] < 0.95
    torch.testing.assert_close(torch.from_numpy(to_logits), logits.grad, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(torch.from_numpy(ours.to_values), values.grad, rtol=1e-5, atol=1e-7)


OPTIONS = [
    {"clip_value_loss": clip, "normalize_advantages": normalize}
    for clip in (False, True)
    for normalize in (False, True)
]
SHAPES = [{"hidden_sizes": ()}, {"hidden_sizes": (32, 8)}, {"activation": "relu"}]
UPDATES = [(PPO, PPOParams, options) for options in (*OPTIONS, *SHAPES)]
OTHERS = ((A2C, A2CParams), (IMPALA, IMPALAParams), (APPO, APPOParams))
UPDATES += [
    (algorithm, params, {"normalize_advantages": normalize})
    for algorithm, params in OTHERS
    for normalize in (False, True)
]
UPDATES += [(IMPALA, IMPALAParams, {"pg_rho_bar": 0.7, "kl_coef": 2.0}), (APPO, APPOParams, {"kl_coef": 2.0})]


def step_of(algorithm: Any) -> Any:
    """The gradient step on rows, which is an update of those without V-trace."""
    return algorithm.gradient_step if isinstance(algorithm, IMPALA) else algorithm.update


@pytest.mark.parametrize(("algorithm", "params", "options"), UPDATES, ids=str)
def test_updates_of_kernels_equal_plain_ones(algorithm: Any, params: Any, options: dict[str, Any]) -> None:
    parsed = params(**{"hidden_sizes": (16, 16), "learning_rate": 1e-3, "ent_coef": 0.1, **options})
    shape = {"hidden_sizes": parsed.hidden_sizes, "activation": parsed.activation}
    policy = make_policy(normalize_obs=True, **shape)
    theirs, ours = (algorithm(copy.deepcopy(policy), parsed) for _ in range(2))
    for count in (64, 200, 64, 1):  # a batch may be larger or smaller than the memory kept from the one before
        plain = step_of(theirs)(rows(count)).metrics
        with using("auto"):
            metrics = step_of(ours)(rows(count)).metrics
        assert metrics.keys() == plain.keys()
        for name in plain:
            assert float(metrics[name]) == pytest.approx(float(plain[name]), rel=1e-4, abs=1e-5), name
        torch.testing.assert_close(ours.optimizer.grad, theirs.optimizer.grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(ours.optimizer.flat, theirs.optimizer.flat, rtol=1e-3, atol=1e-4)


@EVERY_ACTION
@pytest.mark.parametrize(
    ("algorithm", "params", "options"),
    [
        (PPO, PPOParams, {}),
        (A2C, A2CParams, {}),
        (IMPALA, IMPALAParams, {}),
        (IMPALA, IMPALAParams, {"pg_rho_bar": 0.7, "kl_coef": 2.0}),
        (APPO, APPOParams, {}),
        (APPO, APPOParams, {"kl_coef": 2.0}),
    ],
    ids=str,
)
def test_updates_of_every_head_equal_plain_ones(
    algorithm: Any, params: Any, options: dict[str, Any], action: str
) -> None:
    policy = make_policy(action, hidden_sizes=(16, 16))
    parsed = params(hidden_sizes=(16, 16), learning_rate=1e-3, ent_coef=0.1, **options)
    ours, theirs = (algorithm(copy.deepcopy(policy), parsed) for _ in range(2))
    batch = {**rows(64), "actions": some_actions(policy, 64)}
    with torch.no_grad():
        behavior = policy.evaluate_actions(batch["obs"], batch["actions"]).logprobs
    batch["behavior_logprobs"] = behavior + 0.2 * torch.randn(64)
    for _ in range(3):
        plain = step_of(theirs)(batch).metrics
        with using("auto"):
            metrics = step_of(ours)(batch).metrics
        for name in plain:
            assert float(metrics[name]) == pytest.approx(float(plain[name]), rel=1e-4, abs=1e-5), name
    torch.testing.assert_close(ours.optimizer.flat, theirs.optimizer.flat, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_a_constant_advantage_becomes_zero(mode: Any) -> None:
    ppo = PPO(make_policy(), PPOParams())
    with using(mode):
        metrics = ppo.update({**rows(16), "advantages": torch.full((16,), 0.1)}).metrics
    assert float(metrics["policy_loss"]) == 0.0


@pytest.mark.parametrize("action", ["discrete", "box"])
@pytest.mark.parametrize("broken", [{"behavior_logprobs": -1e3}, {"behavior_logprobs": torch.nan}, {"obs": torch.nan}])
def test_what_is_not_finite_is_measured(action: str, broken: dict[str, float]) -> None:
    """A session stops at a metric that is not finite, so that no kernel may hide one."""
    policy = make_policy(action)
    batch = {**rows(70), "actions": some_actions(policy, 70)}
    batch |= {name: torch.full_like(batch[name], number) for name, number in broken.items()}
    with using("auto"):
        metrics = PPO(policy, PPOParams()).update(batch).metrics
    assert not np.isfinite(float(metrics["approx_kl"]))


# ---- what a kernel leaves alone


class OtherPolicy(ActorCritic):
    """A user's own, with one method overridden."""

    def evaluate_actions(self, obs: Any, actions: Tensor) -> Evaluated:
        evaluated = super().evaluate_actions(obs, actions)
        return evaluated._replace(values=0.0 * evaluated.values + 7.0)


class OtherHead(nn.Module):
    """A user's own layer, with the weights of another."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 1), 7.0)


@torch.no_grad()
def test_an_overridden_method_is_called() -> None:
    policy = OtherPolicy(Spaces(BOX, spaces.Discrete(3)), policy_options())
    with using("auto"):
        assert (policy.evaluate_actions(torch.randn(5, 4), torch.zeros(5, dtype=torch.int64)).values == 7.0).all()


@torch.no_grad()
def test_a_module_that_a_user_put_in_is_called() -> None:
    policy = make_policy()
    obs, actions = torch.randn(5, 4), torch.zeros(5, dtype=torch.int64)
    with using("auto"):
        policy.evaluate_actions(obs, actions)  # the kernel knows the policy as it was
        policy.value_head = OtherHead(policy.value_head)  # type: ignore[assignment]
        assert (policy.evaluate_actions(obs, actions).values == 7.0).all()


def test_appo_with_a_target_network_takes_the_plain_path() -> None:
    policy = make_policy()
    plain, ours = (APPO(copy.deepcopy(policy), APPOParams(target_update_interval=2)) for _ in range(2))
    batch = rows(64) | {"reference": torch.log_softmax(torch.randn(64, 3), dim=1)}
    for _ in range(3):
        plain.gradient_step(batch)
        with using("auto"):
            ours.gradient_step(batch)
    torch.testing.assert_close(ours.optimizer.flat, plain.optimizer.flat, rtol=1e-3, atol=1e-4)


def test_a_loss_of_its_own_takes_the_plain_path() -> None:
    class Other(PPO):
        def loss(self, evaluated: Evaluated, batch: Any) -> Any:
            loss = super().loss(evaluated, batch)
            return loss._replace(total=0.0 * loss.total)

    with using("auto"):
        assert float(Other(make_policy(), PPOParams()).update(rows(16)).metrics["grad_norm"]) == 0.0


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (Spaces(spaces.Discrete(4), spaces.Discrete(2)), {}),
        (Spaces(BOX, spaces.Discrete(2)), {"share_torso": True}),
        (Spaces(BOX, spaces.Discrete(2)), {"activation": "silu"}),
    ],
)
def test_other_policies_have_no_numpy_form(space: Spaces, options: dict[str, Any]) -> None:
    assert array_policy(ActorCritic(space, policy_options(**options))) is None


@torch.no_grad()
def test_double_precision_observations_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    monkeypatch.setattr("rl_training.kernels.policies.array_policy", None)  # whoever calls it breaks
    with using("auto"):
        policy.act(torch.randn(8, 4).double(), policy.initial_state(8))


# ---- the optimizer and threads


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
def test_the_kernel_steps_as_torchs_optimizers(kind: str, max_grad_norm: float | None) -> None:
    start, pulls = torch.randn(50), torch.randn(10, 50)
    ours, theirs = (FlatOptimizer([nn.Parameter(start.clone())], eps=1e-5, kind=kind) for _ in range(2))
    for pull in pulls:
        norms = []
        for optimizer, mode in ((ours, "auto"), (theirs, "off")):
            optimizer.grad.copy_(pull)
            with using(mode):
                norms.append(optimizer.apply_gradient(learning_rate=0.01, max_grad_norm=max_grad_norm))
        torch.testing.assert_close(*norms)
    exact = kind == "adam" and max_grad_norm is None
    torch.testing.assert_close(ours.flat, theirs.flat, rtol=0, atol=0 if exact else 1e-6)


def test_a_step_raises_the_version_of_every_parameter() -> None:
    """Copies of weights for compiled code are made anew by it."""
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]
    optimizer = FlatOptimizer(parameters, eps=1e-5, kind="adam")
    for mode in ("off", "auto", "auto"):
        before = [p._version for p in parameters]
        with using(mode):
            optimizer.apply_gradient(learning_rate=0.1, max_grad_norm=None)
        assert all(p._version > version for p, version in zip(parameters, before, strict=True))


def test_one_thread_is_one_thread_for_numpy_too() -> None:
    from threadpoolctl import threadpool_info

    limit_threads(1)
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}


@torch.no_grad()
def test_the_kernel_follows_statistics_that_move() -> None:
    policy, obs = make_policy(normalize_obs=True), 3 + 4 * torch.randn(8, 4)
    for rows in (2 + torch.randn(50, 4), 9 * torch.randn(50, 4)):
        policy.update_statistics(rows)
        plain = policy.values(obs)
        with using("auto"):
            torch.testing.assert_close(policy.values(obs), plain, **CLOSE)
