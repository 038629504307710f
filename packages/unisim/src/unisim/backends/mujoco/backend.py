"""The host-bridge backend on MuJoCo's own batch: step, reset, row writes, per-row model fields, snapshots."""

from __future__ import annotations

from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import torch

from unisim.backends.mujoco.engine_warnings import BAD_ROW, EngineWarnings, log_engine_message
from unisim.backends.mujoco.holding import HoldingControl
from unisim.backends.mujoco.reads import BatchReads, state_columns
from unisim.capabilities import Diagnostic, TensorCapabilities, device_problem
from unisim.contract import Declared
from unisim.host_bridge import HostBridgeBackend
from unisim.model_layout import layout_digest
from unisim.packets import STATE_FIELDS, HostBridgeSpec, ReadLayout
from unisim.randomization import MODEL_FIELDS, engine_values
from unisim.render import CameraCfg, OffscreenRenderer
from unisim.reset import ResetPayload
from unisim.scene import SceneCfg, SimCfg
from unisim.scene_model import compile_scene, engine_field
from unisim.transfer import HostBridgeTransferPlan

__all__ = ["MuJoCoBackend"]

_DEVICES = ("cpu", "cuda")


class MuJoCoBackend(HostBridgeBackend):
    """N rows of one model in a `mujoco.batch.Batch`. Results do not depend on the number of threads."""

    def __init__(
        self,
        scene: SceneCfg,
        sim: SimCfg,
        *,
        num_envs: int,
        device: str = "cpu",
        declared: Declared | None = None,
    ) -> None:
        """Compiles the scene and makes the batch; every row starts in the default state, reads fresh.

        Raises:
            CapabilityError: `device` cannot be bridged to, or something was declared that the model does not have.
            KeyError: A wrench body that matches none; the message lists the nearest.
            ConfigError: The scene does not compile.
        """
        declared = declared or Declared()
        mujoco.set_mju_user_warning(log_engine_message)
        self._model, layout = compile_scene(scene, sim, declared.model_fields)
        super().__init__(
            layout,
            num_envs,
            declared=declared,
            owner="MuJoCoBackend",
            problems=[problem] if (problem := device_problem(device, _DEVICES)) else [],
        )
        self._target = torch.device(device)
        self._persistent = sim.persistent
        self._batch = mujoco.batch.Batch(
            self._model, num_envs, nthread=sim.num_threads, persistent=sim.persistent
        )
        self._warnings = EngineWarnings(self._model)
        self._renderer: OffscreenRenderer | None = None
        self._holding = HoldingControl(self._batch, self._model, layout)
        self._default_qpos = np.array(layout.default_qpos)
        self._default_qvel = np.array(layout.default_qvel)
        # Views of the state rows, which stay where they are: binding one anew costs more than writing a row.
        self._state = {name: self._batch.bind(name) for name in STATE_FIELDS}
        self._wrenches = self._batch.bind("xfrc_applied")
        moving = [state_columns(self._batch, name) for name in ("qpos", "qvel")]
        self._moving = self._batch.state[:, moving[0].start : moving[1].stop]
        self._finite = np.empty(self._moving.shape, dtype=bool)
        self._fields = {name: self._batch.expand(engine_field(name)) for name in declared.model_fields}
        self._nominal = {name: torch.from_numpy(values[0].copy()) for name, values in self._fields.items()}
        self._rounded = {name: values.float() for name, values in self._nominal.items()}
        self._derived_from = frozenset(name for name in self._fields if _derives_constants(name))
        self._wrench_bodies = [layout.bodies.index(name) for name in self._declared.wrench_bodies]
        self._reads = BatchReads(
            self._batch,
            self._model,
            layout,
            persistent=sim.persistent,
            substep_sensors=declared.substep_sensors,
            decimation=declared.decimation,
        )
        self._commit_reset(ResetPayload(torch.arange(num_envs)))

    def get_tensor_capabilities(self) -> TensorCapabilities:
        """What this backend can do with its model."""
        return self._capabilities(
            accepted_devices=_DEVICES, randomizable_fields=tuple(MODEL_FIELDS), rendering=True
        )

    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """The persistent batch, stages on demand, and pinned staging that a CPU target has no use for."""
        self._alive("get_runtime_diagnostics")
        pinned, stepped = self._target.type == "cuda", self._reads.steps_fresh
        return (
            Diagnostic(
                "persistent_batch",
                requested=self._persistent,
                enabled=self._persistent,
                reason="" if self._persistent else "sim.persistent is false",
            ),
            Diagnostic(
                "stages_on_demand",
                requested=True,
                enabled=not stepped,
                reason="what is read follows from positions and velocities, so every step computes it"
                if stepped
                else "",
            ),
            Diagnostic(
                "pinned_staging",
                requested=pinned,
                enabled=pinned,
                reason="" if pinned else "the packets live on the CPU",
            ),
        )

    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns into `out` as float32; see `HostBridgeBackend`."""
        self._alive("pack_rows")
        self._reads.pack(layout, out, env_ids)

    def compile_host_bridge_io(self, spec: HostBridgeSpec) -> HostBridgeTransferPlan:
        """Returns the packed plan; see `SimBackend`. What open plans read decides what a step brings up to date."""
        plan = super().compile_host_bridge_io(spec)
        self._reads.follow(plan)
        return plan

    def _advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        nu = self._layout.nu
        values = ctrl.numpy()
        self._state["ctrl"][:] = values[:, :nu]
        if self._wrench_bodies:
            wrenches = values[:, nu:].reshape(self.num_envs, len(self._wrench_bodies), 6)
            self._wrenches[:, self._wrench_bodies] = wrenches
        self._reads.step(nsteps)
        self._warnings.report(self._batch.warning)

    def _commit_reset(self, payload: ResetPayload) -> None:
        ids = payload.env_ids.numpy()
        batch, state = self._batch, self._state
        # This order is the only one that loses nothing: constants follow the fields they derive from, and a reset
        # discards state written before it.
        self._write_fields(payload, ids)
        batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        state["qpos"][ids] = self._default_qpos if payload.qpos is None else payload.qpos.numpy()
        state["qvel"][ids] = self._default_qvel if payload.qvel is None else payload.qvel.numpy()
        if payload.ctrl is not None:
            state["ctrl"][ids] = payload.ctrl.numpy()
        else:
            self._holding.write(ids, state["qpos"], state["ctrl"])
        batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_ACC)
        self._reads.restarted(ids)

    def _write_fields(self, payload: ResetPayload, ids: np.ndarray[Any, Any]) -> None:
        for name, values in payload.model.items():
            written = engine_values(name, values, self._nominal[name], self._rounded[name])
            self._fields[name][ids] = written.numpy()
        if not self._derived_from.isdisjoint(payload.model):
            self._batch.set_const(ids)

    def _commit_write(self, payload: ResetPayload) -> None:
        ids = payload.env_ids.numpy()
        self._write_fields(payload, ids)
        for name, values in payload.parts():
            if name in STATE_FIELDS:
                stored, written = self._state[name], values.numpy()
                present = stored[ids]
                # What was read as float32 and is written back unchanged keeps the engine's precision.
                stored[ids] = np.where(present.astype(np.float32) == written, present, written)
        self._reads.refresh(ids)

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: a non-finite state, or an engine warning of a bad one since the last reset."""
        self._alive("bad_rows")
        bad = np.zeros(self.num_envs, dtype=bool)
        if not np.isfinite(self._moving, out=self._finite).all():
            bad |= ~self._finite.all(axis=1)
        if self._warnings.any(self._batch.warning):
            bad |= self._batch.warning[:, BAD_ROW, 1].any(axis=1)
        return torch.from_numpy(bad)

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Returns state, warnings, model fields and held reads in engine precision, as plain tensors."""
        self._alive("snapshot")
        fields = {f"field:{name}": torch.from_numpy(values.copy()) for name, values in self._fields.items()}
        return {
            "model": layout_digest(self._layout),
            "state": torch.from_numpy(np.array(self._batch.state)),
            "warning": torch.from_numpy(np.array(self._batch.warning)),
            **fields,
            **self._reads.saved(),
        }

    def restore(self, snapshot: dict[str, torch.Tensor]) -> None:
        """Puts back what `snapshot` returned, also from another process.

        Raises:
            TypeError: No dict of tensors.
            ValueError: Of another model, number of rows or set of declared fields; nothing was written.
        """
        self._alive("restore")
        self._check_snapshot(snapshot, self.snapshot())
        for name, values in self._fields.items():
            values[:] = snapshot[f"field:{name}"].numpy()
        if self._derived_from:
            self._batch.set_const()
        self._batch.state[:] = snapshot["state"].numpy()
        self._reads.hold(snapshot)
        self._batch.warning[:] = snapshot["warning"].numpy()
        self._warnings.know(self._batch.warning)

    def render(self, row: int, camera: CameraCfg | None = None) -> torch.Tensor:
        """Returns a new (H, W, 3) uint8 image of one row; see `SimBackend`.

        The renderer is kept between images of one size. It draws a forward of its own at the row's state.
        """
        self._check_row("render", row)
        if self._renderer is None:
            self._renderer = OffscreenRenderer(self._batch.get_model(row), self._layout)
        model = self._batch.get_model(row, self._renderer.model)
        data = self._batch.get_data(row, mujoco.MjData(model))
        mujoco.mj_forward(model, data)
        return self._renderer.draw(data, camera or CameraCfg())

    def export_model(self, row: int) -> bytes:
        """Returns the compiled model of one row in MuJoCo's binary format (MJB), to be loaded by the same MuJoCo.

        `mujoco.MjModel.from_binary_path` loads a file of these bytes. XML would round what it writes.
        """
        self._check_row("export_model", row)
        model = self._batch.get_model(row)
        buffer = np.empty(mujoco.mj_sizeModel(model), dtype=np.uint8)
        mujoco.mj_saveModel(model, None, buffer)
        return buffer.tobytes()

    def _history_steps(self) -> int:
        return self._reads.history_steps

    def _free(self) -> None:
        try:
            if self._renderer is not None:
                self._renderer.close()
        finally:
            # Every array bound from the batch keeps its threads alive, so all of them go together.
            del self._batch, self._reads, self._state, self._wrenches, self._moving
            del self._holding, self._fields, self._renderer


def _derives_constants(name: str) -> bool:
    """Whether constants of the model derive from a field, so that they must be computed again."""
    return name in mujoco.MjModel._setconst_inputs
