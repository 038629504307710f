"""What becomes of an action is found in the description, or it is said why it can't be."""

from dataclasses import replace

import pytest
import torch
from export_support import DESCRIPTION, described
from hypothesis import given
from hypothesis import strategies as st

from unilab_core import (
    ActionDescription,
    ActuatorDescription,
    EnvDescription,
    JointDescription,
    TermDescription,
)
from unilab_rl.export.targets import UnknownTargetError, quantity_of, target_law

INF = float("inf")


def one_joint(settings, bounds, *, default=0.25, ctrl_range=(-0.5, 0.75), kp=20.0, is_affine=True):
    """The description of one joint `knee` with these settings and the bounds that an environment would work out."""
    return EnvDescription(
        step_dt=0.02,
        episode_length_s=1.0,
        observations={},
        actions=(ActionDescription("legs:knee", "robot/servo", "robot/knee", bounds),),
        joints=(JointDescription("robot/knee", "hinge", (default,), None),),
        actuators=(ActuatorDescription("robot/servo", "robot/knee", ctrl_range, kp, kp, 0.0),),
        terms={
            "actions": (
                TermDescription(
                    "legs", "f:Cfg", settings=settings, columns=("legs:knee",), is_affine=is_affine
                ),
            )
        },
    )


def law_of(settings, bounds, **changes):
    """Returns scale, offset, low and high of the one joint."""
    law = target_law(one_joint(settings, bounds, **changes))
    return [float(part[0]) for part in (law.scale, law.offset, law.low, law.high)]


def test_every_column_has_its_own_law_and_the_target_is_clipped():
    law = target_law(DESCRIPTION)
    assert law.scale.tolist() == [0.5, 2.0]
    assert law.offset.tolist() == [0.25, 0.0]
    assert law.low.tolist() == [-0.5, -1.0]
    assert law.high.tolist() == [0.75, 1.0]
    actions = torch.tensor([[0.0, 0.25], [1.5, -0.75], [-9.0, 0.5]])
    assert law(actions).tolist() == [[0.25, 0.5], [0.75, -1.0], [-0.5, 1.0]]


@pytest.mark.parametrize(
    ("settings", "bounds", "expected"),
    [
        # a joint's default position, the actuator's range
        ({"scale": 0.5, "offset": "default", "clip": None}, (-1.5, 1.0), [0.5, 0.25, -0.5, 0.75]),
        # by the names of joints
        (
            {"scale": {"kn.*": 2.0}, "offset": {"knee": 0.5}, "clip": {".*": (0.0, 1.0)}},
            (-0.25, 0.25),
            [2, 0.5, 0, 1],
        ),
        # names that leave the joint out: scale 1, and the default position or 0, as the bounds tell
        (
            {"scale": {"hip": 2.0}, "offset": {"hip": 0.5}, "clip": None},
            (-0.75, 0.5),
            [1.0, 0.25, -0.5, 0.75],
        ),
        ({"scale": {"hip": 2.0}, "offset": {"hip": 0.5}, "clip": None}, (-0.5, 0.75), [1.0, 0.0, -0.5, 0.75]),
        # a negative scale turns the bounds around
        ({"scale": -0.5, "offset": 0.25, "clip": None}, (-1.0, 1.5), [-0.5, 0.25, -0.5, 0.75]),
        # no limit on one side
        ({"scale": 1.0, "offset": 0.0, "clip": (None, 2.0)}, (None, 2.0), [1.0, 0.0, -INF, 2.0]),
        # motors with a curve: targets are not clipped, or to the largest effort
        (
            {"scale": 1.0, "offset": "default", "clip": None, "stiffness": 9.0, "effort_limit": 3.0},
            (None, None),
            [1.0, 0.25, -INF, INF],
        ),
        (
            {"scale": 1.0, "offset": 0.0, "clip": None, "effort_limit": {"kne.": 3.0}},
            (-3.0, 3.0),
            [1, 0, -3, 3],
        ),
    ],
)
def test_what_a_setting_leaves_out_is_what_the_bounds_agree_with(settings, bounds, expected):
    assert law_of(settings, bounds) == expected


@given(
    scale=st.floats(0.01, 100.0),
    offset=st.floats(-10.0, 10.0),
    low=st.floats(-20.0, -0.1),
    high=st.floats(0.1, 20.0),
    turned=st.booleans(),
)
def test_the_law_is_found_from_bounds_that_were_worked_out_in_float32(scale, offset, low, high, turned):
    scale = -scale if turned else scale
    ends = (torch.tensor([low, high]) - torch.tensor(offset)) / torch.tensor(scale)
    bounds = tuple(sorted(ends.tolist()))
    settings = {"scale": scale, "offset": offset, "clip": None}
    expected = [float(value) for value in torch.tensor([scale, offset, low, high])]
    assert law_of(settings, bounds, ctrl_range=(low, high)) == expected


@pytest.mark.parametrize(
    ("settings", "bounds", "message"),
    [
        ({"scale": 0.5, "clip": None}, (None, None), "has no offset"),
        ({}, (None, None), "has no clip and no offset and no scale"),
        # something else is in force than what the settings say
        ({"scale": 0.5, "offset": "default", "clip": None}, (-1.0, 1.0), "of which 0 agree with the bounds"),
        ({"scale": 0.5, "offset": 0.25, "clip": (-1, 1)}, (None, None), "of which 0 agree with the bounds"),
        # a joint that is left out, and no bound to tell which default it has
        ({"scale": 1.0, "offset": {"hip": 1.0}, "clip": (None, None)}, (None, None), "of which 2 agree"),
    ],
)
def test_a_target_that_the_description_does_not_tell_is_refused_with_the_reason(settings, bounds, message):
    with pytest.raises(UnknownTargetError, match=message) as caught:
        law_of(settings, bounds)
    assert "'legs'" in str(caught.value)


def test_a_term_that_does_not_say_it_is_affine_has_no_law_though_its_settings_and_bounds_agree():
    settings, bounds = {"scale": 0.5, "offset": 0.25, "clip": None}, (-1.5, 1.0)
    assert law_of(settings, bounds) == [0.5, 0.25, -0.5, 0.75]
    with pytest.raises(UnknownTargetError, match="does not say that its target is") as caught:
        law_of(settings, bounds, is_affine=False)
    assert "'legs' is a f:Cfg," in str(caught.value)


def test_a_column_without_a_term_is_named():
    with pytest.raises(
        UnknownTargetError, match="no action term of the environment describes the column 'legs:hip'"
    ):
        target_law(described(terms={}))


def test_what_a_target_is_follows_from_the_actuator_or_the_controller_in_front_of_it():
    hip, wheel = DESCRIPTION.actions
    assert (quantity_of(hip, DESCRIPTION), quantity_of(wheel, DESCRIPTION)) == ("position", "effort")
    legs, drive = DESCRIPTION.terms["actions"]
    controlled = replace(drive, settings={**drive.settings, "stiffness": 4.0})
    assert quantity_of(wheel, described(terms={"actions": (legs, controlled)})) == "position"
    servo = ActuatorDescription("robot/wheel_motor", "robot/wheel", None, 3.0, 0.0, 3.0)
    assert quantity_of(wheel, described(actuators=(servo,))) == "velocity"
    assert quantity_of(wheel, described(actuators=())) is None
