"""Each term on numbers worked out by hand."""

import math

import pytest
from unilab_managers import ObservationTermCfg, RewardTermCfg, TerminationTermCfg
from unilab_managers.testing import TermBench
from unisim.testing import make_layout

from my_robot import mdp
from my_robot.env_cfg import balance
from my_robot.robot import WHEELS

JOINTS = tuple(f"robot/{name}" for name in WHEELS)
LAYOUT = make_layout(joints=JOINTS, actuated=JOINTS, free_root=True)
"""Names and widths of the robot; the states of a bench are those that a test writes down."""


def pose(lean=0.0, x=0.0, y=0.0, z=0.1):
    """Returns qpos: where it is, m, how far it leans forward, rad, and the angles of the wheels."""
    return [x, y, z, math.cos(lean / 2), 0.0, math.sin(lean / 2), 0.0, 0.0, 0.0]


def test_pitch_is_the_angle_of_leaning_forward():
    with TermBench(ObservationTermCfg(func=mdp.pitch), layout=LAYOUT) as bench:
        values = bench.step({"qpos": [pose(), pose(lean=math.pi / 6), pose(lean=-0.5)]})
    assert values.flatten().tolist() == pytest.approx([0.0, math.pi / 6, -0.5], abs=1e-6)


def test_upright_is_one_when_upright_and_falls_to_1_over_e_at_std():
    term = RewardTermCfg(func=mdp.upright, weight=1.0, params={"std": 0.3})
    with TermBench(term, layout=LAYOUT) as bench:
        values = bench.step({"qpos": [pose(), pose(lean=math.asin(0.3)), pose(lean=-math.asin(0.3))]})
    assert values.tolist() == pytest.approx([1.0, math.exp(-1.0), math.exp(-1.0)])


def test_rolled_away_is_about_the_distance_on_the_ground_alone():
    term = TerminationTermCfg(func=mdp.rolled_away, params={"distance": 2.0})
    with TermBench(term, layout=LAYOUT) as bench:
        values = bench.step({"qpos": [pose(x=1.9, z=5.0), pose(x=1.5, y=1.5), pose(x=-2.1)]})
    assert values.tolist() == [False, True, True]


def test_lean_starts_every_row_within_the_angle_on_its_wheels_and_at_rest():
    task = balance().with_({"num_envs": 256})
    with task.build(backend="mujoco", device="cpu", seed=1, autoreset=True) as env:
        env.reset()
        data, leaning = env.scene["robot"].data, mdp.pitch(env)
        assert leaning.abs().max() <= 0.2 + 1e-6
        assert leaning.min() < -0.15
        assert leaning.max() > 0.15
        assert data.root_pos_w.tolist() == [pytest.approx([0.0, 0.0, 0.1])] * 256
        assert not data.root_lin_vel_w.any()
        assert not data.joint_vel.any()
