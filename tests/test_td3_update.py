"""TD3's update: smoothed targets by hand, and the delays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.algorithms.params import LiveParams
from rl_training.algorithms.td3 import TD3, TD3Params
from rl_training.envs.types import Spaces
from rl_training.runtime.td3_trainer import TD3Learner
from test_sac_update import batch, flat

BOX = Spaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32))


def built(**params: Any) -> TD3:
    given = LiveParams(TD3Params(**{"hidden_sizes": (8, 8), **params}))
    return TD3Learner.build_seeded(given, BOX, seed=0, device=torch.device("cpu"))


def test_targets_by_hand() -> None:
    """Without noise: the least critic at the lagging policy's action."""
    algorithm, rows = built(target_noise=0.0), batch()
    torch.nn.init.constant_(algorithm.policy.linear.bias, 3.0)  # the policy itself has gone elsewhere
    targets = algorithm.targets(rows)[:, 0]
    with torch.no_grad():
        lagging = algorithm.target_policy.network
        actions = lagging.linear(lagging.torso(rows["next_obs"])).tanh()
        least = algorithm.target.network(rows["next_obs"], actions)[..., 0, 0].amin(0)
    torch.testing.assert_close(targets, rows["rewards"] + rows["discounts"] * least)


def test_noise_is_clipped_and_actions_stay_in_bounds() -> None:
    algorithm = built(target_noise=10.0, target_noise_clip=0.25)
    obs = torch.randn(500, 3)
    smoothed = algorithm.next_candidates(obs).actions
    lagging = algorithm.target_policy.network
    actions = lagging.mode(lagging.torso(obs))
    assert smoothed is not None
    assert float((smoothed - actions).detach().abs().max()) == pytest.approx(0.25, abs=1e-6)
    assert float(smoothed.detach().abs().max()) <= 1.0


def test_policy_and_lagging_networks_move_every_second_update() -> None:
    algorithm, moved = built(), []
    for _ in range(4):
        before = [flat(part) for part in (algorithm.policy, algorithm.target.network, algorithm.target_policy.network)]
        result = algorithm.update(batch())
        after = [flat(part) for part in (algorithm.policy, algorithm.target.network, algorithm.target_policy.network)]
        moved.append([not torch.equal(a, b) for a, b in zip(before, after, strict=True)])
        assert ("policy_loss" in result.metrics) == moved[-1][0]
    assert moved == [[False] * 3, [True] * 3] * 2


def test_the_policy_climbs_the_first_critic() -> None:
    algorithm, rows = built(), batch()
    before = {name: p.clone() for name, p in algorithm.policy.named_parameters()}
    algorithm.critics.last.weight.data[1].mul_(100.0)
    algorithm.update_policy(rows)
    changed = flat(algorithm.policy)
    for name, p in algorithm.policy.named_parameters():
        p.data.copy_(before[name])
    algorithm = built()
    algorithm.update_policy(rows)
    torch.testing.assert_close(flat(algorithm.policy), changed)


def test_renormalised_critics_leave_the_lagging_policy_as_it_is() -> None:
    algorithm = built(batch_renorm=True, tau=0.5)
    for _ in range(2):
        algorithm.update(batch())
    assert algorithm.target is None
    assert not torch.equal(flat(algorithm.target_policy.network), flat(algorithm.policy))
    assert int(algorithm.critics.renorms[0].steps) == 2
