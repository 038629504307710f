"""What `policy.json` says: everything that whoever runs a policy has to know, from the environment's description."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unilab_core import ActionDescription, ConfigError, EnvDescription, TermDescription
from unilab_rl.export.program import OBS, PolicyProgram
from unilab_rl.export.targets import TargetLaw, quantity_of, term_of

__all__ = ["SCHEMA_VERSION", "Source", "check_description", "metadata"]

SCHEMA_VERSION = 1
"""Rises when a key of `policy.json` changes its meaning or goes; the runner refuses another one."""

_AGE = re.compile(r"\[t-(\d+)\]$")
_SHOWN = ("clip", "scale", "delay_min_lag", "delay_max_lag", "history_length", "width")


@dataclass(frozen=True)
class Source:
    """Where a policy comes from."""

    task: str
    algorithm: str
    iteration: int
    """Completed iterations."""
    env_steps: int
    """Environment steps that it was trained for, summed over rows."""
    seed: int
    checkpoint: str
    """Name of the file."""
    config_hash: str
    """Of the run's config."""
    versions: Mapping[str, str | None]
    """Of everything that made the export."""


def check_description(description: EnvDescription, num_obs: int, num_actions: int) -> None:
    """Makes sure that a description is of the environment: a label too few would name every later column wrongly.

    Raises:
        ConfigError: It labels another number of columns than the environment has.
    """
    labels = description.observations.get(OBS, ())
    units = description.units.get(OBS, ())
    if len(labels) != num_obs or (units and len(units) != num_obs):
        raise ConfigError(
            f"the environment's description has {len(labels)} labels and {len(units)} units for the {num_obs} columns "
            f"of the observation group {OBS!r}; mend describe() of the environment"
        )
    if len(description.actions) != num_actions:
        raise ConfigError(
            f"the environment's description has {len(description.actions)} labels for the {num_actions} columns of "
            "the action; mend describe() of the environment"
        )


def metadata(
    source: Source,
    description: EnvDescription,
    law: TargetLaw | None,
    no_targets: str | None,
    program: PolicyProgram,
) -> dict[str, Any]:
    """Returns the content of `policy.json` without what is told of the files, as plain data.

    Args:
        source: Where the policy comes from.
        description: Of the environment that it was trained in.
        law: From actions to targets; None where it isn't known.
        no_targets: Then the reason.
        program: The network.
    """
    terms = description.terms.get("actions", ())
    return {
        "schema_version": SCHEMA_VERSION,
        **asdict(source),
        "step_dt": description.step_dt,
        "episode_length_s": description.episode_length_s,
        "observations": {
            "group": OBS,
            "columns": _observation_columns(description),
            "terms": [
                {"name": name, "func": term.func, **{key: term.settings.get(key) for key in _SHOWN}}
                for name, term in _observation_terms(description).items()
            ],
        },
        "actions": [
            _action(action, description, law, column) for column, action in enumerate(description.actions)
        ],
        "no_targets": no_targets,
        "action_terms": [{"name": t.name, "func": t.func, "settings": dict(t.settings)} for t in terms],
        "joints": [asdict(joint) for joint in description.joints],
        "actuators": [asdict(actuator) for actuator in description.actuators],
        "control": list(description.control),
        "network": {"steps": [step.to_data() for step in program.steps], "output": program.output},
    }


def _observation_terms(description: EnvDescription) -> dict[str, TermDescription]:
    """Returns the terms of the group by their names in it."""
    prefix = f"{OBS}/"
    terms = description.terms.get("observations", ())
    return {term.name.removeprefix(prefix): term for term in terms if term.name.startswith(prefix)}


def _observation_columns(description: EnvDescription) -> list[dict[str, Any]]:
    """Returns label, unit, term, scale and age of each column.

    The unit is that of the value before `scale`; `steps_ago` is 0 for the newest frame of a history.
    """
    labels = description.observations[OBS]
    units = description.units.get(OBS) or ("",) * len(labels)
    owners = {
        label: (name, term, place)
        for name, term in _observation_terms(description).items()
        for place, label in enumerate(term.columns)
    }
    columns = []
    for label, unit in zip(labels, units, strict=True):
        name, term, place = owners.get(label, (None, None, 0))
        age = _AGE.search(label)
        columns.append(
            {
                "label": label,
                "unit": unit,
                "term": name,
                "scale": None if term is None else _scale(term, place),
                "steps_ago": int(age[1]) if age else 0,
            }
        )
    return columns


def _scale(term: TermDescription, place: int) -> float | None:
    """Returns the factor of the column at this place of the term, whose frames stand one after the other."""
    scale = term.settings.get("scale")
    if isinstance(scale, Sequence):
        scale = scale[place % len(scale)]
    return 1.0 if scale is None else float(scale)


def _action(
    action: ActionDescription, description: EnvDescription, law: TargetLaw | None, column: int
) -> dict[str, Any]:
    term = term_of(action, description)
    settings: Mapping[str, Any] = {} if term is None else term.settings
    data: dict[str, Any] = {
        **asdict(action),
        "quantity": None,
        "control_column": description.control.index(action.actuator)
        if action.actuator in description.control
        else None,
        "delay_steps": [settings.get("delay_min_lag", 0), settings.get("delay_max_lag", 0)],
        "scale": None,
        "offset": None,
        "clip": None,
    }
    if law is None:
        return data
    scale, offset, low, high = (float(part[column]) for part in (law.scale, law.offset, law.low, law.high))
    clip = [None if abs(limit) == float("inf") else limit for limit in (low, high)]
    quantity = quantity_of(action, description)
    return data | {"quantity": quantity, "scale": scale, "offset": offset, "clip": clip}
