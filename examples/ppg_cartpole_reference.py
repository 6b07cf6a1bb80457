"""PPG on CartPole-v1. A quick look: `python examples/ppg_cartpole_reference.py --total-timesteps 5000`."""

from reference import run

if __name__ == "__main__":
    run("ppg/cartpole")
