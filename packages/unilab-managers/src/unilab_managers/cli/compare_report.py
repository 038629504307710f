"""A comparison on one screen, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unilab_managers.cli.compare_pair import Comparison, ComparisonCfg
from unilab_managers.cli.compare_tally import ColumnDifference, Place
from unilab_managers.report import text_table

__all__ = ["in_text"]

_HEADERS = ("column", "unit", "max abs", "mean abs", "at", "first, second", "x tol", "beyond", "since")


def in_text(task: str, how: ComparisonCfg, found: Comparison, top: int) -> str:
    """Returns what was compared, the worst columns, and the verdict.

    Args:
        task: Name of the task.
        how: How it was compared.
        found: What came out.
        top: How many columns are shown; 0: all.
    """
    first, second = how.backends
    way = "step by step" if how.resync else "free rollout"
    lines = [
        f"{task}: {second} against {first}, {way}: {found.num_envs} rows, {found.steps} steps, "
        f"{how.actions} actions",
        f"device {how.device}, seed {how.seed}, tolerance {how.tolerance.atol:g} + {how.tolerance.rtol:g} x |{first}|",
    ]
    shown = found.columns[: top or None]
    if shown:
        lines += ["", text_table(_HEADERS, [_row(column) for column in shown])]
    if len(shown) < len(found.columns):
        lines.append(f"  {len(found.columns) - len(shown)} more, none of them worse; --top 0 shows all")
    return "\n".join([*lines, "", *_remarks(found), _verdict(found)])


def _row(column: ColumnDifference) -> tuple[str, ...]:
    return (
        column.name,
        column.unit,
        f"{column.max_abs:.2g}",
        f"{column.mean_abs:.2g}",
        _place(column.max_at) if column.max_abs else "",
        f"{column.max_at.first:.4g}, {column.max_at.second:.4g}" if column.max_abs else "",
        f"{column.tolerances:.3g}",
        f"{column.beyond / column.compared:.1%}" if column.beyond else "",
        _place(column.first_beyond) if column.first_beyond else "",
    )


def _place(place: Place) -> str:
    """Returns step and row, `12:3`; `12r:3` for the observation after a reset in that step."""
    return f"{place.step}{'r' if place.after_reset else ''}:{place.row}"


def _remarks(found: Comparison) -> Iterator[str]:
    yield (
        f"episodes ended: {found.ended} on both, {found.ended_on_first} only on the first, "
        f"{found.ended_on_second} only on the second"
    )
    if found.unequal_draws:
        yield (
            f"a term drew random numbers on one backend only in {_steps(found.unequal_draws)}: "
            "noise, commands and resets differ there"
        )
    if found.stopped:
        yield f"stopped: {found.stopped}"


def _steps(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps, first in step {steps[0]}"


def _verdict(found: Comparison) -> str:
    if found.within_tolerance:
        return f"WITHIN TOLERANCE: all {len(found.columns)} columns"
    places = [(column.name, column.first_beyond) for column in found.columns if column.first_beyond]
    if not places:
        return "NOT COMPARABLE"
    name, place = min(places, key=lambda found: (found[1].step, found[1].after_reset))
    return f"BEYOND TOLERANCE: {len(places)} of {len(found.columns)} columns, the first {name} at {_place(place)}"
