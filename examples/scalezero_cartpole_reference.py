"""ScaleZero on CartPole-v1.

A quick look: `python examples/scalezero_cartpole_reference.py --total-timesteps 5000`.
"""

from reference import run

if __name__ == "__main__":
    run("scalezero/cartpole")
