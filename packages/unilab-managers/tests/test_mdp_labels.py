"""Terms name their own columns and the units of these."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from manager_support import MakeEnv, group, layout_of

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ObservationTermCfg
from unilab_managers.mdp import (
    labels,
    observations,
    observations_bodies,
    observations_feet,
    observations_sensors,
)
from unisim import ModelLayout


def test_a_marked_term_tells_its_unit_and_its_columns(make_env: MakeEnv) -> None:
    @labels.columns(unit="m", names=labels.fixed_columns("near", "far"))
    def ranges(env: object) -> None: ...

    names = labels.column_names(ranges)
    assert names is not None
    assert names(make_env()) == ("near", "far")
    assert labels.column_unit(ranges) == "m"


def test_a_class_term_is_marked_alike() -> None:
    @labels.columns(unit="N", names=labels.fixed_columns("left"))
    class Force: ...

    assert labels.column_unit(Force) == "N"


def test_a_term_that_says_nothing_has_no_names() -> None:
    def silent() -> None: ...

    assert labels.column_names(silent) is None
    assert labels.column_unit(silent) is None


def test_joint_columns_follow_the_order_that_the_term_uses(make_env: MakeEnv) -> None:
    env = make_env(layout=layout_of("a", "b", "c"))
    for names, order, expected in (
        (None, False, ("a", "b", "c")),
        (("c", "a"), False, ("a", "c")),
        (("c", "a"), True, ("c", "a")),
        (("[bc]",), False, ("b", "c")),
    ):
        cfg = SceneEntityCfg(joint_names=names, preserve_order=order)
        assert labels.joint_columns(env, asset_cfg=cfg) == expected


def test_action_columns_are_the_labels_of_the_actions(make_env: MakeEnv) -> None:
    assert labels.action_columns(make_env()) == ("effort:slider", "effort:hinge")


def test_command_columns_are_the_labels_of_the_command(
    make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env()
    terms = {"twist": SimpleNamespace(labels=("vx", "wz"))}
    monkeypatch.setattr(env, "command_manager", SimpleNamespace(get_term=terms.__getitem__), raising=False)
    assert labels.command_columns(env, "twist") == ("vx", "wz")


@pytest.mark.parametrize(
    "module", [observations, observations_bodies, observations_feet, observations_sensors]
)
def test_every_observation_term_names_its_columns_and_their_units(module: Any) -> None:
    for name in module.__all__:
        term = getattr(module, name)
        assert labels.column_names(term) is not None, name
        assert labels.column_unit(term) is not None, name


def sliding(layout: ModelLayout, *joints: str) -> ModelLayout:
    """Returns the layout with joints that slide where the fake has hinges."""
    names = {f"robot/{joint}" for joint in joints}
    changed = tuple(replace(j, kind="slide") if j.name in names else j for j in layout.joints)
    return replace(layout, joints=changed)


def units_of(make_env: MakeEnv, layout: ModelLayout, **terms: Any) -> tuple[str, ...]:
    env = make_env(layout=layout, observations={"obs": group(**terms)})
    units: tuple[str, ...] = env.observation_manager.units()["obs"]
    assert env.describe().units["obs"] == units
    return units


@pytest.mark.parametrize(
    ("joint_names", "preserve_order", "kinds"),
    [(None, False, "lalla"), (("b", "a"), True, "al"), (("b", "a"), False, "la"), (("d",), False, "l")],
)
def test_a_joint_that_slides_is_measured_in_metres_and_a_hinge_in_radians(
    make_env: MakeEnv, joint_names: tuple[str, ...] | None, preserve_order: bool, kinds: str
) -> None:
    params = {"asset_cfg": SceneEntityCfg(joint_names=joint_names, preserve_order=preserve_order)}
    layout = sliding(layout_of("a", "b", "c", "d", "e"), "a", "c", "d")
    for name in ("joint_pos", "joint_pos_rel", "joint_vel", "joint_vel_rel"):
        term = ObservationTermCfg(func=getattr(observations, name), params=params, history_length=2)
        per_s = "/s" if "vel" in name else ""
        expected = tuple({"l": "m", "a": "rad"}[kind] + per_s for kind in kinds)
        assert units_of(make_env, layout, joints=term) == 2 * expected, name


def test_units_are_those_of_each_column_in_the_order_of_the_group(make_env: MakeEnv) -> None:
    terms = {
        "positions": ObservationTermCfg(func=observations.joint_pos),
        "sent": ObservationTermCfg(func=observations.last_action),
        "speeds": ObservationTermCfg(func=observations.joint_vel),
    }
    env = make_env(layout=sliding(layout_of("a", "b"), "b"), observations={"obs": group(**terms)})
    assert env.observation_manager.units() == {"obs": ("rad", "m", "", "", "rad/s", "m/s")}
    assert env.observation_manager.settings("obs", "positions")["unit"] == "rad, m"
    assert env.observation_manager.settings("obs", "sent")["unit"] == ""


def units_by_parameter(env: object, units: tuple[str, ...]) -> tuple[str, ...]:
    return units


@labels.columns(unit=units_by_parameter, names=labels.fixed_columns("force", "torque"))
def load(env: Any, units: tuple[str, ...]) -> torch.Tensor:
    """Returns nothing of interest in two columns."""
    return torch.zeros(env.num_envs, 2)


def test_a_function_gives_units_by_the_parameters_of_the_term(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=load, params={"units": ("N", "N m")})
    assert units_of(make_env, layout_of(), load=term) == ("N", "N m")
    assert labels.column_unit(load) is units_by_parameter


def test_units_that_do_not_fit_the_columns_are_refused(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=load, params={"units": ("N",)})
    message = r"observations.obs term 'load' gives units of 1 columns \('N',\), but returned 2"
    with pytest.raises(ConfigError, match=message):
        make_env(observations={"obs": group(load=term)})
