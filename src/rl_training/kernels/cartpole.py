"""The step of Gymnasium's CartPole for many environments, of which NumPy makes forty calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from numpy.typing import NDArray

from rl_training.envs.vector import step_together
from rl_training.kernels.table import replaces


def is_cartpole(envs: Any, actions: NDArray[Any]) -> bool:
    """Exactly Gymnasium's CartPole with Euler's method and a reward of 1 a step."""
    return type(envs) is CartPoleVectorEnv and envs.kinematics_integrator == "euler" and not envs._sutton_barto_reward


@replaces(step_together, when=is_cartpole, tolerance=0.0)
def step(envs: CartPoleVectorEnv, actions: NDArray[np.int64]) -> Any:
    from rl_training.kernels.compiled_cartpole import advance  # it loads numba

    assert envs.state is not None, "Call reset before using step method."
    ended, count = envs.prev_done, envs.num_envs
    starts = envs.np_random.uniform(envs.low, envs.high, size=(4, np.count_nonzero(ended)))
    before, envs.state, envs.prev_done = envs.state, np.empty((4, count)), np.empty(count, dtype=bool)
    obs, rewards = np.empty((count, 4), dtype=np.float32), np.empty(count, dtype=np.float32)
    terminated, truncated = np.empty(count, dtype=bool), np.empty(count, dtype=bool)
    angles = before[2]
    forces = (envs.force_mag, envs.gravity, envs.masspole, envs.total_mass, envs.length, envs.polemass_length, envs.tau)
    limits = (envs.x_threshold, envs.theta_threshold_radians, envs.max_episode_steps)
    given = (before, np.cos(angles), np.sin(angles), actions, starts, ended, forces, limits)
    advance(*given, envs.steps, envs.state, envs.prev_done, obs, rewards, terminated, truncated)
    return obs, rewards, terminated, truncated, {}
