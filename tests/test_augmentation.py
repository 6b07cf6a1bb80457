"""Augmentation of planners' batches: boards mirrored and turned with their moves, and images that are shifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training import EfficientZero, GumbelMuZero
from rl_training.envs.boards import BoardGame, ConnectFour, TicTacToe
from rl_training.envs.catch import Catch
from rl_training.envs.grid import Grid
from rl_training.envs.masks import ACTION_MASK, OBS, masked_space
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.ops.augmentation import scaled_brightness, shift_sources
from rl_training.runtime.augmentation import make_augmentation


def positions(game: BoardGame, count: int) -> dict[str, Any]:
    """Windows of one move: boards as the mover sees them, the move, its policy, and the boards after it."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(count):
        game.reset()
        for _ in range(int(rng.integers(5))):
            game.step(int(rng.choice(np.flatnonzero(game.legal(game.board)))))
            if game.has_won(game.board, -game.to_play):
                break
        move = int(rng.choice(np.flatnonzero(game.legal(game.board))))
        mask = game.legal(game.board)
        rows.append((game.observation(), mask, move, game.after(game.board, move, game.to_play) == game.to_play))
    boards, masks, moves, after = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
    policies = torch.nn.functional.one_hot(moves, game.num_actions).float()[None]
    next_obs = torch.stack([after, after], dim=-1)[None].to(torch.uint8)
    obs = {OBS: boards, ACTION_MASK: masks.to(torch.int8)}
    return {
        "obs": obs,
        "next_obs": next_obs,
        "actions": moves[None],
        "policies": policies,
        "weights": torch.ones(count),
    }


def spaces_of(game: BoardGame) -> Spaces:
    return Spaces(masked_space(game.observation_space, game.num_actions), game.action_space)


@pytest.mark.parametrize(("game", "kind", "count"), [(TicTacToe(), "square", 8), (ConnectFour(), "mirror", 2)])
def test_moves_go_with_their_boards(game: BoardGame, kind: str, count: int) -> None:
    """The augmented move on the augmented board leads to the augmentation of what followed."""
    batch = positions(game, 60)
    augmentation = make_augmentation(kind, spaces_of(game), "auto")
    assert augmentation is not None
    turned = augmentation(batch, np.random.default_rng(1))
    for row in range(60):
        obs, move = turned["obs"], int(turned["actions"][0, row])
        seen = obs[OBS][row].numpy().astype(np.int8)
        board = seen[..., 0] - seen[..., 1]
        assert obs[ACTION_MASK][row].tolist() == game.legal(board).tolist()
        assert np.array_equal(game.after(board, move, 1) == 1, turned["next_obs"][0, row, ..., 0].numpy())
        assert int(turned["policies"][0, row].argmax()) == move
    # Every symmetry is drawn: one lopsided board is seen in all its forms.
    lopsided = {**batch, "obs": {**batch["obs"], OBS: torch.zeros_like(batch["obs"][OBS])}}
    lopsided["obs"][OBS][:, 0, 1, 0] = lopsided["obs"][OBS][:, 0, 0, 1] = 1
    forms = augmentation(lopsided, np.random.default_rng(2))["obs"][OBS]
    assert len({form.numpy().tobytes() for form in forms}) == count


def test_a_shift_repeats_the_edge() -> None:
    #  0 1 2        1 2 2
    #  3 4 5   →    4 5 5   one to the left; the row below, one up
    assert shift_sources(2, 3, np.array([[0, 1], [1, 0]])).tolist() == [[1, 2, 2, 4, 5, 5], [3, 4, 5, 3, 4, 5]]


@pytest.mark.parametrize(("shape", "layout"), [((84, 84, 3), "channels_last"), ((3, 84, 84), "channels_first")])
def test_every_observation_is_shifted_by_up_to_four_of_84_pixels(shape: tuple[int, ...], layout: Any) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    augmentation = make_augmentation("shift", Spaces(space, spaces.Discrete(2)), layout)
    assert augmentation is not None
    obs = torch.zeros(200, *shape, dtype=torch.uint8)
    middle = (slice(None), 40, 50) if layout == "channels_last" else (slice(None), slice(None), 40, 50)
    obs[middle] = 255
    shifted = augmentation({"obs": obs, "actions": torch.zeros(1, 200)}, np.random.default_rng(0))["obs"]
    channels_first = shifted.movedim(-1, 1) if layout == "channels_last" else shifted
    _, rows, columns = channels_first[:, 0].nonzero(as_tuple=True)
    assert len(rows) == 200
    assert (int(rows.min()), int(rows.max())) == (36, 44)
    assert (int(columns.min()), int(columns.max())) == (46, 54)


def test_brightness_is_scaled_from_black_on_and_by_a_tenth_at_most() -> None:
    images = torch.tensor([-1.0, 0.0, 1.0]).expand(3, 1, 1, 3)
    scaled = scaled_brightness(images, -1.0, torch.tensor([1.0, -3.0, 9.0]))
    #  1 + 0.05 · 1 = 1.05;  1 − 0.05 · 2 = 0.9;  1 + 0.05 · 2 = 1.1;  black, −1, stays
    expected = torch.tensor([[-1.0, 0.05, 1.1], [-1.0, -0.1, 0.8], [-1.0, 0.1, 1.2]])
    torch.testing.assert_close(scaled[:, 0, 0], expected)


@pytest.mark.parametrize("kind", ["intensity", "shift_intensity"])
def test_every_image_has_a_brightness_of_its_own(kind: str) -> None:
    space = spaces.Box(0, 255, (24, 24, 3), np.uint8)
    augmentation = make_augmentation(kind, Spaces(space, spaces.Discrete(2)), "auto")
    assert augmentation is not None
    obs = torch.full((50, 24, 24, 3), 100, dtype=torch.uint8)
    batch = augmentation({"obs": obs, "next_obs": obs.expand(4, -1, -1, -1, -1)}, np.random.default_rng(0))
    for name, count in (("obs", 50), ("next_obs", 200)):
        images = batch[name].flatten(0, -4)
        assert (images == images[:, :1, :1, :1]).all()  # a shift of one colour changes nothing
        levels = images[:, 0, 0, 0]
        assert len(levels.unique()) > 0.9 * count
        assert 90 - 1e-4 <= float(levels.min()) < 95
        assert 105 < float(levels.max()) <= 110 + 1e-4


def test_what_cannot_be_augmented_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="intensity is for pixels, and the cells of a grid are bits or codes"):
        EfficientZero(Grid, augmentation="intensity").train(8)
    with pytest.raises(ConfigError, match="7 moves on a board of 6 × 7; mirror is for"):
        make_augmentation("square", spaces_of(ConnectFour()), "auto")
    with pytest.raises(ConfigError, match="augmentation: needs observations that are one image or board"):
        GumbelMuZero("CartPole-v1", augmentation="shift").train(8)


@pytest.mark.parametrize(
    ("env", "kind", "players"), [(TicTacToe, "square", 2), (Grid, "shift", 1), (Catch, "shift_intensity", 1)]
)
def test_updates_see_augmented_windows(env: Any, kind: str, players: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"latent_size": 4, "batch_size": 16, "num_simulations": 4, "learning_starts": 32, "replay_ratio": 0.1}
    agent = EfficientZero(env, num_envs=2, eval_episodes=0, players=players, augmentation=kind, **sizes)
    seen: list[Any] = []
    learner = agent._session.learner
    update = learner.algorithm.update
    monkeypatch.setattr(learner.algorithm, "update", lambda batch: seen.append(batch) or update(batch))
    given: list[Any] = []
    make = learner.batch
    monkeypatch.setattr(learner, "batch", lambda *rows: given.append(make(*rows)) or given[-1])
    agent.train(64)
    image = (lambda batch: batch["obs"][OBS]) if players == 2 else (lambda batch: batch["obs"])
    assert any(not torch.equal(image(a), image(b)) for a, b in zip(given, seen, strict=True))
    assert any(not torch.equal(a["actions"], b["actions"]) for a, b in zip(given, seen, strict=True)) == (players == 2)
    agent.close()
