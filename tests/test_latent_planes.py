"""Latent planes: what images and boards are to the planners, in place of a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.algorithms.muzero import MuZeroParams
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.models.muzero import MuZeroModel
from rl_training.search.rules import gumbel, puct
from rl_training.search.search import Roots, search
from support import muzero_options
from test_muzero_update import FOUR_NUMBERS


def image_spaces(side: int, channels: int = 2) -> Spaces:
    return Spaces(spaces.Box(0, 255, (side, side, channels), np.uint8), spaces.Discrete(3))


@pytest.mark.parametrize(("side", "plane"), [(3, 3), (5, 5), (16, 8), (84, 6)])
def test_images_and_boards_keep_their_layout_in_the_latent(side: int, plane: int) -> None:
    model = MuZeroModel(image_spaces(side), muzero_options(latent_size=4, hidden_size=8, support_size=3))
    latents, values, logits = model.initial(torch.zeros(2, side, side, 2, dtype=torch.uint8))
    assert latents.shape == (2, 4 * plane * plane)
    assert (values == 0).all()
    assert (logits == 0).all()


def test_a_cell_of_a_plane_sees_its_neighbours_only() -> None:
    """A step has two 3 × 3 convolutions in its block and one on either side: four cells away nothing is known of it."""
    model = MuZeroModel(image_spaces(8), muzero_options(latent_size=4, hidden_size=8, support_size=3))
    latents = torch.rand(2, 4 * 64)
    latents[1] = latents[0]
    latents[1].view(8, 8, 4)[0, 0] += 0.3  # in one corner
    hidden = model.dynamics(torch.cat([latents, torch.eye(3)[[0, 0]]], dim=-1)).view(2, 8, 8, 4)
    change = (hidden[0] - hidden[1]).abs().sum(-1)
    assert change[0, 0] > 0
    assert change[4:].sum() == 0
    assert change[:, 4:].sum() == 0


@pytest.mark.parametrize(
    ("num_actions", "move", "where"),
    [(7, 3, (slice(None), 3)), (42, 9, (1, 2))],  # a column, and a cell: 9 is the third of the second row
    ids=["column", "cell"],
)
def test_a_move_on_a_board_enters_where_it_is_made(num_actions: int, move: int, where: tuple[Any, Any]) -> None:
    given = Spaces(spaces.Box(0, 1, (6, 7, 2), np.uint8), spaces.Discrete(num_actions))
    model = MuZeroModel(given, muzero_options(latent_size=4, hidden_size=8, support_size=3, players=2))
    plane = model.dynamics.planes(model.encoded(torch.tensor([move]), model.support))
    assert plane.shape == (1, 6, 7, 1)
    expected = torch.zeros(6, 7)
    expected[where] = 1.0
    assert torch.equal(plane[0, :, :, 0], expected)


def test_actions_of_one_player_are_no_places() -> None:
    """Four directions on a board of four columns are not its columns."""
    given = Spaces(spaces.Box(0, 1, (4, 4, 2), np.uint8), spaces.Discrete(4))
    model = MuZeroModel(given, muzero_options(latent_size=4, hidden_size=8, support_size=3))
    plane = model.dynamics.planes(model.encoded(torch.tensor([2]), model.support))
    assert torch.equal(plane[0], torch.tensor([0.0, 0.0, 1.0, 0.0]).expand(4, 4, 4))


@pytest.mark.parametrize("rule", [puct(), gumbel()], ids=["puct", "gumbel"])
def test_an_action_changes_every_cell_of_a_step_and_the_search_asks_the_towers(rule: Any) -> None:
    model = MuZeroModel(image_spaces(3), muzero_options(latent_size=4, hidden_size=8, support_size=3))
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5)
    latents = torch.rand(1, 36).expand(3, -1)
    following, rewards, *_ = model.recurrent(latents, torch.arange(3))
    assert len({round(float(reward), 5) for reward in rewards.detach()}) == 3
    assert ((following >= 0) & (following <= 1)).all()
    roots = Roots(latents.contiguous(), np.zeros((3, 3), dtype=np.float32), np.zeros(3, dtype=np.float32))
    with torch.no_grad():
        assert search(roots, model, rule=rule, num_simulations=5, discount=0.9).visits.sum() == 15


def test_a_named_cnn_ends_in_a_vector_and_planes_need_an_image() -> None:
    options = {"latent_size": 7, "hidden_size": 8}
    assert MuZeroModel(image_spaces(16), muzero_options(**options, cnn="nature")).latent_size == 7
    assert MuZeroModel(image_spaces(16), muzero_options(**options, latent="vector")).latent_size == 7
    with pytest.raises(ConfigError, match="latent: planes needs images or boards"):
        MuZeroModel(FOUR_NUMBERS, muzero_options(**options, latent="planes"))
    assert MuZeroParams(latent="planes").idle().keys() >= {"cnn", "hidden_sizes", "torso"}
