"""Observation terms against numbers worked out by hand, on bodies that are turned, tilted and both."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, layout_of, with_default, zeros

from unilab_core import SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv
from unilab_managers.mdp import observations as terms

HALF, ROOT = 0.5, 0.75**0.5
TURNED_AND_ROLLED = (HALF, HALF, HALF, HALF)
"""Yaw +90 deg, then roll +90 deg: the body's x, y, z axes are the world's y, z, x."""
PITCHED = (ROOT, 0.0, HALF, 0.0)
"""Pitch +60 deg: the body's x axis is (1/2, 0, -ROOT) in the world, its z axis (ROOT, 0, 1/2)."""
TURNED = (0.5**0.5, 0.0, 0.0, 0.5**0.5)
"""Yaw +90 deg: the body's x axis is the world's y."""
QUATS = (TURNED_AND_ROLLED, PITCHED, TURNED)
LIN_VEL_W = ((1.0, 2.0, 3.0), (2.0, 0.0, 4.0), (1.0, 0.0, 0.0))
ANG_VEL_B = ((0.25, -0.5, 0.75), (0.0, 1.0, 2.0), (-1.0, 0.0, 0.5))


@pytest.fixture
def posed(make_env: MakeEnv) -> ManagerBasedRlEnv:
    """Three bodies in the poses above with two joints each, defaults (0.5, -2)."""
    feed = Feed()
    layout = with_default(layout_of(free_root=True), 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.5, -2.0)
    env = make_env(3, feed=feed, layout=layout)
    joints = ((0.75, 1.0), (0.5, -2.0), (-1.0, 0.25))
    speeds = ((3.0, -4.0), (0.0, 0.0), (0.5, 0.125))
    feed.now["qpos"] = torch.tensor([[7.0, 8.0, 9.0, *q, *j] for q, j in zip(QUATS, joints, strict=True)])
    feed.now["qvel"] = torch.tensor(
        [[*v, *w, *s] for v, w, s in zip(LIN_VEL_W, ANG_VEL_B, speeds, strict=True)]
    )
    env.step(zeros(env))
    return env


def close(value: torch.Tensor, rows: Any) -> None:
    assert value.dtype == torch.float32
    assert value.tolist() == [pytest.approx(row, abs=1e-6) for row in rows]


def test_qa_048_the_linear_velocity_is_shown_along_the_axes_of_the_body(posed: ManagerBasedRlEnv) -> None:
    pitched = (2.0 * HALF - 4.0 * ROOT, 0.0, 2.0 * ROOT + 4.0 * HALF)
    close(terms.base_lin_vel(posed), [(2.0, 3.0, 1.0), pitched, (0.0, -1.0, 0.0)])


def test_the_angular_velocity_is_that_of_the_gyroscope(posed: ManagerBasedRlEnv) -> None:
    close(terms.base_ang_vel(posed), ANG_VEL_B)


def test_gravity_points_down_in_the_frame_of_the_body_and_knows_no_heading(posed: ManagerBasedRlEnv) -> None:
    close(terms.projected_gravity(posed), [(0.0, -1.0, 0.0), (ROOT, 0.0, -HALF), (0.0, 0.0, -1.0)])


def test_joints_are_shown_as_they_are_and_from_their_defaults(posed: ManagerBasedRlEnv) -> None:
    assert terms.joint_pos(posed).tolist() == [[0.75, 1.0], [0.5, -2.0], [-1.0, 0.25]]
    assert terms.joint_pos_rel(posed).tolist() == [[0.25, 3.0], [0.0, 0.0], [-1.5, 2.25]]
    assert terms.joint_vel(posed).tolist() == [[3.0, -4.0], [0.0, 0.0], [0.5, 0.125]]


def test_velocities_from_their_defaults_differ_by_the_defaults(make_env: MakeEnv) -> None:
    env = make_env(2, layout=replace(layout_of(), default_qvel=(0.5, -1.0)))
    assert terms.joint_vel(env).tolist() == [[0.5, -1.0]] * 2
    assert terms.joint_vel_rel(env).tolist() == [[0.0, 0.0]] * 2


def test_only_the_joints_asked_for_are_shown(posed: ManagerBasedRlEnv) -> None:
    hinge = SceneEntityCfg(joint_names=("hinge",))
    for term, rows in (
        (terms.joint_pos, [[1.0], [-2.0], [0.25]]),
        (terms.joint_pos_rel, [[3.0], [0.0], [2.25]]),
        (terms.joint_vel, [[-4.0], [0.0], [0.125]]),
        (terms.joint_vel_rel, [[-4.0], [0.0], [0.125]]),
    ):
        assert term(posed, asset_cfg=hinge).tolist() == rows


def test_the_last_action_is_the_raw_one(posed: ManagerBasedRlEnv) -> None:
    posed.step(torch.tensor([[5.0, -0.25], [0.0, 1.0], [2.0, 3.0]]))
    assert terms.last_action(posed).tolist() == [[5.0, -0.25], [0.0, 1.0], [2.0, 3.0]]


def test_a_command_is_shown_as_its_manager_has_it(
    posed: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {"twist": torch.tensor([[1.0, 2.0, 3.0]] * 3), "other": torch.zeros(3, 3)}
    monkeypatch.setattr(
        posed, "command_manager", SimpleNamespace(get_command=shown.__getitem__), raising=False
    )
    assert torch.equal(terms.generated_commands(posed, "twist"), shown["twist"])
