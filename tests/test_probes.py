"""Learning, tested by learning: small environments whose answer is known, a few seconds each.

An algorithm joins by adding its hyper-parameters to `PROBES` and `FOR_IMAGES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest

from probing import probed, values
from rl_training.runtime.session import Session
from support import (
    BitsEnv,
    ContextualBandit,
    DictEnv,
    DiscountEnv,
    IdentityEnv,
    IdentityImageEnv,
    RecallEnv,
    TargetEnv,
    TruncationEnv,
    TwoAnswersEnv,
)

PROBES: dict[str, dict[str, Any]] = {
    "ppo": {"learning_rate": 3e-3, "ent_coef": 0.02, "rollout_steps": 32, "update_epochs": 4, "num_minibatches": 4},
    "a2c": {"learning_rate": 5e-3, "rollout_steps": 4, "optimizer": "adam"},
    "trpo": {"learning_rate": 3e-3, "rollout_steps": 32, "target_kl": 0.05, "critic_updates": 2},
    "recurrent_ppo": {
        "learning_rate": 3e-3,
        "ent_coef": 0.02,
        "rollout_steps": 32,
        "sequence_length": 8,
        "update_epochs": 8,
    },
    "impala": {"learning_rate": 5e-3, "rollout_steps": 4},
    "appo": {"learning_rate": 3e-3, "ent_coef": 0.02, "rollout_steps": 32, "num_minibatches": 4},
    "ppg": {
        "learning_rate": 3e-3,
        "ent_coef": 0.02,
        "rollout_steps": 32,
        "update_epochs": 4,
        "policy_phases": 4,
        "aux_minibatches": 4,
        "normalize_reward": False,  # the probes know the values in the environment's own rewards
    },
}
FOR_IMAGES: dict[str, dict[str, Any]] = {
    "ppo": {"learning_rate": 5e-4},
    "a2c": {"learning_rate": 5e-4, "rollout_steps": 8},
    "trpo": {"learning_rate": 5e-4, "cg_iterations": 5},
    "recurrent_ppo": {"learning_rate": 5e-4},
    "impala": {"learning_rate": 5e-4, "rollout_steps": 8},
    "appo": {"learning_rate": 5e-4},
    "ppg": {"learning_rate": 5e-4, "aux_epochs": 1},
}
ALGORITHMS = pytest.mark.parametrize("algo", PROBES)


def trained(algo: str, env: Callable[..., gym.Env], steps: int, **algo_kwargs: Any) -> Session:
    return probed(algo, env, steps, **{**PROBES[algo], **algo_kwargs})


@ALGORITHMS
def test_a_time_limit_does_not_end_the_world(algo: str) -> None:
    """1 / (1 - 0.9) = 10. Were the truncation taken for a termination, the value would be about 4."""
    session = trained(algo, TruncationEnv, 24_000 if algo == "ppg" else 12_000, gamma=0.9)
    assert values(session, [1.0])[0] == pytest.approx(10.0, abs=0.5)


@ALGORITHMS
def test_values_are_discounted_once_a_step(algo: str) -> None:
    session = trained(algo, DiscountEnv, 8_000, gamma=0.5)
    assert values(session, [1.0, 0.0], [0.0, 1.0]) == pytest.approx([0.5, 1.0], abs=0.05)


@ALGORITHMS
@pytest.mark.parametrize(
    ("env", "steps", "target"),
    [
        (ContextualBandit, 5_000, 1.0),
        (IdentityEnv, 5_000, 8.0),
        (TwoAnswersEnv, 5_000, 1.0),
        (BitsEnv, 5_000, 1.0),
        (TargetEnv, 8_000, -0.02),
    ],
)
def test_the_known_answer_is_learned(algo: str, env: Callable[..., gym.Env], steps: int, target: float) -> None:
    """In every kind of action space, in all of 64 greedy episodes; on average where the answer is a number."""
    assert trained(algo, env, steps).evaluate(64).return_mean >= target


@ALGORITHMS
@pytest.mark.parametrize(
    ("env", "steps", "target"),
    [(IdentityImageEnv, 2_500, 8.0), pytest.param(DictEnv, 4_000, 1.0, marks=pytest.mark.slow)],
)
def test_the_known_answer_is_learned_from_images(
    algo: str, env: Callable[..., gym.Env], steps: int, target: float
) -> None:
    assert trained(algo, env, steps, **FOR_IMAGES[algo]).evaluate(64).return_mean >= target


@ALGORITHMS
def test_normalisation_does_not_spoil_learning(algo: str) -> None:
    session = trained(algo, IdentityEnv, 5_000, normalize_obs=True, normalize_reward=True)
    assert session.evaluate(16).return_mean == 8.0


@pytest.mark.parametrize("algo", [name for name in PROBES if name != "recurrent_ppo"])
def test_without_memory_there_is_nothing_to_recall(algo: str) -> None:
    """The negative control of recurrent algorithms: an answer that was shown four steps ago is a coin's."""
    assert abs(trained(algo, RecallEnv, 6_000).evaluate(256).return_mean) < 0.3
