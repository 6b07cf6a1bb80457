"""Every backend has the one step semantics; faults are named; states are restored bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.data.trees import tree_leaves, tree_map
from rl_training.envs.factory import EnvSpec, choose_backend, make_env, make_envs
from rl_training.envs.state import can_restore
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.types import Envs, EnvStep, Spaces
from rl_training.envs.vector import VectorEnvs, autoreset_is_same_step
from rl_training.errors import ConfigError, EnvironmentFault
from support import (
    BitsEnv,
    DictEnv,
    FaultyEnv,
    HiddenWalk,
    IdentityImageEnv,
    ProtocolWalk,
    ScriptedDictEnv,
    ScriptedEnv,
    TargetEnv,
    TwoAnswersEnv,
    env_makers,
    play,
    random_actions,
)

# Gymnasium reports the end of a worker as warnings before it raises.
pytestmark = pytest.mark.filterwarnings("ignore:.*ERROR.*:UserWarning")

THREE_AND_TWO = env_makers(partial(ScriptedEnv, 3), partial(ScriptedEnv, 2, terminates=True))


def gymnasium_envs(makers: Sequence[Callable[[], gym.Env]], mode: AutoresetMode) -> VectorEnvs:
    envs = SyncVectorEnv(makers, autoreset_mode=mode)
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    return VectorEnvs(envs, same_step=autoreset_is_same_step(envs), spaces=spaces)


def scripted(backend: str, source: Callable[..., gym.Env] = ScriptedEnv, num_envs: int = 1) -> Envs:
    if backend in ("sync", "async"):
        return make_envs(EnvSpec(source, backend=backend), num_envs)
    return gymnasium_envs([source] * num_envs, AutoresetMode[backend])


SAME_STEP_BACKENDS = ("sync", "async", "SAME_STEP")


# ---- the one step semantics


@pytest.mark.parametrize("backend", SAME_STEP_BACKENDS)
def test_rows_of_backends_that_restart_in_the_same_step(backend: str) -> None:
    envs = scripted(backend)
    np.testing.assert_array_equal(envs.reset(0), [[0, 0]])
    steps = play(envs, [np.array([0])] * 8)
    assert [s.obs[0].tolist() for s in steps] == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert [s.rewards[0] for s in steps] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert [i for i, s in enumerate(steps) if s.truncated[0]] == [2, 5]
    assert not any(s.terminated[0] for s in steps)
    assert [i for i, s in enumerate(steps) if s.starts[0]] == [2, 5]
    assert sum(s.valid[0] for s in steps) == 8
    assert [s.final_rows.tolist() for s in steps] == [[], [], [0], [], [], [0], [], []]
    assert [steps[i].final_obs.tolist() for i in (2, 5)] == [[[0, 3]], [[1, 3]]]
    envs.close()


def test_rows_of_backends_that_spend_a_row_on_the_reset() -> None:
    envs = scripted("NEXT_STEP")
    np.testing.assert_array_equal(envs.reset(0), [[0, 0]])
    steps = play(envs, [np.array([0])] * 8)
    assert [s.obs[0].tolist() for s in steps] == [[0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [2, 0]]
    assert [s.rewards[0] for s in steps] == [1, 2, 3, 0, 1, 2, 3, 0]
    assert [i for i, s in enumerate(steps) if s.truncated[0]] == [2, 6]
    assert [i for i, s in enumerate(steps) if s.starts[0]] == [3, 7]
    assert [i for i, s in enumerate(steps) if not s.valid[0]] == [3, 7]  # so that 6 of 8 rows are experience
    assert all(len(s.final_rows) == 0 for s in steps)  # the final observation is the one that was returned


@pytest.mark.parametrize("mode", ["sync", "SAME_STEP", "NEXT_STEP"])
def test_environments_end_each_in_its_own_time(mode: str) -> None:
    """Three steps until truncation beside two until termination: the flags and final rows must not mix."""
    envs = SyncEnvs(THREE_AND_TWO) if mode == "sync" else gymnasium_envs(THREE_AND_TWO, AutoresetMode[mode])
    envs.reset(0)
    steps = play(envs, [np.array([0, 0])] * 3)
    assert [s.terminated.tolist() for s in steps] == [[False, False], [False, True], [False, False]]
    assert [s.truncated.tolist() for s in steps] == [[False, False], [False, False], [True, False]]
    if mode == "NEXT_STEP":
        assert [s.valid.tolist() for s in steps] == [[True, True], [True, True], [True, False]]
    else:
        assert steps[1].final_rows.tolist() == [1]
        assert steps[1].final_obs.tolist() == [[0, 2]]
        assert steps[2].final_rows.tolist() == [0]
        assert steps[2].final_obs.tolist() == [[0, 3]]


@pytest.mark.parametrize("backend", SAME_STEP_BACKENDS)
def test_final_observations_of_a_mapping_are_a_mapping(backend: str) -> None:
    envs = scripted(backend, ScriptedDictEnv, num_envs=2)
    envs.reset(0)
    last = play(envs, [np.array([0, 0])] * 3)[-1]
    assert last.final_rows.tolist() == [0, 1]
    assert last.final_obs["episode"].tolist() == [0, 0]
    assert last.final_obs["t"].tolist() == [[0, 3], [0, 3]]
    assert last.obs["t"].tolist() == [[1, 0], [1, 0]]
    envs.close()


@pytest.mark.parametrize("source", [TargetEnv, TwoAnswersEnv, BitsEnv, DictEnv, IdentityImageEnv, HiddenWalk])
def test_sync_and_async_give_the_same_rows_for_one_seed(source: Callable[..., gym.Env]) -> None:
    sync, parallel = (make_envs(EnvSpec(source, backend=backend), 2) for backend in ("sync", "async"))
    assert_equal_trees(sync.reset(7), parallel.reset(7))
    actions = random_actions(sync.spaces.action, 12, 2)
    assert_equal_rows(play(sync, actions), play(parallel, actions))
    assert sync.spaces == parallel.spaces
    parallel.close()


@pytest.mark.parametrize("backend", ["native", "sync", "async"])
def test_cartpole_pays_one_for_every_valid_row(backend: str) -> None:
    envs = make_envs(EnvSpec("CartPole-v1", backend=backend), 3)
    envs.reset(0)
    steps = play(envs, random_actions(envs.spaces.action, 80, 3))
    assert sum(s.terminated.sum() for s in steps) >= 3
    for step in steps:
        np.testing.assert_array_equal(step.rewards, step.valid.astype(np.float32))
    assert any(not s.valid.all() for s in steps) == (backend == "native")
    envs.close()


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_one_seed_fixes_the_future_and_another_changes_it(backend: str) -> None:
    envs = make_envs(EnvSpec("CartPole-v1", backend=backend), 2)
    actions = random_actions(envs.spaces.action, 60, 2)
    first, again, other = ((envs.reset(seed), play(envs, actions)) for seed in (5, 5, 6))
    assert_equal_trees(first[0], again[0])
    assert_equal_rows(first[1], again[1])
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0][0], first[0][1])  # two environments are two, not one twice


def test_cartpole_native_keeps_the_time_limit_of_its_id() -> None:
    envs = make_envs(EnvSpec("CartPole-v0", backend="native"), 1)
    assert envs.envs.max_episode_steps == 200
    assert make_envs(EnvSpec("CartPole-v1", {"max_episode_steps": 7}, backend="native"), 1).envs.max_episode_steps == 7


def test_the_atari_backend_has_the_same_semantics() -> None:
    pytest.importorskip("ale_py")
    envs = make_envs(EnvSpec("ALE/Pong-v5", {"max_num_frames_per_episode": 80}), 2)
    first = envs.reset(3)
    assert first.shape == (2, 4, 84, 84)
    assert first.dtype == np.uint8
    actions = random_actions(envs.spaces.action, 60, 2)
    steps = play(envs, actions)
    ended = np.array([s.terminated | s.truncated for s in steps])
    assert ended.any(0).all()
    # A row after an end is a reset: nothing is paid, and it is the only kind that is not valid.
    np.testing.assert_array_equal(np.array([~s.valid for s in steps])[1:], ended[:-1])
    np.testing.assert_array_equal(np.array([s.starts for s in steps])[1:], ended[:-1])
    assert all((s.rewards[~s.valid] == 0).all() for s in steps)
    assert_equal_trees(first, envs.reset(3))
    assert_equal_rows(steps, play(envs, actions))
    assert not envs.restorable
    envs.close()


def test_the_envpool_backend_has_the_same_semantics() -> None:
    pytest.importorskip("envpool")
    envs = make_envs(EnvSpec("CartPole-v1", backend="envpool"), 2)
    envs.reset(0)
    steps = play(envs, random_actions(envs.spaces.action, 80, 2))
    ended = np.array([s.terminated | s.truncated for s in steps])
    assert ended.any()
    np.testing.assert_array_equal(np.array([~s.valid for s in steps])[1:], ended[:-1])


def test_a_vector_environment_that_does_not_restart_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="does not restart by itself"):
        gymnasium_envs([ScriptedEnv], AutoresetMode.DISABLED)


# ---- what can be named


def test_auto_takes_the_quickest_backend_that_fits() -> None:
    assert choose_backend(EnvSpec("CartPole-v1")) == "native"
    assert choose_backend(EnvSpec("CartPole-v1", wrappers=[{"time_limit": 5}])) == "sync"
    assert choose_backend(EnvSpec("Acrobot-v1")) == "sync"
    assert choose_backend(EnvSpec("support:ScriptedEnv")) == "sync"
    assert choose_backend(EnvSpec(ScriptedEnv)) == "sync"
    assert choose_backend(EnvSpec("ALE/Pong-v5")) == "atari"
    assert choose_backend(EnvSpec("CartPole-v1", backend="async")) == "async"


def test_environments_come_by_id_by_factory_and_by_callable() -> None:
    assert type(make_env(EnvSpec("Acrobot-v1")).unwrapped).__name__ == "AcrobotEnv"
    assert make_env(EnvSpec("support:ScriptedEnv", {"length": 9})).length == 9
    assert make_env(EnvSpec(partial(ScriptedEnv, 4), {"terminates": True})).terminates


def no_env() -> Any:
    return None


def breaks() -> Any:
    raise KeyError("secret")


def missing_file() -> Any:
    raise FileNotFoundError("level.xml")


@pytest.mark.parametrize("backend", ["auto", "sync", "async", "native"])
def test_an_unknown_id_is_named(backend: str) -> None:
    with pytest.raises(EnvironmentFault, match="CartPoole-v1"):
        make_envs(EnvSpec("CartPoole-v1", backend=backend), 2)


@pytest.mark.parametrize("backend", ["auto", "sync", "async", "native"])
def test_a_keyword_the_environment_does_not_take_is_named(backend: str) -> None:
    with pytest.raises(EnvironmentFault, match=r"CartPole-v1.*gravitas"):
        make_envs(EnvSpec("CartPole-v1", {"gravitas": 1}, backend=backend), 2)


def test_a_keyword_that_atari_does_not_take_is_named() -> None:
    pytest.importorskip("ale_py")
    with pytest.raises(EnvironmentFault, match=r"ALE/Pong-v5.*gravitas"):
        make_envs(EnvSpec("ALE/Pong-v5", {"gravitas": 1}), 2)
    with pytest.raises(EnvironmentFault, match="ALE/Ponng-v5"):
        make_envs(EnvSpec("ALE/Ponng-v5", backend="atari"), 2)


@pytest.mark.parametrize(
    "source", ["no_such:make", "support:NoSuchEnv", "support:UNBOUNDED", ":make", "test_envs:no_env", no_env, breaks]
)
@pytest.mark.parametrize("backend", ["auto", "async"])
def test_a_factory_that_makes_no_environment_is_named(source: Any, backend: str) -> None:
    name = source if isinstance(source, str) else source.__name__
    with pytest.raises(EnvironmentFault, match=name):
        make_envs(EnvSpec(source, backend=backend), 1)


def test_whatever_a_factory_raises_the_environment_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"missing_file.*level\.xml"):
        make_env(EnvSpec(missing_file))


@pytest.mark.parametrize("backend", ["native", "atari", "envpool"])
def test_backends_that_wrap_nothing_say_so(backend: str) -> None:
    with pytest.raises(EnvironmentFault, match=f"{backend}.*no wrappers"):
        make_envs(EnvSpec("CartPole-v1", wrappers=["clip_reward"], backend=backend), 1)
    with pytest.raises(EnvironmentFault, match=f"{backend}.*needs a Gymnasium id"):
        make_envs(EnvSpec(ScriptedEnv, backend=backend), 1)


# ---- wrappers


def wrapped(source: Any, *wrappers: Any) -> gym.Env:
    return make_env(EnvSpec(source, wrappers=wrappers))


def test_frame_stack_puts_vectors_side_by_side_oldest_first() -> None:
    env = wrapped(ScriptedEnv, {"frame_stack": 3})
    assert env.observation_space.shape == (6,)
    assert env.reset(seed=0)[0].tolist() == [0, 0, 0, 0, 0, 0]
    env.step(0)
    assert env.step(0)[0].tolist() == [0, 0, 0, 1, 0, 2]
    env.step(0)
    assert env.reset()[0].tolist() == [1, 0, 1, 0, 1, 0]  # nothing of the last episode is left
    assert env.observation_space.contains(env.step(0)[0])


def test_repeated_actions_sum_their_rewards_and_stop_at_the_end() -> None:
    env = wrapped(ScriptedEnv, {"action_repeat": 2})
    env.reset(seed=0)
    obs, reward, _, truncated, _ = env.step(0)
    assert (obs.tolist(), reward, truncated) == ([0, 2], 1 + 2, False)
    obs, reward, _, truncated, _ = env.step(0)
    assert (obs.tolist(), reward, truncated) == ([0, 3], 3, True)


@pytest.mark.parametrize(("channels_last", "shape"), [(True, (36, 36, 2)), (False, (2, 36, 36))])
def test_frame_stack_puts_images_side_by_side_as_channels(channels_last: bool, shape: tuple[int, ...]) -> None:
    env = wrapped(partial(IdentityImageEnv, channels_last), {"frame_stack": 2})
    single = IdentityImageEnv(channels_last)
    frames = [single.reset(seed=0)[0], single.step(0)[0]]
    env.reset(seed=0)
    stacked = env.step(0)[0]
    assert env.observation_space.shape == stacked.shape == shape
    assert stacked.dtype == np.uint8
    np.testing.assert_array_equal(stacked, np.concatenate(frames, axis=-1 if channels_last else 0))


def test_frame_stack_keeps_what_an_environment_overwrites() -> None:
    """An environment may hand out the same array every step."""

    class Reusing(ScriptedEnv):
        buffer = np.zeros(2, dtype=np.float32)

        def _obs(self) -> np.ndarray:
            self.buffer[:] = super()._obs()
            return self.buffer

    env = wrapped(Reusing, {"frame_stack": 2})
    env.reset(seed=0)
    assert env.step(0)[0].tolist() == [0, 0, 0, 1]


def test_clip_reward_clips_to_one_or_to_the_given_bounds() -> None:
    env = wrapped(ScriptedEnv, "clip_reward")
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(3)] == [1, 1, 1]
    env = wrapped(ScriptedEnv, {"clip_reward": {"low": 1.5, "high": 2.5}})
    env.reset(seed=0)
    assert [env.step(0)[1] for _ in range(3)] == [1.5, 2.0, 2.5]


def test_rescale_action_maps_its_bounds_onto_the_environments() -> None:
    env = wrapped(TargetEnv, "rescale_action")
    assert (env.action_space.low, env.action_space.high) == (-1, 1)
    target = env.reset(seed=0)[0]
    assert env.step(np.array([0.5], dtype=np.float32))[1] == pytest.approx(-((1.0 - target[0]) ** 2))  # 0.5 * 2 = 1


def test_time_limit_truncates() -> None:
    env = wrapped(ScriptedEnv, {"time_limit": 2})
    env.reset(seed=0)
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (False, True)


@pytest.mark.parametrize(
    ("env_id", "kept"),
    [
        ("CartPole-v1", [0, 2]),
        ("Pendulum-v1", [0, 1]),
        ("MountainCar-v0", [0]),
        ("MountainCarContinuous-v0", [0]),
        ("Acrobot-v1", [0, 1, 2, 3]),
    ],
)
def test_masked_velocities_keeps_the_positions(env_id: str, kept: list[int]) -> None:
    env, bare = wrapped(env_id, "masked_velocities"), make_env(EnvSpec(env_id))
    np.testing.assert_array_equal(env.reset(seed=0)[0], bare.reset(seed=0)[0][kept])
    assert env.observation_space.shape == (len(kept),)


def test_masked_velocities_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ConfigError, match="Scripted is none of them"):
        wrapped(ScriptedEnv, "masked_velocities")
    with pytest.raises(ConfigError, match=r"masked_velocities.*first"):
        wrapped("CartPole-v1", {"frame_stack": 2}, "masked_velocities")


def test_flatten_makes_a_vector_of_a_mapping() -> None:
    env = wrapped(ScriptedDictEnv, "flatten")
    obs = env.reset(seed=0)[0]
    assert obs.shape == env.observation_space.shape == (102,)  # 100 classes one-hot, and two numbers


def test_wrappers_apply_innermost_first() -> None:
    env = wrapped("CartPole-v1", "masked_velocities", {"frame_stack": 3})
    assert env.observation_space.shape == (6,)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("time_limits", "unknown wrapper 'time_limits'; did you mean 'time_limit'"),
        ({"action_repeat": 0}, "action_repeat needs a whole number of at least 1, got 0"),
        ({"frame_stak": 2}, "unknown wrapper 'frame_stak'; did you mean 'frame_stack'"),
        ({"time_limit": 5, "frame_stack": 2}, "one name"),  # a list item, or the second would be lost in silence
        ({}, "one name"),
        ("frame_stack", "frame_stack.*'k'"),
        ({"time_limit": {"steps": 3}}, "time_limit.*'steps'"),
        ({"frame_stack": 0}, "frame_stack.*0"),
        ("rescale_action", "rescale_action.*Box"),
    ],
)
def test_a_wrapper_that_cannot_be_applied_is_named(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrapped(ScriptedEnv, spec)


def test_frame_stack_refuses_spaces_it_cannot_stack() -> None:
    with pytest.raises(ConfigError, match="frame_stack needs a Box"):
        wrapped(ScriptedDictEnv, {"frame_stack": 2})


# ---- faults


def faulty(fault: str, backend: str, **kwargs: Any) -> Envs:
    """Three environments of which only the last one, with seed 10 + 2, breaks."""
    return make_envs(EnvSpec(partial(FaultyEnv, fault, only_seed=12, **kwargs), backend=backend), 3)


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "step raised TwoArgumentError: the motor is stuck"),
        ("wrong_shape", r"observation has shape \(1,\), its space says \(2,\)"),
        ("wrong_dtype", "observation has dtype complex.*, its space says float32"),
    ],
)
def test_a_fault_names_the_environment_and_the_step(fault: str, message: str, backend: str) -> None:
    envs = faulty(fault, backend, at_step=2)
    envs.reset(10)
    envs.step(np.zeros(3, dtype=np.int64))
    with pytest.raises(EnvironmentFault, match=f"^environment 2, step 2: {message}"):
        envs.step(np.zeros(3, dtype=np.int64))
    envs.close()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_fault_in_the_final_observation_names_the_environment(backend: str) -> None:
    envs = faulty("wrong_shape", backend, at_step=3, length=3)
    envs.reset(10)
    play(envs, [np.zeros(3, dtype=np.int64)] * 2)
    with pytest.raises(EnvironmentFault, match="environment 2, step 3: observation has shape"):
        envs.step(np.zeros(3, dtype=np.int64))
    envs.close()


class ResetRaises(ScriptedEnv):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise RuntimeError("no level")


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_reset_that_raises_names_the_environment(backend: str) -> None:
    envs = make_envs(EnvSpec(ResetRaises, backend=backend), 1)
    with pytest.raises(EnvironmentFault, match="environment 0, step 0: reset raised RuntimeError: no level"):
        envs.reset(0)
    envs.close()


def test_a_mapping_with_a_missing_key_is_a_fault() -> None:
    class Forgetful(ScriptedDictEnv):
        def _obs(self) -> Any:
            return {key: value for key, value in super()._obs().items() if self.t == 0 or key == "t"}

    envs = SyncEnvs([Forgetful])
    envs.reset(0)
    with pytest.raises(EnvironmentFault, match=r"environment 0, step 1: .*keys \['episode', 't'\]"):
        envs.step(np.array([0]))


# ---- states


STATE_CASES = {
    "cartpole-sync": EnvSpec("CartPole-v1", backend="sync"),
    "cartpole-native": EnvSpec("CartPole-v1", backend="native"),
    "acrobot-wrapped": EnvSpec("Acrobot-v1", wrappers=[{"time_limit": 13}, {"frame_stack": 3}]),
    "pendulum": EnvSpec("Pendulum-v1", wrappers=[{"time_limit": 17}]),
    "mountaincar": EnvSpec("MountainCar-v0", wrappers=["masked_velocities", {"frame_stack": 2}, {"time_limit": 21}]),
    "mountaincar-continuous": EnvSpec("MountainCarContinuous-v0", {"max_episode_steps": 15}),
    "cartpole-flat-clipped": EnvSpec("CartPole-v1", wrappers=["flatten", {"clip_reward": {"high": 0.5}}]),
    "protocol": EnvSpec(ProtocolWalk),
    "protocol-wrapped": EnvSpec(ProtocolWalk, wrappers=[{"time_limit": 5}, {"frame_stack": 2}]),
    "pong": EnvSpec("ALE/Pong-v5", wrappers=[{"time_limit": 30}], backend="sync"),
    "halfcheetah": EnvSpec("HalfCheetah-v5", wrappers=[{"time_limit": 24}]),
    "ant": EnvSpec("Ant-v5", wrappers=["rescale_action", {"time_limit": 33}]),
}


@pytest.mark.parametrize("case", STATE_CASES)
def test_a_restored_environment_goes_on_bit_for_bit(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log where it runs
    if case == "pong":
        pytest.importorskip("ale_py")
    if case in ("halfcheetah", "ant"):
        pytest.importorskip("mujoco")
    envs, restored = (make_envs(STATE_CASES[case], 2) for _ in range(2))
    assert envs.restorable
    envs.reset(1)
    actions = random_actions(envs.spaces.action, 70, 2)
    before = play(envs, actions[:20])
    state = envs.state_dict()
    after = play(envs, actions[20:])
    assert any((s.terminated | s.truncated).any() for s in after)  # the continuation goes through resets
    restored.reset(99)
    restored.step(actions[0])
    assert_equal_trees(restored.load_state_dict(state), before[-1].obs)
    assert_equal_rows(play(restored, actions[20:]), after)
    envs.close()
    restored.close()


def test_a_state_taken_at_a_ghost_row_remembers_that_the_next_action_is_ignored() -> None:
    envs, restored = (make_envs(EnvSpec("CartPole-v1", backend="native"), 2) for _ in range(2))
    envs.reset(0)
    while not (envs.step(np.array([0, 0])).terminated).any():
        pass
    state = envs.state_dict()
    restored.reset(9)
    restored.load_state_dict(state)
    assert not restored.step(np.array([0, 0])).valid.all()


class OwnWrapper(gym.Wrapper):
    pass


class CountingTransform(gym.wrappers.TransformReward):
    """A subclass of a wrapper without state may have one."""


class OwnCartPole(CartPoleEnv):
    """A subclass of a known environment may hide what the package does not know of."""


def test_what_may_hide_state_is_not_restorable() -> None:
    assert can_restore(make_env(EnvSpec("CartPole-v1")))
    assert can_restore(ProtocolWalk())
    assert not can_restore(OwnWrapper(make_env(EnvSpec("CartPole-v1"))))
    assert not can_restore(gym.wrappers.TimeLimit(OwnWrapper(ProtocolWalk()), 5))
    assert not can_restore(gym.wrappers.NormalizeObservation(ProtocolWalk()))
    assert not can_restore(CountingTransform(ProtocolWalk(), lambda reward: reward))
    assert not can_restore(HiddenWalk())
    assert not can_restore(OwnCartPole())
    assert not make_envs(EnvSpec(HiddenWalk, wrappers=[{"frame_stack": 2}]), 2).restorable


# ---- helpers


def assert_equal_trees(actual: Any, expected: Any) -> None:
    tree_map(np.testing.assert_array_equal, actual, expected)
    assert [leaf.dtype for leaf in tree_leaves(actual)] == [leaf.dtype for leaf in tree_leaves(expected)]


def assert_equal_rows(actual: Sequence[EnvStep], expected: Sequence[EnvStep]) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        assert_equal_trees(mine.obs, theirs.obs)
        for name in ("rewards", "terminated", "truncated", "valid", "starts", "final_rows"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        assert (mine.final_obs is None) == (theirs.final_obs is None)
        if theirs.final_obs is not None:
            assert_equal_trees(mine.final_obs, theirs.final_obs)
