"""A randomisation that is left out of a reset keeps what it gave, whatever other terms do to the rest of its field."""

from typing import Any

import pytest
import torch
from event_support import fake_model_env, held, robot_cfg

from unilab_core import SceneEntityCfg
from unilab_managers import EventTermCfg, ManagerBasedRlEnv
from unilab_managers.mdp.joint_randomization import (
    randomize_actuator_gains,
    randomize_effort_limits,
    randomize_joint_damping,
)
from unilab_managers.mdp.randomization import (
    randomize_body_com,
    randomize_body_inertia,
    randomize_body_inertia_axes,
    randomize_body_mass,
    randomize_body_mass_and_inertia,
    randomize_geom_friction,
    randomize_geom_size,
)

TRUNK, FOOT = SceneEntityCfg(geom_names=("trunk",)), SceneEntityCfg(geom_names=("foot",))
HIP, KNEE = SceneEntityCfg(joint_names=("hip",)), SceneEntityCfg(joint_names=("knee",))
HIP_MOTOR, KNEE_MOTOR = (
    SceneEntityCfg(actuator_names=("hip",)),
    SceneEntityCfg(actuator_names=("knee",)),
)
COULOMB = {"friction_range": (0.3, 0.9), "operation": "abs"}
SCALE = {"scale_range": (0.5, 0.9)}

# Term, parameters of the one that is left out and of the one that is not; where in the fields the first one's values
# are, by field; all of the field else is free to change.
PAIRS: list[tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        randomize_geom_friction,
        {"asset_cfg": TRUNK} | COULOMB,
        {"asset_cfg": FOOT} | COULOMB,
        {"geom_friction": (slice(None), 0)},
    ),
    (
        randomize_geom_friction,
        {"axes": ("slide",)} | COULOMB,
        {"axes": ("roll", "spin")} | COULOMB,
        {"geom_friction": (..., 0)},
    ),
    (
        randomize_geom_size,
        {"asset_cfg": TRUNK} | SCALE,
        {"asset_cfg": FOOT} | SCALE,
        {"geom_size": (slice(None), 0)},
    ),
    (
        randomize_joint_damping,
        {"asset_cfg": HIP, "damping_range": (0.5, 0.9)},
        {"asset_cfg": KNEE, "damping_range": (0.5, 0.9)},
        {"dof_damping": (..., 6)},
    ),
    (
        randomize_effort_limits,
        {"asset_cfg": KNEE_MOTOR} | SCALE,
        {"asset_cfg": HIP_MOTOR} | SCALE,
        {"actuator_forcerange": (slice(None), 1)},
    ),
    (
        randomize_actuator_gains,
        {"asset_cfg": HIP_MOTOR, "kp_range": (0.5, 0.9), "kd_range": (0.5, 0.9)},
        {"asset_cfg": KNEE_MOTOR, "kp_range": (0.5, 0.9), "kd_range": (0.5, 0.9)},
        {"actuator_gainprm": (slice(None), 0), "actuator_biasprm": (slice(None), 0)},
    ),
    (
        randomize_actuator_gains,
        {"kd_range": (0.5, 0.9)},
        {"kp_range": (0.5, 0.9)},
        {"actuator_biasprm": (..., 2)},
    ),
    (
        randomize_actuator_gains,
        {"kp_range": (0.5, 0.9)},
        {"kd_range": (0.5, 0.9)},
        {"actuator_gainprm": (..., 0), "actuator_biasprm": (..., 1)},
    ),
]


@pytest.mark.parametrize(("func", "rare", "often", "places"), PAIRS)
def test_what_a_term_that_is_left_out_gave_stays(
    func: Any, rare: dict[str, Any], often: dict[str, Any], places: dict[str, Any]
) -> None:
    events = {
        "rare": EventTermCfg(func=func, mode="reset", params=rare, min_step_count_between_reset=100),
        "often": EventTermCfg(func=func, mode="reset", params=often),
    }
    with fake_model_env(events) as env:
        env.reset()
        first = {field: held(env, field) for field in places}
        for _ in range(3):
            env.reset()
        for field, place in places.items():
            now = held(env, field)
            assert torch.equal(now[place], first[field][place]), field
            nominal = torch.tensor(env.model_layout.fields[field].nominal).reshape(now.shape[1:])
            assert not torch.allclose(now[place], nominal.double().expand_as(now)[place]), field
        assert any(not torch.equal(held(env, field), first[field]) for field in places)


BODY_TERMS: list[tuple[Any, dict[str, Any], str]] = [
    (randomize_body_mass, {"mass_range": (0.5, 0.9)}, "body_mass"),
    (randomize_body_mass_and_inertia, {"mass_range": (0.5, 0.9)}, "body_inertia"),
    (randomize_body_inertia, SCALE, "body_inertia"),
    (randomize_body_com, {"offset_range": {"x": (0.1, 0.2)}}, "body_ipos"),
    (randomize_body_inertia_axes, {"angle_range": {"yaw": (0.1, 0.2)}}, "body_iquat"),
]


@pytest.mark.parametrize(("func", "params", "field"), BODY_TERMS)
def test_a_term_of_other_bodies_stages_none_but_its_own(
    func: Any, params: dict[str, Any], field: str
) -> None:
    def of(*bodies: str, **more: Any) -> EventTermCfg:
        own = {"asset_cfg": SceneEntityCfg(body_names=bodies)} | params
        return EventTermCfg(func=func, mode="reset", params=own, **more)

    events = {"rare": of("leg", min_step_count_between_reset=100), "often": of("base", "foot")}
    with ManagerBasedRlEnv(robot_cfg(events)) as env:
        env.reset()
        leg = env.model_layout.bodies.index("robot/leg")
        first = held(env, field)
        env.reset()
        assert torch.equal(held(env, field)[:, leg], first[:, leg])
        assert not torch.equal(held(env, field), first)
