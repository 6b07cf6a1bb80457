"""Action masks: from the three places where an environment gives them to every place where a policy acts or learns."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conformance import SLOW_TWINS, StopAtCheckpoint, differences, small_config, train_state
from masked_envs import InvalidActionEnv, MaskedPairs
from rl_training import PPO
from rl_training.cli import main
from rl_training.envs.factory import EnvSpec, make_env, make_envs
from rl_training.envs.masks import ACTION_MASK, flat_mask, has_choice, is_masked, seen_space
from rl_training.envs.space_codec import describe_spaces, spaces_from
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError, EnvironmentFault
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import REGISTRY
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.mlp_ppg import MLPPPGModel
from rl_training.runtime.manager import resume_run
from rl_training.runtime.session import Session
from rl_training.runtime.workflows import evaluate_checkpoint, load_session, predict
from rl_training.tools.demonstrations import record_demonstrations
from support import ScriptedEnv, policy_options

SOURCES = ["info", "observation", "method"]
PLANNERS = ["muzero", "gumbel_muzero", "efficientzero", "scalezero"]
POLICY_GRADIENTS = ["ppo", "a2c", "trpo", "recurrent_ppo", "impala", "appo", "ppg"]
ALGORITHMS = [*POLICY_GRADIENTS, *PLANNERS, "dreamer", "dqn", "sac"]
MASKED = Spaces(
    spaces.Dict({"obs": spaces.Box(-1, 1, (3,), np.float32), ACTION_MASK: spaces.MultiBinary((5,))}), spaces.Discrete(5)
)


def masked_config(
    algo: str, output_dir: Path, *, env: str = "InvalidActionEnv", source: str = "info", **more: Any
) -> TrainConfig:
    """The environment fails as soon as an illegal action reaches it."""
    task = {"env_id": f"masked_envs:{env}", "env_kwargs": {"source": source}, "backend": "auto", "wrappers": []}
    return small_config(algo, output_dir, **{**task, **more})


# ---- environments


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_mask_stands_in_the_observation_wherever_it_came_from(source: str, backend: str) -> None:
    spec = EnvSpec("masked_envs:InvalidActionEnv", kwargs={"source": source}, backend=backend)
    with closing(make_envs(spec, 2)) as envs:
        assert is_masked(envs.spaces)
        obs = envs.reset(0)
        for _ in range(25):
            mask = obs[ACTION_MASK]
            assert mask.dtype == np.int8
            assert (mask.sum(-1) == 3).all()
            numbers = obs["numbers" if source == "observation" else "obs"]
            step = envs.step(numbers.argmax(-1))
            assert (step.rewards == 1).all()
            if len(step.final_rows):  # what ended an episode allowed nothing, and nobody asks
                assert (step.final_obs[ACTION_MASK] == 1).all() or (step.final_obs[ACTION_MASK].sum(-1) == 3).all()
            obs = step.obs


@pytest.mark.parametrize("source", ["info", "observation"])
def test_a_vector_environment_gives_its_masks_in_info_or_in_observations(source: str) -> None:
    with closing(make_envs(EnvSpec("MaskedVector-v0", kwargs={"source": source}, backend="native"), 3)) as envs:
        assert is_masked(envs.spaces)
        obs = envs.reset(0)
        for _ in range(20):
            obs = envs.step(obs[ACTION_MASK].argmax(-1)).obs
            assert obs[ACTION_MASK].any(-1).all()


def test_an_environment_without_masks_stays_as_it_is() -> None:
    for env in ("CartPole-v1", ScriptedEnv):
        assert not is_masked(make_envs(EnvSpec(env, backend="sync"), 1).spaces)


def test_masks_are_ignored_by_the_wrapper_of_that_name() -> None:
    for source in SOURCES:
        spec = EnvSpec(
            "masked_envs:InvalidActionEnv", kwargs={"source": source}, wrappers=["ignore_action_masks"], backend="sync"
        )
        env = make_env(spec)
        assert not is_masked(Spaces(env.observation_space, env.action_space))
        assert env.observation_space.contains(env.reset(seed=0)[0])


def test_a_mask_without_a_legal_action_is_a_fault_with_environment_and_step(tmp_path: Path) -> None:
    kwargs = {"dead_end_at": 4, "strict": False, "max_episode_steps": 1000, "invalid": 0}
    expected = r"environment 0, step 4: .*action mask allows no action"
    session = Session(masked_config("ppo", tmp_path, num_envs=1, env_kwargs=kwargs))
    with closing(session), pytest.raises(EnvironmentFault, match=expected):
        session.collector.collect(32)
    envs = make_envs(EnvSpec("MaskedVector-v0", kwargs={"dead_end_at": 2}, backend="native"), 2)
    envs.reset(0)
    envs.step(np.array([0, 0]))
    with pytest.raises(EnvironmentFault, match=r"environment 0: the action mask allows no action"):
        envs.step(np.array([1, 1]))


def test_a_mask_of_the_wrong_size_is_a_fault() -> None:
    with pytest.raises(ValueError, match="3 entries, the action space needs 4"):
        flat_mask([1, 0, 1], 4)


def test_every_choice_of_a_multi_discrete_needs_a_legal_action() -> None:
    space = spaces.MultiDiscrete([3, 2])
    assert has_choice(flat_mask((np.array([0, 0, 1]), np.array([1, 0])), 5), space)
    assert not has_choice(np.array([1, 1, 1, 0, 0], dtype=np.int8), space)


def test_spaces_with_masks_can_be_written_and_read() -> None:
    assert spaces_from(describe_spaces(MASKED)) == MASKED
    assert seen_space(MASKED) == MASKED.observation["obs"]
    tasks = make_envs(EnvSpec("", tasks=["masked_envs:InvalidActionEnv", "CartPole-v1"], backend="sync"), 2)
    read = spaces_from(describe_spaces(tasks.spaces))
    assert read == tasks.spaces
    assert read.observation.has_masks


def test_tasks_with_masks_and_without_have_one_mask_for_all() -> None:
    tasks = ["masked_envs:InvalidActionEnv", "CartPole-v1"]
    envs = make_envs(EnvSpec("", tasks=tasks, backend="sync"), 2)
    masks = envs.reset(0)[ACTION_MASK]
    assert masks[0].sum() == 3  # of six
    assert masks[1].tolist() == [1, 1, 0, 0, 0, 0]


# ---- policies


def masked_obs(rows: int, legal: list[int]) -> dict[str, torch.Tensor]:
    mask = torch.zeros(rows, 5, dtype=torch.int8)
    mask[:, legal] = 1
    return {"obs": torch.randn(rows, 3), ACTION_MASK: mask}


@pytest.mark.parametrize("kind", [ActorCritic, MLPPPGModel])
def test_illegal_actions_have_probability_zero_and_the_entropy_counts_the_others(kind: type) -> None:
    policy = kind(MASKED, policy_options())
    obs = masked_obs(7, [1, 4])
    probabilities = policy.distribution(obs).exp()
    assert (probabilities[:, [0, 2, 3]] == 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(7))
    evaluated = policy.evaluate_actions(obs, torch.ones(7, dtype=torch.int64))
    p = probabilities[:, [1, 4]]
    torch.testing.assert_close(evaluated.entropy, -(p * p.log()).sum(-1))
    torch.testing.assert_close(evaluated.logprobs, p[:, 0].log())


def test_what_is_masked_has_no_gradient() -> None:
    policy = ActorCritic(MASKED, policy_options())
    evaluated = policy.evaluate_actions(masked_obs(7, [1, 4]), torch.ones(7, dtype=torch.int64))
    (evaluated.logprobs + evaluated.entropy).sum().backward()
    gradient = policy.head.linear.weight.grad
    assert gradient[[0, 2, 3]].abs().max() < 1e-6 < gradient[[1, 4]].abs().max()


def test_masks_of_multi_discrete_actions_are_those_of_each_choice() -> None:
    pair = Spaces(spaces.Dict({**MASKED.observation, ACTION_MASK: spaces.MultiBinary(5)}), spaces.MultiDiscrete([3, 2]))
    policy = ActorCritic(pair, policy_options())
    probabilities = policy.distribution(masked_obs(4, [0, 2, 4])).exp()
    assert (probabilities[:, [1, 3]] == 0).all()
    torch.testing.assert_close(probabilities[:, :3].sum(-1), torch.ones(4))
    assert (probabilities[:, 4] == 1).all()


def test_a_mask_is_not_a_feature() -> None:
    policy = ActorCritic(MASKED, policy_options())
    obs = masked_obs(4, [0])
    other = obs | {ACTION_MASK: torch.ones(4, 5, dtype=torch.int8)}
    assert torch.equal(policy.values(obs), policy.values(other))
    assert policy.actor_torso.in_features == 3


# ---- whole runs


@pytest.mark.xdist_group("masked runs")  # planners share what is compiled for the first of them
@pytest.mark.parametrize(
    ("algo", "kernels"),
    [
        *(pytest.param(algo, "auto", marks=[pytest.mark.slow] if algo in SLOW_TWINS else []) for algo in ALGORITHMS),
        *((algo, "off") for algo in POLICY_GRADIENTS),
    ],
)
def test_a_run_takes_legal_actions_only_and_resumes_exactly(algo: str, kernels: str, tmp_path: Path) -> None:
    source = SOURCES[ALGORITHMS.index(algo) % 3]
    config = masked_config(algo, tmp_path, source=source, checkpoint_interval=128, kernels=kernels)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []
    evaluate_checkpoint(run_dir, episodes=3, seed=5, deterministic=False)
    evaluate_checkpoint(run_dir, episodes=3, seed=5)
    assert_predicts_legal_actions(run_dir, source)


def assert_predicts_legal_actions(run_dir: Path, source: str) -> None:
    session = load_session(run_dir)
    numbers, masks = np.eye(6, dtype=np.float32), np.eye(6, dtype=np.int8)[::-1]
    in_obs = source == "observation"
    obs = {"numbers": numbers, ACTION_MASK: masks} if in_obs else numbers
    for deterministic in (True, False):
        given = {} if in_obs else {"action_mask": masks}
        actions, _ = predict(session, obs, deterministic=deterministic, **given)
        assert actions.tolist() == masks.argmax(-1).tolist()
    session.close()


@pytest.mark.parametrize("algo", [*POLICY_GRADIENTS, "dreamer"])
def test_multi_discrete_actions_are_masked_choice_by_choice(algo: str, tmp_path: Path) -> None:
    source = "info" if algo != "ppo" else "method"
    _, state = train_state(masked_config(algo, tmp_path, env="MaskedPairs", source=source))
    assert state["progress"]["global_step"] >= 256


def test_gail_imitates_an_expert_within_the_masks(tmp_path: Path) -> None:
    with closing(Session(masked_config("ppo", tmp_path))) as session:
        record_demonstrations(session, episodes=4, seed=0).save(tmp_path / "demos.safetensors")
    own = {"demonstrations": str(tmp_path / "demos.safetensors"), "clone_updates": 2}
    config = masked_config("gail", tmp_path, algo_kwargs=own, checkpoint_interval=128)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


@pytest.mark.parametrize("backend", ["async", "native"])
def test_other_backends_carry_masks_as_well(backend: str, tmp_path: Path) -> None:
    task = {"env_id": "MaskedVector-v0", "env_kwargs": {}} if backend == "native" else {}
    _, state = train_state(masked_config("ppo", tmp_path, backend=backend, **task))
    assert state["progress"]["global_step"] >= 256


@pytest.mark.parametrize("algo", ["scalezero", "ppo"])
def test_several_tasks_have_their_masks(algo: str, tmp_path: Path) -> None:
    names = ["masked_envs:InvalidActionEnv", "CartPole-v1"]
    tasks = {"tasks": names, "env_kwargs": {}, "env_id": "+".join(names)}
    train_state(masked_config(algo, tmp_path, **tasks))


def test_a_planner_looks_at_legal_roots_only(tmp_path: Path) -> None:
    with closing(Session(masked_config("gumbel_muzero", tmp_path))) as session:
        rollout = session.collector.collect(16)
        policy, mask = rollout.extras["search_policy"], rollout.obs[ACTION_MASK]
        assert (policy[mask == 0] == 0).all()
        assert (policy[mask == 1] > 0).any()


def test_dreamer_imagines_within_the_masks_it_expects(tmp_path: Path) -> None:
    with closing(Session(masked_config("dreamer", tmp_path))) as session:
        model = session.policy
        features = torch.randn(5, model.rssm.size.deter + model.rssm.size.stoch)
        columns = model.reader.columns((ACTION_MASK,))
        with torch.no_grad():
            for parameter in model.decoder.mlp.parameters():
                parameter.zero_()
            bias = list(model.decoder.mlp.parameters())[-1]
            bias[columns][2] = 0.7  # symlog(1) = 0.69
        legal = model.expected_legal(features)
        assert legal.tolist() == [[False, False, True, False, False, False]] * 5
        assert (model.dreamt_policy(features, legal).exp() == legal).all()
        with torch.no_grad():
            bias.zero_()
        assert model.expected_legal(features).all()  # nothing legal is expected: then everything is


# ---- prediction


@pytest.fixture(scope="module")
def masked_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_state(masked_config("ppo", tmp_path_factory.mktemp("masked")))[0]


def test_predicting_without_the_mask_is_refused_with_the_cure(masked_run: Path) -> None:
    session = load_session(masked_run)
    with pytest.raises(ConfigError, match="trained with action masks; pass the one that holds now as action_mask"):
        predict(session, np.eye(6, dtype=np.float32)[0])
    with pytest.raises(ConfigError, match="action_mask allows no action"):
        predict(session, np.eye(6, dtype=np.float32)[0], action_mask=np.zeros(6))
    with pytest.raises(ConfigError, match="shape"):
        predict(session, np.eye(6, dtype=np.float32)[0], action_mask=np.ones(5))


def test_a_mask_for_a_policy_without_masks_is_refused(tmp_path: Path) -> None:
    session = Session(small_config("ppo", tmp_path))
    with closing(session), pytest.raises(ConfigError, match="without action masks; leave action_mask out"):
        predict(session, np.zeros(4), action_mask=[1, 1])


def test_the_command_line_takes_a_mask(masked_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    obs, mask = json.dumps([0, 0, 1, 0, 0, 0]), json.dumps([0, 0, 0, 0, 1, 0])
    assert main(["predict", str(masked_run), "--obs", obs, "--action-mask", mask]) == 0
    assert capsys.readouterr().out.strip() == "4"


def test_an_agent_takes_a_mask() -> None:
    with closing(PPO(MaskedPairs, rollout_steps=16, num_minibatches=2)) as agent:
        agent.train(64)
        mask = (np.array([0, 1, 0]), np.array([1, 0]))
        assert agent.predict(np.eye(6, dtype=np.float32)[0], action_mask=mask)[0].tolist() == [1, 0]


# ---- learning


def learned(tmp_path: Path, wrappers: list[str]) -> float:
    """The mean return of the greedy policy, of 20 at most; an illegal action ends the episode."""
    task = {"dim": 24, "invalid": 20, "max_episode_steps": 20, "strict": False}
    settings = {"rollout_steps": 64, "learning_rate": 3e-3, "gamma": 0.4}
    agent = PPO(
        "masked_envs:InvalidActionEnv", env_kwargs=task, num_envs=4, seed=0, wrappers=wrappers, algo_kwargs=settings
    )
    with closing(agent):
        agent.train(2_000, display="none")
        return agent.evaluate(episodes=20, deterministic=False)["return_mean"]


def test_masks_are_what_makes_a_task_of_mostly_illegal_actions_easy(tmp_path: Path) -> None:
    """By chance a legal action is the right one in one case of four, and any in one of 24."""
    masked, unmasked = learned(tmp_path, []), learned(tmp_path, ["ignore_action_masks"])
    assert masked > 12.0
    assert unmasked < 6.0


def test_every_algorithm_of_the_registry_was_tried() -> None:
    assert {*ALGORITHMS, "gail"} >= set(REGISTRY) - {"td3"}  # which has no Discrete actions
    assert InvalidActionEnv(source="info").action_space.n == 6
