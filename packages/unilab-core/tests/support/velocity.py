"""A velocity-like task written by hand: a free body on legs, pushes, randomised masses; on MuJoCo and on fakes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from unilab_core import SceneEntityCfg, TorchEnv, TorchEnvCfg
from unisim import Declared, EntityCfg, SceneCfg, SimCfg, TensorExecution, make_backend
from unisim.testing import FakeBackend, make_layout

XML = """
<mujoco><worldbody><body name="base" pos="0 0 .5"><freejoint name="root"/>
  <geom name="trunk" type="box" size=".15 .1 .05" mass="2"/><site name="imu"/>
  <body name="leg" pos=".1 0 -.05"><joint name="hip" axis="0 1 0" damping=".2" range="-1.5 1.5" limited="true"/>
    <geom name="thigh" type="capsule" fromto="0 0 0 0 0 -.2" size=".03" mass=".4"/>
    <body name="foot" pos="0 0 -.2"><joint name="knee" axis="0 1 0" damping=".2"/>
      <geom name="toe" size=".04" mass=".1"/></body></body></body>
  <geom name="floor" type="plane" size="20 20 .1"/></worldbody>
<actuator><motor name="hip" joint="hip" gear="5"/><motor name="knee" joint="knee" gear="3"/></actuator>
<sensor><gyro name="gyro" site="imu"/><accelerometer name="accelerometer" site="imu"/>
  <framelinvel name="speed" objtype="body" objname="foot"/></sensor></mujoco>"""

DECIMATION = 2
FIELDS = ("body_mass", "dof_damping")
SENSORS = {
    "robot/gyro": (3, "velocity"),
    "robot/accelerometer": (3, "acceleration"),
    "robot/speed": (3, "velocity"),
}


def legged_spec() -> Any:
    """Returns a new spec of the robot on its floor."""
    return pytest.importorskip("mujoco").MjSpec.from_string(XML)


class VelocityCfg(TorchEnvCfg):
    """50 Hz on 100 Hz physics."""

    scene: SceneCfg = SceneCfg(entities={"robot": EntityCfg(spec=legged_spec)})
    sim: SimCfg = SimCfg(timestep=0.01, num_threads=1)
    decimation: int = DECIMATION
    num_envs: int = 6


def mujoco_backend(num_envs: int = 6, *, num_threads: int = 1) -> Any:
    """Returns rows of the robot on MuJoCo."""
    cfg = VelocityCfg()
    sim = cfg.sim.model_copy(update={"num_threads": num_threads})
    declared = Declared(model_fields=FIELDS, decimation=DECIMATION)
    return make_backend("mujoco", cfg.scene, sim, num_envs=num_envs, declared=declared)


def fake_backend(
    num_envs: int = 6, *, execution: TensorExecution = TensorExecution.HOST_BRIDGE, kind: Any = FakeBackend
) -> Any:
    """Returns rows of a fake with the same names, whose sensors and bodies follow from its state."""
    layout = make_layout(
        joints=("robot/hip", "robot/knee"),
        actuated=("robot/hip", "robot/knee"),
        sensors=SENSORS,
        free_root=True,
    )

    def reads(state: Any) -> dict[str, torch.Tensor]:
        body = torch.cat([state["qpos"][:, :7], state["qvel"][:, :6]], dim=1)
        return {"sensor:robot/gyro": state["qvel"][:, 3:6], "body:robot/base": body}

    declared = Declared(model_fields=FIELDS, decimation=DECIMATION)
    return kind(layout, num_envs, execution=execution, declared=declared, reads=reads)


BASE = SceneEntityCfg(body_names=("base",))


class VelocityEnv(TorchEnv):
    """Row i lives 5 + 4 i steps; every 7th step rows 0, 3, ... are pushed; masses and damping differ per episode."""

    num_actions = 2
    push_every = 7

    def __init__(self, backend: Any, *, cfg: TorchEnvCfg | None = None, **options: Any) -> None:
        super().__init__(backend, cfg or VelocityCfg(num_envs=backend.num_envs), **options)

    @property
    def backend(self) -> Any:
        """The backend, for tests that look behind the environment."""
        return self._backend

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(2,) -1 and (2,) 1."""
        return -torch.ones(2), torch.ones(2)

    @property
    def obs_groups_spec(self) -> dict[str, int]:
        """Body-frame velocities, gravity, gyro, joints and action; and for the critic the other sensors."""
        return {"obs": 18, "critic": 9}

    def _build(self) -> None:
        self.last_action = torch.zeros(self.num_envs, 2)
        self.pushes = torch.zeros(self.num_envs, dtype=torch.int64)
        self._new_action = self.last_action.clone()

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        self._new_action.copy_(actions)
        return 0.5 * actions

    def _begin_step(self) -> None:
        self.last_action.copy_(self._new_action)

    def _terminations(self) -> tuple[torch.Tensor, torch.Tensor]:
        lives = 5 + 4 * torch.arange(self.num_envs)
        over = self.episode_length == lives
        return over & (lives % 3 == 0), over & (lives % 3 != 0)

    def _rewards(self) -> torch.Tensor:
        return (
            self.scene["robot"].data.root_lin_vel_b[:, 0]
            + self.scene["robot"].data.bodies(BASE).pos_w[:, 0, 2]
        )

    def _advance(self) -> None:
        if self.step_counter % self.push_every:
            return
        data = self.scene["robot"].data
        rows = torch.arange(0, self.num_envs, 3)
        kick = self.rng.uniform(-0.5, 0.5, (rows.numel(), 3))
        data.write_root_velocity(data.root_lin_vel_w[rows] + kick, data.root_ang_vel_w[rows], rows)
        self.pushes[rows] += 1

    def _observe(self, ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
        data, scene = self.scene["robot"].data, self.scene
        obs = [data.root_lin_vel_b, data.root_ang_vel_b, data.projected_gravity_b, scene.sensor("robot/gyro")]
        obs += [data.joint_pos, data.joint_vel, self.last_action]
        sensors = [scene.sensor("robot/accelerometer"), scene.sensor("robot/speed")]
        groups = {
            "obs": torch.cat(obs, dim=1),
            "critic": torch.cat([*sensors, data.bodies(BASE).lin_vel_w[:, 0]], dim=1),
        }
        return groups if ids is None else {group: rows[ids] for group, rows in groups.items()}

    def _stage_startup(self, ids: torch.Tensor) -> None:
        self.randomise("dof_damping", ids, 0.5, 2.0)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        data = self.scene["robot"].data
        k = ids.numel()
        pose = torch.zeros(k, 7)
        pose[:, :3] = self.rng.uniform(torch.tensor([-1.0, -1.0, 0.4]), torch.tensor([1.0, 1.0, 0.6]), (k, 3))
        pose[:, 3:] = torch.nn.functional.normalize(self.rng.normal(0.0, 1.0, (k, 4)), dim=1)
        data.write_root_pose(pose, ids)
        data.write_root_velocity(self.rng.normal(0.0, 1.0, (k, 3)), self.rng.normal(0.0, 1.0, (k, 3)), ids)
        data.write_joint_state(self.rng.uniform(-0.5, 0.5, (k, 2)), self.rng.normal(0.0, 1.0, (k, 2)), ids)
        self.randomise("body_mass", ids, 0.8, 1.2)

    def randomise(self, field: str, ids: torch.Tensor, low: float, high: float) -> None:
        data = self.scene["robot"].data
        values = data.model_values(field, ids)
        data.write_model(field, values * self.rng.uniform(low, high, tuple(values.shape)), ids)

    def _clear_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self.last_action[ids] = 0.0
        return {}


def actions_of(env: TorchEnv, generator: torch.Generator) -> torch.Tensor:
    """Returns random actions."""
    return torch.rand(env.num_envs, env.num_actions, generator=generator) * 2.0 - 1.0


def resumed(path: str, number: int) -> list[dict[str, torch.Tensor]]:
    """Loads a state into a new environment of another seed and returns what its next steps give."""
    saved = torch.load(path, weights_only=True)
    with VelocityEnv(mujoco_backend(), seed=77) as env:
        env.load_state_dict(saved["env"])
        generator = torch.Generator()
        generator.set_state(saved["actions"])
        return run(env, number, generator)


def run(env: TorchEnv, number: int, generator: torch.Generator) -> list[dict[str, torch.Tensor]]:
    """Steps with random actions; returns copies of every outcome."""
    from core_support import copied

    return [copied(env.step(actions_of(env, generator))) for _ in range(number)]
