"""Recurrent PPO on CartPole-v1 without its velocities.

A quick look: `python examples/recurrent_ppo_cartpole_reference.py --total-timesteps 5000`.
"""

from reference import run

if __name__ == "__main__":
    run("recurrent_ppo/cartpole_masked")
