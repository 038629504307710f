"""No config field is left out: those whose change shows elsewhere than in a run of the task, and that these are all."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import mujoco
import mujoco_warp
import pytest
import torch
import warp
from field_changes import BREAKS, CHANGES
from field_support import everything, explode, seen

from unilab_core import NanGuardCfg, NonFiniteError, list_tasks, make_env
from unilab_core.factory import load_env_cfg
from unilab_managers import ManagerBasedRlEnvCfg, mdp
from unisim import Cfg

LAYERS = ("unisim", "unilab_core", "unilab_managers", "unilab_tasks")
ELSEWHERE = {
    "ObservationGroupCfg.flatten_history_dim": "test_the_layout_of_a_history_changes_what_is_shown",
    "SimCfg.ls_iterations": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.num_threads": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.persistent": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.memory_mib": "test_settings_of_the_engine_reach_the_engine",
    "SimCfg.nconmax": "test_settings_of_the_device_reach_the_device",
    "SimCfg.njmax": "test_settings_of_the_device_reach_the_device",
    "SimCfg.graph_capture": "test_settings_of_the_device_reach_the_device",
    "TorchEnvCfg.nan_guard": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "NanGuardCfg.policy": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "NanGuardCfg.dump_dir": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "NanGuardCfg.max_dumps": "test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite",
    "JointVelocityActionCfg.offset": "test_offsets_of_the_other_actions_move_the_robot",
    "JointEffortActionCfg.offset": "test_offsets_of_the_other_actions_move_the_robot",
    "DcMotorActionCfg.saturation_effort": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorActionCfg.velocity_limit": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorActionCfg.effort_limit": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorPositionActionCfg.stiffness": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorPositionActionCfg.damping": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorPositionActionCfg.offset": "test_a_field_of_a_motor_changes_what_it_gives",
    "DcMotorEffortActionCfg.offset": "test_a_field_of_a_motor_changes_what_it_gives",
}


def test_the_layout_of_a_history_changes_what_is_shown():
    history = {"observations.obs.history_length": 2}
    flat, stacked = (
        everything().with_({**history, "observations.obs.flatten_history_dim": flag})
        for flag in (True, False)
    )
    assert seen(flat) != seen(stacked)


def test_settings_of_the_engine_reach_the_engine(monkeypatch: pytest.MonkeyPatch):
    made: list[dict[str, Any]] = []
    batch = mujoco.batch.Batch

    def spy(model: Any, num_envs: int, *, nthread: int, persistent: bool, **options: Any) -> Any:
        made.append(
            {
                "num_threads": nthread,
                "persistent": persistent,
                "memory_mib": model.narena / 2**20,
                "ls_iterations": model.opt.ls_iterations,
            }
        )
        return batch(model, num_envs, nthread=nthread, persistent=persistent, **options)

    monkeypatch.setattr(mujoco.batch, "Batch", spy)
    changes = {"num_threads": 2, "persistent": False, "memory_mib": 3, "ls_iterations": 7}
    make_env(everything()).close()
    for name, value in changes.items():
        make_env(everything().with_({f"sim.{name}": value})).close()
    plain, *changed = made
    assert changed == [{**plain, name: value} for name, value in changes.items()]
    assert all(plain[name] != value for name, value in changes.items())


@pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes
def test_settings_of_the_device_reach_the_device(monkeypatch: pytest.MonkeyPatch):
    made: list[dict[str, Any]] = []
    make_data, capture = mujoco_warp.make_data, warp.ScopedCapture

    def spy_on_room(model: Any, *, nworld: int, nconmax: int, njmax: int) -> Any:
        made.append({"nconmax": nconmax, "njmax": njmax, "graph_capture": False})
        return make_data(model, nworld=nworld, nconmax=nconmax, njmax=njmax)

    def spy_on_graphs(*args: Any, **options: Any) -> Any:
        made[-1]["graph_capture"] = True
        return capture(*args, **options)

    monkeypatch.setattr(mujoco_warp, "make_data", spy_on_room)
    monkeypatch.setattr(warp, "ScopedCapture", spy_on_graphs)
    changes = {"nconmax": 17, "njmax": 77, "graph_capture": False}
    make_env("cartpole-balance", backend="mujoco_warp", num_envs=2).close()
    for name, value in changes.items():
        overrides = {f"sim.{name}": value}
        make_env("cartpole-balance", backend="mujoco_warp", num_envs=2, overrides=overrides).close()
    plain, *changed = made
    assert changed == [{**plain, name: value} for name, value in changes.items()]
    assert all(plain[name] != value for name, value in changes.items())


def test_a_nan_guard_changes_what_becomes_of_values_that_are_not_finite(tmp_path: Path):
    def run(guard: NanGuardCfg | None) -> list[str]:
        cfg = everything().with_(
            {"rewards.upright.func": explode, "rewards.upright.params": {}, "nan_guard": guard}
        )
        with make_env(cfg.with_({"recorders.log": None}), seed=1) as env:
            env.reset()
            for _ in range(8):
                env.step(torch.zeros(3, 12))
        return sorted(path.parent.name for path in tmp_path.rglob("*") if path.is_file())

    for guard in (None, NanGuardCfg(policy="raise", max_dumps=0)):
        with pytest.raises(NonFiniteError):
            run(guard)
    assert run(NanGuardCfg(policy="reset_row", max_dumps=0)) == []
    assert run(NanGuardCfg(policy="reset_row", dump_dir="one")) == ["one"]
    assert run(NanGuardCfg(policy="reset_row", dump_dir="two", max_dumps=2)) == ["one", "two", "two"]


def test_offsets_of_the_other_actions_move_the_robot():
    for kind in (mdp.JointVelocityActionCfg, mdp.JointEffortActionCfg):
        plain, moved = (everything().with_({"actions.joint_pos": kind(offset=x)}) for x in (0.0, 0.2))
        assert seen(plain) != seen(moved)


CURVE = {"saturation_effort": 6.0, "velocity_limit": 1.5, "effort_limit": 4.0}
POSITION = {"stiffness": 2.0, "damping": 0.5, "offset": 0.1}


@pytest.mark.parametrize("field", [*CURVE, *POSITION, "effort offset"])
def test_a_field_of_a_motor_changes_what_it_gives(field: str):
    def given(**changes: float) -> str:
        if field == "effort offset":
            action: Cfg = mdp.DcMotorEffortActionCfg(joint_names=("slider",), **CURVE, **changes)
        else:
            action = mdp.DcMotorPositionActionCfg(
                joint_names=("slider",), **{**CURVE, **POSITION, "scale": 4.0, **changes}
            )
        cfg = load_env_cfg("cartpole-balance", num_envs=3)
        return seen(cfg.model_copy(update={"actions": {"force": action}}))

    name = field.removeprefix("effort ")
    assert given() != given(**{name: 1.25 * {**CURVE, **POSITION}[name]})


# ---------------------------------------------------------------- all fields are above


def _classes(annotation: object) -> Iterator[type[Cfg]]:
    if isinstance(annotation, type) and issubclass(annotation, Cfg):
        yield annotation
    for part in get_args(annotation):
        yield from _classes(part)


def _reachable(root: type[Cfg]) -> set[type[Cfg]]:
    """Returns every config class of this project that can be a part of `root`, subclasses and bases included."""
    found: set[type[Cfg]] = set()
    waiting = [root]
    while waiting:
        cls = waiting.pop()
        if cls in found or cls is Cfg or not cls.__module__.startswith(LAYERS):
            continue
        found.add(cls)
        waiting += cls.__subclasses__()
        waiting += [base for base in cls.__mro__[1:] if issubclass(base, Cfg)]
        for field in cls.model_fields.values():
            waiting += _classes(field.annotation)
    return found


def _fields() -> dict[str, type[Cfg]]:
    """Returns every field as `Class.field`, named after the class that declares or redeclares it."""
    for task in list_tasks():
        load_env_cfg(task.name)  # imports what the task is made of
    return {
        f"{cls.__name__}.{name}": cls
        for cls in _reachable(ManagerBasedRlEnvCfg)
        for name in cls.__annotations__
        if name in cls.model_fields
    }


def test_every_field_of_every_config_has_its_proof():
    abstract = {"TermCfg.func", "TermCfg.params"}  # proven of each kind of term
    kinds = ("Observation", "Reward", "Termination", "Event", "Curriculum", "Metrics")
    wanted = {name for name in _fields() if name not in abstract}
    wanted |= {f"{kind}TermCfg.{name}" for kind in kinds for name in ("func", "params")}
    assert {*CHANGES, *BREAKS, *ELSEWHERE} == wanted
    assert len([*CHANGES, *BREAKS, *ELSEWHERE]) == len(wanted)
    assert set(ELSEWHERE.values()) <= set(globals())


class _Reads(ast.NodeVisitor):
    """Collects the names of attributes that code reads, outside validators."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if "validator" not in " ".join(ast.unparse(one) for one in node.decorator_list):
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.names.add(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.isidentifier():
            self.names.add(node.value)  # for getattr


def test_every_field_is_read_somewhere_outside_its_validators():
    reads = _Reads()
    for layer in LAYERS:
        origin = inspect.getfile(sys.modules[layer])
        for path in Path(origin).parent.rglob("*.py"):
            reads.visit(ast.parse(path.read_text()))
    assert {name for name in _fields() if name.partition(".")[2] not in reads.names} == set()
