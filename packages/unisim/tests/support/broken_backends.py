"""Backends that break one promise each, and the suite run against each of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import mujoco
import torch
from conforming import FakeHostSuite, FakeResidentSuite, MuJoCoSuite

from unisim import Diagnostic, HostBridgeTransferPlan, TensorCapabilities
from unisim.backends.mujoco.backend import MuJoCoBackend
from unisim.testing import FakeBackend

SUITES: dict[str, tuple[type, str]] = {}
"""Name of a broken backend to its suite and to words of the sentence that it breaks."""


def breaks(sentence: str, *, of: type = FakeHostSuite) -> Any:
    """Registers a broken backend; its suite is that of a whole one with the class replaced."""

    def register(backend: type) -> type:
        name = f"Test{backend.__name__}"
        SUITES[name] = (type(name, (of,), {"backend_class": backend, "__module__": __name__}), sentence)
        return backend

    return register


# ---------------------------------------------------------------- reads


@breaks("position- and velocity-stage read is fresh at the new state", of=MuJoCoSuite)
class StaleAfterStep(MuJoCoBackend):
    def _advance(self, ctrl, nsteps):
        super()._advance(ctrl, nsteps)
        self._batch.step(nstep=1, stage=mujoco.mjtStage.mjSTAGE_NONE)


@breaks("HOST_BRIDGE: copies, never aliases that a later step rewrites")
class AliasingViews(FakeBackend):
    def get_state_views(self, fields=None):
        views = super().get_state_views(fields)
        if fields is None or "qpos" not in views:
            return views
        self._kept = getattr(self, "_kept", views["qpos"])
        self._kept.copy_(views["qpos"])
        return views | {"qpos": self._kept}


@breaks("DEVICE_RESIDENT: stable live tensors", of=FakeResidentSuite)
class CopiedResidentViews(FakeBackend):
    def _view(self, key):
        return super()._view(key).clone()


@breaks("unknown name of a field or sensor (lists the nearest)")
class UnhelpfulKeyError(FakeBackend):
    def get_sensor_view(self, name):
        try:
            return super().get_sensor_view(name)
        except KeyError:
            raise KeyError("no") from None


@breaks("requested, enabled, else why not")
class SilentDiagnostic(FakeBackend):
    def get_runtime_diagnostics(self):
        super().get_runtime_diagnostics()
        return (Diagnostic("graph", requested=True, enabled=False),)


@breaks("frozen and self-consistent")
class ContradictoryCapabilities(FakeBackend):
    def get_tensor_capabilities(self):
        whole = super().get_tensor_capabilities()
        broken = object.__new__(TensorCapabilities)
        for field in dataclasses.fields(whole):
            object.__setattr__(broken, field.name, getattr(whole, field.name))
        object.__setattr__(broken, "graph_capture", True)
        return broken


@breaks("only from capabilities")
class PromisesTooMuch(FakeBackend):
    def get_tensor_capabilities(self):
        whole = super().get_tensor_capabilities()
        return dataclasses.replace(whole, sensors=(*whole.sensors, "lidar"))


@breaks("stable copies, no live engine objects")
class ChangingLayout(FakeBackend):
    @property
    def model_layout(self):
        layout = super().model_layout
        return dataclasses.replace(layout, timestep=layout.timestep + 1e-6 * self._state._counts["substep"])


@breaks("Floating tensors are float32")
class DoubleViews(FakeBackend):
    def get_sensor_view(self, name):
        return super().get_sensor_view(name).double()


# ---------------------------------------------------------------- steps


@breaks("A non-finite control is rejected on the host before physics moves")
class AcceptsNaN(FakeBackend):
    def step_tensor(self, ctrl, nsteps=1):
        self._check_control(ctrl, nsteps)
        self._advance(torch.nan_to_num(ctrl, posinf=0.0, neginf=0.0), nsteps)


@breaks("Bad control rows are neutralised on the device", of=FakeResidentSuite)
class ForgetsBadControls(FakeBackend):
    def _advance(self, ctrl, nsteps):
        self._state.advance(torch.nan_to_num(ctrl), nsteps)


@breaks("contiguous float32 on an accepted device")
class ConvertsControls(FakeBackend):
    def step_tensor(self, ctrl, nsteps=1):
        super().step_tensor(ctrl.float() if isinstance(ctrl, torch.Tensor) else ctrl, nsteps)


@breaks("keep doing so when the row is written mid-step")
class RefreshesTooMuch(FakeBackend):
    def _commit_write(self, payload):
        super()._commit_write(payload)
        self._state.refresh(payload.env_ids)


@breaks("describe the last integrated substep of their own row", of=MuJoCoSuite)
class AnotherRowsForces(MuJoCoBackend):
    def _advance(self, ctrl, nsteps):
        super()._advance(ctrl, nsteps)
        sensordata = self._reads._engine["sensordata"]
        sensordata.flags.writeable = True
        sensordata[:] = sensordata.mean(axis=0)


@breaks("joint accelerations and actuator forces describe the last integrated substep", of=MuJoCoSuite)
class AnotherRowsAccelerations(MuJoCoBackend):
    def _advance(self, ctrl, nsteps):
        super()._advance(ctrl, nsteps)
        qacc = self._reads._engine["qacc"]
        qacc.flags.writeable = True
        qacc[:] = qacc.mean(axis=0)


@breaks("joint accelerations and actuator forces describe the last integrated substep", of=MuJoCoSuite)
class MeanAccelerations(MuJoCoBackend):
    def _advance(self, ctrl, nsteps):
        before = self._batch.bind("qvel").copy()
        super()._advance(ctrl, nsteps)
        qacc = self._reads._engine["qacc"]
        qacc.flags.writeable = True
        qacc[:] = (self._batch.bind("qvel") - before) / (nsteps * self.model_layout.timestep)


@breaks("joint accelerations and actuator forces keep describing", of=MuJoCoSuite)
class ForwardsTooMuch(MuJoCoBackend):
    def _commit_write(self, payload):
        super()._commit_write(payload)
        self._batch.forward(payload.env_ids.numpy(), stage=mujoco.mjtStage.mjSTAGE_ACC)


@breaks("joint accelerations and actuator forces are fresh after a reset")
class ForcesOfTheLastEpisode(FakeBackend):
    def _commit_reset(self, payload):
        force = self._state.values["actuator_force"].clone()
        super()._commit_reset(payload)
        self._state.values["actuator_force"].copy_(force)


@breaks("substep_sensors are recorded at every substep")
class NewestFirst(FakeBackend):
    def _stored(self, key):
        if key.startswith("substep:"):
            return self._state.history[key.removeprefix("substep:")].flip(1).flatten(1)
        return super()._stored(key)


# ---------------------------------------------------------------- resets


@breaks("Unselected rows stay bitwise unchanged")
class TouchesOtherRows(FakeBackend):
    def _commit_reset(self, payload):
        super()._commit_reset(payload)
        self._state.values["qvel"][-1] += 1e-12


@breaks("Every declared read is fresh without stepping")
class StaleAfterReset(FakeBackend):
    def _commit_reset(self, payload):
        before = {key: values.clone() for key, values in self._state.values.items()}
        super()._commit_reset(payload)
        for key, values in before.items():
            if ":" in key:
                self._state.values[key].copy_(values)


@breaks("warm start cleared", of=MuJoCoSuite)
class KeepsActuatorState(MuJoCoBackend):
    def _commit_reset(self, payload):
        act = self._batch.bind("act").copy()
        super()._commit_reset(payload)
        self._batch.bind("act")[:] = act


@breaks("by default what holds the reset pose")
class KeepsOldControl(FakeBackend):
    def _commit_reset(self, payload):
        ctrl = self._state.values["ctrl"].clone()
        super()._commit_reset(payload)
        if payload.ctrl is None:
            self._state.values["ctrl"].copy_(ctrl)


@breaks("nothing was written")
class WritesBeforeChecking(FakeBackend):
    def apply_reset(self, reset_mask, payload):
        self._alive("apply_reset")
        if reset_mask.shape == (self.num_envs,):
            self._state.values["qvel"][reset_mask.bool()] = 0.0
        super().apply_reset(reset_mask, payload)


# ---------------------------------------------------------------- model fields


@breaks("constants derived from them recomputed")
class NoDerivedConstants(FakeBackend):
    def _commit_reset(self, payload):
        self._state.derive = lambda env_ids: None
        super()._commit_reset(payload)


@breaks("constants derived from them recomputed", of=MuJoCoSuite)
class NoSetConst(MuJoCoBackend):
    def _write_fields(self, payload, ids):
        for name, values in payload.model.items():
            self._fields[name][ids] = values.numpy()


@breaks("an identity is bit-exact", of=MuJoCoSuite)
class RoundsNominalValues(MuJoCoBackend):
    def _write_fields(self, payload, ids):
        super()._write_fields(payload, ids)
        for name, values in payload.model.items():
            self._fields[name][ids] = values.numpy()


@breaks("Values are checked before the commit (engines accept negative masses")
class AcceptsNegativeMass(FakeBackend):
    def apply_reset(self, reset_mask, payload):
        model = {name: values.abs() for name, values in payload.model.items()}
        super().apply_reset(reset_mask, dataclasses.replace(payload, model=model))


@breaks("repeated resets do not drift")
class MassesThatDrift(FakeBackend):
    def _commit_reset(self, payload):
        model = {
            name: v * (1.0 + 1e-3 * self._state._counts["apply_reset"]) for name, v in payload.model.items()
        }
        super()._commit_reset(dataclasses.replace(payload, model=model))


# ---------------------------------------------------------------- writes, snapshots, rows, wrenches


@breaks("keeps time, control, actuator state and warm start")
class WriteClearsControl(FakeBackend):
    def _commit_write(self, payload):
        super()._commit_write(payload)
        self._state.values["ctrl"][payload.env_ids] = 0.0


@breaks("snapshot() / restore(snapshot): everything")
class ForgetsModelFields(FakeBackend):
    def restore(self, snapshot):
        self._alive("restore")
        super().restore(snapshot)
        self._state.values["sensor:push"].zero_()


@breaks("snapshot() / restore(snapshot): everything")
class TakesForeignSnapshots(FakeBackend):
    def restore(self, snapshot):
        self._alive("restore")
        self._state.values["qpos"].copy_(snapshot["value:qpos"][: self.num_envs])


@breaks("since that row's last reset")
class NeverGoodAgain(FakeBackend):
    def bad_rows(self):
        self._ever = super().bad_rows() | getattr(self, "_ever", torch.tensor(False))
        return self._ever


@breaks("Sustained wrenches are extra columns of the control")
class WrenchOnEveryRow(FakeBackend):
    def _advance(self, ctrl, nsteps):
        ctrl = ctrl.clone()
        nu = self.model_layout.nu
        ctrl[:, nu:] = ctrl[:, nu:].sum(dim=0)
        super()._advance(ctrl, nsteps)


# ---------------------------------------------------------------- images, models


@breaks("state and reads stay as they are", of=MuJoCoSuite)
class RendersByStepping(MuJoCoBackend):
    def render(self, row, camera=None):
        self._batch.step(ids=[row], nstep=1, stage=mujoco.mjtStage.mjSTAGE_VEL)
        return super().render(row, camera)


@breaks("an unknown row or name is answered at once", of=MuJoCoSuite)
class WrapsRows(MuJoCoBackend):
    def render(self, row, camera=None):
        return super().render(row % self.num_envs, camera)


@breaks("export_model(row): the model of one row", of=MuJoCoSuite)
class ExportsText(MuJoCoBackend):
    def export_model(self, row):
        return super().export_model(row).hex()


# ---------------------------------------------------------------- plan, end


class CountsTwice(HostBridgeTransferPlan):
    def read(self):
        self._count("read", 0, synchronizes=False)
        return super().read()


@breaks("makes exactly one control transfer and one read transfer")
class WrongTransferCounts(FakeBackend):
    def compile_host_bridge_io(self, spec):
        plan = super().compile_host_bridge_io(spec)
        plan.__class__ = CountsTwice
        return plan


class NewPackets(HostBridgeTransferPlan):
    def read(self):
        self._read.device_bytes = self._read.host_bytes = self._read.host_bytes.clone()
        width = self.layout.width
        self.packet = self._read.device_bytes.view(torch.float32).view(-1, width)
        return super().read()


@breaks("addresses never change")
class MovingPacket(FakeBackend):
    def compile_host_bridge_io(self, spec):
        plan = super().compile_host_bridge_io(spec)
        plan.__class__ = NewPackets
        return plan


@breaks("close() is part of the contract, idempotent")
class ClosesOnce(FakeBackend):
    def close(self):
        self._alive("close")
        super().close()


@breaks("every call after close() raises RuntimeError")
class WorksAfterClose(FakeBackend):
    def get_runtime_diagnostics(self):
        return ()


_KEPT: list[Any] = []


@breaks("close() frees threads", of=MuJoCoSuite)
class LeaksThreads(MuJoCoBackend):
    def _free(self):
        _KEPT.append(self._batch)
