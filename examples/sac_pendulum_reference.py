"""SAC on Pendulum-v1. A quick look: `python examples/sac_pendulum_reference.py --total-timesteps 5000`."""

from reference import run

if __name__ == "__main__":
    run("sac/pendulum")
