"""What the reference scripts share: the flags, the managed class of a preset's algorithm, and the report."""

import argparse

import rl_training
from rl_training.experiment.presets import load_preset
from rl_training.experiment.registry import REGISTRY


def run(preset: str) -> None:
    """Trains a preset through the managed API and prints how well it plays."""
    parser = argparse.ArgumentParser(description=f"Trains the preset {preset}.")
    parser.add_argument("--total-timesteps", type=int, help="default: the preset's")
    parser.add_argument("--eval-episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", help="where to keep the trained agent")
    args = parser.parse_args()

    config = load_preset(preset)
    managed = getattr(rl_training, REGISTRY[config.pop("algo")].class_name)
    budget = args.total_timesteps or config.pop("total_timesteps")
    agent = managed(config.pop("env_id"), **{**config, "seed": args.seed, "eval_episodes": 0})
    agent.train(budget)
    scores = agent.evaluate(episodes=args.eval_episodes)
    print(f"{agent.num_timesteps:,} steps: return {scores['return_mean']:.1f}, worst {scores['return_min']:.1f}")
    if args.save:
        print(f"saved: {agent.save(args.save)}")
