"""A report on runs: one HTML page that needs nothing but itself. All that runs say is escaped: strangers make some."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import yaml

from rl_training.errors import ConfigError
from rl_training.experiment.files import naming_failures, replacing
from rl_training.experiment.presets import ASSETS
from rl_training.experiment.rows import STEP_KEY
from rl_training.experiment.starts import read_starts
from rl_training.runtime.readings import duration_text, number_text
from rl_training.tools.compare import METRIC, Comparison, compare_curves, is_finished, runs_by_env, score_rows
from rl_training.tools.curves import RunCurves, find_runs, group_runs
from rl_training.tools.figures import drawn_curves, drawn_panels, drawn_profile

Rows = Sequence[Mapping[str, object]]
PAGE = ASSETS / "report.html"


class Report(NamedTuple):
    output: Path
    runs: list[Path]
    finished: bool  # whether every run has reached its budget
    notes: tuple[str, ...]


def write_report(
    paths: Iterable[Path | str],
    output: Path | str,
    *,
    by: str | None = None,
    target: float | None = None,
    metric: str = METRIC,
    refresh_s: int | None = None,
) -> Report:
    """Writes the page about the runs at or below the paths; with `refresh_s` it reloads until all have finished."""
    output = Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"cannot write a report to {output}: the name must end in .html")
    runs, without_rows = find_runs(paths)
    found = compare_curves(runs, by=by, target=target, metric=metric, left_out=without_rows)
    finished = not without_rows and all(map(is_finished, runs))
    reloads = refresh_s is not None and not finished
    text = Template(PAGE.read_text(encoding="utf-8")).substitute(
        title=escape(_title(runs)),
        refresh=f'<meta http-equiv="refresh" content="{refresh_s}">' if reloads else "",
        about=escape(_about(runs, found)),
        body="\n".join(_body(runs, found, by)),
    )
    with naming_failures(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(output) as file:
            file.write(text)
    return Report(output, [run.path for run in runs], finished, found.notes)


def _title(runs: Sequence[RunCurves]) -> str:
    algos, envs = (dict.fromkeys(str(run.config.get(key)) for run in runs) for key in ("algo", "env_id"))
    return f"{', '.join(algos)} on {', '.join(envs)}"


def _about(runs: Sequence[RunCurves], found: Comparison) -> str:
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    target = "" if found.target is None else f", target {found.target:g}"
    now = time.strftime("%Y-%m-%d %H:%M")
    return f"{count}, grouped by {found.by}; scores are the last {found.metric}{target}; {now}"


def _body(runs: Sequence[RunCurves], found: Comparison, by: str | None) -> Iterable[str]:
    if found.notes:
        yield '<ul class="notes">' + "".join(f"<li>{escape(note)}</li>" for note in found.notes) + "</ul>"
    for env in dict.fromkeys(group.env for group in found.groups):
        yield f"<h2>{escape(env)}</h2>"
        yield table(score_rows(found, env))
        if of_env := runs_by_env(runs).get(env):
            yield '<div class="figures">' + "".join(_figures(of_env, found, by)) + "</div>"
    if found.improvements:
        yield "<h2>Probability of improvement</h2>"
        yield table([_improvement_row(each) for each in found.improvements])
    yield "<h2>Runs</h2>"
    yield table([run_row(run, found.metric) for run in runs])
    yield "<h2>Settings</h2>"
    for line in group_runs(runs):
        config = {key: value for key, value in line.runs[0].config.items() if key not in ("seed", "run_name")}
        name = f"{config.get('algo')} on {config.get('env_id')}: {line.label}"
        yield _folded(name, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    yield "<h2>Commands and versions</h2>"
    yield from (_folded(str(run.path), _starts_text(run)) for run in runs)


def _figures(runs: Sequence[RunCurves], found: Comparison, by: str | None) -> Iterable[str]:
    curve = found.metric.removeprefix("eval_")
    shown = [
        ("learning curves, and schedules as they were used", drawn_curves(runs, curve, by)),
        ("losses and diagnostics", drawn_panels(runs, by)),
        ("performance profile", drawn_profile(runs, found.metric, by)),
    ]
    return (f"<figure>{svg}<figcaption>{caption}</figcaption></figure>" for caption, svg in shown if svg)


def _improvement_row(each: Any) -> dict[str, object]:
    interval = "-" if each.interval is None else f"{each.interval.low:.2f} to {each.interval.high:.2f}"
    return {"first": each.group, "second": each.over, "P(first > second)": f"{each.probability:.2f}", "95%": interval}


def run_row(run: RunCurves, metric: str) -> dict[str, object]:
    last = {name: run.series(name).values[-1:] for name in (metric, "seconds", "cpu_seconds", STEP_KEY)}
    seconds, cpu_seconds = (
        duration_text(last[name][0]) if len(last[name]) else "-" for name in ("seconds", "cpu_seconds")
    )
    return {
        "run": str(run.path),
        "algo": run.config.get("algo"),
        "seed": run.config.get("seed"),
        "steps": number_text(int(last[STEP_KEY][0])) if len(last[STEP_KEY]) else "-",
        metric: number_text(float(last[metric][0])) if len(last[metric]) else "-",
        "time": seconds,
        "CPU time": cpu_seconds,
        "finished": "yes" if is_finished(run) else "no",
    }


def _starts_text(run: RunCurves) -> str:
    return "\n\n".join(map(_start_text, read_starts(run.path))) or "not recorded"


def _start_text(start: Mapping[str, Any]) -> str:
    """One start of a run: when, how, with what and where."""
    versions = start.get("versions")
    named = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
    lines = [
        f"{start.get('time')}, from step {start.get('global_step')}:",
        f"$ {start.get('command')}",
        ", ".join(named),
        f"{start.get('platform')}, {start.get('cpus')} CPUs",
    ]
    return "\n".join(lines)


def table(rows: Rows) -> str:
    """A table that sorts by the column whose head is clicked."""
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _folded(name: str, text: str) -> str:
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
