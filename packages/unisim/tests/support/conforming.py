"""The suite for whole backends: MuJoCo, MuJoCo-Warp on its CPU device, and both fakes."""

from __future__ import annotations

import dataclasses
import os

import torch
from leg_model import FIELDS, leg_backend

from unisim import TensorExecution
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.backends.mujoco_warp.backend import MuJoCoWarpBackend
from unisim.contract import Declared
from unisim.testing import BackendConformance, FakeBackend, Fault, make_layout


class MuJoCoSuite(BackendConformance):
    """The batch that keeps a workspace per row."""

    declared_fields = FIELDS
    declared_wrench_bodies = ("robot/base", "robot/shank")
    declared_substep_sensors = ("robot/touch", "robot/toe_vel", "ground")
    backend_name = "mujoco"
    distributions = ("mujoco",)
    persistent = True
    backend_class: type = MuJoCoBackend
    on_device = "cpu"

    def make_backend(self, num_envs):
        return self.make_backend_with(num_envs, {})

    def make_backend_with(self, num_envs, model):
        declared = Declared(
            self.declared_fields,
            self.declared_wrench_bodies,
            self.declared_substep_sensors,
            decimation=self.decimation,
        )
        return leg_backend(
            num_envs,
            model=model,
            declared=declared,
            persistent=self.persistent,
            num_threads=2,
            backend_class=self.backend_class,
            device=self.on_device,
        )

    def make_backend_that_goes_bad(self, num_envs, row):
        backend = self.make_backend(num_envs)
        device = self.device(backend)
        ids = torch.tensor([row], device=device)
        qpos = torch.tensor(backend.model_layout.default_qpos, device=device).unsqueeze(0)
        qpos[0, -1] = 1e12  # the engine warns of such a position and goes on
        backend.set_state_tensor(ids, qpos, torch.zeros(1, backend.model_layout.nv, device=device))
        return backend


class MuJoCoWarpSuite(MuJoCoSuite):
    """The device-resident engine, on Warp's CPU device unless the environment names another one.

    There, equal calls of two backends agree to the bit. On a GPU threads add in any order, so two backends may differ;
    what one backend must not change stays exact.
    """

    on_device = os.environ.get("UNISIM_WARP_DEVICE", "cpu")
    tolerance = 0.0 if on_device == "cpu" else 1e-2
    backend_name = "mujoco_warp"
    distributions = ("mujoco", "mujoco-warp", "warp-lang")
    backend_class: type = MuJoCoWarpBackend


LAYOUT = make_layout(
    sensors={"place": (2, "position"), "rate": (2, "velocity"), "push": (1, "acceleration")},
    sites=("robot/tip",),
    free_root=True,
)


def fake_reads(state):
    """Sensors, a body and a site that follow from the state."""
    frame = torch.cat([state["qpos"][:, :7], state["qvel"][:, :6]], dim=1)
    return {
        "sensor:place": state["qpos"][:, 7:],
        "sensor:rate": state["qvel"][:, 6:],
        "sensor:push": state["ctrl"] + state["qvel"][:, 6:7],
        "body:robot/base": frame,
        "site:robot/tip": frame,
    }


class FakeHostSuite(BackendConformance):
    """The fake in host memory."""

    declared_fields = ("body_mass", "dof_damping", "actuator_gainprm", "gravity")
    declared_wrench_bodies = ("robot/base",)
    declared_substep_sensors = ("place", "push")
    execution = TensorExecution.HOST_BRIDGE
    backend_class: type = FakeBackend

    def make_backend(self, num_envs):
        return self.make_fake(num_envs)

    def make_fake(self, num_envs, layout=LAYOUT, **options):
        declared = Declared(
            self.declared_fields, self.declared_wrench_bodies, self.declared_substep_sensors, self.decimation
        )
        return self.backend_class(
            layout, num_envs, execution=self.execution, declared=declared, reads=fake_reads, **options
        )

    def make_backend_with(self, num_envs, model):
        fields = dict(LAYOUT.fields)
        for name, values in model.items():
            fields[name] = dataclasses.replace(fields[name], nominal=tuple(values.flatten().tolist()))
        return self.make_fake(num_envs, dataclasses.replace(LAYOUT, fields=fields))

    def make_backend_that_goes_bad(self, num_envs, row):
        return self.make_fake(num_envs, faults=[Fault("nan", row=row)])


class FakeResidentSuite(FakeHostSuite):
    """The fake that hands out its storage."""

    execution = TensorExecution.DEVICE_RESIDENT
