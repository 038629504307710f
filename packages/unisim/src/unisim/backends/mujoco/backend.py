"""The host-bridge backend on MuJoCo's own batch: fresh reads after every step, reset and row write."""

from __future__ import annotations

import logging
from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import torch

from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution
from unisim.contract import Declared
from unisim.errors import CapabilityError
from unisim.host_bridge import HostBridgeBackend
from unisim.model_layout import find
from unisim.packets import STATE_FIELDS, ReadLayout
from unisim.reset import ResetPayload
from unisim.scene import SceneCfg, SimCfg
from unisim.scene_model import compile_scene

__all__ = ["MuJoCoBackend"]

_LOGGER = logging.getLogger(__name__)

_BAD_WARNINGS = [
    int(mujoco.mjtWarning.mjWARN_BADQPOS),
    int(mujoco.mjtWarning.mjWARN_BADQVEL),
    int(mujoco.mjtWarning.mjWARN_BADQACC),
    int(mujoco.mjtWarning.mjWARN_BADCTRL),
]


def _log_warning(message: str) -> None:
    """Takes the engine's warnings: by default it writes stderr and a file in the working directory."""
    _LOGGER.warning("MuJoCo: %s", message)


class MuJoCoBackend(HostBridgeBackend):
    """N rows of one model in a persistent `mujoco.batch.Batch`.

    A persistent batch keeps acceleration-stage values a row's own, and the fresh stage after a step costs next to
    nothing because the next step continues from it. Results do not depend on the number of threads.
    """

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
            CapabilityError: `device` cannot be bridged to, or something was declared that is not supported.
            ConfigError: The scene does not compile.
        """
        declared = declared or Declared()
        self._capabilities = TensorCapabilities(
            execution=TensorExecution.HOST_BRIDGE,
            process_topology="any_process",
            data_plane="packets",
            accepted_devices=("cpu",),
            owns_stream=False,
            state_fields=STATE_FIELDS,
            sensors=(),
            selected_reset=True,
            row_writes=True,
            randomizable_fields=(),
            body_reads=True,
            contact_reads=False,
            wrenches=False,
            graph_capture=False,
            rendering=False,
            snapshots=False,
        )
        _check_declared(declared, device, self._capabilities)
        mujoco.set_mju_user_warning(_log_warning)
        self._model, layout = compile_scene(scene, sim)
        super().__init__(layout, num_envs, owner="MuJoCoBackend")
        self._threads = sim.num_threads
        self._batch = mujoco.batch.Batch(self._model, num_envs, nthread=sim.num_threads, persistent=True)
        affine = self._model.actuator_biastype == int(mujoco.mjtBias.mjBIAS_AFFINE)
        self._holds_length = (affine & (self._model.actuator_biasprm[:, 1] != 0)).nonzero()[0]
        self._default_qpos = np.array(layout.default_qpos)
        self._default_qvel = np.array(layout.default_qvel)
        # Bound before the first call: a derived field shows zeros until the call after its binding.
        self._sensordata = self._batch.bind("sensordata")
        self._length = self._batch.bind("actuator_length")
        self._outputs: set[str] = set()
        self._commit_reset(ResetPayload(torch.arange(num_envs)))

    def get_tensor_capabilities(self) -> TensorCapabilities:
        """What this backend can do; sensors are those of its model."""
        self._alive("get_tensor_capabilities")
        sensors = tuple(sensor.name for sensor in self._layout.sensors)
        return TensorCapabilities(**{**vars(self._capabilities), "sensors": sensors})

    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """The persistent batch, and pinned staging that a CPU target has no use for."""
        self._alive("get_runtime_diagnostics")
        return (
            Diagnostic("persistent_batch", requested=True, enabled=True),
            Diagnostic(
                "pinned_staging", requested=False, enabled=False, reason="the packets live on the CPU"
            ),
        )

    def pack_rows(self, layout: ReadLayout, out: torch.Tensor, env_ids: torch.Tensor | None) -> None:
        """Writes the layout's columns into `out` as float32; see `HostBridgeBackend`."""
        self._alive("pack_rows")
        target = out.numpy()
        rows = slice(None) if env_ids is None else env_ids.numpy()
        for block in layout.blocks:
            kind, _, name = block.key.partition(":")
            columns = slice(block.start, block.stop)
            if kind in STATE_FIELDS:
                target[:, columns] = self._batch.bind(kind)[rows]
            elif kind == "sensor":
                sensor = find(self._layout.sensors, name, "sensor")
                target[:, columns] = self._sensordata[rows, sensor.start : sensor.start + sensor.dim]
            elif kind == "body":
                self._pack_body(self._layout.bodies.index(name), target[:, columns], rows)
            else:
                self._pack_site(self._layout.sites.index(name), target[:, columns], rows)

    def _output(self, name: str) -> np.ndarray[Any, Any]:
        """Returns a derived field; the first use binds it and fills it without touching other values."""
        known = name in self._outputs
        values: np.ndarray[Any, Any] = self._batch.bind(name)
        if not known:
            self._outputs.add(name)
            # A persistent batch keeps each row's acceleration stage through a velocity-stage forward.
            self._batch.forward(stage=mujoco.mjtStage.mjSTAGE_VEL)
        return values

    def _pack_body(self, body: int, out: np.ndarray[Any, Any], rows: Any) -> None:  # noqa: ANN401 - an index
        position = self._output("xpos")[rows, body]
        out[:, 0:3] = position
        out[:, 3:7] = self._output("xquat")[rows, body]
        self._pack_velocity(body, position, out, rows)

    def _pack_site(self, site: int, out: np.ndarray[Any, Any], rows: Any) -> None:  # noqa: ANN401 - an index
        position = self._output("site_xpos")[rows, site]
        out[:, 0:3] = position
        out[:, 3:7] = self._output("site_xquat")[rows, site]
        self._pack_velocity(int(self._model.site_bodyid[site]), position, out, rows)

    def _pack_velocity(
        self,
        body: int,
        point: np.ndarray[Any, Any],
        out: np.ndarray[Any, Any],
        rows: Any,  # noqa: ANN401
    ) -> None:
        """Moves the engine's spatial velocity from the subtree's centre of mass to `point`: v + w x r."""
        spatial = self._output("cvel")[rows, body]
        centre = self._output("subtree_com")[rows, int(self._model.body_rootid[body])]
        out[:, 7:10] = spatial[:, 3:6] + np.cross(spatial[:, 0:3], point - centre)
        out[:, 10:13] = spatial[:, 0:3]

    def _advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        self._batch.bind("ctrl")[:] = ctrl.numpy()
        self._batch.step(nstep=nsteps, stage=mujoco.mjtStage.mjSTAGE_VEL)

    def _commit_reset(self, payload: ResetPayload) -> None:
        ids = payload.env_ids.numpy()
        batch = self._batch
        # This order is the only one that loses nothing: a reset discards state written before it.
        batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        batch.bind("qpos")[ids] = self._default_qpos if payload.qpos is None else payload.qpos.numpy()
        batch.bind("qvel")[ids] = self._default_qvel if payload.qvel is None else payload.qvel.numpy()
        if payload.ctrl is not None:
            batch.bind("ctrl")[ids] = payload.ctrl.numpy()
        elif self._holds_length.size:
            batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_POS)
            batch.bind("ctrl")[np.ix_(ids, self._holds_length)] = self._length[
                np.ix_(ids, self._holds_length)
            ]
        batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_ACC)

    def _commit_write(self, payload: ResetPayload) -> None:
        ids = payload.env_ids.numpy()
        for name, values in payload.parts():
            self._batch.bind(name)[ids] = values.numpy()
        self._batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_VEL)

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: a non-finite state, or an engine warning of a bad one since the last reset."""
        self._alive("bad_rows")
        qpos, qvel = self._batch.bind("qpos"), self._batch.bind("qvel")
        bad = ~(np.isfinite(qpos).all(axis=1) & np.isfinite(qvel).all(axis=1))
        bad |= self._batch.warning[:, _BAD_WARNINGS, 1].any(axis=1)
        return torch.from_numpy(bad)

    def _free(self) -> None:
        # Every array bound from the batch keeps its threads alive, so all of them go together.
        del self._batch, self._sensordata, self._length


def _check_declared(declared: Declared, device: str, capabilities: TensorCapabilities) -> None:
    problems = []
    if torch.device(device).type not in capabilities.accepted_devices:
        problems.append(f"device {device!r}: accepted are {capabilities.accepted_devices}")
    if declared.model_fields:
        problems.append(f"model fields per row: {declared.model_fields}")
    if declared.wrench_bodies:
        problems.append(f"wrenches on {declared.wrench_bodies}")
    if declared.substep_sensors:
        problems.append(f"substep history of {declared.substep_sensors}")
    if problems:
        raise CapabilityError("backend 'mujoco' in this version cannot do: " + "; ".join(problems))
