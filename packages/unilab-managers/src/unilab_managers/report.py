"""An environment on one screen: what `print(env)` and `unilab explain` show, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unilab_core.description import EnvDescription, TermDescription
from unilab_core.timing import seconds_to_steps
from unilab_managers.env_cfg import TermsCfg

__all__ = ["describe_in_text"]

WIDTH = 100
_GAP = 2
_NARROWEST = 12
"""No column that has to be wrapped gets narrower than this."""
_SILENT: Mapping[str, object] = {
    "noise": None,
    "clip": None,
    "scale": None,
    "history_length": 1,
    "delay_max_lag": 0,
}
"""Settings of an observation that are worth no word."""
_UNSAID = (("operation", "add"), ("preserve_order", False))
"""Entries of a nested config that are worth no word."""


def describe_in_text(head: str, cfg: TermsCfg, description: EnvDescription, num_envs: int) -> str:
    """Returns the sections: head, one per manager, control order, ledger.

    Args:
        head: What it is.
        cfg: Its config.
        description: Its names and layouts.
        num_envs: N.
    """
    blocks = [_head(head, cfg, description)]
    for group, labels in description.observations.items():
        blocks.append(_observations(group, labels, description))
    terms = description.terms
    blocks.append(_actions(description))
    for kind, headers in (
        ("commands", ("term", "columns", "settings")),
        ("rewards", ("term", "weight", "parameters", "reads")),
        ("terminations", ("term", "ends by", "parameters", "reads")),
        ("events", ("term", "mode", "parameters")),
        ("curriculum", ("term", "mode", "parameters")),
        ("metrics", ("term", "reduce", "parameters", "reads")),
        ("recorders", ("term", "parameters")),
    ):
        if terms[kind]:
            rows = [_row(kind, term) for term in terms[kind]]
            blocks.append(f"{kind.capitalize()}\n{_table(headers, rows)}")
    blocks += [_control(description), _ledger(description, num_envs)]
    return "\n\n".join(block for block in blocks if block)


def _head(head: str, cfg: TermsCfg, description: EnvDescription) -> str:
    steps = seconds_to_steps(cfg.episode_length_s, cfg.step_dt)
    floor = "" if cfg.reward_floor is None else f", sum not below {cfg.reward_floor:g}"
    lines = [
        f"{head}, {description.capabilities['execution']}",
        f"control {1.0 / cfg.step_dt:g} Hz ({cfg.decimation} x {cfg.sim.timestep:g} s), "
        f"episode {description.episode_length_s:g} s = {steps} steps, "
        f"rewards {'per second' if cfg.scale_rewards_by_dt else 'per step'}{floor}",
    ]
    return "\n".join(lines)


def _observations(group: str, labels: Sequence[str], description: EnvDescription) -> str:
    rows = []
    for term in description.terms["observations"]:
        owner, _, name = term.name.partition("/")
        if owner == group:
            places = [i for i, label in enumerate(labels) if label in set(term.columns)]
            settings = _settings(
                {k: v for k, v in term.settings.items() if k not in ("unit", "width")}, _SILENT
            )
            unit = str(term.settings.get("unit", ""))
            rows.append((_ranges(places), name, unit, _short_names(term), settings, " ".join(term.reads)))
    headers = ("columns", "term", "unit", "names", "settings", "reads")
    return f"Observations {group}: {len(labels)} columns\n{_table(headers, rows)}"


def _actions(description: EnvDescription) -> str:
    rows = []
    start = 0
    for term in description.terms["actions"]:
        stop = start + len(term.columns)
        joints = " ".join((a.joint or a.actuator or "?") for a in description.actions[start:stop])
        rows.append((_ranges(range(start, stop)), term.name, joints, _settings(term.settings, {})))
        start = stop
    return f"Actions: {start} columns\n{_table(('columns', 'term', 'joints', 'settings'), rows)}"


def _row(kind: str, term: TermDescription) -> tuple[str, ...]:
    settings, params = dict(term.settings), _settings(term.params, {})
    if kind == "commands":
        return term.name, " ".join(term.columns), _settings(settings, {})
    if kind == "rewards":
        return term.name, f"{settings['weight']:g}", params, " ".join(term.reads)
    if kind == "terminations":
        ends_by = "truncation" if settings["time_out"] else "termination"
        return term.name, ends_by, params, " ".join(term.reads)
    if kind == "recorders":
        return term.name, params
    mode = str(settings.pop("mode", settings.pop("reduce", "")))
    if settings.get("interval_range_s") is not None:
        low, high = settings["interval_range_s"]
        mode += f" {low:g}-{high:g} s"
    return (term.name, mode, params, " ".join(term.reads))[: 4 if kind == "metrics" else 3]


def _control(description: EnvDescription) -> str:
    defaults = {joint.name: joint for joint in description.joints}
    rows: list[tuple[str, ...]] = []
    for i, label in enumerate(description.control):
        if i >= len(description.actuators):
            rows.append((str(i), label, "", "", "", ""))
            continue
        actuator = description.actuators[i]
        at = defaults.get(actuator.joint or "")
        home = "" if at is None else _value(at.default_pos[0])
        bounds = "" if actuator.ctrl_range is None else _value(actuator.ctrl_range)
        rows.append((str(i), label, bounds, home, *(_maybe(g) for g in (actuator.kp, actuator.kd))))
    headers = ("column", "control", "range", "default", "kp", "kd")
    return f"Control: {len(rows)} columns\n{_table(headers, rows)}"


def _ledger(description: EnvDescription, num_envs: int) -> str:
    if not description.ledger:
        return "Ledger: nothing moves, tensors are live views of the state"
    rows = [
        (
            {"step": "every step", "reset": "+ if rows reset", "write": "+ if state is written"}[packet.when],
            packet.kind + (f" ({packet.who})" if packet.who else ""),
            str(packet.transfers),
            f"{packet.fixed_bytes:,}" + (f" + {packet.row_bytes} per row" if packet.row_bytes else ""),
        )
        for packet in description.ledger
    ]
    return f"Ledger of a step, {num_envs} rows\n{_table(('when', 'packet', 'transfers', 'bytes'), rows)}"


# ---------------------------------------------------------------- values in few characters


def _maybe(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_value(item) for item in value) + ")"
    if isinstance(value, Mapping):
        kind = str(value.get("_target_", "")).rpartition(":")[2].removesuffix("Cfg")
        value = {k: v for k, v in value.items() if k != "_target_"}
        inside = ", ".join(
            f"{k}={_value(v)}" for k, v in value.items() if (k, v) not in _UNSAID and v is not None
        )
        return f"{kind}({inside})" if kind else "{" + inside + "}"
    return "none" if value is None else str(value)


def _settings(values: Mapping[str, Any], silent: Mapping[str, object]) -> str:
    """Returns `name=value` pairs; what is not set, and what is as in `silent`, is left out."""
    shown = {
        name: value
        for name, value in values.items()
        if value is not None
        and value != ()
        and value != {}
        and not (name in silent and silent[name] == value)
    }
    if "delay_max_lag" in silent and not values.get("delay_max_lag"):
        shown = {name: value for name, value in shown.items() if not name.startswith("delay_")}
    return ", ".join(f"{name}={_value(value)}" for name, value in shown.items())


def _short_names(term: TermDescription) -> str:
    """Returns the columns' names without the term's own, each once."""
    name = term.name.partition("/")[2]
    inner = [column.removeprefix(name).partition("[t-")[0].strip("[]") for column in term.columns]
    inner = list(dict.fromkeys(inner))
    return "" if inner == [str(i) for i in range(len(inner))] else " ".join(inner)


def _ranges(places: Sequence[int]) -> str:
    """Returns `0-2` or `0-2, 7-9`."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


# ---------------------------------------------------------------- tables


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns lines of aligned columns; cells of the widest columns are wrapped until the table fits."""
    used = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    cells = [[headers[i] for i in used], *([row[i] for i in used] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(used))]
    while sum(widths) + _GAP * len(widths) > WIDTH and max(widths, default=0) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(line for row in cells for line in _lines(row, widths))


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
    for i in range(max(map(len, wrapped), default=0)):
        parts = [(cell[i] if i < len(cell) else "").ljust(w) for cell, w in zip(wrapped, widths, strict=True)]
        yield ("  " + (" " * _GAP).join(parts)).rstrip()
