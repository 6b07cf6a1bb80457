"""The compiled CartPole is Gymnasium's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.types import EnvStep
from rl_training.kernels import using
from rl_training.kernels.cartpole import is_cartpole


def assert_equal(ours: EnvStep, theirs: EnvStep) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


def test_every_step_of_the_kernel_is_gymnasiums() -> None:
    """Episodes end by falling and by their length; halfway each goes on from the other's state."""
    compiled, plain = (make_envs(EnvSpec("CartPole-v1", kwargs={"max_episode_steps": 30}), 7) for _ in range(2))
    np.testing.assert_array_equal(compiled.reset(3), plain.reset(3))
    rng, ends = np.random.default_rng(0), np.zeros(2, dtype=int)
    for t in range(400):
        if t == 200:
            states = compiled.state_dict(), plain.state_dict()
            compiled.load_state_dict(states[1])
            plain.load_state_dict(states[0])
        actions = rng.integers(0, 2, 7)
        with using("auto"):
            ours = compiled.step(actions)
        assert_equal(ours, plain.step(actions))
        ends += ours.terminated.sum(), ours.truncated.sum()
    assert ends.all()


@pytest.mark.parametrize("change", [{"kinematics_integrator": "semi-implicit"}, {"_sutton_barto_reward": True}])
def test_another_cartpole_is_left_alone(change: dict[str, Any]) -> None:
    envs = make_envs(EnvSpec("CartPole-v1"), 2).envs  # type: ignore[attr-defined]
    actions = np.zeros(2, dtype=np.int64)
    assert is_cartpole(envs, actions)
    vars(envs).update(change)
    assert not is_cartpole(envs, actions)
