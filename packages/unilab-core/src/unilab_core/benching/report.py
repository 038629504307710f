"""A measurement as plain data, and on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from unilab_core.benching.bench import BenchReport, BenchRow
from unilab_core.benching.intervals import Line, Median
from unilab_core.benching.pairs import Pairs
from unisim.bare import Freshness

__all__ = ["in_text", "to_data"]

VERSION = 1
"""Of the data; rises when a key changes its meaning or goes."""
_WIDTH = 100
_LEAST_SHARE = 0.001
"""Phases that are less of a step at every number of rows are shown as one."""


def to_data(report: BenchReport) -> dict[str, Any]:
    """Returns numbers, texts, lists and dicts: what `--json` prints."""
    cfg = report.cfg
    return {
        "version": VERSION,
        "task": cfg.task.lower(),
        "backend": cfg.backend,
        "device": cfg.device,
        "action_std": cfg.action_std,
        "pairs": cfg.pairs,
        "warmup": cfg.warmup,
        "seed": cfg.seed,
        "overrides": list(cfg.overrides),
        "engine_threads": report.engine_threads,
        "machine": asdict(report.machine),
        "references": dict(report.references),
        "exact": report.exact,
        "rows": [_row(row) for row in report.rows],
        "above_physics": _line(report.above, "fixed_us", "per_env_us"),
        "load": {**asdict(report.load), "warning": report.load.warning},
        "notes": list(report.notes),
        "failure": report.failure or None,
    }


def _row(row: BenchRow) -> dict[str, Any]:
    pairs, step = row.pairs, row.pairs.step_us
    plain = "plain" in pairs.engine_s
    return {
        "num_envs": row.num_envs,
        "steps_per_window": pairs.steps,
        "env_steps_per_s": row.num_envs * 1e6 / step.value,
        **_interval("step_us", step),
        **_interval("physics_us", pairs.engine_us("fresh")),
        **_interval("plain_us", pairs.engine_us("plain") if plain else None),
        **_interval("step_over_physics", pairs.ratio("fresh")),
        **_interval("step_over_plain", pairs.ratio("plain") if plain else None),
        **_interval("above_physics_us", pairs.above_us("fresh")),
        "windows_us": _windows(pairs),
        "rows_reset_per_step": pairs.per_step(pairs.rows_reset),
        "rows_written_per_step": pairs.per_step(pairs.rows_written),
        "breakdown": {name: asdict(cost) for name, cost in row.phases.items()},
        "counts": {kind: asdict(counts) for kind, counts in row.counts.items()},
        "transfers": row.transfers,
        "reset": {
            "us": {str(k): us for k, us in row.reset.us.items()},
            "line": _line(row.reset.line, "intercept_us", "per_row_us"),
            "worst_deviation": row.reset.worst_deviation,
            "intercept_share_of_step": row.reset.intercept_share,
        },
        "learner": None if row.learner is None else asdict(row.learner),
    }


def _windows(pairs: Pairs) -> dict[str, list[float]]:
    """Returns µs per step of every window, of the environment and of the engines, in the order of pairs."""
    engines = {str(freshness): times for freshness, times in pairs.engine_s.items()}
    return {name: [1e6 * s for s in times] for name, times in ({"env": pairs.env_s} | engines).items()}


def _interval(name: str, found: Median | None) -> dict[str, Any]:
    return (
        {name: None, f"{name}_ci95": None}
        if found is None
        else {
            name: found.value,
            f"{name}_ci95": [found.low, found.high],
        }
    )


def _line(line: Line | None, intercept: str, slope: str) -> dict[str, float] | None:
    return None if line is None else {intercept: line.intercept, slope: line.slope}


# ---------------------------------------------------------------- on one screen


def in_text(report: BenchReport) -> str:
    """Returns tables, at most 100 columns wide: the ratio to the engine, phases, counts, resets, learner, load."""
    sections = [_head(report), _ratios(report), _phases(report.rows), _counts(report.rows)]
    sections += [
        _resets(report.rows),
        *([_learners(report.rows)] if any(r.learner for r in report.rows) else []),
    ]
    return "\n\n".join([*sections, "\n".join(_remarks(report))])


def _head(report: BenchReport) -> str:
    cfg, machine = report.cfg, report.machine
    engine = report.engine_threads or "as many as cores"
    threads = f"engine threads: {engine}, Torch threads: {machine.torch_threads}"
    lines = [
        f"{cfg.task.lower()} on {cfg.backend}, {cfg.device}: {cfg.pairs} pairs of windows, "
        f"actions of standard deviation {cfg.action_std:g}",
        f"{machine.cores} cores ({machine.processor}), {threads}",
        *([] if machine.gpu is None else [machine.gpu]),
    ]
    lines += [f"{_MEANING[freshness]}: {label}" for freshness, label in report.references.items()]
    lines.append(
        "all came to the environment's states, to the bit"
        if report.exact
        else "states differ from run to run on this device: each window begins where the environment does"
    )
    return "\n".join(lines)


_MEANING: dict[Freshness, str] = {"fresh": "engine", "plain": "plain "}


def _ratios(report: BenchReport) -> str:
    header = (
        "envs",
        "env steps/s",
        "step µs",
        "engine µs",
        "above µs",
        "step/engine (95 %)",
        "step/plain (95 %)",
    )
    rows = []
    for row in report.rows:
        pairs = row.pairs
        rows.append(
            (
                f"{row.num_envs:,}",
                f"{row.num_envs * 1e6 / pairs.step_us.value:,.0f}",
                f"{pairs.step_us.value:,.0f}",
                f"{pairs.engine_us('fresh').value:,.0f}",
                f"{pairs.above_us('fresh').value:,.0f}",
                _ratio(pairs.ratio("fresh")),
                _ratio(pairs.ratio("plain")) if "plain" in pairs.engine_s else "",
            )
        )
    lines = [_table(header, rows)]
    if report.above is not None:
        lines.append(
            f"above the engine: {report.above.intercept:,.0f} µs per step and "
            f"{report.above.slope:,.2f} µs per environment"
        )
    return "\n".join(lines)


def _ratio(found: Median) -> str:
    return f"{found.value:.3f} ({found.low:.3f}-{found.high:.3f})"


def _phases(rows: Sequence[BenchRow]) -> str:
    """Phases by what they cost at the largest number of rows."""
    names = dict.fromkeys(name for row in [rows[-1], *rows] for name in row.phases)
    shown = [n for n in names if any(r.phases[n].share >= _LEAST_SHARE for r in rows if n in r.phases)]
    body = [
        (name, *(f"{row.phases[name].us:,.1f}" if name in row.phases else "" for row in rows))
        for name in shown
    ]
    if len(names) > len(shown):
        small = [sum(cost.us for n, cost in row.phases.items() if n not in shown) for row in rows]
        body.append((f"{len(names) - len(shown)} others", *(f"{us:,.1f}" for us in small)))
    total = ("all, timed", *(f"{sum(cost.us for cost in row.phases.values()):,.1f}" for row in rows))
    return _table(("µs per step", *_envs(rows)), [*body, total])


def _counts(rows: Sequence[BenchRow]) -> str:
    body = []
    for kind, label in (("quiet", "no reset"), ("with_reset", "with resets")):
        for name in ("operators", "waits", "allocations", "allocated_bytes"):
            values = [getattr(row.counts[kind], name) if kind in row.counts else None for row in rows]
            if any(value is not None for value in values):
                body.append(
                    (
                        f"{name.replace('_', ' ')}, {label}",
                        *("" if v is None else f"{v:,.1f}" for v in values),
                    )
                )
    for name in ("transfers", "bytes", "synchronizations"):
        sums = [sum(packet[name] for packet in row.transfers.values()) for row in rows]
        label = {"bytes": "bytes transferred"}.get(name, name)
        body.append((label, *(f"{value:,.1f}" for value in sums)))
    body.append(("rows reset", *(f"{row.pairs.per_step(row.pairs.rows_reset):,.2f}" for row in rows)))
    body.append(("rows written", *(f"{row.pairs.per_step(row.pairs.rows_written):,.2f}" for row in rows)))
    return _table(("per step", *_envs(rows)), body)


def _resets(rows: Sequence[BenchRow]) -> str:
    sizes = sorted({k for row in rows for k in row.reset.us})
    body = [
        (f"k = {k:,}, µs", *(f"{row.reset.us[k]:,.0f}" if k in row.reset.us else "" for row in rows))
        for k in sizes
    ]
    lines = [row.reset.line for row in rows]
    if any(lines):
        body.append(
            ("line at k = 0, µs", *("" if line is None else f"{line.intercept:,.0f}" for line in lines))
        )
        body.append(("line per row, µs", *("" if line is None else f"{line.slope:,.2f}" for line in lines)))
        body.append(("farthest from the line", *(_percent(row.reset.worst_deviation) for row in rows)))
        body.append(("k = 0 over a step", *(_percent(row.reset.intercept_share) for row in rows)))
    return _table(("reset of k rows of", *_envs(rows)), body)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _learners(rows: Sequence[BenchRow]) -> str:
    found = [(row.num_envs, row.learner) for row in rows if row.learner is not None]
    header = (found[0][1].algorithm, *(f"{n:,} envs" for n, _ in found))
    labels = {
        "policy_us": "policy alone, µs per step",
        "collect_us": "acting and storing, µs per step",
        "learn_us": "update, µs per step",
        "env_steps_per_s": "training, env steps/s",
    }
    body = [(label, *(f"{getattr(c, name):,.0f}" for _, c in found)) for name, label in labels.items()]
    return _table(header, body)


def _remarks(report: BenchReport) -> Iterator[str]:
    load = report.load
    if load.others is not None:
        average = (
            "" if load.loadavg is None else f", load average {load.loadavg[0]:.2f} to {load.loadavg[1]:.2f}"
        )
        yield f"other processes used {load.others:.0%} of {load.cores} CPU cores{average}"
    if load.warning:
        yield f"WARNING: {load.warning}"
    yield from report.notes
    if report.failure:
        yield f"STOPPED at {report.failure}"


def _envs(rows: Sequence[BenchRow]) -> list[str]:
    return [f"{row.num_envs:,} envs" for row in rows]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns columns two blanks apart, the first to the left, all others to the right; what does not fit is below."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    parts: list[list[int]] = [[]]
    for i in range(1, len(header)):
        if parts[-1] and widths[0] + sum(2 + widths[j] for j in [*parts[-1], i]) > _WIDTH:
            parts.append([])
        parts[-1].append(i)
    return "\n\n".join(_part(header, rows, widths, columns) for columns in parts)


def _part(
    header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], columns: Sequence[int]
) -> str:
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in columns)]).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
