"""The kernels of the off-policy family say what the plain code says: actions, updates, and everything they move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from conformance import StopAtCheckpoint, differences, leaves, small_config, train_state
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.dqn import DQN, DQNParams
from rl_training.algorithms.params import LiveParams
from rl_training.algorithms.sac import SACParams
from rl_training.algorithms.td3 import TD3Params
from rl_training.envs.types import Spaces
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.kernels import Mode, using
from rl_training.kernels.actors import ArrayActor
from rl_training.kernels.critics import array_critics
from rl_training.kernels.q_learning import array_net
from rl_training.models.q_network import QNetwork
from rl_training.runtime.dqn_trainer import DQNLearner
from rl_training.runtime.manager import resume_run
from rl_training.runtime.sac_trainer import SACLearner
from rl_training.runtime.td3_trainer import TD3Learner

OBSERVATIONS = spaces.Box(-1, 1, (4,), np.float32)
BOX = Spaces(OBSERVATIONS, spaces.Box(-2, 2, (2,), np.float32))
CHOICES = Spaces(OBSERVATIONS, spaces.Discrete(3))
PARTS = spaces.Dict({"velocity": spaces.Box(-1, 1, (3,), np.float32), "position": spaces.Box(-1, 1, (1,), np.float32)})


def dqn(seen: spaces.Space = OBSERVATIONS, **params: Any) -> DQN:
    given = LiveParams(DQNParams(**{"hidden_sizes": (16, 8), "target_update_interval": 2, "tau": 0.5, **params}))
    return DQNLearner.build_seeded(given, CHOICES._replace(observation=seen), seed=0, device=torch.device("cpu"))


def batch(actions: Tensor, seed: int) -> dict[str, Tensor]:
    generator, rows = torch.Generator().manual_seed(seed), len(actions)
    return {
        "obs": torch.randn(rows, 4, generator=generator),
        "actions": actions,
        "rewards": 3.0 * torch.randn(rows, generator=generator),
        "next_obs": torch.randn(rows, 4, generator=generator),
        "discounts": torch.tensor([0.99, 0.0] * (rows // 2)),
        "weights": torch.rand(rows, generator=generator),
    }


def in_parts(rows: dict[str, Any]) -> dict[str, Any]:
    """The batch with mappings as observations, whose keys are not in the order of the space's."""
    parted = {name: {"velocity": rows[name][:, 1:], "position": rows[name][:, :1]} for name in ("obs", "next_obs")}
    return rows | parted


def assert_updates_agree(
    plain: Algorithm, fast: Algorithm, batches: list[dict[str, Tensor]], *, rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Updates of both: metrics, errors, and all that a checkpoint would hold."""
    for rows in batches:
        expected = plain.update(rows)
        with using("auto"):
            found = fast.update(rows)
        assert expected.metrics.keys() == found.metrics.keys()
        for name, value in expected.metrics.items():
            assert float(found.metrics[name]) == pytest.approx(float(value), rel=rtol, abs=atol), name
        torch.testing.assert_close(found.errors, expected.errors, rtol=rtol, atol=atol)  # type: ignore[attr-defined]
    ours, theirs = leaves(fast.state_dict()), leaves(plain.state_dict())
    assert ours.keys() == theirs.keys()
    for name, leaf in theirs.items():
        np.testing.assert_allclose(np.asarray(ours[name]), np.asarray(leaf), rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"double": False}, {"activation": "tanh"}, {"max_grad_norm": 0.1}])
def test_dqns_updates_agree(options: dict[str, Any]) -> None:
    batches = [batch(torch.randint(3, (8,), generator=torch.Generator().manual_seed(i)), i) for i in range(5)]
    assert_updates_agree(dqn(**options), dqn(**options), batches)


def test_dqns_updates_on_mappings_of_vectors_agree() -> None:
    batches = [in_parts(batch(torch.tensor([0, 1, 2, 0]), i)) for i in range(5)]
    assert array_net(dqn(PARTS).network) is not None
    assert_updates_agree(dqn(PARTS), dqn(PARTS), batches)


def test_dqns_updates_on_planes_of_bits_agree() -> None:
    planes = spaces.Box(0, 1, (5, 4, 2), np.bool_)
    rows = torch.rand(5, 2, 4, *planes.shape) < 0.3
    batches = [
        batch(torch.tensor([0, 1, 2, 0]), i) | {"obs": obs, "next_obs": following}
        for i, (obs, following) in enumerate(rows)
    ]
    assert array_net(dqn(planes, torso="mlp").network) is not None
    assert_updates_agree(dqn(planes, torso="mlp"), dqn(planes, torso="mlp"), batches)


@pytest.mark.parametrize("deterministic", [False, True])
@torch.inference_mode()
def test_dqns_actions_agree(deterministic: bool) -> None:
    """Half of them explore, by the same random numbers."""
    policy, state = dqn(epsilon=0.5).policy, torch.zeros(50, 0)
    obs = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))

    def actions() -> Tensor:
        return policy.act(obs, state, generator=torch.Generator().manual_seed(1), deterministic=deterministic).actions

    plain = actions()
    with using("auto"):
        fast = actions()
    torch.testing.assert_close(fast, plain, rtol=0, atol=0)
    assert (plain == policy.network.q_values(obs).argmax(-1)).all() == deterministic


@pytest.mark.parametrize("options", [{"dueling": True}, {"noisy": True}, {"distribution": "quantile"}])
def test_other_networks_take_the_plain_path(options: dict[str, Any]) -> None:
    assert array_net(dqn(**options).network) is None


def test_a_subclass_and_a_module_put_in_take_the_plain_path() -> None:
    class Own(QNetwork):
        pass

    algorithm = dqn()
    assert array_net(algorithm.network) is not None
    algorithm.network.torso = nn.Identity()  # type: ignore[assignment]
    assert array_net(algorithm.network) is None
    algorithm = dqn()
    algorithm.network.__class__ = Own
    assert array_net(algorithm.network) is None


CONTINUOUS = {"sac": (SACLearner, SACParams), "td3": (TD3Learner, TD3Params)}


def continuous(algo: str, seen: spaces.Space = OBSERVATIONS, **params: Any) -> Any:
    learner, kind = CONTINUOUS[algo]
    given = LiveParams(kind(**{"hidden_sizes": (16, 8), "tau": 0.5, "adam_eps": 1e-3, **params}))
    return learner.build_seeded(given, BOX._replace(observation=seen), seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize("algo", CONTINUOUS)
@pytest.mark.parametrize("options", [{}, {"num_critics": 3}, {"hidden_sizes": (8,), "policy_interval": 1}])
def test_updates_through_critics_agree(algo: str, options: dict[str, Any]) -> None:
    actions = [2.0 * torch.rand(8, 2, generator=torch.Generator().manual_seed(i)) - 1.0 for i in range(5)]
    batches = [batch(taken, i) for i, taken in enumerate(actions)]
    assert_updates_agree(continuous(algo, **options), continuous(algo, **options), batches)


@pytest.mark.parametrize("algo", CONTINUOUS)
@pytest.mark.parametrize("options", [{"hidden_sizes": (32, 32)}, {"hidden_sizes": (16, 8, 24), "num_critics": 3}])
def test_updates_in_bfloat16_agree(algo: str, options: dict[str, Any]) -> None:
    """But where a sum that was rounded otherwise falls to another of bfloat16's numbers, 2⁻⁸ of it away."""
    batches = [batch(2.0 * torch.rand(64, 2) - 1.0, i) for i in range(4)]
    algorithms = [continuous(algo, precision="bfloat16", **options) for _ in range(2)]
    assert all(array_critics(algorithm.critics) is not None for algorithm in algorithms)
    assert_updates_agree(*algorithms, batches, rtol=2**-7, atol=2e-4)


@pytest.mark.parametrize("kernels", ["auto", "off"])
@pytest.mark.parametrize("algo", CONTINUOUS)
def test_bfloat16_is_what_lies_between_hidden_layers(algo: str, kernels: Mode) -> None:
    rows = batch(2.0 * torch.rand(64, 2) - 1.0, 0)

    def errors(**params: Any) -> Tensor:
        with using(kernels):
            return continuous(algo, **params).update(rows).errors

    full, low = (errors(hidden_sizes=(32, 32), precision=precision) for precision in ("float32", "bfloat16"))
    torch.testing.assert_close(low, full, rtol=0.0, atol=0.02)
    assert not torch.equal(low, full)
    full, low = (errors(hidden_sizes=(32,), precision=precision) for precision in ("float32", "bfloat16"))
    assert torch.equal(low, full)


@pytest.mark.parametrize("kernels", ["auto", "off"])
@pytest.mark.parametrize("algo", CONTINUOUS)
def test_a_run_in_bfloat16_resumes_exactly(algo: str, kernels: str, tmp_path: Path) -> None:
    given = {"precision": "bfloat16", "hidden_sizes": [16, 16]}
    config = small_config(algo, tmp_path, kernels=kernels, checkpoint_interval=128, eval_episodes=0, algo_kwargs=given)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


@pytest.mark.parametrize("sizes", [(), (8,)])
@pytest.mark.parametrize("algo", CONTINUOUS)
def test_networks_without_hidden_layers_take_the_plain_path(algo: str, sizes: tuple[int, ...]) -> None:
    algorithm = continuous(algo, hidden_sizes=sizes)
    assert (array_critics(algorithm.critics) is None) == (ArrayActor.of(algorithm.policy) is None) == (not sizes)


@pytest.mark.parametrize("algo", CONTINUOUS)
def test_updates_on_mappings_of_vectors_agree(algo: str) -> None:
    batches = [in_parts(batch(2.0 * torch.rand(8, 2) - 1.0, i)) for i in range(3)]
    assert array_critics(continuous(algo, PARTS).critics) is not None
    assert_updates_agree(continuous(algo, PARTS), continuous(algo, PARTS), batches)


def test_a_deviation_at_its_bounds_has_no_gradient_there_either() -> None:
    """One coordinate's deviation is far above its bound, the other's far below."""
    plain, fast = continuous("sac", ent_coef=0.3), continuous("sac", ent_coef=0.3)
    for algorithm in (plain, fast):
        algorithm.policy.head.linear.bias.data[2:] = torch.tensor([9.0, -9.0])
    assert_updates_agree(plain, fast, [batch(2.0 * torch.rand(8, 2) - 1.0, i) for i in range(3)])


@pytest.mark.parametrize(
    "options", [{"layer_norm": True}, {"dropout": 0.1}, {"num_quantiles": 5}, {"activation": "tanh"}]
)
def test_critics_with_options_take_the_plain_path(options: dict[str, Any]) -> None:
    assert array_critics(continuous("sac", **options).critics) is None
