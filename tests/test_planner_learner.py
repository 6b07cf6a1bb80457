"""Whole learners of the planner family: what is stored, drawn, weighed, searched again, and how often."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import GumbelMuZero, MuZero
from rl_training.algorithms.base import UpdateResult
from rl_training.algorithms.dreamer import DreamerParams
from rl_training.algorithms.efficientzero import EfficientZeroParams
from rl_training.algorithms.muzero import MuZeroParams
from rl_training.algorithms.replay import PrioritizedResult
from rl_training.algorithms.scalezero import ScaleZeroParams
from rl_training.data.replay import StreamReplay
from rl_training.data.rollout import Rollout
from rl_training.envs.types import Spaces
from rl_training.runtime.dreamer_trainer import DreamerLearner
from rl_training.runtime.efficientzero_trainer import EfficientZeroLearner
from rl_training.runtime.muzero_trainer import MuZeroLearner
from rl_training.runtime.planner_learner import SMALLEST_PRIORITY
from rl_training.runtime.scalezero_trainer import ScaleZeroLearner
from rl_training.search.policy import SEARCH_POLICY, Plan
from rl_training.search.rules import puct
from rl_training.search.search import Roots, search
from support import ContextualBandit
from test_muzero_update import batch_of, rollout_of
from test_planner_losses import shake

SPACES = Spaces(spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(3))
SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 8,
    "hidden_size": 8,
    "num_simulations": 6,
    "batch_size": 4,
    "unroll_steps": 3,
    "n_steps": 2,
    "learning_starts": 0,
    "support_size": 3,
}


def searched_rollout(rows: int, start: int = 0) -> Rollout:
    """One environment whose observation is the row's number, as a planner would have collected it."""
    rollout = rollout_of(rows, start=start)
    return replace(rollout, extras={SEARCH_POLICY: torch.full((rows, 1, 3), 1 / 3)})


def filled(kind: Any, params: Any, rows: int = 12) -> Any:
    learner = kind(params, SPACES, num_envs=1, seed=0, device=torch.device("cpu"))
    learner.store(searched_rollout(rows))
    shake(learner.algorithm.policy, seed=1)
    shake(learner.algorithm.target.network, seed=2)  # it lags behind: whoever asks the other one is found out
    return learner


def muzero(**params: Any) -> MuZeroLearner:
    return filled(MuZeroLearner, MuZeroParams(**{**SMALL, **params}))


def places(*rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(len(rows), dtype=np.int64), np.array(rows)


def priorities(replay: StreamReplay) -> np.ndarray:
    return replay.state_dict()["priorities"]


# ---- priorities


def test_an_update_writes_the_errors_of_the_rows_it_drew_as_their_priorities(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = muzero(priority_alpha=1.0)
    drawn: list[Any] = []
    draw = learner.replay.draw

    def watched(count: int, rng: np.random.Generator) -> Any:
        drawn.append(draw(count, rng))
        return drawn[-1]

    errors = torch.tensor([5.0, 6.0, 7.0, 8.0])
    monkeypatch.setattr(learner.replay, "draw", watched)
    monkeypatch.setattr(learner.algorithm, "update", lambda batch: PrioritizedResult({}, errors=errors))
    learner.update()
    (_, rows), _ = drawn[0]
    expected = np.ones(12)
    expected[rows] = errors.numpy() + SMALLEST_PRIORITY
    np.testing.assert_allclose(priorities(learner.replay), expected)


def test_new_rows_begin_with_the_highest_priority_there_is() -> None:
    learner = muzero(priority_alpha=1.0)
    learner.replay.set_priorities(places(3), np.array([9.0]))
    learner.store(searched_rollout(4, start=12))
    np.testing.assert_allclose(priorities(learner.replay)[12:], 9.0)


def test_importance_weights_make_up_for_the_chances_by_beta_and_have_the_mean_one() -> None:
    # chances 4 and 1 times the equal share, beta 1/2: 4^-1/2 = 1/2 and 1, of mean 3/4
    batch = muzero(priority_beta=0.5).batch(places(0, 1), np.array([4.0, 1.0]))
    torch.testing.assert_close(batch["weights"], torch.tensor([2 / 3, 4 / 3]))


# ---- what is searched, and what of it is stored


def test_reanalyse_searches_with_the_target_network_and_stores_the_searchs_values() -> None:
    learner = muzero(root_exploration_fraction=0.0)  # a row may be drawn twice
    policy, target = learner.algorithm.policy, learner.algorithm.target.network
    rng = copy.deepcopy(learner.rng.generator)
    rows = learner.replay.draw_uniformly(5, rng)
    obs = torch.from_numpy(learner.replay.column("obs", rows))
    expected = policy.plan(obs, rng, model=target)
    learner.reanalyse(5)
    np.testing.assert_allclose(learner.replay.column("values", rows), expected.values, rtol=1e-5)
    np.testing.assert_allclose(learner.replay.column(SEARCH_POLICY, rows), expected.policy, rtol=1e-5)
    raw = target.initial(obs)[1].detach().numpy()
    assert np.abs(raw - expected.values).max() > 1e-3


@pytest.mark.parametrize("kind", [MuZero, GumbelMuZero])
def test_a_rollout_has_the_values_and_policies_of_its_searches(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = kind(ContextualBandit, num_envs=2, eval_episodes=0, **{**SMALL, "hidden_sizes": [8]})
    session = agent._session
    shake(session.policy)
    plans: list[Plan] = []
    plan = session.policy.plan
    monkeypatch.setattr(session.policy, "plan", lambda *args, **given: plans.append(plan(*args, **given)) or plans[-1])
    rollout = session.collector.collect(5)
    np.testing.assert_allclose(rollout.values, np.stack([each.values for each in plans]))
    np.testing.assert_allclose(rollout.extras[SEARCH_POLICY], np.stack([each.policy for each in plans]), rtol=1e-5)
    raw = session.policy.values(rollout.obs.flatten(0, 1)).reshape(5, 2)
    assert (raw - rollout.values).abs().max() > 1e-3
    session.learner.store(rollout)
    stored = session.learner.replay.column("values", (np.zeros(5, dtype=int), np.arange(5)))
    np.testing.assert_allclose(stored[0], rollout.values[0, 0])
    agent.close()


def test_a_row_at_the_edge_of_a_rollout_learns_the_value_that_the_search_gives_its_successor() -> None:
    learner = muzero()
    for start, value in ((12, 30.0), (14, 40.0)):
        rollout = searched_rollout(2, start=start)
        learner.store(replace(rollout, values=torch.full_like(rollout.values, value), starts=rollout.starts & False))
    assert learner.replay.column("next_values", places(11, 13)).tolist() == [30.0, 40.0]
    newest = searched_rollout(2, start=16)  # begins an episode: nothing led there
    starts = torch.tensor([[True], [False]])
    learner.store(replace(newest, values=torch.full_like(newest.values, 50.0), starts=starts))
    assert learner.replay.column("next_values", places(15)).tolist() != [50.0]


def test_an_action_at_evaluation_has_no_gumbel_noise_however_hot_the_search() -> None:
    agent = GumbelMuZero(ContextualBandit, eval_episodes=0, temperature=100.0, **{**SMALL, "hidden_sizes": [8]})
    policy, obs = agent.policy, torch.eye(4).repeat(16, 1)
    shake(policy)
    deterministic = [policy.act(obs, torch.zeros(64, 0), deterministic=True) for _ in range(2)]
    assert torch.equal(deterministic[0].actions, deterministic[1].actions)
    policy.params.move({"temperature": 0.0})
    cold = policy.plan(obs, np.random.default_rng(0))
    np.testing.assert_array_equal(deterministic[0].actions.numpy(), cold.actions)
    agent.close()


def test_muzeros_search_takes_an_unvisited_action_for_the_mean_of_what_is_known() -> None:
    policy, obs = muzero(num_simulations=12).algorithm.policy, torch.linspace(-3.0, 3.0, 32)[:, None]
    latents, values, logits = policy.model.initial(obs)
    roots = Roots(latents.detach(), logits.detach().numpy(), values.detach().numpy())
    visits = {}
    with torch.no_grad():
        for kind in ("mean", "worst"):
            rule = puct(first_play=kind)
            visits[kind] = search(roots, policy.model, rule=rule, num_simulations=12, discount=0.997).visits
    assert (visits["mean"] != visits["worst"]).any()
    np.testing.assert_allclose(policy.plan(obs, None).policy, visits["mean"] / 12)
    worst = muzero(num_simulations=12, first_play="worst").algorithm.policy
    np.testing.assert_allclose(worst.plan(obs, None).policy, visits["worst"] / 12)


# ---- targets that do not fit


def test_targets_beyond_the_support_are_counted_and_told_once_with_the_size_that_fits() -> None:
    """h(x) = √(x + 1) − 1 + x / 1000 ≤ 3 holds up to about 15: a return of 100 needs 10 bins a side."""
    algorithm = muzero().algorithm
    batch = batch_of(4, 3) | {"obs": torch.rand(4, 1)}
    batch["value_targets"][0] = torch.tensor([100.0, 1.0, -100.0, 2.0])
    with pytest.warns(UserWarning, match=r"up to 100.* ends at 14.88.*support_size 10"):
        metrics = algorithm.update(batch).metrics
    shares = batch["value_targets"].abs() > 15.0
    assert float(metrics["clipped_targets"]) == pytest.approx(shares.sum().item() / (16 + 12))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithm.update(batch)


# ---- batches of the kin


def test_efficientzeros_batch_has_value_prefixes_and_the_observations_that_followed() -> None:
    learner = filled(EfficientZeroLearner, EfficientZeroParams(**SMALL, lstm_horizon=2))
    batch = learner.batch(places(2, 5), np.ones(2))
    assert batch["next_obs"][..., 0].T.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert batch["reward_targets"].T.tolist() == [[1, 2, 1], [1, 2, 1]]  # every step pays 1


def test_scalezero_never_searches_deeper_than_its_updates_train(monkeypatch: pytest.MonkeyPatch) -> None:
    params = ScaleZeroParams(**{**SMALL, "num_simulations": 40, "unroll_steps": 2, "num_heads": 2})
    learner = filled(ScaleZeroLearner, params)
    policy, model = learner.algorithm.policy, learner.algorithm.model
    deepest, recurrent = [0], model.recurrent

    def watched(rows: torch.Tensor, actions: torch.Tensor) -> Any:
        deepest.append(int(model.unpacked(rows).lengths.max()))
        return recurrent(rows, actions)

    monkeypatch.setattr(model, "recurrent", watched)
    policy.plan(torch.zeros(2, 1), None)
    assert max(deepest) == 3  # z₀ a₀ z₁, before the second and last action
    assert policy.max_depth == 2


# ---- how often


@pytest.mark.parametrize(("ratio", "updates"), [(0.25, [2, 3]), (0.5, [4, 6]), (0.3125, [2, 4]), (0.0, [0, 0])])
def test_a_planner_updates_as_often_as_the_replay_ratio_says(
    ratio: float, updates: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = muzero(replay_ratio=ratio)
    monkeypatch.setattr(learner, "update", lambda: UpdateResult({}))
    # 8 steps, then 12; of 2.5 updates 0.5 is left over for the next 3.75
    assert [len(list(learner.learn(searched_rollout(n)))) for n in (8, 12)] == updates


@pytest.mark.parametrize(("ratio", "updates"), [(4.0, [2, 3]), (8.0, [4, 6])])
def test_dreamer_replays_as_many_observations_as_the_train_ratio_says(
    ratio: float, updates: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step earns `train_ratio` observations, of which an update takes 2 · 8."""
    small = {"size": "nano", "batch_size": 2, "sequence_length": 8, "learning_starts": 0, "replay_capacity": 100}
    params = DreamerParams(**small, train_ratio=ratio)
    learner = DreamerLearner(params, SPACES, num_envs=1, seed=0, device=torch.device("cpu"))
    learner.store(rollout_of(12))
    monkeypatch.setattr(learner, "update", lambda: UpdateResult({}))
    assert [len(list(learner.learn(rollout_of(n)))) for n in (8, 12)] == updates
