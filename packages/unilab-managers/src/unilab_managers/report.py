"""An environment on one screen: what `print(env)` and `unilab explain` show, at most 100 columns wide."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from unilab_core.description import EnvDescription, TermDescription
from unilab_core.timing import seconds_to_steps
from unilab_managers.cfg.observations import ObservationTermCfg
from unilab_managers.env_cfg import TermsCfg
from unisim.config import Cfg
from unisim.import_strings import import_object

__all__ = ["describe_in_text", "text_table"]

WIDTH = 100
_GAP = 2
_NARROWEST = 12
"""No column that has to be wrapped gets narrower than this."""
_SHORT_NOISE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "UniformNoiseCfg": ("U", ("n_min", "n_max")),
    "GaussianNoiseCfg": ("N", ("mean", "std")),
    "ConstantNoiseCfg": ("const", ("bias",)),
}
"""Noise as it is written in formulas: what of its config stands in brackets."""
_ALWAYS_SAID = ("scale", "offset", "lin_vel_x", "lin_vel_y", "ang_vel_z")
"""Settings of actions and commands that matter too where they are left as they are by default."""
_TIED = "\N{NO-BREAK SPACE}"
_BRACKETS = re.compile(r"\([^()]{0,24}\)")
_CUTS = ",(:="
"""Behind which a word may be cut."""
_PIECE = re.compile(r"[^_/:]+|[_/:]")


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
            blocks.append(f"{kind.capitalize()}\n{text_table(headers, rows)}")
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
    units = description.units.get(group, ("",) * len(labels))
    rows = []
    for term in description.terms["observations"]:
        owner, _, name = term.name.partition("/")
        if owner == group:
            own = set(term.columns)
            places = [i for i, label in enumerate(labels) if label in own]
            unit = ", ".join(dict.fromkeys(units[i] for i in places))
            settings = _observation_settings(term.settings)
            rows.append((_ranges(places), name, unit, _short_names(term), settings, _reads(term.reads)))
    headers = ("columns", "term", "unit", "names", "settings", "reads")
    return f"Observations {group}: {_count(len(labels), 'column')}\n{text_table(headers, rows)}"


def _observation_settings(settings: Mapping[str, Any]) -> str:
    """Returns what happens to the values, in the order in which it happens."""
    names = ["noise", "clip", "scale"]
    if settings["delay_max_lag"]:
        names += [name for name in settings if name.startswith("delay_")]
    silent = {name: field.default for name, field in ObservationTermCfg.model_fields.items()}
    shown = {name: settings[name] for name in [*names, "history_length"]}
    return _settings(shown, silent | {"history_length": 1})


def _actions(description: EnvDescription) -> str:
    rows = []
    start = 0
    for term in description.terms["actions"]:
        stop = start + len(term.columns)
        joints = _names([a.joint or a.actuator or "?" for a in description.actions[start:stop]])
        rows.append((_ranges(range(start, stop)), term.name, joints, _made_settings(term)))
        start = stop
    return (
        f"Actions: {_count(start, 'column')}\n{text_table(('columns', 'term', 'joints', 'settings'), rows)}"
    )


def _made_settings(term: TermDescription) -> str:
    """Returns the settings of a term that its config makes, without what is left as it is by default."""
    defaults = {name: value for name, value in _defaults(term.func).items() if name not in _ALWAYS_SAID}
    return _settings(term.settings, defaults)


def _params(term: TermDescription) -> str:
    """Returns what a term is called with, without what is left as its function has it by default."""
    func = import_object(term.func)
    if inspect.isclass(func) and any("__call__" in vars(base) for base in func.__mro__):
        func = func.__call__
    defaults = {
        name: parameter.default.to_data() if isinstance(parameter.default, Cfg) else parameter.default
        for name, parameter in inspect.signature(func).parameters.items()
    }
    return _settings(term.params, defaults)


def _defaults(config: str) -> dict[str, object]:
    """Returns the default of every field of a config class, as plain data; `config` is its import string."""
    found = import_object(config)
    if not (isinstance(found, type) and issubclass(found, Cfg)):
        return {}
    return {name: field.default for name, field in found.model_fields.items() if not field.is_required()}


def _row(kind: str, term: TermDescription) -> tuple[str, ...]:
    settings, params = dict(term.settings), _params(term)
    if kind == "commands":
        return term.name, " ".join(term.columns), _made_settings(term)
    if kind == "rewards":
        return term.name, f"{settings['weight']:g}", params, _reads(term.reads)
    if kind == "terminations":
        ends_by = "truncation" if settings["time_out"] else "termination"
        return term.name, ends_by, params, _reads(term.reads)
    if kind == "recorders":
        return term.name, params
    mode = str(settings.pop("mode", settings.pop("reduce", "")))
    if settings.get("interval_range_s") is not None:
        low, high = settings["interval_range_s"]
        mode += f" {low:g}-{high:g} s"
    return (term.name, mode, params, _reads(term.reads))[: 4 if kind == "metrics" else 3]


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
    return f"Control: {_count(len(rows), 'column')}\n{text_table(headers, rows)}"


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
    return f"Ledger of a step, {_count(num_envs, 'row')}\n{text_table(('when', 'packet', 'transfers', 'bytes'), rows)}"


# ---------------------------------------------------------------- values in few characters


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _maybe(value: float | None) -> str:
    return "" if value is None else _number(value)


def _number(value: float) -> str:
    return f"{value:g}" if float(value).is_integer() else f"{value:.4g}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, str) for item in value):
            return _names(value, between=", ", around="()")
        return "(" + ", ".join(_value(item) for item in value) + ")"
    if isinstance(value, Mapping):
        return _config(value) if "_target_" in value else "{" + _entries(value) + "}"
    return "none" if value is None else str(value)


def _config(data: Mapping[str, Any]) -> str:
    """Returns a nested config as `Kind(name=value)`, without what is left as it is by default; noise in short."""
    target = str(data["_target_"])
    kind = target.rpartition(":")[2]
    fields = {name: value for name, value in data.items() if name != "_target_"}
    if kind in _SHORT_NOISE:
        letter, names = _SHORT_NOISE[kind]
        before = {"add": "", "scale": "x ", "abs": "= "}[fields["operation"]]
        return f"{before}{letter}({', '.join(_value(fields[name]) for name in names)})"
    return f"{kind.removesuffix('Cfg')}({_settings(fields, _defaults(target))})"


def _entries(values: Mapping[str, Any]) -> str:
    """Returns `name=value` of a mapping; names of equal values share one: `{x,y}=(0, 1)`."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(_value(value), []).append(name)
    return ", ".join(
        f"{own[0] if len(own) == 1 else '{' + ','.join(own) + '}'}={value}" for value, own in names.items()
    )


def _settings(values: Mapping[str, Any], silent: Mapping[str, object]) -> str:
    """Returns `name=value` pairs; what is not set, and what is as in `silent`, is left out."""
    return ", ".join(
        f"{name}={_value(value)}"
        for name, value in values.items()
        if value is not None
        and value not in ((), [], {})
        and not (name in silent and _value(silent[name]) == _value(value))
    )


def _short_names(term: TermDescription) -> str:
    """Returns the columns' names without the term's own, each once."""
    name = term.name.partition("/")[2]
    inner = [re.sub(r"\[t-\d+\]$", "", column.removeprefix(name)).strip("[]") for column in term.columns]
    inner = list(dict.fromkeys(inner))
    owners = {column.partition(":")[0] for column in inner}
    if len(owners) == 1:  # columns of an action, which has no other term than this
        inner = [column.rpartition(":")[2] for column in inner]
    return "" if inner == [str(i) for i in range(len(inner))] else _names(inner)


def _reads(keys: Sequence[str]) -> str:
    """Returns the keys of a read packet, those of a kind together."""
    kinds: dict[str, list[str]] = {}
    for key in keys:
        kinds.setdefault(key.partition(":")[0], []).append(key)
    return " ".join(_names(own) for own in kinds.values())


def _names(names: Sequence[str], *, between: str = " ", around: str = "") -> str:
    """Returns names in a row, or as a shell would expand them: `{FR,FL}_{hip,calf}` for FR_hip FR_calf FL_hip FL_calf.

    Args:
        names: The names.
        between: What stands between them in a row.
        around: Nothing, or the brackets around a row of several.
    """
    pieces = [_PIECE.findall(name) for name in names]
    if len(names) > 1 and len(pieces[0]) > 1 and len({len(found) for found in pieces}) == 1:
        choices = [list(dict.fromkeys(column)) for column in zip(*pieces, strict=True)]
        if ["".join(choice) for choice in product(*choices)] == list(names):
            return "".join(one[0] if len(one) == 1 else "{" + ",".join(one) + "}" for one in choices)
    row = between.join(names)
    return row if not around or len(names) == 1 else around[0] + row + around[1]


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


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns lines of aligned columns; cells of the widest columns are wrapped until the table fits."""
    used = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    cells = [[headers[i] for i in used], *([row[i] for i in used] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(used))]
    words = [max(len(word) for row in cells for word in _words(row[i])) for i in range(len(used))]
    while sum(widths) + _GAP * len(widths) > WIDTH:
        # Columns whose words stay whole get narrower first, the widest before all others.
        loose = [i for i, width in enumerate(widths) if width > max(words[i], _NARROWEST)]
        narrowing = loose or [i for i, width in enumerate(widths) if width > _NARROWEST]
        if not narrowing:
            break
        widths[max(narrowing, key=widths.__getitem__)] -= 1
    return "\n".join(line for row in cells for line in _lines(row, widths))


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    wrapped = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for i in range(max(map(len, wrapped), default=0)):
        parts = [(cell[i] if i < len(cell) else "").ljust(w) for cell, w in zip(wrapped, widths, strict=True)]
        yield ("  " + (" " * _GAP).join(parts)).rstrip()


def _words(cell: str) -> list[str]:
    """Returns the parts between which a cell may be wrapped; short brackets stay whole."""
    tied = _BRACKETS.sub(lambda found: found[0].replace(" ", _TIED), cell)
    return [word.replace(_TIED, " ") for word in tied.split()] or [""]


def _wrapped(cell: str, width: int) -> list[str]:
    """Returns a cell in lines of at most `width`; a word longer than a line is cut behind a comma or the like."""
    lines = [""]
    for word in _words(cell):
        if len(lines[-1]) + bool(lines[-1]) + len(word) <= width:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
            continue
        if lines[-1]:
            lines.append("")
        while len(word) > width:
            cut = max((i for i in range(1, width + 1) if word[i - 1] in _CUTS), default=width)
            lines[-1:] = [word[:cut], ""]
            word = word[cut:].lstrip()
        lines[-1] = word
    return lines
