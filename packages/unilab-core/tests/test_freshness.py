"""What an environment hands out is of one instant: after a step, and after a reset of some rows."""

from __future__ import annotations

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, zeros
from velocity import VelocityEnv, mujoco_backend

from unilab_core import SceneEntityCfg
from unisim import EntityCfg, SceneCfg, SimCfg, make_backend

BASE = SceneEntityCfg(body_names=("base",))

BOX = """
<mujoco><worldbody><body name="base" pos="0 0 .1"><freejoint name="root"/>
  <geom name="box" type="box" size=".1 .1 .1" mass="2"/><site name="sole" type="box" size=".11 .11 .11"/></body>
  <geom name="floor" type="plane" size="5 5 .1"/></worldbody>
<sensor><touch name="touch" site="sole"/></sensor></mujoco>"""


def box_spec():
    return pytest.importorskip("mujoco").MjSpec.from_string(BOX)


def test_qa_021_joint_state_bodies_and_sensors_of_a_step_belong_to_the_same_instant():
    def stage(env, ids):
        velocity = torch.zeros(ids.numel(), 3)
        velocity[:, 0] = 1.0
        env.scene["robot"].data.write_root_velocity(velocity, torch.zeros_like(velocity), ids)

    look = lambda env: (env.scene["robot"].data.bodies(BASE).pos_w, env.scene.sensor("robot/gyro"))  # noqa: E731
    with RobotEnv(2, stage=stage, look=look, gravity=-10.0) as env:
        env.reset()
        for step in range(1, 6):
            env.step(zeros(env))
            data = env.scene["robot"].data
            travelled = torch.full((2,), 0.02 * step)  # two substeps of 0.01 s at 1 m/s
            torch.testing.assert_close(data.root_pos_w[:, 0], travelled, atol=1e-6, rtol=0)
            torch.testing.assert_close(data.bodies(BASE).pos_w[:, 0, 0], travelled, atol=1e-6, rtol=0)
            torch.testing.assert_close(
                data.root_lin_vel_w[:, 2], torch.full((2,), -0.2 * step), atol=1e-5, rtol=0
            )


class BoxEnv(ScriptedEnv):
    """A resting box with a touch sensor; a reset lifts it to 2 m."""

    num_actions = 1

    def _build(self) -> None:
        super()._build()
        self.height = 0.1

    def _control(self, actions):
        return torch.zeros(self.num_envs, 0)

    def _stage_reset(self, ids):
        pose = torch.tensor([[0.0, 0.0, self.height, 1.0, 0.0, 0.0, 0.0]]).expand(ids.numel(), 7)
        self.scene["robot"].data.write_root_pose(pose, ids)

    def _observe(self, ids):
        force = self.scene["robot"].data.sensor("touch")
        rows = torch.cat([force, self.scene["robot"].data.root_pos_w[:, 2:], force], dim=1)
        return {"obs": rows if ids is None else rows[ids]}


def test_qa_023_the_first_observation_of_an_episode_shows_no_contact_of_the_one_before():
    scene = SceneCfg(entities={"robot": EntityCfg(spec=box_spec)})
    backend = make_backend("mujoco", scene, SimCfg(timestep=0.01, num_threads=1), num_envs=2)
    with BoxEnv(2, backend=backend) as env:
        env.reset()
        for _ in range(100):
            env.step(torch.zeros(2, 1))
        rest = env.observations()["obs"]
        torch.testing.assert_close(rest[:, 0], torch.full((2,), 2 * 9.81), atol=0.2, rtol=0)
        env.height = 2.0
        obs, _ = env.reset(torch.tensor([1]))
        assert obs["obs"].tolist() == [[0.0, 2.0, 0.0]]
        assert torch.equal(env.observations()["obs"][0], rest[0])


def test_derived_reads_of_rows_that_go_on_are_the_same_with_and_without_a_reset_of_others():
    with VelocityEnv(mujoco_backend(), seed=3) as env, VelocityEnv(mujoco_backend(), seed=3) as twin:
        for each in (env, twin):
            each.reset()
            each.step(zeros(each))
        env.reset(torch.tensor([0, 5]))
        for _ in range(4):
            one, two = env.step(zeros(env)), twin.step(zeros(twin))
            for group in ("obs", "critic"):
                assert torch.equal(one.obs[group][[1, 2, 3, 4]], two.obs[group][[1, 2, 3, 4]])
            assert env.step_counter == twin.step_counter
            if env.step_counter >= 4:
                break
