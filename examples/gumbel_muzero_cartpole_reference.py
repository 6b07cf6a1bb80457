"""Gumbel MuZero on CartPole-v1.

A quick look: `python examples/gumbel_muzero_cartpole_reference.py --total-timesteps 5000`.
"""

from reference import run

if __name__ == "__main__":
    run("gumbel_muzero/cartpole")
