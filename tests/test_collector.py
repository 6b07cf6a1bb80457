"""What the collector hands over really happened, follows on, and carries memory across rows but not across episodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from rl_training.algorithms.muzero import MuZeroParams
from rl_training.algorithms.params import LiveParams
from rl_training.data.rollout import Episode, Rollout
from rl_training.data.trees import tree_map
from rl_training.envs.factory import EnvSpec, make_envs
from rl_training.envs.sync import SyncEnvs
from rl_training.envs.types import Envs, Spaces
from rl_training.envs.vector import VectorEnvs, autoreset_is_same_step
from rl_training.errors import EnvironmentFault
from rl_training.models.actor_critic import Acted, ActorCritic
from rl_training.models.muzero import MuZeroModel
from rl_training.runtime.collector import LocalCollector, PolicySnapshot
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.policy import VALUES
from rl_training.search.policy import PUCTPolicy
from support import (
    DictEnv,
    FaultyEnv,
    HiddenWalk,
    ProtocolWalk,
    RecallEnv,
    ScriptedEnv,
    TargetEnv,
    muzero_options,
    policy_options,
)


class TablePolicy:
    """Always action 0; [episode, t] is worth 100 * episode + t, so that a value says which observation it is of."""

    device = torch.device("cpu")

    def __init__(self, *, values_while_acting: bool = False) -> None:
        self.values_while_acting = values_while_acting

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 0)

    def act(self, obs: Tensor, state: Tensor, *, generator: Any = None, deterministic: bool = False) -> Acted:
        actions = torch.zeros(len(obs), dtype=torch.int64)
        return Acted(actions, state, torch.zeros(len(obs)), self.values(obs) if self.values_while_acting else None)

    def values(self, obs: Tensor, state: Tensor | None = None) -> Tensor:
        return 100 * obs[:, 0] + obs[:, 1]

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        return actions


class CountingPolicy(TablePolicy):
    """Its memory counts the observations of the episode, from 0.5 on; a value is 10 * memory + t.

    Before it sees the observation of time t the memory is 0.5 + t, so every value must be 5 + 11 t.
    """

    def initial_state(self, batch: int) -> Tensor:
        return torch.full((batch, 1), 0.5)

    def act(self, obs: Tensor, state: Tensor, *, generator: Any = None, deterministic: bool = False) -> Acted:
        actions = torch.zeros(len(obs), dtype=torch.int64)
        return Acted(actions, state + 1, torch.zeros(len(obs)), self.values(obs, state), {"memory": state})

    def values(self, obs: Tensor, state: Tensor | None = None) -> Tensor:
        assert state is not None
        return 10 * state[:, 0] + obs[:, 1]


def scripted(mode: str, num_envs: int = 1, *, length: int = 3, terminates: bool = False) -> Envs:
    makers = [partial(ScriptedEnv, length, terminates)] * num_envs
    if mode == "sync":
        return SyncEnvs(makers)
    envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode[mode])
    spaces = Spaces(envs.single_observation_space, envs.single_action_space)
    return VectorEnvs(envs, same_step=autoreset_is_same_step(envs), spaces=spaces)


def kept(rollout: Rollout) -> dict[str, Any]:
    """Copies of a rollout's columns: the next `collect` writes into the same memory."""
    names = ("obs", "actions", "rewards", "terminated", "truncated", "valid", "starts", "behavior_logprobs", "values")
    columns = {name: getattr(rollout, name) for name in (*names, "next_values")} | dict(rollout.extras)
    return tree_map(torch.clone, columns) | {"episodes": rollout.episodes}


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    episodes = first.pop("episodes") + second.pop("episodes")
    return tree_map(lambda a, b: torch.cat([a, b]), first, second) | {"episodes": episodes}


def assert_same_experience(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """Row for row; values may differ by what a matrix product of another size rounds."""
    assert actual.keys() == expected.keys()
    assert actual["episodes"] == expected["episodes"]
    for name in actual.keys() - {"episodes"}:
        close = {"values": 1e-5, "next_values": 1e-5}.get(name, 0.0)
        tree_map(partial(torch.testing.assert_close, rtol=0, atol=close), actual[name], expected[name])


# ---- ends of episodes


@pytest.mark.parametrize("values_while_acting", [False, True])
@pytest.mark.parametrize("mode", ["sync", "SAME_STEP"])
def test_the_value_after_a_truncation_is_that_of_the_final_observation(mode: str, values_while_acting: bool) -> None:
    policy = TablePolicy(values_while_acting=values_while_acting)
    rollout = LocalCollector(scripted(mode), policy, seed=0).collect(8)
    assert rollout.values[:, 0].tolist() == [0, 1, 2, 100, 101, 102, 200, 201]
    # Had the reset observation been taken, the third would be 100.
    assert rollout.next_values[:, 0].tolist() == [1, 2, 3, 101, 102, 103, 201, 202]
    assert rollout.starts[:, 0].tolist() == [True, False, False, True, False, False, True, False]
    assert rollout.rewards[:, 0].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert rollout.final_rows.tolist() == [[2, 0], [5, 0]]
    assert rollout.final_obs.tolist() == [[0, 3], [1, 3]]
    assert rollout.last_obs.tolist() == [[2, 2]]
    assert rollout.num_steps == 8


@pytest.mark.parametrize("values_while_acting", [False, True])
def test_reset_rows_are_not_experience_but_carry_the_final_value(values_while_acting: bool) -> None:
    policy = TablePolicy(values_while_acting=values_while_acting)
    rollout = LocalCollector(scripted("NEXT_STEP"), policy, seed=0).collect(8)
    valid = rollout.valid[:, 0]
    assert valid.tolist() == [True, True, True, False, True, True, True, False]
    assert rollout.num_steps == 6
    assert rollout.values[valid, 0].tolist() == [0, 1, 2, 100, 101, 102]
    assert rollout.next_values[valid, 0].tolist() == [1, 2, 3, 101, 102, 103]
    assert rollout.starts[valid, 0].tolist() == [True, False, False, True, False, False]
    batch = rollout.flat(rewards=rollout.rewards)
    assert batch["rewards"].tolist() == [1, 2, 3, 1, 2, 3]
    assert batch["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


def test_a_rollout_of_cartpole_has_no_ghost_rows() -> None:
    """CartPole pays 1 for every real step, so a row that pays 0 never happened."""
    envs = make_envs(EnvSpec("CartPole-v1", backend="native"), 3)
    rollout = LocalCollector(envs, real_policy(envs), seed=0).collect(100)
    assert rollout.done.any()
    assert not rollout.valid.all()
    batch = rollout.flat(rewards=rollout.rewards)
    assert (batch["rewards"] == 1).all()
    assert len(batch["rewards"]) == rollout.num_steps == int(rollout.rewards.sum())


def test_two_episodes_that_end_in_one_row_keep_their_own_final_values() -> None:
    makers = [partial(ScriptedEnv, 2), partial(ScriptedEnv, 3), partial(ScriptedEnv, 2)]
    rollout = LocalCollector(SyncEnvs(makers), TablePolicy(), seed=0).collect(3)
    assert rollout.final_rows.tolist() == [[1, 0], [1, 2], [2, 1]]
    assert rollout.next_values.tolist() == [[1, 1, 1], [2, 2, 2], [101, 3, 101]]


@pytest.mark.parametrize("mode", ["sync", "SAME_STEP", "NEXT_STEP"])
def test_episodes_are_counted_once_with_their_raw_returns(mode: str) -> None:
    collector = LocalCollector(scripted(mode, num_envs=2), TablePolicy(), seed=0)
    episodes = [episode for _ in range(4) for episode in collector.collect(3).episodes]
    # 12 rows are 4 episodes of 3, or 3 of 3 and a reset, in each of two environments; 1 + 2 + 3 = 6.
    assert len(episodes) == {"NEXT_STEP": 6}.get(mode, 8)
    assert set(episodes) == {Episode(6.0, 3)}


# ---- one collect after the other


def real_policy(envs: Envs, **options: Any) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(envs.spaces, policy_options(**options))


CONTINUATIONS = {
    "native": EnvSpec("CartPole-v1", backend="native"),
    "sync": EnvSpec("CartPole-v1", backend="sync"),
    "walk": EnvSpec(HiddenWalk),
    "box": EnvSpec(TargetEnv),
    "dict": EnvSpec(DictEnv),
}


@pytest.mark.parametrize("case", CONTINUATIONS)
def test_two_short_rollouts_are_one_long_one(case: str) -> None:
    def collector() -> LocalCollector:
        envs = make_envs(CONTINUATIONS[case], 2)
        return LocalCollector(envs, real_policy(envs), seed=3)

    halves, whole = collector(), collector()
    assert_same_experience(joined(kept(halves.collect(20)), kept(halves.collect(20))), kept(whole.collect(40)))


def test_another_length_of_rollout_continues_as_well() -> None:
    lengths, whole = (LocalCollector(scripted("sync"), TablePolicy(), seed=0) for _ in range(2))
    assert_same_experience(joined(kept(lengths.collect(2)), kept(lengths.collect(5))), kept(whole.collect(7)))


@pytest.mark.parametrize("case", ["native", "sync", "protocol"])
def test_a_restored_collector_continues_bit_for_bit(case: str) -> None:
    spec = EnvSpec(ProtocolWalk) if case == "protocol" else CONTINUATIONS[case]
    first, second = (make_envs(spec, 2) for _ in range(2))
    collector = LocalCollector(first, real_policy(first), seed=3)
    collector.collect(25)
    state = collector.state_dict()
    expected = kept(collector.collect(25))
    assert expected["episodes"]
    restored = LocalCollector(second, real_policy(second), seed=77)
    restored.collect(4)
    restored.load_state_dict(state)
    actual = kept(restored.collect(25))
    assert actual["episodes"] == expected["episodes"]
    for name in actual.keys() - {"episodes"}:
        assert torch.equal(actual[name], expected[name]), name


def test_a_restart_depends_on_nothing_that_came_before() -> None:
    envs = make_envs(EnvSpec(HiddenWalk), 2)
    collector = LocalCollector(envs, real_policy(envs), seed=3)
    expected = kept(collector.collect(10))
    collector.collect(7)
    collector.restart(3)
    assert_same_experience(kept(collector.collect(10)), expected)


def test_a_rollout_can_be_learned_from() -> None:
    """Tensors made in inference mode would make autograd refuse."""
    for share_torso in (False, True):
        envs = make_envs(EnvSpec("CartPole-v1"), 2)
        policy = real_policy(envs, share_torso=share_torso)
        batch = LocalCollector(envs, policy, seed=0).collect(5).flat()
        evaluated = policy.evaluate_actions(batch["obs"], batch["actions"])
        (evaluated.logprobs * batch["behavior_logprobs"] + evaluated.values * batch["values"]).sum().backward()
        torch.testing.assert_close(evaluated.logprobs.detach(), batch["behavior_logprobs"])
        torch.testing.assert_close(evaluated.values.detach(), batch["values"])


def test_a_snapshot_brings_version_controls_and_weights() -> None:
    envs = make_envs(EnvSpec("CartPole-v1"), 2)
    model = MuZeroModel(envs.spaces, muzero_options(hidden_sizes=(8,), latent_size=8, hidden_size=8))
    policy = PUCTPolicy(model, LiveParams(MuZeroParams(num_simulations=2)), max_depth=None, first_action=0)
    collector = LocalCollector(envs, policy, seed=0, reads=(VALUES,))
    weights = {name: torch.ones_like(tensor) for name, tensor in collector.policy.state_dict().items()}
    collector.publish(PolicySnapshot(7, {"temperature": 0.5}, weights=weights))
    assert collector.policy.params.temperature == 0.5
    assert all((tensor == 1).all() for tensor in collector.policy.state_dict().values())
    assert (collector.collect(3).policy_version == 7).all()


# ---- memory


@pytest.mark.parametrize("mode", ["sync", "SAME_STEP", "NEXT_STEP"])
def test_memory_restarts_with_the_episode_and_the_final_value_knows_all_of_it(mode: str) -> None:
    collector = LocalCollector(scripted(mode), CountingPolicy(), seed=0)
    rollout = joined(kept(collector.collect(4)), kept(collector.collect(4)))
    valid = rollout["valid"][:, 0]
    starts = rollout["starts"][valid, 0]
    times = [0, 1, 2, 0, 1, 2, 0, 1][: int(valid.sum())]
    assert rollout["memory"][valid, 0, 0].tolist() == [0.5 + t for t in times]
    assert (rollout["memory"][valid, 0, 0][starts] == 0.5).all()
    assert rollout["values"][valid, 0].tolist() == [5 + 11 * t for t in times]
    # The final observation has t = 3 and a memory of 3.5: 38. From a fresh memory it would be 8.
    assert rollout["next_values"][valid, 0].tolist() == [5 + 11 * (t + 1) for t in times]


def test_memory_of_one_environment_restarts_without_the_others() -> None:
    makers = [partial(ScriptedEnv, 2), partial(ScriptedEnv, 3)]
    rollout = LocalCollector(SyncEnvs(makers), CountingPolicy(), seed=0).collect(4)
    assert rollout.extras["memory"][..., 0].tolist() == [[0.5, 0.5], [1.5, 1.5], [0.5, 2.5], [1.5, 0.5]]


def test_memory_is_part_of_the_collectors_state() -> None:
    class RestorableScript(ScriptedEnv):
        def state_dict(self) -> dict[str, int]:
            return {"episode": self.episode, "t": self.t}

        def load_state_dict(self, state: Any) -> None:
            self.episode, self.t = state["episode"], state["t"]

    collector, restored = (LocalCollector(SyncEnvs([RestorableScript]), CountingPolicy(), seed=0) for _ in range(2))
    collector.collect(2)
    restored.load_state_dict(collector.state_dict())
    rollout = restored.collect(3)
    assert rollout.extras["memory"][:, 0, 0].tolist() == [2.5, 0.5, 1.5]
    assert rollout.episodes == (Episode(6.0, 3),)  # the return includes what was paid before the state was taken


# ---- faults


@pytest.mark.parametrize(
    ("fault", "length", "what"),
    [
        ("nan_obs", 100, "observation"),
        ("inf_reward", 100, "reward"),
        ("nan_obs", 6, "observation"),  # the final observation of an episode, which is no row of the rollout
    ],
)
@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_number_that_is_not_finite_names_the_environment_and_the_step(
    fault: str, length: int, what: str, backend: str
) -> None:
    broken = partial(FaultyEnv, fault, at_step=6, only_seed=11, length=length)
    collector = LocalCollector(make_envs(EnvSpec(broken, backend=backend), 3), TablePolicy(), seed=10)
    collector.collect(4)
    with pytest.raises(EnvironmentFault, match=f"environment 1, step 6: {what} is not finite"):
        collector.collect(4)
    collector.close()


def test_a_first_observation_that_is_not_finite_is_a_fault() -> None:
    broken = partial(FaultyEnv, "nan_reset", only_seed=11)
    collector = LocalCollector(SyncEnvs([broken] * 3), TablePolicy(), seed=10)
    with pytest.raises(EnvironmentFault, match="environment 1, step 0: observation is not finite"):
        collector.collect(4)


def test_large_finite_rewards_are_no_fault() -> None:
    class Rich(ScriptedEnv):
        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, 3e38, *rest

    rollout = LocalCollector(SyncEnvs([Rich]), TablePolicy(), seed=0).collect(8)  # their sum overflows float32
    assert torch.isfinite(rollout.rewards).all()


# ---- evaluation


@pytest.mark.parametrize("mode", ["sync", "SAME_STEP", "NEXT_STEP"])
def test_every_environment_plays_its_share_of_the_episodes(mode: str) -> None:
    evaluation = evaluate(TablePolicy(), scripted(mode, num_envs=2), episodes=5, seed=0)
    assert evaluation.returns == (6.0,) * 5
    assert evaluation.lengths == (3,) * 5


def test_short_episodes_do_not_crowd_out_long_ones() -> None:
    makers = [partial(ScriptedEnv, 1), partial(ScriptedEnv, 9)]
    assert evaluate(TablePolicy(), SyncEnvs(makers), episodes=4, seed=0).lengths == (1, 1, 9, 9)


def test_fewer_episodes_than_environments() -> None:
    assert evaluate(TablePolicy(), scripted("sync", num_envs=4), episodes=1, seed=0).lengths == (3,)


def test_evaluation_gives_every_episode_a_fresh_memory() -> None:
    """A policy that answers the cue of its memory recalls every one of them."""

    class Recaller(CountingPolicy):
        def initial_state(self, batch: int) -> Tensor:
            return torch.zeros(batch, 1)

        def act(self, obs: Tensor, state: Tensor, *, generator: Any = None, deterministic: bool = False) -> Acted:
            state = state + obs[:, :1]
            return Acted((state[:, 0] > 0).long(), state)

    envs = make_envs(EnvSpec(RecallEnv, {"n": 3}), 3)
    assert evaluate(Recaller(), envs, episodes=30, seed=0).returns == (1.0,) * 30


def test_one_seed_gives_one_evaluation_and_leaves_global_randomness_alone() -> None:
    envs = make_envs(EnvSpec("CartPole-v1"), 2)
    policy = real_policy(envs)
    before = torch.get_rng_state()
    first, again, other = (evaluate(policy, envs, episodes=6, seed=s, deterministic=False) for s in (1, 1, 2))
    assert first == again != other
    assert torch.equal(before, torch.get_rng_state())


def test_an_evaluation_refuses_returns_that_are_not_finite() -> None:
    broken = partial(FaultyEnv, "inf_reward", only_seed=11, length=3)
    with pytest.raises(EnvironmentFault, match=r"environment 1.*not finite"):
        evaluate(TablePolicy(), SyncEnvs([broken] * 2), episodes=2, seed=10)
