"""Observation terms of bodies, sites and named sensors, with numbers worked out by hand."""

from typing import Any

import pytest
import torch
from feet_support import FEET, SENSORS, SITES, FeetFeed, feet_env, feet_layout
from manager_support import MakeEnv, group, zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, mdp
from unisim import BuiltinSensorCfg, ContactSensorCfg, SceneCfg
from unisim.model_layout import ContactLayout
from unisim.testing import make_layout

HALF, ROOT = 0.5, 0.75**0.5
YAWED = (0.5**0.5, 0.0, 0.0, 0.5**0.5)
"""Yaw +90 deg: the root's x axis is the world's y."""
ROLLED = (0.5**0.5, 0.5**0.5, 0.0, 0.0)
"""Roll +90 deg."""


def seen(func: Any, pose: Any = YAWED, **params: Any) -> tuple[ManagerBasedRlEnv, torch.Tensor]:
    """Returns an environment with one posed robot and what the term shows of its left and right site, (dim,)."""
    layout = feet_layout()
    feed = FeetFeed(layout)
    term = ObservationTermCfg(func=func, params={"asset_cfg": SITES, **params})
    env = feet_env(1, feed=feed, layout=layout, observations={"obs": group(term=term)})
    feed.now["qpos"] = torch.tensor([[1.0, 2.0, 3.0, *pose, 0.0, 0.0]])
    left = [1.0, 4.0, 2.5, *ROLLED, 3.0, 4.0, 5.0, 0.0, 6.0, 7.0]
    right = [0.0, 2.0, 3.0, *(-q for q in YAWED), 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    for foot, values in zip(FEET, (left, right), strict=True):
        feed.now[f"site:robot/{foot}"] = torch.tensor([values])
    env.step(zeros(env))
    return env, env.observations()["obs"][0]


def close(value: torch.Tensor, expected: Any) -> None:
    assert value.tolist() == pytest.approx(list(expected), abs=1e-6)


def labels(env: ManagerBasedRlEnv, *parts: str) -> None:
    """Checks the labels, foot after foot."""
    assert env.describe().observations["obs"] == tuple(
        f"term[{foot}.{part}]" for foot in FEET for part in parts
    )


def test_positions_are_those_from_the_root_along_its_own_axes() -> None:
    env, value = seen(mdp.body_pos_b)
    with env:
        close(value, [2.0, 0.0, -0.5, 0.0, 1.0, 0.0])
        labels(env, "x", "y", "z")
        assert env.describe().units["obs"] == ("m",) * 6


def test_velocities_are_those_against_the_world_along_the_axes_of_the_root() -> None:
    env, value = seen(mdp.body_lin_vel_b)
    with env:
        close(value, [4.0, -3.0, 5.0, 0.0, 0.0, 0.0])
        assert env.describe().units["obs"] == ("m/s",) * 6
    env, value = seen(mdp.body_ang_vel_b)
    with env:
        close(value, [6.0, 0.0, 7.0, 0.0, -1.0, 0.0])
        assert env.describe().units["obs"] == ("rad/s",) * 6


def test_an_orientation_is_shown_from_the_root_with_the_one_sign_of_two() -> None:
    env, value = seen(mdp.body_quat_b)
    with env:
        # (yaw -90) x (roll 90); and the same orientation as the root's, of the other sign.
        close(value, [HALF, HALF, -HALF, -HALF, 1.0, 0.0, 0.0, 0.0])
        labels(env, "w", "x", "y", "z")


def test_the_continuous_representation_holds_the_x_and_the_y_axis() -> None:
    env, value = seen(mdp.body_rot6d_b)
    with env:
        # Rolled about the world's x: its x axis is the world's x, its y axis the world's z; the root looks along y.
        close(value, [0.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
        labels(env, "xx", "xy", "xz", "yx", "yy", "yz")


def test_a_tilted_root_sees_what_is_above_it_ahead() -> None:
    pitched = (ROOT, 0.0, HALF, 0.0)  # +60 degrees: its x axis is (1/2, 0, -ROOT)
    env, value = seen(mdp.body_pos_b, pose=pitched)
    with env:
        close(value[3:], [-HALF, 0.0, -ROOT])  # the right foot is 1 m behind in the world
        close(value[:3], [0.5 * ROOT, 2.0, -0.25])  # the left one 0.5 m below, 2 m to the left


def test_the_root_of_another_entity_may_look_on(make_env: MakeEnv) -> None:
    def script(step: int, state: Any) -> dict[str, torch.Tensor]:
        return {
            "body:robot/base": torch.tensor([[1.0, 0.0, 0.0, *YAWED, *[0.0] * 6]]),
            "body:cube/base": torch.tensor([[1.0, 3.0, 0.5, 1.0, *[0.0] * 9]]),
        }

    layout = make_layout(joints=("robot/hip", "cube/slide"), actuated=("robot/hip",), timestep=0.02)
    cube = SceneEntityCfg(name="cube", body_names=("base",))
    term = ObservationTermCfg(func=mdp.body_pos_b, params={"asset_cfg": cube, "frame_cfg": {"name": "robot"}})
    env = make_env(1, layout=layout, feed=script, observations={"obs": group(cube=term)})
    env.step(zeros(env))
    close(env.observations()["obs"][0], [3.0, 0.0, 0.5])
    assert env.describe().observations["obs"] == ("cube[base.x]", "cube[base.y]", "cube[base.z]")


# ---------------------------------------------------------------- sensors


def test_sensors_are_shown_side_by_side_an_entitys_own_first(make_env: MakeEnv) -> None:
    layout = make_layout(
        sensors={"load": (1, "position"), "robot/imu": (3, "position"), "wide": (2, "position")},
        contacts={"bump": ContactLayout(("found", "force"), 2, "maxforce")},
        timestep=0.02,
    )

    def script(step: int, state: Any) -> dict[str, torch.Tensor]:
        return {
            "sensor:load": torch.tensor([[5.0]]),
            "sensor:robot/imu": torch.tensor([[1.0, 2.0, 3.0]]),
            "sensor:wide": torch.tensor([[7.0, 8.0]]),
            "sensor:bump": torch.arange(8.0)[None],
        }

    names = ("wide", "imu", "load", "bump")
    term = ObservationTermCfg(func=mdp.sensor, params={"sensor_names": names})
    env = make_env(1, layout=layout, feed=script, observations={"obs": group(s=term)})
    env.step(zeros(env))
    close(env.observations()["obs"][0], [7.0, 8.0, 1.0, 2.0, 3.0, 5.0, *range(8)])
    slots = [f"bump.{i}.{field}" for i in range(2) for field in ("found", "force.x", "force.y", "force.z")]
    shown = ["wide.0", "wide.1", "imu.x", "imu.y", "imu.z", "load", *slots]
    assert env.describe().observations["obs"] == tuple(f"s[{name}]" for name in shown)
    assert env.describe().units["obs"] == ("",) * 6 + ("", "N", "N", "N") * 2


def test_units_are_those_of_the_kind_that_the_scene_adds_or_what_the_term_says(make_env: MakeEnv) -> None:
    kinds = {
        "gyro": "rad/s",
        "velocimeter": "m/s",
        "framequat": "",
        "jointvel": "rad/s",
        "actuatorfrc": "N m",
    }
    sensors = (
        *(
            BuiltinSensorCfg(name=kind, kind=kind, target="robot/hinge")  # type: ignore[arg-type] # the kinds above
            for kind in kinds
        ),
        ContactSensorCfg(name="bump", target="robot/base"),
    )
    layout = make_layout(
        actuated=("robot/hinge",), sensors={kind: (1, "velocity") for kind in kinds}, timestep=0.02
    )
    params = {"sensor_names": tuple(kinds)}
    terms = {
        "told": ObservationTermCfg(func=mdp.sensor, params=params),
        "said": ObservationTermCfg(func=mdp.sensor, params={**params, "unit": "W"}),
    }
    env = make_env(layout=layout, scene=SceneCfg(sensors=sensors), observations={"obs": group(**terms)})
    assert env.describe().units["obs"] == (*kinds.values(), *["W"] * 5)


def test_a_sensor_that_is_not_there_is_named_with_the_nearest(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=mdp.sensor, params={"sensor_names": ("prob",)})
    with pytest.raises(
        ConfigError, match=r"observations.obs term 'x': .*unknown sensor 'prob'; did you mean 'probe'"
    ):
        make_env(observations={"obs": group(x=term)})


def test_contact_sensors_of_an_entity_are_named_without_its_prefix(make_env: MakeEnv) -> None:
    layout = make_layout(
        contacts={f"robot/{name}": ContactLayout(("found",)) for name in SENSORS}, timestep=0.02
    )
    term = ObservationTermCfg(func=mdp.foot_contact, params={"sensor_names": SENSORS})
    env = make_env(1, layout=layout, observations={"obs": group(down=term)})
    assert env.describe().observations["obs"] == ("down[left_contact]", "down[right_contact]")
    assert env.describe().reads[-2:] == ("sensor:robot/left_contact", "sensor:robot/right_contact")


# ---------------------------------------------------------------- actions


def test_the_previous_action_is_that_of_the_step_before(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=mdp.previous_action)
    env = make_env(2, observations={"obs": group(before=term)})
    env.step(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert env.observations()["obs"].tolist() == [[0.0, 0.0]] * 2
    env.step(torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
    assert env.observations()["obs"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    env.reset(torch.tensor([0]))
    assert env.observations()["obs"].tolist() == [[0.0, 0.0], [3.0, 4.0]]
    assert env.describe().observations["obs"] == ("before[effort:slider]", "before[effort:hinge]")


def test_the_height_of_the_base_is_that_of_its_origin(make_env: MakeEnv) -> None:
    env, _ = seen(mdp.body_pos_b)
    with env:
        assert mdp.base_height(env).tolist() == [[3.0]]
