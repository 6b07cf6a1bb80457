"""Policies as files: what is written acts as the policy does, alone, with memory, with masks and by chance."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from masked_envs import InvalidActionEnv
from rl_training import DQN, PPO, SAC, TD3, Dreamer, EfficientZero, GumbelMuZero, MuZero, RecurrentPPO, ScaleZero
from rl_training.cli import main
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.tools import export
from rl_training.tools.given_noise import GivenNoise
from rl_training.tools.policy_graph import PolicyGraph
from support import BitsEnv, DictEnv, TwoAnswersEnv

AGENTS: dict[str, Callable[[], Any]] = {
    "categorical": lambda: PPO("CartPole-v1", num_envs=2, normalize_obs=True),
    "gaussian": lambda: PPO("Pendulum-v1", num_envs=2),
    "squashed": lambda: PPO("Pendulum-v1", num_envs=2, squash_actions=True),
    "two choices": lambda: PPO(TwoAnswersEnv, num_envs=2),
    "bits": lambda: PPO(BitsEnv, num_envs=2),
    "mapping": lambda: PPO(DictEnv, num_envs=2),
    "masks": lambda: PPO(InvalidActionEnv, num_envs=2),
    "lstm": lambda: RecurrentPPO("CartPole-v1", num_envs=2, recurrent_size=4),
    "attention": lambda: RecurrentPPO("CartPole-v1", num_envs=2, recurrent_size=4, cell="transformer"),
    "q values": lambda: DQN(InvalidActionEnv, num_envs=2, epsilon=0.5),
    "sac": lambda: SAC("Pendulum-v1", num_envs=2),
    "td3": lambda: TD3("Pendulum-v1", num_envs=2),
    "dreamer": lambda: Dreamer("CartPole-v1", num_envs=2),
}


@pytest.mark.parametrize("deterministic", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", AGENTS)
def test_a_graph_acts_as_its_policy_on_real_observations(kind: str, deterministic: bool, tmp_path: Path) -> None:
    agent = AGENTS[kind]()
    exported = agent.export(tmp_path / "policy.safetensors", deterministic=deterministic, observations=20)
    assert (exported.equal, exported.observations) == (20, 20)
    assert exported.largest_difference < 1e-6
    assert ("noise" in exported.inputs["policy"]) != deterministic
    agent.close()


def test_exploring_takes_as_many_chances_whatever_they_are() -> None:
    """Two rows of CartPole that DQN explores: two uniform numbers, and two random actions that may not be needed."""
    agent = DQN("CartPole-v1", num_envs=2, epsilon=0.5)
    graphs = [PolicyGraph(agent.policy, agent._session.spaces, deterministic=False) for _ in range(10)]
    assert {graph.noise_size for graph in graphs} == {2}
    agent.close()


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_policy_in_bfloat16_is_exported_in_float32_and_stays_as_it_is(suffix: str, tmp_path: Path) -> None:
    agent = SAC("Pendulum-v1", num_envs=2, hidden_sizes=(16, 16), precision="bfloat16")
    assert agent.export(tmp_path / f"policy{suffix}", observations=20).equal == 20
    assert agent.policy.torso.mlp.precision == "bfloat16"
    agent.close()


@pytest.mark.parametrize(("kind", "deterministic"), [("lstm", True), ("masks", False)])
def test_onnx_runs_the_policy_without_torch(kind: str, deterministic: bool, tmp_path: Path) -> None:
    agent, path = AGENTS[kind](), tmp_path / "policy.onnx"
    exported = agent.export(path, deterministic=deterministic, observations=100)
    assert exported.equal == exported.observations == 100
    assert exported.largest_difference < 1e-5
    program = (
        "import sys, onnxruntime, numpy as np\n"
        f"policy = onnxruntime.InferenceSession({str(path)!r})\n"
        "kinds = {'tensor(float)': np.float32, 'tensor(int8)': np.int8}\n"
        "feed = {i.name: np.ones((5, *i.shape[1:]), kinds[i.type]) for i in policy.get_inputs()}\n"
        "print(policy.run(['action'], feed)[0].shape, 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[0] == "(5,) False"
    agent.close()


def test_a_program_of_torch_needs_nothing_of_this_package(tmp_path: Path) -> None:
    agent = AGENTS["gaussian"]()
    path = agent.export(tmp_path / "policy.pt2", observations=20).files[0]
    policy = torch.export.load(path).module()
    obs = np.zeros((3, 3), dtype=np.float32)
    np.testing.assert_allclose(policy(torch.from_numpy(obs))[0].numpy(), agent.predict(obs)[0], atol=1e-6)
    agent.close()


def test_planners_are_written_as_the_networks_of_their_search(tmp_path: Path) -> None:
    agent = MuZero("CartPole-v1", num_envs=2, num_simulations=2, hidden_size=16, latent_size=8)
    exported = agent.export(tmp_path / "policy.pt2", observations=10)
    assert [file.name for file in exported.files] == ["policy.root.pt2", "policy.dynamics.pt2"]
    assert exported.outputs["dynamics"] == ["next_latent", "reward", "value", "policy_logits"]
    agent.close()


SMALL = {"num_envs": 2, "num_simulations": 2}
SMALL_TRANSFORMER = {"num_layers": 1, "num_experts": 2, "latent_size": 16, "hidden_size": 16}
PLANNERS: dict[str, Callable[[], Any]] = {
    "muzero": lambda: MuZero("CartPole-v1", **SMALL),
    "gumbel_muzero": lambda: GumbelMuZero("CartPole-v1", **SMALL),
    "efficientzero": lambda: EfficientZero("CartPole-v1", **SMALL, lstm_size=8),
    "scalezero": lambda: ScaleZero("CartPole-v1", **SMALL, **SMALL_TRANSFORMER),
}


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("muzero", "pt2"), ("gumbel_muzero", "pt2"), ("efficientzero", "onnx"), ("scalezero", "onnx")],
)
def test_every_planners_networks_are_opened_again_and_agree(kind: str, suffix: str, tmp_path: Path) -> None:
    agent = PLANNERS[kind]()
    exported = agent.export(tmp_path / f"policy.{suffix}", observations=20)
    assert {path.name for path in tmp_path.glob(f"*.{suffix}")} == {
        f"policy.root.{suffix}",
        f"policy.dynamics.{suffix}",
    }
    assert exported.equal == exported.observations == 20
    assert exported.largest_difference < 1e-4
    agent.close()


def test_noise_makes_the_draws_that_torch_makes() -> None:
    """Means of 20,000 draws from given uniform numbers: E[exponential] = 1, E[normal] = 0, E[normal²] = 1, …"""
    uniform = torch.rand(20_000, 6, generator=torch.Generator().manual_seed(0))
    rows = torch.empty(20_000)
    with GivenNoise(uniform):
        exponential, normal = torch.empty_like(rows).exponential_(), torch.empty_like(rows).normal_()
        whole, chosen = torch.randint(4, (20_000,)), torch.multinomial(torch.tensor([[0.0, 1.0]]).expand(20_000, 2), 1)
    assert exponential.mean() == pytest.approx(1.0, abs=0.03)
    assert (normal.mean(), normal.square().mean()) == (pytest.approx(0.0, abs=0.03), pytest.approx(1.0, abs=0.03))
    assert whole.bincount().tolist() == pytest.approx([5000] * 4, rel=0.05)
    assert (chosen == 1).all()


def test_sampled_actions_have_the_policys_probabilities() -> None:
    agent = AGENTS["categorical"]()
    agent.policy.head.linear.bias.data = torch.tensor([1.0, 0.0])  # e / (1 + e) = 0.731 for action 0
    agent.policy.head.linear.weight.data.zero_()
    graph = PolicyGraph(agent.policy, agent._session.spaces, deterministic=False)
    (actions,) = graph(torch.zeros(5000, 4), torch.rand(5000, 2, generator=torch.Generator().manual_seed(0)))
    assert float((actions == 0).float().mean()) == pytest.approx(0.731, abs=0.02)
    agent.close()


def test_noisy_networks_are_exported_without_their_noise_only(tmp_path: Path) -> None:
    agent = DQN("CartPole-v1", num_envs=2, noisy=True)
    agent.policy.network.draw_noise(None)
    assert agent.export(tmp_path / "policy.safetensors", observations=20).equal == 20
    with pytest.raises(ConfigError, match="export without sampling"):
        agent.export(tmp_path / "policy.safetensors", deterministic=False)
    agent.close()


def test_a_file_that_acts_otherwise_is_not_called_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = AGENTS["categorical"]()
    monkeypatch.setattr(export, "load_file", lambda path: {k: -v for k, v in agent.policy.state_dict().items()})
    with pytest.raises(RLTrainingError, match="does not act as the policy does"):
        agent.export(tmp_path / "policy.safetensors", observations=20)
    agent.close()


class Stubborn(nn.Module):
    """Reads a number out of its input, which no graph can record."""

    out_features = 4

    def __init__(self, space: Any) -> None:
        super().__init__()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs * float(np.asarray(obs).sum() > 0)


def test_a_network_that_torch_cannot_record_is_refused_in_one_sentence(tmp_path: Path) -> None:
    agent = PPO("CartPole-v1", num_envs=2, torso=Stubborn)
    with pytest.raises(ConfigError, match="torch cannot record this policy"):
        agent.export(tmp_path / "policy.pt2")
    with pytest.raises(ConfigError, match=r"must end in \.onnx, \.pt2, \.safetensors"):
        agent.export(tmp_path / "policy.zip")
    agent.close()


def test_the_verb_prints_how_the_file_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = AGENTS["categorical"]()
    agent.save(tmp_path / "model")
    agent.close()
    target = str(tmp_path / "out" / "policy.safetensors")
    assert main(["export", str(tmp_path / "model"), "--output", target, "--observations", "30", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["equal"], answer["observations"], answer["files"]) == (30, 30, [target])
