"""The device-resident backend on MuJoCo-Warp: step, reset, row writes, per-row model fields, snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco_warp as mjw
import torch

from unisim.backends.mujoco_warp.capacity import OverflowWatch, find_capacity
from unisim.backends.mujoco_warp.devices import (
    ACCEPTED,
    CompletionToken,
    WarpStream,
    capture_problem,
    warp_device_problem,
)
from unisim.backends.mujoco_warp.host_copies import HostCopies
from unisim.backends.mujoco_warp.kernel_cache import compilation_progress
from unisim.backends.mujoco_warp.model import prepare_model
from unisim.backends.mujoco_warp.physics import Physics
from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution
from unisim.checked import CheckedBackend
from unisim.contract import Declared
from unisim.model_layout import layout_digest
from unisim.packets import STATE_FIELDS
from unisim.randomization import MODEL_FIELDS
from unisim.render import CameraCfg
from unisim.reset import ResetPayload
from unisim.scene import SceneCfg, SimCfg
from unisim.scene_model import compile_scene

__all__ = ["MuJoCoWarpBackend"]


class MuJoCoWarpBackend(CheckedBackend):
    """N rows of one model on one device. Steps, resets and row writes are captured once and replayed.

    Work is put on a stream of its own. A call makes torch's current stream wait for it, so that what follows there
    reads finished values; other streams use `completion()`.
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
        """Compiles the scene and captures the programs; every row starts in the default state, reads fresh.

        Raises:
            CapabilityError: Warp finds no such device, or does not support something in the model or declared.
            KeyError: A wrench body that matches none; the message lists the nearest.
            ConfigError: The scene does not compile.
        """
        declared = declared or Declared()
        problem = warp_device_problem(device)
        self._model, layout = compile_scene(scene, sim, declared.model_fields)
        self._stream = None if problem else WarpStream(device)
        super().__init__(
            layout,
            num_envs,
            declared=declared,
            owner="MuJoCoWarpBackend",
            device=self._stream.torch_device if self._stream else torch.device("cpu"),
            problems=[problem] if problem else [],
        )
        assert self._stream is not None
        capacity = find_capacity(self._model, layout, sim)
        prepare_model(self._model, declared.model_fields)
        self._capture_problem = self._why_no_capture(sim)
        self._capture_asked = sim.graph_capture
        with self._stream.work(), compilation_progress(f"MuJoCo-Warp on {device!r}"):
            self._physics = Physics(
                self._model,
                layout,
                num_envs,
                declared=self._declared,
                capacity=capacity,
                capture=not self._capture_problem,
            )
            self._physics.prepare_step(declared.decimation)
            self._physics.prepare_writes()
            self._physics.restart()
        self._overflow = OverflowWatch(mjw.OverflowType.__members__, capacity)
        self._digest = layout_digest(layout)
        self._host = HostCopies(self._model, layout, self._physics)
        self._views: dict[str, torch.Tensor] = {}

    def _why_no_capture(self, sim: SimCfg) -> str:
        assert self._stream is not None
        if not sim.graph_capture:
            return "sim.graph_capture is false"
        return capture_problem(self._stream.device) or ""

    def tensor_execution(self) -> TensorExecution:
        """DEVICE_RESIDENT."""
        self._alive("tensor_execution")
        return TensorExecution.DEVICE_RESIDENT

    def get_tensor_capabilities(self) -> TensorCapabilities:
        """What this backend can do with its model."""
        return self._capabilities(
            accepted_devices=ACCEPTED,
            randomizable_fields=tuple(MODEL_FIELDS),
            rendering=True,
            owns_stream=True,
            graph_capture=True,
        )

    def get_runtime_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Graphs, and graphs that contain the solver's loop."""
        self._alive("get_runtime_diagnostics")
        why = self._capture_problem
        loop = self._physics.why_the_loop_is_whole
        return (
            Diagnostic("graph_capture", requested=self._capture_asked, enabled=not why, reason=why),
            Diagnostic(
                "solver_loop_in_graph",
                requested=self._capture_asked,
                enabled=not why and not loop,
                reason=why or loop,
            ),
        )

    def completion(self) -> CompletionToken:
        """Returns the end of everything asked for so far: what another stream has to wait for before it reads."""
        return self._order("completion").token

    def _order(self, call: str) -> WarpStream:
        self._alive(call)
        assert self._stream is not None
        return self._stream

    # ------------------------------------------------------------------ reads

    def _read_keys(self, keys: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
        return {key: self._view(key) for key in keys}

    def _view(self, key: str) -> torch.Tensor:
        view = self._views.get(key)
        if view is None:
            state = key in STATE_FIELDS
            view = self._physics.state[key] if state else self._physics.reads.view(key)
            self._views[key] = view
        return view

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: a state or acceleration that is not finite or too large, or such a control.

        What a step does not see, because it was written after it, is looked at here.
        """
        self._alive("bad_rows")
        state = self._physics.state
        finite = torch.isfinite(state["qpos"]).all(dim=1) & torch.isfinite(state["qvel"]).all(dim=1)
        return self._physics.bad | ~finite

    # ------------------------------------------------------------------ physics

    def prepare_step(self, nsteps: int) -> None:
        """Captures the program of a step of `nsteps` substeps, unless there is one; see `SimBackend`."""
        super().prepare_step(nsteps)
        with self._order("prepare_step").work():
            self._physics.prepare_step(nsteps)

    def _advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        with self._order("step_tensor").work():
            self._physics.step(ctrl, nsteps)
            self._overflow.poll(self._physics.state["overflow"])

    def _commit_reset(self, payload: ResetPayload) -> None:
        with self._order("apply_reset").work():
            self._physics.reset(payload)

    def _commit_write(self, payload: ResetPayload) -> None:
        with self._order("write_rows").work():
            self._physics.write(payload)

    # ------------------------------------------------------------------ cold path

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Returns state, model fields and everything that is read as plain tensors on the backend's device."""
        with self._order("snapshot").work():
            saved = {name: values.clone() for name, values in self._physics.saved().items()}
        return {"model": self._digest.clone(), **saved}

    def restore(self, snapshot: Any) -> None:  # noqa: ANN401 - checked here
        """Puts back what `snapshot` returned, also from another process.

        Raises:
            TypeError: No dict of tensors.
            ValueError: Of another model, number of rows or set of declared fields; nothing was written.
        """
        stream = self._order("restore")
        own = self._physics.saved()
        self._check_snapshot(snapshot, {"model": self._digest, **own})
        with stream.work():
            for name, values in own.items():
                values.copy_(snapshot[name])

    def render(self, row: int, camera: CameraCfg | None = None) -> torch.Tensor:
        """Returns a new (H, W, 3) uint8 image of one row, drawn by MuJoCo on the host; see `SimBackend`."""
        self._check_row("render", row)
        return self._host.draw(row, camera or CameraCfg())

    def export_model(self, row: int) -> bytes:
        """Returns the model of one row in MuJoCo's binary format (MJB); see `SimBackend`.

        Its values are the device's own, so that MuJoCo-Warp moves it as the row does. The flag that keeps MuJoCo from
        resetting bad states is not set in it, since MuJoCo-Warp takes no model that has it.
        """
        self._check_row("export_model", row)
        return self._host.export(row)

    def _free(self) -> None:
        try:
            self._host.close()
        finally:
            if self._stream is not None:
                self._stream.synchronize()  # a graph must not outlive its arrays
            self._overflow.report(self._physics.state["overflow"].cpu())
            self._views.clear()
            self._physics.close()
            del self._physics, self._host, self._overflow
