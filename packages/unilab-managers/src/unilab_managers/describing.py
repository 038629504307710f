"""What an environment's terms are, as plain data: the managers' part of `EnvDescription`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from unilab_core.description import ActionDescription, TermDescription
from unilab_core.scene import EntityScene
from unilab_managers.env_cfg import TermsCfg
from unilab_managers.managers import (
    ActionManager,
    CommandManager,
    ManagerBase,
    ObservationManager,
    RewardManager,
    TerminationManager,
)
from unisim.config import Cfg
from unisim.import_strings import import_string
from unisim.model_layout import ModelLayout

__all__ = ["describe_actions", "describe_terms"]


def describe_actions(
    manager: ActionManager, columns: tuple[ActionDescription, ...], model: ModelLayout
) -> tuple[ActionDescription, ...]:
    """Returns the columns of the action with the actuator that each drives and that actuator's joint."""
    actuators = [model.actuators[i] for i in manager.control_columns]
    return tuple(
        replace(column, label=label, actuator=actuator.name, joint=actuator.joint)
        for column, label, actuator in zip(columns, manager.labels, actuators, strict=True)
    )


def describe_terms(
    cfg: TermsCfg, managers: Mapping[str, ManagerBase], scene: EntityScene
) -> dict[str, tuple[TermDescription, ...]]:
    """Returns the terms of every manager, by the manager's name, with what is in force for them now."""
    actions, commands = managers["actions"], managers["commands"]
    assert isinstance(actions, ActionManager)
    assert isinstance(commands, CommandManager)
    columns = _by_term(actions.labels, ":")
    return {
        "observations": tuple(_observation_terms(cfg, managers["observations"], scene)),
        "actions": tuple(
            replace(_made_term(name, term, columns[name]), is_affine=vars(type(term)).get("is_affine", False))
            for name, term in cfg.actions.items()
        ),
        "commands": tuple(_made_term(n, term, commands.labels()[n]) for n, term in cfg.commands.items()),
        **{
            kind: tuple(_bound_terms(getattr(cfg, kind), managers[kind], scene))
            for kind in ("rewards", "terminations", "events", "curriculum", "metrics")
        },
        "recorders": tuple(_made_term(name, term, ()) for name, term in cfg.recorders.items()),
    }


def _bound_terms(
    cfgs: Mapping[str, Cfg], manager: ManagerBase, scene: EntityScene
) -> Iterator[TermDescription]:
    for name in cfgs:
        data = manager.cfg_now(name).to_data()
        if isinstance(manager, RewardManager):
            data["weight"] = manager.get_weight(name)
        if isinstance(manager, TerminationManager):
            data["time_out"] = manager.truncates(name)
        yield _term(name, data, (), scene.reads_of(f"{manager.owner} term {name!r}"))


def _observation_terms(cfg: TermsCfg, manager: ManagerBase, scene: EntityScene) -> Iterator[TermDescription]:
    assert isinstance(manager, ObservationManager)
    for group, labels in manager.labels().items():
        columns = _by_term(labels, "[")
        for name in cfg.observations[group].terms:
            reads = scene.reads_of(f"observations.{group} term {name!r}")
            yield _term(f"{group}/{name}", manager.settings(group, name), columns[name], reads)


def _made_term(name: str, cfg: Cfg, columns: tuple[str, ...]) -> TermDescription:
    """Describes a term that its config makes: the class of the config is what it is."""
    data = cfg.to_data()
    func = data.pop("func", None) or import_string(type(cfg))
    return _term(name, {"func": func} | data, columns, ())


def _term(
    name: str, data: Mapping[str, Any], columns: tuple[str, ...], reads: tuple[str, ...]
) -> TermDescription:
    settings = {key: value for key, value in data.items() if key not in ("func", "params", "_target_")}
    return TermDescription(
        name=name,
        func=data["func"],
        params=data.get("params", {}),
        settings=settings,
        columns=columns,
        reads=reads,
    )


def _by_term(labels: tuple[str, ...], end: str) -> dict[str, tuple[str, ...]]:
    """Sorts labels, `<term><end>...`, by the term they belong to; column order is kept."""
    found: dict[str, tuple[str, ...]] = {}
    for label in labels:
        name = label.partition(end)[0]
        found[name] = (*found.get(name, ()), label)
    return found
