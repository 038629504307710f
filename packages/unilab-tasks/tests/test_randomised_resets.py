"""A thousand resets with every randomisation that there is: in range, from the nominal values, in their rows only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import pytest
import torch

from unilab_core import SceneEntityCfg
from unilab_core.factory import load_env_cfg
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, mdp
from unilab_managers.declarations import declared_by
from unilab_tasks.robots.quad12 import FEET, LEGS
from unisim import SimBackend, make_backend

TASK = "velocity-flat-quadruped"
ROWS, AT_ONCE, CALLS = 8, 4, 250
RESETS = AT_ONCE * CALLS
THIGHS = tuple(f"{leg}_thigh" for leg in LEGS)
CALVES = tuple(f"{leg}_calf" for leg in LEGS)
HIPS = tuple(f"{leg}_hip" for leg in LEGS)
FRONT, REAR = (
    tuple(f"{leg}_{part}" for leg in legs for part in ("hip", "thigh", "calf"))
    for legs in (LEGS[:2], LEGS[2:])
)


def _bodies(*names: str) -> SceneEntityCfg:
    return SceneEntityCfg(body_names=names)


TERMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "payload": (
        mdp.randomize_body_mass,
        {"mass_range": (-1.0, 2.0), "operation": "add", "asset_cfg": _bodies("trunk")},
    ),
    "density": (
        mdp.randomize_body_mass_and_inertia,
        {"mass_range": (0.8, 1.3), "asset_cfg": _bodies(*THIGHS)},
    ),
    "inertia": (mdp.randomize_body_inertia, {"scale_range": (0.5, 1.5), "asset_cfg": _bodies(*CALVES)}),
    "com": (
        mdp.randomize_body_com,
        {"offset_range": {"x": (-0.05, 0.05), "z": (0.0, 0.02)}, "asset_cfg": _bodies("trunk")},
    ),
    "axes": (
        mdp.randomize_body_inertia_axes,
        {"angle_range": {"roll": (-0.1, 0.1)}, "asset_cfg": _bodies(*HIPS)},
    ),
    "size": (
        mdp.randomize_geom_size,
        {"scale_range": (0.9, 1.1), "asset_cfg": SceneEntityCfg(geom_names=FEET)},
    ),
    "gravity": (mdp.randomize_gravity, {"offset_range": {"z": (-0.5, 0.5)}}),
    "armature": (mdp.randomize_joint_armature, {"armature_range": (0.5, 2.0)}),
    "damping": (mdp.randomize_joint_damping, {"damping_range": (0.1, 0.3), "operation": "abs"}),
    "dry_friction": (mdp.randomize_joint_friction, {"friction_range": (0.0, 0.2), "operation": "abs"}),
    "gains": (
        mdp.randomize_actuator_gains,
        {"kp_range": (0.9, 1.1), "kd_range": (0.7, 1.4), "asset_cfg": SceneEntityCfg(actuator_names=FRONT)},
    ),
    "strength": (
        mdp.randomize_motor_strength,
        {"strength_range": (0.8, 1.0), "asset_cfg": SceneEntityCfg(actuator_names=REAR)},
    ),
    "encoders": (mdp.randomize_encoder_bias, {"bias_range": (-0.02, 0.02)}),
    "effort": (mdp.randomize_effort_limits, {"scale_range": (0.8, 1.0)}),
}
"""Beside those of the task: the friction of the feet, and the state."""


@dataclass(frozen=True)
class Expected:
    """What a field holds after a reset: `value = change(nominal, drawn)` in some elements and columns, else nominal."""

    field: str
    names: Sequence[str] | None
    column: int | None
    kind: str
    low: float
    high: float


EXPECTED = [
    Expected("body_mass", ("trunk",), None, "add", -1.0, 2.0),
    Expected("body_mass", THIGHS, None, "scale", 0.8, 1.3),
    *(Expected("body_inertia", THIGHS, i, "scale", 0.8, 1.3) for i in range(3)),
    *(Expected("body_inertia", CALVES, i, "scale", 0.5, 1.5) for i in range(3)),
    Expected("body_ipos", ("trunk",), 0, "add", -0.05, 0.05),
    Expected("body_ipos", ("trunk",), 2, "add", 0.0, 0.02),
    Expected("geom_size", FEET, 0, "scale", 0.9, 1.1),
    Expected("geom_friction", FEET, 0, "abs", 0.4, 1.2),
    Expected("gravity", None, 2, "add", -0.5, 0.5),
    Expected("dof_armature", None, None, "scale", 0.5, 2.0),
    Expected("dof_damping", None, None, "abs", 0.1, 0.3),
    Expected("dof_frictionloss", None, None, "abs", 0.0, 0.2),
    Expected("actuator_gainprm", FRONT, 0, "scale", 0.9, 1.1),
    Expected("actuator_biasprm", FRONT, 1, "scale", 0.9, 1.1),
    Expected("actuator_biasprm", FRONT, 2, "scale", 0.7, 1.4),
    Expected("actuator_gainprm", REAR, 0, "scale", 0.8, 1.0),
    *(Expected("actuator_biasprm", REAR, i, "scale", 0.8, 1.0) for i in (1, 2)),
    *(Expected("actuator_forcerange", None, i, "scale", 0.8, 1.0) for i in range(2)),
]
FIELDS = tuple(dict.fromkeys([*(one.field for one in EXPECTED), "body_iquat"]))
STATE = {"yaw": math.pi, "joints": 0.1, "speeds": 0.2, "root_lin": 0.2, "root_ang": 0.2, "encoders": 0.02}
"""Half the width of what the task's own reset events draw, and of the biases of encoders."""


def test_every_randomisation_that_there_is_takes_part():
    there = {getattr(mdp, name) for name in mdp.__all__ if name.startswith("randomize_")}
    own = {term.func for term in load_env_cfg(TASK).events.values()}
    assert there <= own | {func for func, _ in TERMS.values()}


@pytest.fixture(scope="module")
def made() -> Any:
    """The environment and its backend, reset once."""
    cfg = load_env_cfg(TASK, num_envs=ROWS)
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    events = {name: term for name, term in cfg.events.items() if name != "trunk_mass"}
    added = {name: EventTermCfg(func=f, mode="reset", params=params) for name, (f, params) in TERMS.items()}
    cfg = cfg.model_copy(update={"events": {**events, **added}})
    backend = make_backend("mujoco", cfg.scene, cfg.sim, num_envs=ROWS, declared=declared_by(cfg))
    with ManagerBasedRlEnv(cfg, backend=backend, seed=11) as env:
        env.reset()
        yield env, backend


def _own(env: ManagerBasedRlEnv, field: str) -> list[int]:
    """Returns which elements of a field are the robot's; the ground has no joints and no actuators."""
    names = {"body": env.model_layout.bodies, "geom": env.model_layout.geoms}.get(field.partition("_")[0])
    if names is None:
        return list(range(env.model_layout.fields[field].shape[0]))
    return [i for i, name in enumerate(names) if name.startswith("robot/")]


def _nominal(env: ManagerBasedRlEnv, field: str) -> torch.Tensor:
    return env.model_layout.fields[field].nominal_tensor()[_own(env, field)]


def _values(env: ManagerBasedRlEnv, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    data = env.scene["robot"].data
    return {field: data.model_values(field, rows) for field in FIELDS}


def _elements(env: ManagerBasedRlEnv, one: Expected) -> list[int]:
    if one.names is None:
        first = 6 if one.field.startswith("dof_") else 0  # the six of the free joint have no rotor
        return list(range(first, len(_own(env, one.field)))) if one.field != "gravity" else []
    robot = env.scene["robot"]
    own = {"body": robot.body_names, "geom": robot.geom_names, "actuator": robot.actuator_names}
    return [own[one.field.partition("_")[0]].index(name) for name in one.names]


def _drawn(env: ManagerBasedRlEnv, one: Expected, values: torch.Tensor) -> torch.Tensor:
    """Returns what was drawn, (K, E): the value, its ratio to the nominal one, or its difference from it."""
    nominal = _nominal(env, one.field)
    if one.field == "gravity":
        values, nominal = values[:, one.column, None], nominal[one.column, None]
    else:
        elements = _elements(env, one)
        values, nominal = values[:, elements], nominal[elements]
        if one.column is not None:
            values, nominal = values[..., one.column], nominal[..., one.column]
    return {"abs": values, "add": values - nominal, "scale": values / nominal}[one.kind]


def _untouched(env: ManagerBasedRlEnv, field: str) -> torch.Tensor:
    """Returns which numbers of a field no term randomises, as a mask of the robot's own elements."""
    mask = torch.ones_like(_nominal(env, field), dtype=torch.bool)
    for one in EXPECTED:
        if one.field == field:
            where: Any = slice(None) if one.field == "gravity" else _elements(env, one)
            if one.field == "gravity":
                mask[one.column] = False
            elif one.column is None:
                mask[where] = False
            else:
                mask[where, one.column] = False
    if field == "body_iquat":
        mask[[env.scene["robot"].body_names.index(name) for name in HIPS]] = False
    return mask


def _bias(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns by how much encoders read wrong, (N, J) rad."""
    return mdp.joint_pos(env, biased=True) - mdp.joint_pos(env)


def _state(backend: SimBackend) -> torch.Tensor:
    views = backend.get_state_views(("qpos", "qvel", "ctrl"))
    return torch.cat([views[name] for name in ("qpos", "qvel", "ctrl")], dim=1)


def test_a_thousand_resets_stay_in_range_and_in_their_rows_and_do_not_drift(made: Any):
    env, backend = made
    everybody = torch.arange(ROWS)
    nominal = {field: env.model_layout.fields[field].nominal for field in FIELDS}
    untouched = {field: _untouched(env, field) for field in FIELDS}
    seen: dict[int | str, list[torch.Tensor]] = defaultdict(list)
    order = torch.Generator().manual_seed(2)
    hips = [env.scene["robot"].body_names.index(name) for name in HIPS]
    for _ in range(CALLS):
        rows = torch.randperm(ROWS, generator=order)[:AT_ONCE]
        others = torch.tensor([row for row in range(ROWS) if row not in rows.tolist()])
        before, state, bias = _values(env, everybody), _state(backend), _bias(env)
        env.reset(rows)
        after = _values(env, everybody)
        assert torch.equal(_bias(env)[others], bias[others])
        seen["encoders"].append(_bias(env)[rows])
        assert torch.equal(_state(backend)[others], state[others])
        for field in FIELDS:
            assert torch.equal(after[field][others], before[field][others]), field
            kept = after[field][rows][:, untouched[field]]
            assert torch.equal(kept, _nominal(env, field)[untouched[field]].expand_as(kept)), field
        for i, one in enumerate(EXPECTED):
            seen[i].append(_drawn(env, one, after[one.field][rows]))
        turned = after["body_iquat"][rows][:, hips]
        own = _nominal(env, "body_iquat")[hips]
        seen["axes"].append(2.0 * torch.arccos((turned * own).sum(dim=-1).abs().clamp(max=1.0)))
        data = env.scene["robot"].data
        seen["yaw"].append(data.heading_w[rows])
        seen["joints"].append((data.joint_pos - data.default_joint_pos)[rows])
        seen["speeds"].append(data.joint_vel[rows])
        seen["root_lin"].append(data.root_lin_vel_w[rows])
        seen["root_ang"].append(data.root_ang_vel_w[rows])
    assert {field: env.model_layout.fields[field].nominal for field in FIELDS} == nominal
    ranges: dict[int | str, tuple[float, float]] = {i: (one.low, one.high) for i, one in enumerate(EXPECTED)}
    ranges |= {name: (-half, half) for name, half in STATE.items()}
    for key, (low, high) in ranges.items():
        _check_uniform(torch.cat(seen[key]), low, high, EXPECTED[key] if isinstance(key, int) else key)
    angles = torch.cat(seen["axes"])
    assert angles.max() <= 0.1 + 1e-3
    assert angles.max() > 0.095


def _check_uniform(drawn: torch.Tensor, low: float, high: float, label: object) -> None:
    """Checks that every number lies in the range, that both ends are reached, and that no half is preferred."""
    assert drawn.shape[0] == RESETS
    width = high - low
    assert drawn.min() >= low - 1e-4 * width, label
    assert drawn.max() <= high + 1e-4 * width, label
    assert drawn.min() < low + 0.01 * width, label
    assert drawn.max() > high - 0.01 * width, label
    # 1,000 draws have a mean within 5 standard deviations (a uniform one's is its width / sqrt(12)); and so has the
    # last quarter of them alone, which a random walk from reset to reset would have left.
    for part in (drawn, drawn[-RESETS // 4 :]):
        deviation = width / math.sqrt(12.0 * part.shape[0])
        assert abs(part.mean().item() - (low + high) / 2.0) < 5.0 * deviation, label


def test_mass_and_inertia_change_by_one_factor_and_so_do_gain_and_bias(made: Any):
    env, _ = made
    values = _values(env, torch.arange(ROWS))
    thighs = [env.scene["robot"].body_names.index(name) for name in THIGHS]
    mass, inertia = (values[f][:, thighs] / _nominal(env, f)[thighs] for f in ("body_mass", "body_inertia"))
    torch.testing.assert_close(inertia, mass[..., None].expand_as(inertia), rtol=1e-5, atol=0.0)
    gain, bias = values["actuator_gainprm"][..., 0], values["actuator_biasprm"][..., 1]
    assert torch.equal(gain, -bias)


def test_the_engine_has_what_the_rows_were_given(made: Any, tmp_path: Path):
    env, backend = made
    values = _values(env, torch.arange(ROWS))
    for row in (0, ROWS - 1):
        path = tmp_path / f"{row}.mjb"
        path.write_bytes(backend.export_model(row))
        model = mujoco.MjModel.from_binary_path(str(path))
        for field in FIELDS:
            own = model.opt.gravity if field == "gravity" else getattr(model, field)[_own(env, field)]
            expected = torch.tensor(own, dtype=torch.float32)
            if field == "body_iquat":  # which the engine brings to length 1
                torch.testing.assert_close(values[field][row], expected, rtol=0.0, atol=1e-6)
            else:
                assert torch.equal(values[field][row], expected), field
