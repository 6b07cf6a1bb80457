"""`predict`: actions for observations given as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from rl_training.cli.flags import add_run, add_trust, which_checkpoint
from rl_training.cli.main import Answer
from rl_training.errors import ConfigError
from rl_training.runtime.opening import load_policy
from rl_training.runtime.workflows import predict
from rl_training.tools.wire import arrays_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_trust(parser, needs_env=False)
    parser.add_argument("--obs", metavar="JSON", help="one observation or a list of them; default: standard input")
    parser.add_argument(
        "--action-mask", metavar="JSON", help="which actions are legal: a list of 0 and 1 for each observation"
    )
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the best")


def run(args: argparse.Namespace) -> Answer:
    text = sys.stdin.read() if args.obs is None else args.obs
    obs = _read("--obs", text)
    mask = None if args.action_mask is None else _read("--action-mask", args.action_mask)
    policy = load_policy(args.run, which=which_checkpoint(args), trust=args.trust)
    actions, _ = predict(policy, obs, deterministic=not args.stochastic, action_mask=mask)
    return Answer(json.dumps(np.asarray(actions).tolist()), {"action": np.asarray(actions).tolist()})


def _read(flag: str, text: str) -> Any:
    try:
        return arrays_from(json.loads(text))
    except ValueError as error:
        raise ConfigError(f"{flag} is not JSON of numbers: {error}") from error
