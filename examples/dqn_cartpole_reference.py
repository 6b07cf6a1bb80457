"""DQN on CartPole-v1. A quick look: `python examples/dqn_cartpole_reference.py --total-timesteps 10000`."""

from reference import run

if __name__ == "__main__":
    run("dqn/cartpole")
