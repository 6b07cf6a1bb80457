"""Networks by name and a user's own: in Python, in YAML and on the command line; resumed, refused and trusted."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from torch import nn

import rl_training
from conformance import StopAtCheckpoint, differences, small_config, train_state
from own_networks import NoWidth, OwnPolicy, OwnTorso, Raising, WrongWidth, own_torso
from rl_training import PPO, RecurrentPPO
from rl_training.cli import main
from rl_training.data.trees import observation_buffers, to_tensors
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.registry import REGISTRY
from rl_training.experiment.trust import UntrustedError, key_path
from rl_training.kernels.policies import array_policy
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.attention import AttentionCore
from rl_training.models.grids import GridTorso, is_grid
from rl_training.models.mlp import LayerNormMLP
from rl_training.models.torsos import TORSOS, ImageTorso, VectorTorso, make_torso
from rl_training.runtime.manager import resume_run
from rl_training.runtime.opening import load_policy
from rl_training.runtime.session import Session
from rl_training.runtime.threads import default_threads
from rl_training.runtime.workflows import load_session, predict
from support import DictEnv, RecallEnv, policy_options, torso_options

VECTOR, IMAGE = spaces.Box(-1, 1, (4,), np.float32), spaces.Box(0, 255, (36, 36, 3), np.uint8)
MINIGRID, MINATAR = spaces.Box(0, 255, (7, 7, 3), np.uint8), spaces.Box(0, 1, (10, 10, 4), np.bool_)
POLICY_GRADIENTS = ["ppo", "a2c", "trpo", "recurrent_ppo", "impala", "appo", "ppg"]
OTHERS = ["muzero", "gumbel_muzero", "efficientzero", "scalezero", "dreamer", "dqn", "sac", "td3"]
NAMED = "own_networks:OwnTorso"


def features(space: spaces.Space, torso: nn.Module) -> torch.Tensor:
    return torso(to_tensors(observation_buffers(space, (3,))))


# ---- by name


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("mlp", VECTOR),
        ("layer_norm_mlp", VECTOR),
        ("nature_cnn", IMAGE),
        ("impala_cnn", IMAGE),
        ("shallow_cnn", IMAGE),
        ("grid_cnn", MINIGRID),
        ("grid_cnn", MINATAR),
        ("grid_cnn", spaces.MultiBinary((6, 7))),
        ("grid_cnn", spaces.Box(-1, 1, (3, 3), np.int64)),
    ],
)
def test_a_torso_has_a_name(name: str, space: spaces.Space) -> None:
    torso = make_torso(space, torso_options(torso=name))
    assert features(space, torso).shape == (3, torso.out_features)


def test_every_name_was_tried_and_an_unknown_one_has_a_suggestion() -> None:
    assert set(TORSOS) == {"mlp", "layer_norm_mlp", "nature_cnn", "impala_cnn", "shallow_cnn", "grid_cnn"}
    with pytest.raises(ConfigError, match=r"unknown torso 'nature_cn'.*'nature_cnn'"):
        make_torso(IMAGE, torso_options(torso="nature_cn"))


def test_layer_norms_stand_before_the_activations() -> None:
    mlp = LayerNormMLP(4, [8], "relu")
    x = torch.randn(5, 4)
    torch.testing.assert_close(mlp(x), torch.relu(nn.functional.layer_norm(mlp.layers[0](x), (8,))))


def test_keyword_arguments_reach_a_named_torso_and_unknown_ones_are_refused() -> None:
    torso = make_torso(VECTOR, torso_options(torso="layer_norm_mlp", torso_kwargs={"hidden_sizes": [7, 9]}))
    assert torso.out_features == 9
    assert make_torso(MINIGRID, torso_options(torso="grid_cnn", torso_kwargs={"features": 11})).out_features == 11
    with pytest.raises(ConfigError, match=r"torso grid_cnn cannot be made with \{'widths': 3\}"):
        make_torso(MINIGRID, torso_options(torso="grid_cnn", torso_kwargs={"widths": 3}))
    with pytest.raises(ConfigError, match="torso_kwargs go to the torso, and none was named; set torso"):
        make_torso(VECTOR, torso_options(torso_kwargs={"width": 3}))


def test_small_grids_get_the_grid_network_by_themselves() -> None:
    for space in (MINIGRID, MINATAR, spaces.MultiBinary((6, 7)), spaces.Box(0, 10, (8, 8), np.int64)):
        assert is_grid(space)
        assert isinstance(make_torso(space, torso_options()), GridTorso)
    assert isinstance(make_torso(spaces.Box(0, 255, (20, 20, 3), np.uint8), torso_options()), ImageTorso)
    for space in (spaces.Box(-1, 1, (8, 8), np.float32), spaces.MultiBinary(12), spaces.MultiBinary((2, 3))):
        assert isinstance(make_torso(space, torso_options()), VectorTorso)


def test_codes_of_a_grid_are_one_hot_and_have_no_order() -> None:
    """Which code a cell has matters, not how large it is: each code of each plane has a row of its own."""
    torso = make_torso(MINIGRID, torso_options())
    obs = torch.zeros(2, 7, 7, 3, dtype=torch.uint8)
    obs[1, 2, 4, 1] = 9
    planes = torso.planes(obs)
    assert planes.shape == (2, 24, 7, 7)
    changed = (planes[0] != planes[1]).nonzero()
    assert set(changed[:, 0].tolist()) <= set(range(8, 16))  # the second plane's
    assert changed[:, 1:].unique(dim=0).tolist() == [[2, 4]]
    torch.testing.assert_close(planes[1, 8:16, 2, 4], torso.codes.weight[256 + 9])


def test_bits_of_a_grid_are_planes() -> None:
    obs = torch.zeros(1, 10, 10, 4, dtype=torch.bool)
    obs[0, 3, 5, 2] = True
    planes = make_torso(MINATAR, torso_options()).planes(obs)
    assert planes.shape == (1, 4, 10, 10)
    assert planes.nonzero().tolist() == [[0, 2, 3, 5]]


def test_grids_are_not_normalised() -> None:
    policy = ActorCritic(Spaces(MINIGRID, spaces.Discrete(3)), policy_options(normalize_obs=True))
    assert policy.normalizer.stats is None
    codes = spaces.Box(0, 10, (8, 8), np.int64)
    policy = ActorCritic(Spaces(codes, spaces.Discrete(3)), policy_options(normalize_obs=True))
    assert policy.normalizer.stats is None


def test_grids_are_computed_with_one_thread_and_pictures_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread made 7 × 7 codes three times as dear."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    threads = [
        default_threads(SimpleNamespace(spaces=Spaces(space, spaces.Discrete(2))))
        for space in (MINIGRID, spaces.Dict({"a": MINIGRID}), IMAGE, spaces.Dict({"a": MINIGRID, "b": IMAGE}))
    ]
    assert threads == [1, 1, 2, 2]


# ---- one's own


@pytest.mark.parametrize("torso", [OwnTorso, own_torso, NAMED, lambda space, width: OwnTorso(space, width)])
def test_a_torso_is_a_class_a_callable_or_a_name(torso: Any) -> None:
    made = make_torso(VECTOR, torso_options(torso=torso, torso_kwargs={"width": 12}))
    assert isinstance(made, OwnTorso)
    assert made.out_features == 12


def test_a_module_that_was_made_before_is_copied() -> None:
    policy = ActorCritic(Spaces(VECTOR, spaces.Discrete(2)), policy_options(torso=OwnTorso(VECTOR)))
    assert policy.actor_torso is not policy.critic_torso
    shared = ActorCritic(Spaces(VECTOR, spaces.Discrete(2)), policy_options(torso=OwnTorso, share_torso=True))
    assert shared.actor_torso is shared.critic_torso


@pytest.mark.parametrize(
    ("torso", "complaint"),
    [
        (WrongWidth, r"torso: WrongWidth turns two observations into \(2, 16\); by out_features it must be \(2, 5\)"),
        (NoWidth, r"torso: NoWidth has no out_features"),
        (Raising, r"torso: Raising raised KeyError: 'a weight is missing'"),
        (lambda space: 3, r"torso: <lambda> made int, which is not a torch.nn.Module"),
        ("no_such_module:Net", r"cannot import the torso 'no_such_module:Net'"),
        ("own_networks:Nothing", r"cannot import the torso 'own_networks:Nothing'"),
        ("python:OwnTorso", r"torso was the Python object 'OwnTorso'.*pass it again as torso="),
        ({"a": "mlp"}, r"torso names a network for each key of a Dict"),
    ],
)
def test_what_does_not_fit_is_told_with_the_name_of_the_seam(torso: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_torso(VECTOR, torso_options(torso=torso))


def test_a_number_is_no_torso() -> None:
    with pytest.raises(ConfigError, match="expected a name, module:Class, a class or a callable, got 3"):
        PPO("CartPole-v1", torso=3)


def test_a_torso_for_each_key_of_a_dict() -> None:
    space = DictEnv().observation_space
    chosen = {"image": "impala_cnn", "noise": OwnTorso}
    torso = make_torso(space, torso_options(torso=chosen, torso_kwargs={"noise": {"width": 5}}))
    assert [type(part) for part in torso.torsos] == [ImageTorso, OwnTorso, VectorTorso]
    assert torso.mlp.layers[0].in_features == 256 + 5 + 64  # the layer that joins them
    assert torso.out_features == 64
    with pytest.raises(ConfigError, match=r"torso: the observation has no \['picture'\]; it has \['image'"):
        make_torso(space, torso_options(torso={"picture": "impala_cnn"}))
    with pytest.raises(ConfigError, match=r"torso mlp takes one array.*torso: \{image: mlp\}"):
        make_torso(space, torso_options(torso="mlp"))


def test_parameters_of_the_usual_network_are_refused_beside_ones_own() -> None:
    with pytest.raises(ConfigError, match="hidden_sizes has no effect on a torso of your own"):
        PPO("CartPole-v1", torso=OwnTorso, hidden_sizes=[3])
    with pytest.raises(ConfigError, match="squash_actions has no effect on a policy of your own"):
        PPO("CartPole-v1", policy=OwnPolicy, squash_actions=True)


def test_a_network_of_ones_own_takes_the_plain_path_of_the_kernels() -> None:
    for torso in (OwnTorso, "layer_norm_mlp"):
        assert array_policy(ActorCritic(Spaces(VECTOR, spaces.Discrete(2)), policy_options(torso=torso))) is None


# ---- whole runs


@pytest.mark.parametrize("algo", [*POLICY_GRADIENTS, *OTHERS])
def test_a_run_with_a_named_class_resumes_exactly_and_predicts(algo: str, tmp_path: Path) -> None:
    own = {"torso": NAMED, "torso_kwargs": {"width": 12}, **dict.fromkeys(["hidden_sizes", "activation"])}
    config = small_config(algo, tmp_path, algo_kwargs=own, checkpoint_interval=128, eval_episodes=1)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []
    weights = load_checkpoint(run_dir)["learner"]["algorithm"]
    assert "layers.1.weight" in str(weights)
    session = load_policy(run_dir)
    size = session.spaces.observation.shape
    assert session.spaces.action.contains(predict(session, np.zeros(size, dtype=np.float32))[0])


@pytest.mark.parametrize("kernels", ["auto", "off"])
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_a_whole_policy_of_ones_own_trains_and_resumes_exactly(algo: str, kernels: str, tmp_path: Path) -> None:
    own = {"policy": "own_networks:OwnPolicy", "policy_kwargs": {"bias": 0.1}}
    own |= dict.fromkeys(["hidden_sizes", "activation", "share_torso"])
    config = small_config(algo, tmp_path, algo_kwargs=own, checkpoint_interval=128, kernels=kernels)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []
    session = load_session(run_dir)
    assert isinstance(session.policy, OwnPolicy)
    session.close()


def test_a_policy_without_the_protocol_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match="policy: TorsoAsPolicy has no device, initial_state, act, evaluate_actions"):
        PPO("CartPole-v1", policy=TorsoAsPolicy)
    with pytest.raises(ConfigError, match="policy: OwnPolicy has no distribution, head, actor_torso"):
        rl_training.TRPO("CartPole-v1", policy=OwnPolicy)


class TorsoAsPolicy(OwnTorso):
    def __init__(self, spaces_of_task: Spaces) -> None:
        super().__init__(spaces_of_task.observation)


def test_a_class_passed_in_python_has_a_name_in_the_config_and_is_asked_for_again(tmp_path: Path) -> None:
    settings = {"rollout_steps": 16, "num_minibatches": 2, "eval_episodes": 0}
    with closing(PPO("CartPole-v1", torso=OwnTorso, torso_kwargs={"width": 12}, **settings)) as agent:
        agent.train(64)
        path = agent.save(tmp_path / "model")
        action = agent.predict(np.zeros(4, dtype=np.float32))[0]
    assert load_checkpoint(path)["config"]["algo_kwargs"]["torso"] == "python:OwnTorso"
    with pytest.raises(ConfigError, match=r"torso was the Python object 'OwnTorso'.*pass it again as torso="):
        PPO.load(path)
    with closing(PPO.load(path, torso=OwnTorso)) as twin:
        assert twin.predict(np.zeros(4, dtype=np.float32))[0] == action
        twin.train(64)


def test_a_run_with_a_class_writes_its_name_and_resumes_with_it(tmp_path: Path) -> None:
    given = {"torso": OwnTorso, "hidden_sizes": None, "activation": None}
    config = small_config("ppo", tmp_path, algo_kwargs=given, checkpoint_interval=128)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    written = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert written["algo_kwargs"]["torso"] == "python:OwnTorso"
    with pytest.raises(ConfigError, match="pass it again as torso="):
        resume_run(run_dir)
    resume_run(run_dir, algo_kwargs={"torso": OwnTorso})
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def test_yaml_and_the_command_line_take_the_same_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 64, "num_envs": 2, "eval_episodes": 0}
    preset["algo_kwargs"] = {"torso": NAMED, "torso_kwargs": {"width": 9}, "rollout_steps": 16, "num_minibatches": 2}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(preset))
    command = ["train", "--config", str(tmp_path / "own.yaml"), "--output-dir", str(tmp_path), "--display", "none"]
    assert main([*command, "--set", "torso=layer_norm_mlp", "--set", "torso_kwargs={hidden_sizes: [7]}", "--json"]) == 0
    run_dir = Path(json.loads(capsys.readouterr().out.splitlines()[-1])["run_dir"])
    assert isinstance(load_policy(run_dir).policy.actor_torso.mlp, LayerNormMLP)
    assert main([*command, "--json"]) == 0
    run_dir = Path(json.loads(capsys.readouterr().out.splitlines()[-1])["run_dir"])
    assert load_policy(run_dir).policy.actor_torso.out_features == 9


def test_a_class_that_a_received_run_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"torso": NAMED, "hidden_sizes": None, "activation": None}
    run_dir, _ = train_state(small_config("ppo", tmp_path, algo_kwargs=given))
    received = tmp_path / "received"
    shutil.copytree(run_dir, received)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody-else"))
    assert not key_path().exists()
    with pytest.raises(UntrustedError, match=r"wants to import 'own_networks:OwnTorso' \(algo_kwargs\)"):
        load_policy(received)
    assert isinstance(load_policy(received, trust=True).policy.actor_torso, OwnTorso)


@pytest.mark.parametrize("algo", ["ppo", "recurrent_ppo", "ppg", "muzero", "dreamer"])
def test_torsos_of_a_dict_are_trained_key_by_key(algo: str, tmp_path: Path) -> None:
    own = {"torso": {"noise": NAMED}, "torso_kwargs": {"noise": {"width": 6}}}
    task = {"env_id": "support:DictEnv", "backend": "sync", "wrappers": [], "total_timesteps": 96}
    small = {"learning_starts": 32} if algo in OTHERS else {}
    _, state = train_state(small_config(algo, tmp_path, **task, eval_episodes=1, algo_kwargs=own | small))
    assert state["progress"]["global_step"] >= 96


def test_gail_reads_observations_with_the_torso_as_well(tmp_path: Path) -> None:
    own = {"torso": NAMED}
    with closing(Session(small_config("gail", tmp_path, algo_kwargs=own))) as session:
        torsos = session.learner.algorithm.discriminator.torso.torsos
        assert sorted(type(torso).__name__ for torso in torsos) == ["OwnTorso", "VectorTorso"]
        list(session.learner.learn(session.collector.collect(session.learner.rollout_steps)))


# ---- memories


def rows(core: AttentionCore, inputs: torch.Tensor) -> torch.Tensor:
    """The outputs, one row at a time."""
    state, outputs = torch.zeros(inputs.shape[1], core.state_size), []
    for row in inputs:
        output, state = core(row[None], state)
        outputs.append(output)
    return torch.cat(outputs)


def test_attention_over_a_sequence_is_attention_row_by_row() -> None:
    core = AttentionCore(3, 8, length=4, heads=2)
    nn.init.normal_(core.distance)
    inputs = torch.randn(9, 2, 3)
    outputs, state = core(inputs, torch.zeros(2, core.state_size))
    torch.testing.assert_close(outputs, rows(core, inputs))
    following = torch.randn(2, 2, 3)
    torch.testing.assert_close(core(following, state)[0], rows(core, torch.cat([inputs, following]))[-2:])


def test_attention_sees_the_last_k_rows_and_no_other() -> None:
    core = AttentionCore(3, 8, length=4, heads=2)
    inputs = torch.randn(9, 1, 3)
    outputs = rows(core, inputs)
    for row in range(9):
        other = inputs.clone()
        other[row] += 1.0
        changed = (rows(core, other) - outputs).abs().amax((1, 2)) > 1e-6
        assert changed.nonzero()[:, 0].tolist() == list(range(row, min(row + 4, 9)))


@pytest.mark.parametrize("kernels", ["auto", "off"])
@pytest.mark.parametrize("cell", ["gru", "transformer"])
def test_recurrent_ppo_with_another_memory_resumes_exactly(cell: str, kernels: str, tmp_path: Path) -> None:
    own = {"cell": cell, **({"memory_length": 6} if cell == "transformer" else {})}
    config = small_config("recurrent_ppo", tmp_path, algo_kwargs=own, checkpoint_interval=128, kernels=kernels)
    _, uninterrupted = train_state(config)
    run_dir, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(run_dir)
    assert differences(uninterrupted, load_checkpoint(run_dir)) == []


def test_the_ratios_of_a_first_pass_are_one_with_a_transformer(tmp_path: Path) -> None:
    """Episodes begin and end within the sequences: what is evaluated is what acted."""
    own = {"cell": "transformer", "memory_length": 5, "sequence_length": 8}
    with closing(Session(small_config("recurrent_ppo", tmp_path, algo_kwargs=own))) as session:
        session.collector.collect(32)
        rollout = session.collector.collect(32)
        assert rollout.starts.any()
        batch = session.learner.sequences(rollout, rollout.values, rollout.values)
        by_time = {name: batch[name].transpose(0, 1) for name in ("obs", "actions", "starts", "behavior_logprobs")}
        evaluated = session.policy.evaluate_actions(
            by_time["obs"], by_time["actions"], state=batch["state"], starts=by_time["starts"]
        )
        behaviour = by_time["behavior_logprobs"].flatten()
        torch.testing.assert_close(evaluated.logprobs, behaviour, atol=1e-5, rtol=1e-5)


def test_options_of_a_transformer_are_refused_for_other_memories(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="memory_length has no effect with cell 'lstm'"):
        small_config("recurrent_ppo", tmp_path, algo_kwargs={"memory_length": 3})
    with pytest.raises(ConfigError, match="5 heads cannot share recurrent_size 64 evenly"):
        Session(small_config("recurrent_ppo", tmp_path, algo_kwargs={"cell": "transformer", "attention_heads": 5}))


@pytest.mark.parametrize(("length", "learns"), [(4, True), (2, False)])
def test_a_transformer_recalls_what_its_window_holds_and_nothing_older(length: int, learns: bool) -> None:
    """The cue is three steps old when it is asked for: a window of two rows cannot have it."""
    settings: dict[str, Any] = {"rollout_steps": 64, "learning_rate": 3e-3, "num_minibatches": 4, "ent_coef": 0.01}
    settings |= {"update_epochs": 4, "learning_rate_schedule": "linear"}
    core = {"cell": "transformer", "memory_length": length, "recurrent_size": 32, "attention_heads": 2}
    with closing(RecurrentPPO(RecallEnv, env_kwargs={"n": 3}, num_envs=8, seed=0, **settings, **core)) as agent:
        agent.train(10_000, display="none")
        score = agent.evaluate(episodes=40)["return_mean"]
    assert score > 0.9 if learns else score < 0.6


def test_every_algorithm_with_a_torso_was_tried() -> None:
    assert {*POLICY_GRADIENTS, *OTHERS, "gail"} >= set(REGISTRY)


def test_keys_of_a_mapping_change_what_others_mean() -> None:
    """A linear head on features of each key alone would give every change of one key the same effect: a sum."""
    space = spaces.Dict({"goal": spaces.Box(-1, 1, (1,)), "place": spaces.Box(-1, 1, (1,))})
    torso = make_torso(space, torso_options(hidden_sizes=(16,), activation="relu"))
    corners = {"goal": torch.tensor([[1.0], [1.0], [-1.0], [-1.0]]), "place": torch.tensor([[1.0], [-1.0]] * 2)}
    both, goal, place, neither = torso(corners).sum(-1)
    assert abs((both - goal - place + neither).item()) > 1e-3
    assert make_torso(DictEnv().observation_space, torso_options()).mlp.layers  # beside a picture, too
