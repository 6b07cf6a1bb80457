"""GAIL on CartPole-v1, from ten packaged episodes. A quick look: add `--total-timesteps 5000`."""

from reference import run

if __name__ == "__main__":
    run("gail/cartpole")
