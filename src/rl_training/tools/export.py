"""A policy as a file that runs without this package: ONNX, torch's own program, or its weights alone.

What was written is opened again and compared with the policy on real observations before it is called done.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rl_training.data.trees import Tree, to_observations
from rl_training.errors import ConfigError, RLTrainingError, import_extra
from rl_training.experiment.files import refuse_unwritable
from rl_training.models.grids import GridTorso
from rl_training.models.mlp import MLP
from rl_training.models.torsos import ImageTorso
from rl_training.runtime.collector import restarted
from rl_training.runtime.session import Session
from rl_training.runtime.stopping import active
from rl_training.tools.policy_graph import Graph, PolicyGraph, RootGraph, graphs_of, pick

SUFFIXES = (".onnx", ".pt2", ".safetensors")
CHECKED_OBSERVATIONS = 1000
CHECKED_AT_ONCE = 8  # environments
TOLERANCE = 1e-4  # of numbers, relative to the largest; rounding in another order of the same sums
WITH_PRECISION = (MLP, ImageTorso, GridTorso)  # networks that may compute in bfloat16
SHARE_OF_TIES = 1e-2  # observations at which such rounding may decide a choice, of an action or within a memory

Run = Callable[[tuple[Tensor, ...]], list[NDArray[Any]]]  # what was opened again: a graph's inputs → its outputs


class Exported(NamedTuple):
    """The files, and how they compare with the policy on real observations."""

    files: tuple[Path, ...]
    observations: int
    equal: int  # observations with the same choices, and numbers that differ by rounding only
    largest_difference: float  # of these numbers, relative to the largest
    inputs: Mapping[str, list[str]]
    outputs: Mapping[str, list[str]]

    def __str__(self) -> str:
        same = f"{self.equal} of {self.observations} observations"
        return (
            f"{', '.join(map(str, self.files))}: same actions for {same}, numbers within {self.largest_difference:.1e}"
        )

    def summary(self) -> dict[str, Any]:
        return {**self._asdict(), "files": [str(file) for file in self.files]}


def export_policy(
    session: Session, output: Path | str, *, deterministic: bool = True, observations: int = CHECKED_OBSERVATIONS
) -> Exported:
    """Writes the policy to an `.onnx`, `.pt2` or `.safetensors` file, opens it again and compares it.

    Planners, whose actions come from a search, are written as the networks that the search asks, one file for each.
    """
    output = Path(output)
    if output.suffix not in SUFFIXES:
        raise ConfigError(f"cannot export to {output}: the name must end in {', '.join(SUFFIXES)}")
    if observations < 1:
        raise ConfigError(f"observations: at least 1 to compare on, got {observations}")
    refuse_unwritable(output)
    session.move_controls()
    policy = _in_float32(session.policy)
    graphs = graphs_of(policy, session.spaces, deterministic=deterministic)
    note = _note(session, deterministic=deterministic)
    if output.suffix == ".safetensors":
        files: tuple[Path, ...] = (output,)
        runs = _write_weights(graphs, output, note)
    else:
        named = {name: output.with_stem(f"{output.stem}.{name}") if name else output for name in graphs}
        write = _write_onnx if output.suffix == ".onnx" else _write_program
        files, runs = tuple(named.values()), {name: write(graphs[name], file, note) for name, file in named.items()}
    check = _Check()
    with torch.no_grad(), active().interruptible():
        for asked in _real_inputs(session, graphs, observations):
            for name, inputs in asked.items():
                expected = [np.asarray(part) for part in _on_cpu(graphs[name].expected(policy, inputs))]
                check.compare(graphs[name], expected, runs[name](inputs))
    return check.passed(files, graphs)


def _in_float32(policy: Any) -> Any:
    """The policy, or a copy where it computes in bfloat16, whose products other runtimes may not know."""
    modules = policy.modules() if isinstance(policy, nn.Module) else ()
    if not any(isinstance(module, WITH_PRECISION) and module.precision != "float32" for module in modules):
        return policy
    copied = copy.deepcopy(policy)
    for module in copied.modules():
        if isinstance(module, WITH_PRECISION):
            module.precision = "float32"
    return copied


def _note(session: Session, *, deterministic: bool) -> dict[str, str]:
    """The text that a file carries about itself."""
    config = session.config
    about = {"algo": config.algo, "env_id": config.env_id, "action": "greedy" if deterministic else "sampled"}
    return {**about, "made_by": "rl_training", "global_step": str(session.progress.global_step)}


class _Check:
    """Compares what the policy answers with what the opened files do."""

    def __init__(self) -> None:
        self.rows = self.equal = 0
        self.difference = 0.0

    def compare(self, graph: Graph, wanted: list[NDArray[Any]], found: list[NDArray[Any]]) -> None:
        same = np.ones(len(wanted[0]), dtype=bool)
        for name, expected, given in zip(graph.output_names, wanted, found, strict=True):
            if (expected.dtype, expected.shape) != (given.dtype, given.shape):
                forms = [f"{part.dtype}{list(part.shape)}" for part in (given, expected)]
                raise RLTrainingError(f"the opened file gives {name} as {forms[0]}, the policy as {forms[1]}")
            gaps = _gaps(expected, given).reshape(len(same), -1).max(-1, initial=0.0)
            same &= gaps <= TOLERANCE
            self.difference = max(self.difference, gaps[same].max(initial=0.0))
        self.rows += len(same)
        self.equal += int(same.sum())

    def passed(self, files: tuple[Path, ...], graphs: Mapping[str, Graph]) -> Exported:
        names = [{name or "policy": getattr(graph, key) for name, graph in graphs.items()} for key in _NAMES]
        observations = self.rows // len(graphs)
        equal = observations - (self.rows - self.equal)
        exported = Exported(files, observations, equal, self.difference, *names)
        if self.rows - self.equal > SHARE_OF_TIES * self.rows:
            raise RLTrainingError(f"the file was written but does not act as the policy does: {exported}")
        return exported


_NAMES = ("input_names", "output_names")


def _gaps(expected: NDArray[Any], given: NDArray[Any]) -> NDArray[np.float64]:
    """How far numbers are apart, relative to the largest; choices are the same or are not."""
    if expected.dtype.kind != "f":
        return (expected != given).astype(np.float64)
    return np.abs(expected.astype(np.float64) - given) / max(np.abs(expected).max(initial=0.0), 1.0)


def _on_cpu(answers: tuple[Any, ...]) -> Iterator[Any]:
    return (part.cpu() if isinstance(part, Tensor) else part for part in answers)


def _real_inputs(session: Session, graphs: Mapping[str, Graph], rows: int) -> Iterator[dict[str, tuple[Tensor, ...]]]:
    """The graphs' inputs while the policy plays on environments of its own, step by step."""
    envs = session.eval_envs.get(min(CHECKED_AT_ONCE, rows))
    session.lend_envs()
    policy, seed = session.policy, session.evaluation_seed()
    generator = torch.Generator().manual_seed(seed)
    obs, state = envs.reset(seed), policy.initial_state(envs.num_envs)
    for _ in range(-(-rows // envs.num_envs)):
        acted = policy.act(to_observations(obs, policy.device), state, deterministic=True)
        yield _asked(graphs, to_observations(obs), state.cpu(), acted.actions.cpu(), generator)
        step = envs.step(policy.env_actions(acted.actions.cpu().numpy()))
        obs, state = step.obs, restarted(acted.state, step.starts, policy)


def _asked(
    graphs: Mapping[str, Graph], obs: Tree, state: Tensor, actions: Tensor, generator: torch.Generator
) -> dict[str, tuple[Tensor, ...]]:
    """The inputs of each graph at one step."""
    if isinstance(acting := graphs.get(""), PolicyGraph):
        return {"": acting.inputs(obs, state, generator)}
    root = graphs["root"]
    assert isinstance(root, RootGraph)
    inputs = tuple(pick(obs, root.leaves))
    return {"root": inputs, "dynamics": (root(*inputs)[0], actions)}


def _write_onnx(graph: Graph, output: Path, note: Mapping[str, str]) -> Run:
    for module in ("onnx", "onnxscript"):
        import_extra(module, "export")
    runtime = import_extra("onnxruntime", "export")
    program = _traced(graph)
    with _quietly():
        written = torch.onnx.export(
            program, input_names=graph.input_names, output_names=graph.output_names, dynamo=True, verbose=False
        )
    assert written is not None
    written.model.metadata_props.update(note)
    written.save(output)
    opened = runtime.InferenceSession(str(output), providers=["CPUExecutionProvider"])
    return lambda inputs: opened.run(
        graph.output_names, {name: part.numpy() for name, part in zip(graph.input_names, inputs, strict=True)}
    )


def _write_program(graph: Graph, output: Path, note: Mapping[str, str]) -> Run:
    names = {"inputs": graph.input_names, "outputs": graph.output_names}
    torch.export.save(_traced(graph), output, extra_files={"about.json": json.dumps({**note, **names})})
    with _quietly():
        opened = torch.export.load(output).module()
    return lambda inputs: [part.numpy() for part in opened(*inputs)]


def _traced(graph: Graph) -> torch.export.ExportedProgram:
    """The graph as torch records it, for batches of any size."""
    examples = graph.examples()
    batch = torch.export.Dim("batch", min=1)
    try:
        with _quietly(), torch.no_grad():
            return torch.export.export(graph, examples, dynamic_shapes=(tuple({0: batch} for _ in examples),))
    except Exception as error:  # a network, perhaps the user's own, does what torch cannot record
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(
            f"torch cannot record this policy as a graph: {reason}; .safetensors has its weights"
        ) from error


def _write_weights(graphs: Mapping[str, Graph], output: Path, note: Mapping[str, str]) -> dict[str, Run]:
    """Writes all weights, the normaliser's with them, and loads them into other copies of the networks."""
    state = next(iter(graphs.values())).network.state_dict()
    save_file({key: value.contiguous().clone() for key, value in state.items()}, output, dict(note))
    loaded = load_file(output)
    return {name: _reloaded(graph, loaded) for name, graph in graphs.items()}


def _reloaded(graph: Graph, loaded: Mapping[str, Tensor]) -> Run:
    twin = copy.deepcopy(graph)
    for tensor in twin.network.state_dict().values():
        tensor.zero_()
    twin.network.load_state_dict(loaded)
    return lambda inputs: [part.numpy() for part in twin(*inputs)]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch tells about its own insides while it records."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
