"""`python -m rl_training` is `rl-training`."""

from rl_training.cli.main import entry

if __name__ == "__main__":
    entry()
