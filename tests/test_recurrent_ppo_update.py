"""Recurrent PPO: the state begins anew with episodes, sequences give what steps gave, and the memory is used."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training import PPO, RecurrentPPO
from rl_training.errors import ConfigError
from rl_training.models.recurrent import Cell, CoreOptions, RecurrentActorCritic, RecurrentCore, Segments
from rl_training.runtime.session import Session
from support import DictEnv, RecallEnv, TargetEnv

CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])
SHARED = pytest.mark.parametrize("share_torso", [False, True])


def session_of(agent: RecurrentPPO | PPO) -> Session:
    return agent._session


def make_session(env: Any = "CartPole-v1", **overrides: Any) -> Session:
    options = {"num_envs": 4, "rollout_steps": 48, "eval_episodes": 0, "threads": 1, **overrides}
    return session_of(RecurrentPPO(env, **options))


def step_by_step(policy: RecurrentActorCritic, obs: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """(values, states before each row) of sequences [T, N], one row at a time as the collector does it."""
    values, states = [], []
    for row, fresh in zip(obs, starts, strict=True):
        state = torch.where(fresh[:, None], policy.initial_state(len(fresh)), state)
        states.append(state)
        values.append(policy.values(row, state))
        state = policy.act(row, state, deterministic=True).state
    return torch.stack(values), torch.stack(states)


@CELLS
@SHARED
def test_a_sequence_with_starts_inside_equals_its_steps(cell: str, share_torso: bool) -> None:
    policy = make_session(cell=cell, share_torso=share_torso).policy
    torch.manual_seed(0)
    obs, state = torch.randn(7, 3, 4), torch.randn(3, policy.state_size)
    starts = torch.zeros(7, 3, dtype=torch.bool)
    starts[3, 0] = starts[0, 1] = starts[6, 1] = starts[5, 1] = True
    actions = torch.zeros(7, 3, dtype=torch.int64)
    with torch.no_grad():
        values, _ = step_by_step(policy, obs, state, starts)
        evaluated = policy.evaluate_actions(obs, actions, state=state, starts=starts)
        leaking = policy.evaluate_actions(obs, actions, state=state)
    torch.testing.assert_close(evaluated.values.reshape(7, 3), values, atol=1e-5, rtol=0)
    differs = (leaking.values - evaluated.values).reshape(7, 3).abs() > 1e-4
    assert differs.any(dim=0).tolist() == [True, True, False]  # the negative control: a state that leaks is seen


def test_segments_by_hand() -> None:
    # Sequence 0 is a b | c, sequence 1 is d e f: segments ab, c, def.
    segments = Segments(torch.tensor([[False, False], [False, False], [True, False]]))
    rows = torch.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]])[..., None]
    assert segments.pad(rows)[..., 0].tolist() == [[1, 3, 4], [2, 0, 5], [0, 0, 6]]
    assert torch.equal(segments.unpad(segments.pad(rows)), rows)
    first = segments.first_states(torch.tensor([[7.0], [8.0]]), torch.zeros(3, 1))
    assert first.tolist() == [[7.0], [0.0], [8.0]]


@CELLS
@pytest.mark.parametrize("backend", ["sync", "native"])
def test_the_state_after_an_end_is_the_initial_state_bit_for_bit(cell: str, backend: str) -> None:
    session = make_session(cell=cell, backend=backend)
    rollout = session.collector.collect(48)
    states, starts = rollout.extras["state"], rollout.starts
    assert starts[1:].any()
    assert torch.equal(states[starts], session.policy.initial_state(int(starts.sum())))
    assert (states[~starts] != 0).any(dim=-1).all()
    session.close()


@CELLS
@SHARED
@pytest.mark.parametrize("sequence_length", [None, 16])
def test_the_first_minibatch_has_ratio_one(cell: str, share_torso: bool, sequence_length: int | None) -> None:
    """Also in a later rollout, whose sequences begin in the middle of episodes."""
    session = make_session(cell=cell, share_torso=share_torso, sequence_length=sequence_length, normalize_obs=True)
    for _ in range(2):
        rollout = session.collector.collect(48)
        batch = batch_of(session, rollout)
        with torch.no_grad():
            evaluated = evaluate(session, batch)
        valid = batch["valid"].T
        ratio = (evaluated.logprobs.reshape(valid.shape) - batch["behavior_logprobs"].T).exp()
        torch.testing.assert_close(ratio[valid], torch.ones(int(valid.sum())), atol=1e-5, rtol=0)
        values = evaluated.values.reshape(valid.shape)
        torch.testing.assert_close(values, batch["values"].T, atol=1e-4, rtol=1e-5)
        list(session.learner.learn(rollout))


def batch_of(session: Session, rollout: Any) -> dict[str, Any]:
    return session.learner.sequences(rollout, *session.learner.advantages(rollout))


def evaluate(session: Session, batch: dict[str, Any]) -> Any:
    swapped = {name: batch[name].transpose(0, 1) for name in ("obs", "actions", "starts")}
    return session.policy.evaluate_actions(
        swapped["obs"], swapped["actions"], state=batch["state"], starts=swapped["starts"]
    )


def metrics_of_update(batch_change: Any, **overrides: Any) -> dict[str, float]:
    session = make_session(seed=1, rollout_steps=96, sequence_length=16, backend="native", **overrides)
    batch = batch_of(session, session.collector.collect(96))
    assert not batch["valid"].all()
    session.close()
    result = session.learner.algorithm.update(batch_change(batch))
    return {name: float(value) for name, value in result.metrics.items()}


def test_the_order_of_sequences_does_not_matter() -> None:
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    shuffled = metrics_of_update(lambda batch: {name: leaf[order] for name, leaf in batch.items()})
    assert shuffled == pytest.approx(metrics_of_update(lambda batch: batch), rel=1e-4, abs=1e-6)


def test_rows_that_never_happened_change_nothing() -> None:
    def spoiled(batch: dict[str, Any]) -> dict[str, Any]:
        reset = ~batch["valid"]
        huge = {name: batch[name].masked_fill(reset, 1e6) for name in ("advantages", "returns", "values")}
        return {**batch, **huge, "actions": batch["actions"].masked_fill(reset, 1)}

    assert metrics_of_update(spoiled) == metrics_of_update(lambda batch: batch)
    counted = metrics_of_update(lambda b: spoiled(b) | {"valid": torch.ones_like(b["valid"])})
    assert counted["value_loss"] > 1e3  # the negative control


def test_the_core_learns_through_time() -> None:
    """The gradient of the last row's value reaches the first row's input, and stops at a start between them."""
    policy = make_session(share_torso=True).policy
    for start, reaches in ((None, True), (2, False)):
        obs = torch.randn(4, 1, 4)
        starts = torch.zeros(4, 1, dtype=torch.bool)
        if start is not None:
            starts[start] = True
        inputs = policy.actor_torso(obs.flatten(0, 1)).detach().reshape(4, 1, -1).requires_grad_()
        outputs = policy._run_segments([inputs], policy.initial_state(1), starts)[0]
        outputs[3].sum().backward()
        assert inputs.grad is not None
        assert bool(inputs.grad[0].abs().sum() > 0) == reaches


@pytest.mark.parametrize("env", [DictEnv, TargetEnv])
def test_other_spaces_train_too(env: Any) -> None:
    session = make_session(env, rollout_steps=16, update_epochs=4, num_minibatches=4)
    rollout = session.collector.collect(16)
    before = session.learner.algorithm.optimizer.flat.detach().clone()
    results = list(session.learner.learn(rollout))
    assert sum(result.num_gradient_steps for result in results) == 16
    assert (session.learner.algorithm.optimizer.flat != before).any()


def test_a_sequence_length_that_leaves_a_rest_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sequence_length: 20 does not divide rollout_steps \(48\)"):
        make_session(sequence_length=20)


@CELLS
def test_it_recalls_what_a_policy_without_memory_cannot(cell: str) -> None:
    options: dict[str, Any] = {"rollout_steps": 32, "num_minibatches": 2, "learning_rate": 3e-3, "eval_episodes": 0}
    options["update_epochs"] = 4
    remembering, forgetting = RecurrentPPO(RecallEnv, cell=cell, **options), PPO(RecallEnv, **options)
    remembering.train(8_000)
    forgetting.train(8_000)
    assert remembering.evaluate(64)["return_mean"] >= 0.9
    assert forgetting.evaluate(64)["return_mean"] < 0.3
    assert remembered_by_prediction(remembering) == 1.0


@CELLS
def test_a_new_memory_keeps_a_cue_over_ten_steps(cell: Cell) -> None:
    """A gate that is half open keeps a thousandth of it; a bias of 1 keeps 0.73 in each step, 4 % in ten."""
    torch.manual_seed(0)
    core = RecurrentCore(2, CoreOptions(cell, 32, length=1, heads=1))
    cues = torch.zeros(11, 2, 2)
    cues[0, :, 0] = torch.tensor([-1.0, 1.0])
    outputs, _ = core(cues, torch.zeros(2, core.state_size))
    first, last = ((row[0] - row[1]).norm() for row in (outputs[0], outputs[-1]))
    assert last > 0.01 * first


@pytest.mark.parametrize(("n", "steps"), [(4, 8_000), (10, 16_000)])
def test_with_default_settings_it_answers_a_cue_of_n_steps_ago(n: int, steps: int) -> None:
    """sb3-contrib needs 3,000 to 4,600 steps for n = 4, and 17,000 for n = 10."""
    agent = RecurrentPPO(partial(RecallEnv, n), eval_episodes=0)
    agent.train(steps)
    assert agent.evaluate(64)["return_mean"] >= 0.9


def remembered_by_prediction(agent: RecurrentPPO) -> float:
    """The share of answers that `predict` gets right when its state is handed back; without it, it cannot know."""
    right = []
    for cue in (0, 1):
        env, state = RecallEnv(), None
        obs, _ = env.reset(seed=0)
        env.cue, obs = cue, np.array([2 * cue - 1, 0], dtype=np.float32)
        done, reward = False, 0.0
        while not done:
            action, state = agent.predict(obs, state)
            obs, reward, done, _, _ = env.step(action)
        right.append(reward == 1.0)
    return float(np.mean(right))
