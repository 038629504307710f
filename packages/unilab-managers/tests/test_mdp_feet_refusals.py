"""What terms of feet refuse, and what they do not hide."""

import math
from typing import Any

import pytest
from feet_support import CONTACTS, FEET, SENSORS, SITES, WITH_SITES, commands, feet_layout, made, reward
from manager_support import zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import mdp

STAND = (0.03, 0.0, 0.03)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"sensor_names": ("left_contac",)},
            "unknown contact sensor 'left_contac'; did you mean 'left_contact'",
        ),
        ({"sensor_names": ()}, r"sensor_names is \(\), expected a tuple of at least one name"),
        ({"sensor_names": "left_contact"}, "sensor_names is 'left_contact', expected a tuple"),
    ],
)
def test_a_wrong_sensor_is_refused_with_what_is_right(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"rewards term 'term'.*{message}"):
        made(1, rewards=reward(mdp.feet_air_time, **params, threshold=0.1))


@pytest.mark.parametrize(
    ("func", "data", "missing"),
    [
        (mdp.feet_soft_landing, ("found",), "force"),
        (mdp.feet_slip, ("force",), "found"),
        (mdp.feet_swing_height, ("force",), "found"),
        (mdp.undesired_contacts, ("found",), "force"),
    ],
)
def test_a_sensor_that_does_not_report_what_a_term_needs_is_refused(
    func: Any, data: tuple[str, ...], missing: str
) -> None:
    params: dict[str, Any] = (
        dict(WITH_SITES) if func in (mdp.feet_slip, mdp.feet_swing_height) else dict(CONTACTS)
    )
    if func is mdp.feet_swing_height:
        params["target_height"] = 0.1
    message = (
        f"contact sensor 'left_contact' reports .*, but '{missing}' is needed; add it to the sensor's data"
    )
    with pytest.raises(ConfigError, match=message):
        made(1, layout=feet_layout(data), rewards=reward(func, **params))


@pytest.mark.parametrize("func", [mdp.feet_slip, mdp.feet_swing_height])
def test_feet_and_sensors_that_differ_in_number_are_refused(func: Any) -> None:
    params = {"sensor_names": SENSORS[:1], "asset_cfg": SITES}
    if func is mdp.feet_swing_height:
        params["target_height"] = 0.1
    with pytest.raises(
        ConfigError, match="asset_cfg means 2 feet, sensor_names 1; expected one sensor per foot"
    ):
        made(1, rewards=reward(func, **params))


REVERSED = SceneEntityCfg(site_names=FEET[::-1])


@pytest.mark.parametrize(
    ("func", "more"),
    [(mdp.feet_slip, {}), (mdp.feet_swing_height, {"target_height": 0.1})],
)
def test_feet_named_in_another_order_than_the_model_s_meet_no_foreign_sensor(func: Any, more: dict) -> None:
    params = {"sensor_names": SENSORS[::-1], "asset_cfg": REVERSED, **more}
    message = (
        r"asset_cfg names the feet \('right', 'left'\), the model has them as \('left', 'right'\), .* set "
        "preserve_order=True"
    )
    with pytest.raises(ConfigError, match=message):
        made(1, rewards=reward(func, **params))
    kept = SceneEntityCfg(site_names=FEET[::-1], preserve_order=True)
    made(1, rewards=reward(func, **{**params, "asset_cfg": kept}))[0].close()


def test_a_sensor_given_twice_is_refused() -> None:
    twice = ("left_contact", "left_contact")
    with pytest.raises(ConfigError, match="name one twice; expected each once"):
        made(1, rewards=reward(mdp.feet_air_time, sensor_names=twice, threshold=0.1))


@pytest.mark.parametrize(
    ("func", "params", "message"),
    [
        (
            mdp.feet_air_time,
            {**CONTACTS, "threshold": 0.1, "limit": -1.0},
            "limit is -1.0, expected seconds above 0",
        ),
        (mdp.base_height_exp, {"target_height": 0.3, "std": 0.0}, "std is 0.0, expected a number above 0"),
        (mdp.upright_exp, {"std": -1.0}, "std is -1.0, expected a number above 0"),
        (
            mdp.terminated_by,
            {"term_names": ()},
            "term_names is empty, expected at least one termination term",
        ),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(func: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(1, rewards=reward(func, **params))


def test_feet_must_be_sites_or_bodies() -> None:
    both = SceneEntityCfg(site_names=FEET, body_names=("base",))
    for cfg in (SceneEntityCfg(), both):
        with pytest.raises(ConfigError, match="expected one of the two"):
            made(1, rewards=reward(mdp.feet_clearance, asset_cfg=cfg, target_height=0.1))


def test_nothing_that_is_not_finite_hides_behind_a_command_to_stand() -> None:
    env, feed = made(
        1,
        rewards=reward(mdp.feet_clearance, asset_cfg=SITES, target_height=0.1, command_name="twist"),
        commands=commands(STAND),
    )
    with env:
        feed.place(0, [math.nan])
        with pytest.raises(ValueError, match=r"reward terms \['term'\]"):
            env.step(zeros(env))


def test_a_target_that_is_no_height_is_refused() -> None:
    message = r"rewards term 'term'.*target_height is 0.0, expected a height above 0"
    with pytest.raises(ConfigError, match=message):
        made(1, rewards=reward(mdp.feet_swing_height, **WITH_SITES, target_height=0.0))
