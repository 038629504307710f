"""A pendulum on `unilab-core` and `unisim[mujoco]` alone: an environment is a config and a few hooks.

Run it: python examples/pendulum/pendulum.py
"""

import math

import mujoco
import torch

from unilab_core import TorchEnv, TorchEnvCfg
from unisim import EntityCfg, SceneCfg, SimCfg, make_backend


def build_pendulum(length: float = 1.0) -> mujoco.MjSpec:
    """A 1 kg bob on a light rod, hanging from a motor at the origin."""
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    rod = spec.worldbody.add_body(name="rod")
    rod.add_joint(name="hinge", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], damping=0.05)
    rod.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0, 0], pos=[0, 0, -length], mass=1.0)
    motor = spec.add_actuator(name="motor", target="hinge", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.gainprm[0], motor.ctrlrange, motor.ctrllimited = 5.0, [-1, 1], True
    return spec


class PendulumCfg(TorchEnvCfg):
    scene: SceneCfg = SceneCfg(entities={"robot": EntityCfg(spec=build_pendulum)})
    sim: SimCfg = SimCfg(timestep=0.01)
    decimation: int = 2

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> "Pendulum":
        simulation = make_backend(backend, self.scene, self.sim, num_envs=self.num_envs, device=device)
        return Pendulum(simulation, self, device=device, seed=seed, autoreset=autoreset)


class Pendulum(TorchEnv):
    num_actions = 1
    obs_groups_spec = {"obs": 3}

    @property
    def action_bounds(self):
        return torch.tensor([-1.0]), torch.tensor([1.0])

    def _angle_and_speed(self):
        data = self.scene["robot"].data
        return data.joint_pos[:, 0], data.joint_vel[:, 0]

    def _control(self, actions):
        return actions.clamp(-1.0, 1.0)

    def _terminations(self):
        return torch.zeros_like(self.timed_out), self.timed_out

    def _rewards(self):
        angle, speed = self._angle_and_speed()
        return -angle.cos() - 0.01 * speed.square()

    def _observe(self, ids):
        angle, speed = self._angle_and_speed()
        obs = torch.stack([angle.cos(), angle.sin(), speed], dim=-1)
        return {"obs": obs if ids is None else obs[ids]}

    def _stage_reset(self, ids):
        angle = self.rng.uniform(-math.pi, math.pi, (ids.numel(), 1))
        self.scene["robot"].data.write_joint_state(angle, torch.zeros_like(angle), ids)


if __name__ == "__main__":
    with PendulumCfg(num_envs=16).build(backend="mujoco", device="cpu", seed=0, autoreset=True) as env:
        env.reset()
        for _ in range(1000):
            state = env.step(env.rng.uniform(-1.0, 1.0, (env.num_envs, 1)))
        print(f"{env.step_counter} steps of {env.num_envs} pendulums, mean reward {state.reward.mean():.3f}")
