"""A model card of a run in Markdown: the task, scores with their spread, settings, curve, and how to load it.

All that a run says is quoted: strangers make some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rl_training.errors import MissingExtraError
from rl_training.experiment.checkpointing import resolve_checkpoint
from rl_training.experiment.files import naming_failures, replacing
from rl_training.experiment.rows import STEP_KEY
from rl_training.experiment.starts import versions
from rl_training.runtime.evaluation import score_text
from rl_training.tools.compare import compare_curves, score_rows
from rl_training.tools.curves import RunCurves, find_runs, group_runs, read_run
from rl_training.tools.figures import drawn_curves

CARD_NAME, CURVE_NAME = "README.md", "curve.svg"
PRIVATE = ("output_dir", "run_name", "ray_address", "init_from")  # settings that speak of this machine only


class Card(NamedTuple):
    text: str
    curve: str  # SVG; empty where nothing can be drawn


def make_card(run_dir: Path | str, *, which: str | int = "latest", repo: str | None = None) -> Card:
    """The card of a run's checkpoint; `repo` is where it can be had from."""
    run = read_run(Path(run_dir))
    step = int(resolve_checkpoint(run.path, which).name.removeprefix("step-"))
    curve = _curve(run)
    parts = [
        _front_matter(run, step),
        f"# {_quoted(run.config.get('algo'))} on {_quoted(run.config.get('env_id'))}",
        f"A policy trained with [rl_training](https://pypi.org/project/rl-training/) for {step:,} environment steps.",
        *_scores(run, step),
        *([f"## Learning curve\n\n![learning curve]({CURVE_NAME})"] if curve else []),
        f"## How to load it\n\n{_how_to_load(repo)}",
        f"## Settings\n\n{_fenced(yaml.safe_dump(_settings(run.config), sort_keys=False, allow_unicode=True), 'yaml')}",
        "## Versions\n\n" + ", ".join(f"{name} {version}" for name, version in versions().items()),
    ]
    return Card("\n\n".join(parts) + "\n", curve)


def write_card(
    run_dir: Path | str, output: Path | str, *, which: str | int = "latest", repo: str | None = None
) -> Path:
    """Writes the card, and its curve beside it; returns the card's path."""
    card, path = make_card(run_dir, which=which, repo=repo), Path(output)
    path = path / CARD_NAME if path.is_dir() or not path.suffix else path
    with naming_failures(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, text in ((path.name, card.text), (CURVE_NAME, card.curve)):
            if text:
                with replacing(path.with_name(name)) as file:
                    file.write(text)
    return path


def evaluation_at(run: RunCurves, step: int) -> Mapping[str, Any]:
    """The last evaluation of the policy of a step, or else the last one before it; empty where there was none."""
    rows = [row for row in run.rows if "eval_return_mean" in row and isinstance(row.get(STEP_KEY), int)]
    return next((row for row in reversed(rows) if row[STEP_KEY] <= step), {})


def _scores(run: RunCurves, step: int) -> list[str]:
    row = evaluation_at(run, step)
    if not row:
        return ["## Scores\n\nIt was not evaluated."]
    scores = {name.removeprefix("eval_"): value for name, value in row.items() if name.startswith("eval_")}
    of_run = f"Greedy evaluation at step {row[STEP_KEY]:,}: {_plain(score_text(scores))}."
    seeds = _seeds_of(run)
    if len(seeds) < 2:
        return [f"## Scores\n\n{of_run} One seed only: the spread over seeds was not measured."]
    found = compare_curves(seeds, by=None, target=None, metric="eval_return_mean", left_out=())
    rows = score_rows(found, str(run.config.get("env_id")))
    return [
        f"## Scores\n\n{of_run}\n\nThe last evaluations of {len(seeds)} seeds of this configuration:\n\n{_table(rows)}"
    ]


def _seeds_of(run: RunCurves) -> Sequence[RunCurves]:
    """The runs beside it that differ in their seed only, itself among them."""
    beside, _ = find_runs([run.path.parent])
    lines = (line for line in group_runs(beside) if any(each.path == run.path for each in line.runs))
    return next((line.runs for line in lines), (run,))


def _curve(run: RunCurves) -> str:
    try:
        return drawn_curves([run], "return_mean", None)
    except MissingExtraError:  # without the extra `plot` a card has no curve
        return ""


def _front_matter(run: RunCurves, step: int) -> str:
    algo, env = str(run.config.get("algo")), str(run.config.get("env_id"))
    data: dict[str, Any] = {
        "library_name": "rl-training",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-reinforcement-learning", algo, env],
    }
    row = evaluation_at(run, step)
    if row:
        value = f"{row['eval_return_mean']:.2f} +/- {row.get('eval_return_std') or 0.0:.2f}"
        metric = {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}
        data["model-index"] = [{"name": algo, "results": [result]}]
    return f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}---"


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in PRIVATE}


def _how_to_load(repo: str | None) -> str:
    pull = f"rl-training pull {repo} --output policy" if repo else "cp -r RUN policy"
    lines = [
        pull,
        "rl-training evaluate policy --episodes 20",
        "rl-training predict policy --obs '…'",
        "rl-training export policy --output policy.onnx",
    ]
    rule = "Loading runs no code that the files name, unless you say `--trust`; the weights are safetensors."
    return f"{_fenced(chr(10).join(lines), 'bash')}\n\n{rule}"


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    def line(cells: Sequence[object]) -> str:
        return f"| {' | '.join(_plain(str(cell)) for cell in cells)} |"

    names = list(rows[0])
    return "\n".join([line(names), line(["---"] * len(names)), *(line(list(row.values())) for row in rows)])


def _quoted(value: object) -> str:
    return f"`{_plain(str(value))}`"


def _plain(text: str) -> str:
    """Text that is nothing but text in Markdown and HTML."""
    return re.sub(r"[`|<>\[\]\r\n]", " ", text)


def _fenced(text: str, language: str) -> str:
    """A block that its own text cannot end."""
    longest = max((len(match) for match in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
