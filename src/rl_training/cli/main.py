"""Chooses the verb, runs it, prints its answer, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rl_training import __version__
from rl_training.blame import raised_at, told
from rl_training.errors import RLTrainingError, StoppedBySignal
from rl_training.naming import also_import_from
from rl_training.runtime.stopping import SIGNALS, stoppable

TRACEBACK = "--traceback"
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")  # as torch says it


class Answer(NamedTuple):
    """A verb's answer: to people, and with `--json` to programs."""

    text: str
    data: dict[str, Any]
    exit_code: int = 0


class Verb(NamedTuple):
    help: str
    module: str  # with `add_arguments(parser)` and `run(args) -> Answer`
    examples: tuple[str, ...]


VERBS = {
    "train": Verb(
        "train an agent",
        "train",
        (
            "rl-training train --config ppo/cartpole",
            "rl-training train ppo --env CartPole-v1 --total-timesteps 50000 --set clip_coef_schedule=linear",
            "rl-training train --config ppo/cartpole --seeds 0-4 --json",
            "rl-training train ppo --env my_package.envs:make --set 'ent_coef_schedule={kind: cosine, start: 0.01}'",
            "rl-training train ppo --env my_envs.py:make --init-from RUN --checkpoint best --set learning_rate=1e-4",
        ),
    ),
    "resume": Verb(
        "go on with a run from its latest checkpoint",
        "resume",
        ("rl-training resume RUN --total-timesteps 200000", "rl-training resume RUN --checkpoint best"),
    ),
    "evaluate": Verb(
        "play whole episodes with a run's policy",
        "evaluate",
        ("rl-training evaluate RUN --episodes 100", "rl-training evaluate RUN --checkpoint best --stochastic --json"),
    ),
    "predict": Verb(
        "actions for observations",
        "predict",
        ("rl-training predict RUN --obs '[0.0, 0.1, 0.02, -0.1]'", "echo '[[0, 0, 0, 0]]' | rl-training predict RUN"),
    ),
    "list": Verb("algorithms, presets, environments or runs", "list", ("rl-training list", "rl-training list runs")),
    "show": Verb(
        "a preset or a run with every default written out, or an algorithm's parameters",
        "show",
        ("rl-training show ppo", "rl-training show ppo/cartpole", "rl-training show RUN"),
    ),
    "plot": Verb(
        "learning curves, with the controls beneath",
        "plot",
        ("rl-training plot RUN --output curve.png", "rl-training plot runs/ppo/CartPole-v1/* --output seeds.svg"),
    ),
    "watch": Verb(
        "episodes in a window",
        "watch",
        ("rl-training watch RUN", "rl-training watch latest --checkpoint best --episodes 3 --fps 30"),
    ),
    "compare": Verb(
        "groups of runs side by side, with 95 % intervals",
        "compare",
        (
            "rl-training compare runs/ppo/CartPole-v1 runs/dqn/CartPole-v1 --by algo --target 475",
            "rl-training compare runs --by clip_coef --json",
        ),
    ),
    "report": Verb(
        "one HTML page about runs, that needs no network",
        "report",
        (
            "rl-training report runs/ppo/CartPole-v1 --output report.html",
            "rl-training report runs --by algo --target 475 --output report.html --watch",
        ),
    ),
    "board": Verb(
        "a local page that follows runs while they train",
        "board",
        ("rl-training board", "rl-training board runs/ppo --port 8200"),
    ),
    "tune": Verb(
        "search for good hyper-parameters",
        "tune",
        (
            "rl-training tune --config ppo/cartpole --trials 50 --jobs 2",
            "rl-training tune --config ppo/cartpole --space space.yaml --seeds 0-2 --pruning hyperband",
            "rl-training tune dqn --env Acrobot-v1 --target -100 --total-timesteps 50000",
        ),
    ),
    "record": Verb(
        "a video of episodes",
        "record",
        ("rl-training record RUN --output episode.mp4", "rl-training record RUN --episodes 3 --output play.gif"),
    ),
    "record-demos": Verb(
        "demonstrations of a run's policy, for imitation",
        "record_demos",
        ("rl-training record-demos RUN --episodes 10 --output demos.safetensors",),
    ),
    "dream": Verb(
        "what a world model expects against what happened",
        "dream",
        ("rl-training dream RUN --output dream.png", "rl-training dream RUN --context 10 --output dream.svg"),
    ),
    "play": Verb(
        "a game against a run's policy, in the terminal",
        "play",
        ("rl-training play RUN", "rl-training play RUN --checkpoint best --second"),
    ),
    "elo": Verb(
        "how strong a run's checkpoints are in games against each other",
        "elo",
        ("rl-training elo RUN", "rl-training elo RUN --games 100 --json"),
    ),
    "export": Verb(
        "a run's policy as a file that runs without this package",
        "export",
        ("rl-training export RUN --output policy.onnx", "rl-training export RUN --stochastic --output policy.pt2"),
    ),
    "serve": Verb(
        "a run's policy over HTTP",
        "serve",
        ("rl-training serve RUN", "rl-training serve RUN --checkpoint best --port 8080 --max-sessions 100"),
    ),
    "card": Verb(
        "a model card of a run, in Markdown",
        "card",
        ("rl-training card RUN", "rl-training card RUN --checkpoint best --output card/README.md"),
    ),
    "push": Verb(
        "upload a run's checkpoint to the Hugging Face Hub",
        "push",
        ("rl-training push RUN me/ppo-cartpole", "rl-training push RUN me/ppo-cartpole --checkpoint best --private"),
    ),
    "pull": Verb(
        "bring a run from the Hugging Face Hub",
        "pull",
        ("rl-training pull me/ppo-cartpole --output ppo-cartpole",),
    ),
    "doctor": Verb("versions, threads, extras, and a smoke run", "doctor", ("rl-training doctor",)),
}


def entry() -> NoReturn:
    """The whole process: a signal before `main` ends it, and one after `main` cannot change its exit code."""
    for signum in SIGNALS:
        signal.signal(signum, lambda number, _frame: os._exit(128 + number))
    code = main()
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] not in VERBS:
        _top_parser().parse_args(arguments or ["--help"])
        return 2
    name, verb = arguments[0], VERBS[arguments[0]]
    also_import_from(Path.cwd())
    try:
        with stoppable():
            return _run(name, verb, arguments[1:])
    except RLTrainingError as error:
        return _failed(error, str(error), error.exit_code, arguments)
    except Exception as error:  # of user code: an environment, a network, a callback
        message = machine_refusal(error) or (told(error) if raised_at(error) else None)
        if message is None:
            raise
        return _failed(error, message, RLTrainingError.exit_code, arguments)


def _failed(error: Exception, message: str, exit_code: int, arguments: Sequence[str]) -> int:
    """Says what went wrong in a line, after all that Python knows about it if the user wants to see that."""
    if TRACEBACK in arguments:
        traceback.print_exception(error)
    print(message if isinstance(error, StoppedBySignal) else f"error: {message}", file=sys.stderr)
    if "--json" in arguments:
        _tell(json.dumps({"error": message, "exit_code": exit_code}))
    return exit_code


def _tell(text: str) -> None:
    """Prints to whoever still reads: that a reader has left (`| head`) is no fault of the verb."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends


def _run(name: str, verb: Verb, arguments: list[str]) -> int:
    module = importlib.import_module(f"rl_training.cli.{verb.module}")
    args = _parsed(_verb_parser(name, verb, module), module, arguments)
    with _stdout_kept_clean() if args.json else nullcontext():
        answer = module.run(args)
    _tell(json.dumps(answer.data) if args.json else answer.text)
    return answer.exit_code


def _parsed(parser: argparse.ArgumentParser, module: Any, arguments: list[str]) -> argparse.Namespace:
    if not getattr(module, "takes_parameters", False):
        return parser.parse_args(arguments)
    args, rest = parser.parse_known_args(_with_values_joined(arguments, known=parser._option_string_actions))
    args.parameters = rest
    return args


def _with_values_joined(arguments: list[str], known: Container[str]) -> list[str]:
    """`--flag value` as `--flag=value` for flags that argparse does not know: it would take the value for another's."""
    joined: list[str] = []
    for argument in arguments:
        flag = joined[-1] if joined else ""
        if flag.startswith("--") and "=" not in flag and flag not in known and not argument.startswith("--"):
            joined[-1] = f"{flag}={argument}"
        else:
            joined.append(argument)
    return joined


def machine_refusal(error: Exception) -> str | None:
    """Says in one line what the machine lacks; None for an error of the program."""
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY):
        return f"out of memory; use fewer environments, a smaller replay or smaller networks ({_first_line(error)})"
    return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]


@contextmanager
def _stdout_kept_clean() -> Iterator[None]:
    """Sends to stderr what environments print, be it from Python, from C, or from processes that are started here."""
    if sys.stdout is not sys.__stdout__:  # somebody has replaced it already: there is no file to redirect
        with redirect_stdout(sys.stderr):
            yield
        return
    print(end="", flush=True)
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        print(end="", flush=True)
        os.dup2(stdout, 1)
        os.close(stdout)


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.help}" for name, verb in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="rl-training",
        usage="rl-training VERB [options]",
        description="Train, evaluate, resume and inspect deep-RL agents.",
        epilog=f"verbs:\n{verbs}\n\n`rl-training VERB --help` has options and examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rl-training {__version__}")
    parser.add_argument("verb", choices=list(VERBS), metavar="VERB", help=argparse.SUPPRESS)
    return parser


def _verb_parser(name: str, verb: Verb, module: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"rl-training {name}",
        description=f"{verb.help[0].upper()}{verb.help[1:]}.",
        epilog="examples:\n" + "\n".join(f"  {example}" for example in verb.examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.add_argument(TRACEBACK, action="store_true", help="when it fails, show where in the code")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, everything else on stderr")
    return parser
