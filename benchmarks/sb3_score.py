"""What Stable-Baselines3 reaches on a task: one seed, one JSON line, by `.venv-bench`'s Python."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", help="module:Class with the interface of Stable-Baselines3")
    parser.add_argument("env_id")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--episodes", type=int, default=20, help="greedy ones of the final evaluation [20]")
    parser.add_argument("--kwargs", type=json.loads, default={}, help="of the class, as JSON; default: its own values")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(score(args)))


def score(args: argparse.Namespace) -> dict[str, Any]:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    module, _, name = args.algorithm.partition(":")
    envs = make_vec_env(args.env_id, 1, seed=args.seed)
    model = getattr(importlib.import_module(module), name)(
        "MlpPolicy", envs, seed=args.seed, device="cpu", **args.kwargs
    )
    model.learn(args.steps)
    fresh = make_vec_env(args.env_id, 1, seed=args.seed + 10_000)
    returns, _ = evaluate_policy(model, fresh, n_eval_episodes=args.episodes, return_episode_rewards=True)
    return {
        "return_mean": sum(returns) / len(returns),
        "return_min": min(returns),
        "global_step": model.num_timesteps,
    }


if __name__ == "__main__":
    main()
