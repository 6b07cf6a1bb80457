"""Games for two: their rules, their opponents, and what a planner makes of turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import GumbelMuZero
from rl_training.cli import main
from rl_training.envs.boards import BoardGame, ConnectFour, TicTacToe
from rl_training.envs.opponents import Perfect, make_opponent
from rl_training.errors import ConfigError
from rl_training.experiment.config import make_config
from rl_training.runtime.manager import train_run
from rl_training.tools.elo import elo_ratings
from rl_training.tools.play import play_game
from test_planner_learner import muzero, places


def signed(text: str) -> np.ndarray:
    """A board drawn as rows of `X`, the first player's, `O` and `.`."""
    return np.array([[{".": 0, "X": 1, "O": -1}[piece] for piece in line] for line in text.split()], dtype=np.int8)


def lines(rows: int, columns: int, length: int) -> list[list[tuple[int, int]]]:
    """Every line of a board, cell by cell."""
    ways = ((0, 1), (1, 0), (1, 1), (1, -1))
    starts = [(r, c, d, e) for r in range(rows) for c in range(columns) for d, e in ways]
    found = [[(r + k * d, c + k * e) for k in range(length)] for r, c, d, e in starts]
    return [line for line in found if all(0 <= r < rows and 0 <= c < columns for r, c in line)]


@pytest.mark.parametrize(("game", "count"), [(TicTacToe(), 8), (ConnectFour(), 69)])
def test_every_line_wins_and_no_line_less_one_does(game: BoardGame, count: int) -> None:
    all_lines = lines(game.rows, game.columns, game.in_a_row)
    assert len(all_lines) == count
    for line in all_lines:
        board = game.empty()
        for cell in line[:-1]:
            board[cell] = -1
        assert not game.has_won(board, -1)
        board[line[-1]] = -1
        assert game.has_won(board, -1)
        assert not game.has_won(board, 1)


def test_what_is_seen_paid_and_allowed_changes_sides_with_every_move() -> None:
    env = TicTacToe()
    obs, info = env.reset(seed=0)
    assert (info["to_play"], info["action_mask"].tolist()) == (0, [1] * 9)
    rewards, turns = [], []
    for move in (0, 3, 1, 4, 2):  # X fills the first row
        obs, reward, over, _, info = env.step(move)
        rewards.append(reward)
        turns.append(info["to_play"])
    assert over
    assert rewards == [0, 0, 0, 0, 1]
    assert turns == [1, 0, 1, 0, 1]
    assert obs[..., 1].reshape(-1).tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]  # O would move, and sees X as the other
    assert info["action_mask"].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="move 0 is not legal"):
        env.step(0)


def test_pieces_fall_and_a_full_column_is_closed() -> None:
    env = ConnectFour()
    env.reset(seed=0)
    for _ in range(6):
        _, _, over, _, info = env.step(3)
    assert not over
    assert info["action_mask"].tolist() == [1, 1, 1, 0, 1, 1, 1]
    assert env.board[:, 3].tolist() == [-1, 1, -1, 1, -1, 1]


def test_against_an_opponent_everything_is_told_from_the_policys_side() -> None:
    env, outcomes, sides = TicTacToe(opponent="random"), set(), set()
    for seed in range(40):
        obs, info = env.reset(seed=seed)
        sides.add(info["to_play"])
        own, over = info["to_play"], False
        while not over:
            assert info["to_play"] == own
            pieces = obs.sum((0, 1), dtype=int)
            assert pieces[0] - pieces[1] == (-1 if own else 0)
            obs, reward, over, _, info = env.step(int(info["action_mask"].argmax()))
            assert info["is_success"] == (reward == 1)
            if over:
                break
        outcomes.add(reward)
    assert sides == {0, 1}
    assert outcomes >= {-1.0, 1.0}


def games(first: str, second: str, count: int, game: BoardGame) -> list[int]:
    """Outcomes for the first player of games between two opponents."""
    players, rng, found = (make_opponent(first), make_opponent(second)), np.random.default_rng(0), []
    for _ in range(count):
        board, turn = game.empty(), 0
        while not game.has_won(board, -1 if turn % 2 == 0 else 1) and game.legal(board).any():
            player = 1 if turn % 2 == 0 else -1
            board = game.after(board, players[turn % 2](game, board, player, rng), player)
            turn += 1
        found.append(int(game.has_won(board, 1)) - int(game.has_won(board, -1)))
    return found


def test_games_begin_after_up_to_as_many_random_moves_as_asked_for_and_are_not_over() -> None:
    game = TicTacToe(random_opening=6)
    lengths = set()
    for seed in range(200):
        _, info = game.reset(seed=seed)
        assert not game.has_won(game.board, 1)
        assert not game.has_won(game.board, -1)
        pieces = int((game.board != 0).sum())
        assert info["to_play"] == pieces % 2
        lengths.add(pieces)
    assert lengths == set(range(7))
    with pytest.raises(ConfigError, match="random_opening: from 0"):
        TicTacToe(random_opening=-1)


def test_a_perfect_player_never_loses_and_draws_against_itself() -> None:
    game = TicTacToe()
    assert Perfect().value(game, game.empty(), 1) == 0
    assert min(games("perfect", "random", 30, game)) >= 0
    assert max(games("one_ply", "perfect", 30, game)) <= 0
    assert set(games("perfect", "perfect", 10, game)) == {0}


def test_opponents_are_ordered_by_what_they_know() -> None:
    assert np.mean(games("one_ply", "random", 20, ConnectFour())) > 0.5
    assert np.mean(games("rollouts:30", "random", 6, ConnectFour())) > 0.5
    with pytest.raises(ConfigError, match="unknown opponent 'perfekt'; did you mean 'perfect'"):
        make_opponent("perfekt")
    with pytest.raises(ConfigError, match="nine cells"):
        games("perfect", "random", 1, ConnectFour())


def test_one_ply_wins_before_it_hinders() -> None:
    game, rng = TicTacToe(), np.random.default_rng(0)
    play = make_opponent("one_ply")
    assert play(game, signed("XX. OO. ..."), 1, rng) == 2
    assert play(game, signed("XX. OO. ..."), -1, rng) == 5
    assert play(game, signed("XX. O.. ..."), -1, rng) == 2


# ---- planners


def test_values_of_a_game_change_sign_with_every_move() -> None:
    """Every move pays its mover 1: with n = 2 and γ = ½ a state is worth 1 − ½ + ¼ v of the state two moves on."""
    learner = muzero(players=2, gamma=0.5, n_steps=2, unroll_steps=1)
    learner.replay.write("next_values", places(*range(12)), np.full(12, 8.0, dtype=np.float32))
    targets = learner.batch(places(3), np.ones(1))["value_targets"]
    torch.testing.assert_close(targets, torch.full((2, 1), 1.0 - 0.5 + 0.25 * 8.0))


@pytest.mark.parametrize("cells", ["XX. OO. ...", "XOX OXO OX.", "XO. XO. ..."])
def test_a_planner_searches_legal_moves_only(cells: str) -> None:
    agent = GumbelMuZero(TicTacToe, num_envs=1, eval_episodes=0, num_simulations=16, players=2, latent_size=4)
    env = TicTacToe()
    env.reset(seed=0)
    env.board = signed(cells)
    mask = env.legal(env.board)
    action, _ = agent.predict(env.observation(), action_mask=mask)
    assert mask[int(action)]
    agent.close()


def test_a_game_is_learned_from_playing_both_sides() -> None:
    """Whoever takes the last of four matches, one or two at a time, wins: the first move must leave three."""
    sizes = {"hidden_sizes": [32], "latent_size": 16, "hidden_size": 32, "support_size": 3, "batch_size": 64}
    targets = {"gamma": 1.0, "n_steps": 1, "value_coef": 1.0, "reanalyse_fraction": 0.5}
    pace = {"num_simulations": 8, "replay_ratio": 0.5, "learning_starts": 64, "learning_rate": 3e-3}
    agent = GumbelMuZero(Matches, num_envs=8, eval_episodes=0, players=2, **sizes, **targets, **pace)
    agent.train(1_500)
    values = agent.policy.values(torch.eye(5)[[1, 2, 3, 4]])
    assert values[[0, 1, 3]].min() > 0.2
    assert values[2] < -0.2
    assert [int(agent.predict(np.eye(5, dtype=np.float32)[n])[0]) + 1 for n in (2, 4)] == [2, 1]
    agent.close()


class Matches(gym.Env):
    """Players take one or two of four matches by turns; whoever takes the last wins. Of one, two are as good as one."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 1, (5,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.left = 4

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 4
        return np.eye(5, dtype=np.float32)[self.left], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left = max(self.left - 1 - int(action), 0)
        won = self.left == 0
        return np.eye(5, dtype=np.float32)[self.left], float(won), won, False, {}

    def state_dict(self) -> dict[str, Any]:
        return {"left": self.left}

    def load_state_dict(self, state: Any) -> None:
        self.left = state["left"]


def test_a_person_plays_in_the_terminal_and_sees_the_search() -> None:
    agent = GumbelMuZero(TicTacToe, num_envs=1, eval_episodes=0, num_simulations=4, players=2, latent_size=4)
    shown: list[str] = []
    answers = iter(["9", "first", "0"])  # the first two are no moves
    session = agent._session

    def ask(prompt: str) -> str:
        return next(answers, "q")

    assert play_game(session, side=0, ask=ask, show=shown.append, seed=0) is None
    assert shown[0] == ". . .\n. . .\n. . ."
    assert shown[1].startswith("X . .")
    assert shown[2].startswith("plays ")
    prompts: list[str] = []

    def first_legal(prompt: str) -> str:
        prompts.append(prompt)
        return prompt.partition("[")[2][0]

    assert play_game(session, side=1, ask=first_legal, show=shown.append, seed=0) in (1.0, 0.0, -1.0)
    assert "1, 2" in prompts[0] or "0, " in prompts[0]
    agent.close()


def test_only_games_for_two_are_played() -> None:
    agent = GumbelMuZero(Matches, num_envs=1, eval_episodes=0, num_simulations=4)
    with pytest.raises(ConfigError, match="was not trained in a game with players: 2"):
        play_game(agent._session, side=0, ask=input, show=print)
    agent.close()


# ---- ratings


def test_odds_of_ten_to_one_are_400_points() -> None:
    ratings = elo_ratings(np.array([[0.0, 1_000.0], [10_000.0, 0.0]]))
    np.testing.assert_allclose(ratings, [0.0, 400.0], atol=1.0)
    # Three in a row, each of whom beats the one before three times in four: 400 · log₁₀ 3 apart.
    points = np.array([[0, 250, 100], [750, 0, 250], [900, 750, 0]], dtype=float)
    np.testing.assert_allclose(np.diff(elo_ratings(points)), 400 * np.log10(3), atol=1.0)
    assert np.isfinite(elo_ratings(np.array([[0.0, 0.0], [8.0, 0.0]]))).all()


@pytest.fixture
def game_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A run that has played both sides of TicTacToe for 64 moves."""
    sizes = {"latent_size": 4, "hidden_size": 8, "num_simulations": 2, "learning_starts": 16, "players": 2}
    config = {
        "algo": "gumbel_muzero",
        "env_id": "rl_training.envs.boards:TicTacToe",
        "total_timesteps": 64,
        "checkpoint_interval": 32,
        "num_envs": 2,
        "eval_episodes": 0,
        "output_dir": str(tmp_path),
        "algo_kwargs": sizes,
    }
    run = train_run(make_config(config)).run_dir
    capsys.readouterr()
    return str(run)


def test_a_run_is_evaluated_against_a_named_opponent(game_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", game_run, "--episodes", "8", "--json"]) == 0
    assert "success_rate" not in json.loads(capsys.readouterr().out)  # both sides are its own
    against = ["--eval-env-kwargs", "{opponent: random}"]
    assert main(["evaluate", game_run, "--episodes", "8", "--json", *against]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert 0 < scores["success_rate"] <= 1
    assert scores["return_mean"] <= scores["success_rate"]  # wins less losses


def test_checkpoints_play_each_other_with_both_sides(game_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["elo", game_run, "--games", "4", "--json"]) == 0
    ratings = json.loads(capsys.readouterr().out)["ratings"]
    assert [row["checkpoint"] for row in ratings] == ["step-32", "step-64"]
    assert sum(row["points"] for row in ratings) == 4
    assert ratings[0]["elo"] == 0
    assert main(["elo", game_run, "--games", "3"]) == 2
    assert "an even number" in capsys.readouterr().err
