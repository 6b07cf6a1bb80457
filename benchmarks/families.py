"""What is compared: a family is one algorithm, its two implementations, the same work for both, and the bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A row of the table; `bar` is how many times the peer's steps per CPU second ours have to be."""

    envs: int
    backend: str
    bar: float


@dataclass(frozen=True)
class Family:
    """The work: `rollout_steps` rows of each environment, then `epochs` passes in `minibatches` parts."""

    name: str
    algo: str  # as our registry names it
    peer: str  # `module:Class` with the interface of Stable-Baselines3
    peer_package: str
    rollout_steps: int
    epochs: int
    minibatches: int
    ours: Callable[[int], Mapping[str, Any]]  # algo_kwargs, given the number of environments
    theirs: Callable[[int], Mapping[str, Any]]  # keyword arguments, likewise
    cases: tuple[Case, ...]
    env_id: str = "CartPole-v1"
    policy: str = "MlpPolicy"
    warmup_iterations: int = 5
    timed_steps: int = 60_000
    least_iterations: int = 10  # that are timed, so that their noise averages out
    normalizes: bool = False  # observations and rewards, by running statistics
    has_floor: bool = False  # whether `peers.floor` is the floor of this work
    watches_memory: bool = False  # over a long run of ours
    runner: str = "sb3"  # the function of `benchmarks.peers` that does the peer's work
    our_note: str = "logs to its files"
    note: str = "steps a DummyVecEnv"  # how the peer does it
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)  # of our environment
    replays: str = ""  # what an update replays, where updates are no passes over the rollout

    @property
    def work(self) -> str:
        """The work of an iteration, in words."""
        passes = f"{self.epochs} epochs of {self.minibatches} minibatches"
        return f"{self.rollout_steps} steps of each environment, {self.replays or passes}"

    def iterations(self, envs: int) -> int:
        """Timed iterations."""
        return max(self.least_iterations, self.timed_steps // (self.rollout_steps * envs))


PPO = Family(
    name="ppo",
    algo="ppo",
    peer="stable_baselines3:PPO",
    peer_package="stable-baselines3",
    rollout_steps=128,
    epochs=4,
    minibatches=4,
    ours=lambda envs: {
        "rollout_steps": 128,
        "update_epochs": 4,
        "num_minibatches": 4,
        "hidden_sizes": [64, 64],
        "activation": "tanh",
    },
    theirs=lambda envs: {
        "n_steps": 128,
        "n_epochs": 4,
        "batch_size": 128 * envs // 4,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
    cases=(Case(8, "sync", 2.5), Case(8, "auto", 4.0), Case(64, "auto", 3.0)),
    has_floor=True,
    watches_memory=True,
)

# A whole loop in JAX, with the environment inside of it: the ceiling rather than a rival.
PPO_REJAX = replace(
    PPO,
    name="ppo_rejax",
    peer="rejax:PPO",
    peer_package="rejax",
    theirs=lambda envs: {"num_steps": 128, "num_epochs": 4, "num_minibatches": 4},
    cases=(Case(8, "auto", 0.6), Case(64, "auto", 1.0), Case(512, "auto", 1.0)),
    timed_steps=400_000,
    has_floor=False,
    watches_memory=False,
    runner="rejax",
    note="is one compiled function, with gymnax's CartPole in it; its compilation is not timed",
)

# Atari as in Mnih et al. (2015) and Schulman et al. (2017).
PPO_PONG = replace(
    PPO,
    name="ppo_pong",
    env_id="ALE/Pong-v5",
    env_kwargs={"repeat_action_probability": 0.0},
    policy="CnnPolicy",
    ours=lambda envs: {"rollout_steps": 128, "update_epochs": 4, "num_minibatches": 4},
    theirs=lambda envs: {"n_steps": 128, "n_epochs": 4, "batch_size": 128 * envs // 4},
    cases=(Case(8, "auto", 1.8),),
    warmup_iterations=1,
    timed_steps=2_048,
    least_iterations=2,
    has_floor=False,
    watches_memory=False,
    runner="sb3_atari",
    note="steps a DummyVecEnv of Atari's wrappers with four stacked frames",
)

PPO_PONG_BFLOAT16 = replace(
    PPO_PONG,
    name="ppo_pong_bfloat16",
    ours=lambda envs: {**PPO_PONG.ours(envs), "precision": "bfloat16"},
    our_note="has `precision: bfloat16` and logs to its files",
)
PPO_BREAKOUT_BFLOAT16 = replace(PPO_PONG_BFLOAT16, name="ppo_breakout_bfloat16", env_id="ALE/Breakout-v5")

A2C = Family(
    name="a2c",
    algo="a2c",
    peer="stable_baselines3:A2C",
    peer_package="stable-baselines3",
    rollout_steps=5,
    epochs=1,
    minibatches=1,
    ours=lambda envs: {},  # the defaults of both are the same
    theirs=lambda envs: {"policy_kwargs": {"net_arch": [64, 64]}},
    cases=(Case(8, "sync", 3.0), Case(8, "auto", 3.0)),
    watches_memory=True,
)

TRPO = Family(
    name="trpo",
    algo="trpo",
    peer="sb3_contrib:TRPO",
    peer_package="sb3-contrib",
    rollout_steps=128,
    epochs=10,
    minibatches=8,
    ours=lambda envs: {"rollout_steps": 128, "critic_updates": 10, "num_minibatches": 8, "cg_iterations": 10},
    theirs=lambda envs: {
        "n_steps": 128,
        "n_critic_updates": 10,
        "batch_size": 128 * envs // 8,
        "cg_max_steps": 10,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
    cases=(Case(8, "sync", 3.0), Case(8, "auto", 3.0)),
)

# Theirs has the layer of 64 after the LSTM, ours before it.
RECURRENT_PPO = Family(
    name="recurrent_ppo",
    algo="recurrent_ppo",
    peer="sb3_contrib:RecurrentPPO",
    peer_package="sb3-contrib",
    policy="MlpLstmPolicy",
    rollout_steps=128,
    epochs=4,
    minibatches=4,
    ours=lambda envs: {
        "rollout_steps": 128,
        "update_epochs": 4,
        "num_minibatches": 4,
        "recurrent_size": 64,
        "hidden_sizes": [64],
    },
    theirs=lambda envs: {
        "n_steps": 128,
        "n_epochs": 4,
        "batch_size": 128 * envs // 4,
        "policy_kwargs": {"net_arch": [64], "lstm_hidden_size": 64},
    },
    cases=(Case(8, "sync", 3.0), Case(8, "auto", 3.0)),
    timed_steps=20_000,
)

# Continuous control as people train it: ten passes in minibatches of 64, both normalisations.
PPO_HALFCHEETAH = Family(
    name="ppo_halfcheetah",
    algo="ppo",
    peer="stable_baselines3:PPO",
    peer_package="stable-baselines3",
    env_id="HalfCheetah-v5",
    rollout_steps=2048,
    epochs=10,
    minibatches=256,
    ours=lambda envs: {
        "rollout_steps": 2048,
        "update_epochs": 10,
        "num_minibatches": 32 * envs,
        "normalize_obs": True,
        "normalize_reward": True,
    },
    theirs=lambda envs: {"n_steps": 2048, "n_epochs": 10, "batch_size": 64, "policy_kwargs": {"net_arch": [64, 64]}},
    cases=(Case(8, "sync", 4.0), Case(1, "sync", 3.5)),
    warmup_iterations=1,
    timed_steps=8_192,
    least_iterations=1,
    normalizes=True,
)

A2C_HALFCHEETAH = replace(
    A2C,
    name="a2c_halfcheetah",
    env_id="HalfCheetah-v5",
    ours=lambda envs: {"normalize_obs": True, "normalize_reward": True},
    cases=(Case(8, "sync", 3.0),),
    timed_steps=20_000,
    normalizes=True,
    watches_memory=False,
)

TRPO_HALFCHEETAH = replace(
    TRPO,
    name="trpo_halfcheetah",
    env_id="HalfCheetah-v5",
    ours=lambda envs: {**TRPO.ours(envs), "normalize_obs": True, "normalize_reward": True},
    cases=(Case(8, "sync", 3.0),),
    timed_steps=20_000,
    normalizes=True,
)

# Box actions where the environment itself costs little.
A2C_PENDULUM, TRPO_PENDULUM, RECURRENT_PPO_PENDULUM = (
    replace(
        family,
        name=f"{family.name}_pendulum",
        env_id="Pendulum-v1",
        cases=(Case(8, "sync", 3.0),),
        timed_steps=20_000,
        watches_memory=False,
    )
    for family in (A2C, TRPO, RECURRENT_PPO)
)

# One update a step, the networks and the batches of the papers.
SAC = Family(
    name="sac",
    algo="sac",
    peer="stable_baselines3:SAC",
    peer_package="stable-baselines3",
    env_id="Pendulum-v1",
    rollout_steps=8,
    epochs=1,
    minibatches=8,
    replays="8 updates of 256 rows, two hidden layers of 256",
    ours=lambda envs: {"rollout_steps": 8, "learning_starts": 200, "random_steps": 200},
    theirs=lambda envs: {"train_freq": 8, "gradient_steps": 8, "learning_starts": 200, "batch_size": 256},
    cases=(Case(1, "sync", 3.0),),
    warmup_iterations=40,
    timed_steps=1_200,
)

TD3 = replace(
    SAC,
    name="td3",
    algo="td3",
    peer="stable_baselines3:TD3",
    theirs=lambda envs: {**SAC.theirs(envs), "policy_kwargs": {"net_arch": [256, 256]}},
)

# The same in JAX. Each of its calls is compiled, the loop around them is SB3's.
SAC_SBX, TD3_SBX = (
    replace(
        family,
        name=f"{family.name}_sbx",
        peer=f"sbx:{family.algo.upper()}",
        peer_package="sbx-rl",
        cases=(Case(1, "sync", 1.5),),
    )
    for family in (SAC, TD3)
)

SAC_BFLOAT16, TD3_BFLOAT16, SAC_SBX_BFLOAT16, TD3_SBX_BFLOAT16 = (
    replace(
        family,
        name=f"{family.name}_bfloat16",
        ours=lambda envs: {**SAC.ours(envs), "precision": "bfloat16"},  # TD3's are the same
        our_note=PPO_PONG_BFLOAT16.our_note,
    )
    for family in (SAC, TD3, SAC_SBX, TD3_SBX)
)

DQN = Family(
    name="dqn",
    algo="dqn",
    peer="stable_baselines3:DQN",
    peer_package="stable-baselines3",
    rollout_steps=32,
    epochs=1,
    minibatches=8,
    replays="8 updates of 32 rows, two hidden layers of 64",
    ours=lambda envs: {
        "rollout_steps": 32,
        "replay_ratio": 0.25,
        "batch_size": 32,
        "double": False,
        "learning_starts": 200,
        "target_update_interval": 2500,
    },
    theirs=lambda envs: {
        "train_freq": 32,
        "gradient_steps": 8,
        "learning_starts": 200,
        "batch_size": 32,
        # Its schedule is by the share of an endless run: it would stay at 1, and the network would never act.
        "exploration_initial_eps": 0.1,
        "exploration_final_eps": 0.1,
    },
    cases=(Case(1, "sync", 3.0),),
    warmup_iterations=40,
    timed_steps=20_000,
)

_ALL = (
    PPO,
    PPO_REJAX,
    PPO_PONG,
    PPO_PONG_BFLOAT16,
    PPO_BREAKOUT_BFLOAT16,
    A2C,
    TRPO,
    RECURRENT_PPO,
    PPO_HALFCHEETAH,
    A2C_HALFCHEETAH,
    TRPO_HALFCHEETAH,
    A2C_PENDULUM,
    TRPO_PENDULUM,
    RECURRENT_PPO_PENDULUM,
    SAC,
    SAC_SBX,
    TD3,
    TD3_SBX,
    SAC_BFLOAT16,
    SAC_SBX_BFLOAT16,
    TD3_BFLOAT16,
    TD3_SBX_BFLOAT16,
    DQN,
)
FAMILIES = {family.name: family for family in _ALL}
