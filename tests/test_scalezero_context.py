"""ScaleZero's memory of past steps: a search begins behind them, at positions that updates train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conformance import SMALL_PLANNER, StopAtCheckpoint, differences, train_state
from rl_training import ScaleZero
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.experiment.checkpointing import load_checkpoint
from rl_training.experiment.config import make_config
from rl_training.kernels.planning_transformer import CompiledScaleZero, scalezero_weights
from rl_training.runtime.manager import resume_run
from rl_training.runtime.session import Session
from rl_training.tools.policy_graph import graphs_of
from support import RecallEnv
from test_muzero_update import QUICK
from test_scalezero_update import ALONE, BOTH, observations, small_model

CONTEXT = 3


def at(obs: Any, step: int) -> Any:
    return {name: column[step] for name, column in obs.items()} if isinstance(obs, dict) else obs[step]


@torch.no_grad()
@pytest.mark.parametrize("space", [ALONE, BOTH], ids=["one task", "two tasks"])
def test_a_root_behind_its_context_equals_that_state_of_a_window(space: Spaces) -> None:
    """In the middle of the batch an episode begins, so that rows have contexts of different lengths."""
    model, batch = small_model(space, context_steps=CONTEXT), 6
    obs, actions = observations(space, CONTEXT + 1, batch), torch.randint(2, (CONTEXT, batch))
    fresh = torch.arange(batch) < 2  # rows whose episodes begin with the second step
    state = model.initial_state(batch)
    for step in range(CONTEXT):
        begins = fresh & torch.tensor(step == 1)
        state = torch.where(begins[:, None], model.initial_state(batch), state)
        whole = model.unroll(obs, actions)
        values, policy = model.initial_after(state, at(obs, step))[1:]
        old = ~fresh if step else torch.ones(batch, dtype=torch.bool)
        torch.testing.assert_close(values[old], model.scalar(whole.value[step])[old], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(policy[old], whole.policy[step][old], atol=1e-5, rtol=0)
        state = model.remember(state, at(obs, step), actions[step])
    later = model.unroll(_from(obs, 1), actions[1:])
    rows, values, _ = model.initial_after(state, at(obs, CONTEXT))
    torch.testing.assert_close(values[fresh], model.scalar(later.value[-1])[fresh], atol=1e-5, rtol=1e-5)
    compiled = CompiledScaleZero(scalezero_weights(model)).recurrent
    for part, own in zip(model.recurrent(rows, actions[0]), compiled(rows, actions[0]), strict=True):
        torch.testing.assert_close(own, part, atol=1e-5, rtol=1e-5)


def _from(obs: Any, step: int) -> Any:
    return {name: column[step:] for name, column in obs.items()} if isinstance(obs, dict) else obs[step:]


@torch.no_grad()
def test_the_oldest_step_is_forgotten() -> None:
    model = small_model(context_steps=CONTEXT)
    obs, actions = observations(ALONE, CONTEXT + 3, 5), torch.randint(3, (CONTEXT + 2, 5))
    state = model.initial_state(5)
    for step in range(CONTEXT + 2):
        state = model.remember(state, obs[step], actions[step])
    window = model.unroll(obs[2:], actions[2:])
    values = model.initial_after(state, obs[-1])[1]
    torch.testing.assert_close(values, model.scalar(window.value[-1]), atol=1e-5, rtol=1e-5)


def small_run(tmp_path: Path, **changes: Any) -> Any:
    kwargs = SMALL_PLANNER | {"num_heads": 1, "num_experts": 2, "context_steps": 2, "unroll_steps": 2, **changes}
    base = {"algo": "scalezero", "env_id": "support:RecallEnv", "num_envs": 3, "total_timesteps": 240}
    files = {"output_dir": str(tmp_path), "checkpoint_interval": 120, "eval_episodes": 2}
    return make_config({**base, **files, "algo_kwargs": kwargs})


def test_replayed_rows_have_the_states_that_the_policy_had_there(tmp_path: Path) -> None:
    """Episodes of five steps; the weights stay as they are, so that encoding again gives the same latents."""
    session = Session(small_run(tmp_path))
    learner, policy, states = session.learner, session.policy, []
    act = policy.act
    policy.act = lambda obs, state, **given: states.append(state) or act(obs, state, **given)  # type: ignore[method-assign]
    session.apply_controls()
    learner.replay.add(session.collect())
    for env in range(3):
        valid = np.flatnonzero(~learner.replay.column("is_last", (np.full(8, env), np.arange(8))))
        rows = (np.full(len(valid), env), valid)
        rebuilt = learner.algorithm.model.context_of(learner.states_before(rows, learner.algorithm.model))
        acted = learner.algorithm.model.context_of(torch.stack([states[t][env] for t in range(len(valid))]))
        assert rebuilt.lengths.tolist() == acted.lengths.tolist() == [0, 1, 2, 2, 2, 0, 1, 2][: len(valid)]
        for step in range(2):
            real = rebuilt.lengths > step
            for part, own in zip(rebuilt.step(step), acted.step(step), strict=True):
                torch.testing.assert_close(part[real], own[real])


@pytest.mark.parametrize("noise_persistence", [0.0, 0.5])
def test_resume_with_a_context_is_exact(noise_persistence: float, tmp_path: Path) -> None:
    """Also where the noise of a root is kept behind the context."""
    config = small_run(tmp_path, noise_persistence=noise_persistence)
    _, whole = train_state(config)
    stopped, _ = train_state(config, callbacks=[StopAtCheckpoint()])
    resume_run(stopped)
    assert differences(whole, load_checkpoint(stopped)) == []


def test_what_remembers_is_not_exported(tmp_path: Path) -> None:
    session = Session(small_run(tmp_path))
    with pytest.raises(ConfigError, match="context_steps"):
        graphs_of(session.policy, session.spaces, deterministic=True)


@pytest.mark.slow
def test_a_context_recalls_what_was_seen() -> None:
    """Without one the return is a coin's: at the question nothing tells which cue there was."""
    changes = {"gamma": 0.9, "n_steps": 3, "num_heads": 1, "num_experts": 2, "context_steps": 2}
    agent = ScaleZero(lambda: RecallEnv(2), num_envs=8, **QUICK | changes)
    agent.train(3_000)
    assert agent.evaluate(episodes=64)["return_mean"] > 0.9
