"""Games of OpenSpiel and PettingZoo, as environments for planners with two players."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from rl_training import GumbelMuZero
from rl_training.envs.boards import ConnectFour, TicTacToe
from rl_training.envs.open_spiel import OpenSpiel
from rl_training.envs.pettingzoo import PettingZoo
from rl_training.envs.turns import TurnGame
from rl_training.errors import ConfigError, RLTrainingError

PAIRS = [
    (OpenSpiel("tic_tac_toe"), TicTacToe()),
    (OpenSpiel("connect_four"), ConnectFour()),
    (PettingZoo("tictactoe_v3"), TicTacToe()),
    (PettingZoo("connect_four_v3"), ConnectFour()),
]


def own_move(theirs: TurnGame, own: TurnGame, move: int) -> int:
    """PettingZoo numbers the cells of TicTacToe by columns."""
    by_columns = isinstance(theirs, PettingZoo) and isinstance(own, TicTacToe)
    return move % 3 * 3 + move // 3 if by_columns else move


def own_moves(theirs: TurnGame, own: TurnGame, mask: Any) -> list[int]:
    return sorted(own_move(theirs, own, int(move)) for move in np.flatnonzero(mask))


@pytest.mark.parametrize(("theirs", "own"), PAIRS, ids=lambda game: type(game).__name__)
def test_an_adapted_game_has_the_turns_masks_and_rewards_of_our_own(theirs: TurnGame, own: TurnGame) -> None:
    rng, outcomes = np.random.default_rng(0), set()
    for seed in range(12):
        (_, info), (_, own_info), over = theirs.reset(seed=seed), own.reset(seed=seed), False
        while not over:
            assert info["to_play"] == own_info["to_play"]
            assert own_moves(theirs, own, info["action_mask"]) == np.flatnonzero(own_info["action_mask"]).tolist()
            move = int(rng.choice(np.flatnonzero(info["action_mask"])))
            obs, reward, over, _, info = theirs.step(move)
            _, own_reward, own_over, _, own_info = own.step(own_move(theirs, own, move))
            assert (reward, over) == (own_reward, own_over)
            assert theirs.observation_space.contains(obs)
        outcomes.add(reward)
    assert 1.0 in outcomes


@pytest.mark.parametrize("game", [OpenSpiel("tic_tac_toe"), PettingZoo("tictactoe_v3")])
def test_a_position_is_restored_from_its_moves(game: Any) -> None:
    game.reset(seed=1)
    for move in (0, 4, 8):
        game.step(move)
    seen, state = game.observation(), game.state_dict()
    game.reset(seed=2)
    game.load_state_dict(state)
    np.testing.assert_array_equal(game.observation(), seen)
    with pytest.raises(ValueError, match="move 4 is not legal"):
        game.step(4)


def test_a_search_of_openspiel_beats_chance() -> None:
    env, earned = OpenSpiel("tic_tac_toe", opponent="rollouts:100"), []
    for seed in range(10):
        _, info = env.reset(seed=seed)
        rng, over = np.random.default_rng(seed), False
        while not over:
            _, reward, over, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        earned.append(reward)
    assert np.mean(earned) <= -0.6


def test_a_game_that_is_not_for_planners_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="does not load the game 'conect_four'"):
        OpenSpiel("conect_four")
    with pytest.raises(ConfigError, match="is no game for two by turns"):
        OpenSpiel("matrix_rps")
    with pytest.raises(ConfigError, match="no classic game 'tictactoe'; did you mean 'tictactoe_v3'"):
        PettingZoo("tictactoe")
    with pytest.raises(ConfigError, match="unknown opponent 'perfect'"):
        PettingZoo("tictactoe_v3", opponent="perfect")
    game = OpenSpiel("pig")
    game.reset(seed=0)
    with pytest.raises(ValueError, match="moves twice in a row"):
        [game.step(0) for _ in range(20)]


@pytest.mark.parametrize(("make", "extra"), [(OpenSpiel, "open_spiel"), (PettingZoo, "pettingzoo")])
def test_without_the_extra_the_error_names_it(make: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("pyspiel", "pettingzoo")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RLTrainingError, match=rf"rl-training\[{extra}\]"):
        make("tictactoe_v3")


@pytest.mark.parametrize("env", ["open_spiel:OpenSpiel", "pettingzoo:PettingZoo"])
def test_planners_train_on_adapted_games(env: str) -> None:
    sizes = {"latent_size": 4, "batch_size": 16, "num_simulations": 4, "learning_starts": 32}
    game = {"game": "tic_tac_toe" if "spiel" in env else "tictactoe_v3"}
    agent = GumbelMuZero(f"rl_training.envs.{env}", env_kwargs=game, num_envs=2, eval_episodes=0, players=2, **sizes)
    assert agent.train(64).global_step >= 64
    agent.close()
