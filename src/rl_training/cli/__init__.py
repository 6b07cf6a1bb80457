"""The command line: `rl-training VERB`. One verb, one function; nothing heavy is imported before a verb is chosen."""

from rl_training.cli.main import entry, main

__all__ = ["entry", "main"]
