"""The engine's arrays and what is done with them: control steps, resets and row writes, each one captured program."""

from __future__ import annotations

from typing import Any

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp

from unisim.backends.mujoco_warp.capacity import Capacity
from unisim.backends.mujoco_warp.model import DeviceModel, couples_bodies
from unisim.backends.mujoco_warp.programs import Program
from unisim.backends.mujoco_warp.reads import PublishedReads
from unisim.backends.mujoco_warp.state_kernels import hold_pose, note_bad_rows, take_control, write_state
from unisim.contract import Declared
from unisim.model_layout import ModelLayout
from unisim.packets import STATE_FIELDS
from unisim.reset import ResetPayload
from unisim.scene_model import holding_actuators

__all__ = ["Physics"]

_ENGINE_STATE = (
    "time",
    "qpos",
    "qvel",
    "act",
    "plastic",
    "ctrl",
    "qacc_warmstart",
    "qfrc_applied",
    "xfrc_applied",
    "eq_active",
    "mocap_pos",
    "mocap_quat",
    "userdata",
    "overflow",
)
"""Everything of the engine from which a row goes on; the rest follows from it."""


class Physics:
    """N rows on Warp's current device. Every method puts work on the current stream and waits for nothing.

    Attributes:
        model: The model with its per-row fields.
        reads: What can be read.
        state: The engine's own state by name, as live torch tensors (N, ...).
        bad: (N,) bool: rows with a bad state or control since their last reset.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - a mujoco.MjModel
        layout: ModelLayout,
        num_envs: int,
        *,
        declared: Declared,
        capacity: Capacity,
        capture: bool,
    ) -> None:
        """Makes all arrays. Rows hold no state before the first `reset` of all of them.

        Raises:
            CapabilityError: The engine does not support something in the model.
        """
        self._layout, self._num_envs, self._capture = layout, num_envs, capture
        self.model = DeviceModel(model, layout, num_envs, declared.model_fields)
        self._data = mjw.make_data(model, nworld=num_envs, nconmax=capacity.nconmax, njmax=capacity.njmax)
        self.reads = PublishedReads(
            self.model.engine,
            self._data,
            layout,
            substep_sensors=declared.substep_sensors,
            decimation=declared.decimation,
        )
        self.state: dict[str, torch.Tensor] = {
            name: wp.to_torch(getattr(self._data, name)) for name in _ENGINE_STATE
        }
        self._device = self.state["qpos"].device
        self._couples_bodies = couples_bodies(model)
        self._stage(model, declared)
        self._programs: dict[tuple[str, int], Program] = {}

    def _stage(self, model: Any, declared: Declared) -> None:  # noqa: ANN401 - a mujoco.MjModel
        n, layout = self._num_envs, self._layout
        pushed = [layout.bodies.index(name) for name in declared.wrench_bodies]
        ranges = np.array([a.ctrl_range for a in layout.actuators]).reshape(-1, 2)
        self._limited = wp.array(np.isfinite(ranges).all(axis=1), dtype=wp.bool)
        self._pushed = wp.array(np.array(pushed, dtype=np.int32), dtype=wp.int32)
        self._control = wp.zeros((n, layout.nu + 6 * len(pushed)), dtype=float)
        self._staged = {
            name: wp.zeros((n, width), dtype=float)
            for name, width in zip(STATE_FIELDS, (layout.nq, layout.nv, layout.nu), strict=True)
        }
        self._mask, self._bad = wp.zeros(n, dtype=wp.bool), wp.zeros(n, dtype=wp.bool)
        self._given, self._holds = wp.zeros(3, dtype=wp.bool), wp.zeros(1, dtype=wp.bool)
        holding = holding_actuators(model)
        self._holding = wp.array(holding.astype(np.int32), dtype=wp.int32)
        self._held_range = wp.array(ranges[holding].astype(np.float32), dtype=wp.vec2)
        self.bad: torch.Tensor = wp.to_torch(self._bad)
        self._control_view, self._mask_view = wp.to_torch(self._control), wp.to_torch(self._mask)
        self._given_view, self._holds_view = wp.to_torch(self._given), wp.to_torch(self._holds)
        self._staged_views = {name: wp.to_torch(array) for name, array in self._staged.items()}
        self._defaults = {
            "qpos": torch.tensor(layout.default_qpos, device=self._device),
            "qvel": torch.tensor(layout.default_qvel, device=self._device),
            "ctrl": torch.zeros(layout.nu, device=self._device),
        }

    @property
    def why_the_loop_is_whole(self) -> str:
        """Why the solver's loop in a graph makes all its iterations instead of ending when it is done, or empty."""
        if self._device.type == "cpu":
            return "graphs of the CPU have no conditions"
        return "" if self.model.engine.opt.graph_conditional else "the driver or Warp is older than CUDA 12.4"

    # ------------------------------------------------------------------ calls

    def step(self, control: torch.Tensor, nsteps: int) -> None:
        """Advances all rows under controls and wrenches (N, C)."""
        self._control_view.copy_(control)
        self._run("step", nsteps)

    def reset(self, payload: ResetPayload) -> None:
        """Restarts the payload's rows."""
        derives = self._take(payload, rest=self._defaults)
        self._holds_view.fill_(payload.ctrl is None)
        self._run("reset", int(derives))

    def restart(self) -> None:
        """Restarts every row in the default state, with the constants that the engine computes itself."""
        everyone = torch.arange(self._num_envs, device=self._device)
        self._take(ResetPayload(everyone), rest=self._defaults)
        self._holds_view.fill_(True)
        self._run("reset", int(self.model.derives))

    def write(self, payload: ResetPayload) -> None:
        """Writes what the payload gives."""
        derives = self._take(payload, rest={})
        for i, name in enumerate(STATE_FIELDS):
            self._given_view[i] = getattr(payload, name) is not None
        self._run("write", int(derives))

    def _take(self, payload: ResetPayload, *, rest: dict[str, torch.Tensor]) -> bool:
        """Stages rows and their mask; returns whether constants must be computed again."""
        ids = payload.env_ids
        self._mask_view.zero_()
        self._mask_view.index_fill_(0, ids, True)
        for name, staged in self._staged_views.items():
            values = getattr(payload, name)
            if values is None and name in rest:
                values = rest[name].expand(ids.numel(), -1)
            if values is not None and staged.shape[1]:
                staged.index_copy_(0, ids, values)
        return self.model.write(payload)

    def prepare_step(self, nsteps: int) -> None:
        """Makes the program of a control step, so that it is not made while stepping."""
        self._program("step", nsteps)

    def prepare_writes(self) -> None:
        """Makes the programs of resets and row writes."""
        for derives in (0, 1) if self.model.derives else (0,):
            self._program("reset", derives)
            self._program("write", derives)

    def _run(self, kind: str, variant: int) -> None:
        self._program(kind, variant)()

    def _program(self, kind: str, variant: int) -> Program:
        program = self._programs.get((kind, variant))
        if program is None:
            program = self._programs[kind, variant] = self._make(kind, variant)
        return program

    def _make(self, kind: str, variant: int) -> Program:
        launches = {
            "step": lambda: self._launch_step(variant),
            "reset": lambda: self._launch_reset(bool(variant)),
            "write": lambda: self._launch_write(bool(variant)),
        }
        return Program(launches[kind], wp.get_device(), capture=self._capture)

    # ------------------------------------------------------------------ programs

    def close(self) -> None:
        """Lets go of the graphs, which hold the arrays, and are held by them."""
        self._programs.clear()

    def _renew_velocities(self) -> None:
        """Brings up to date what constraints between bodies take from the velocity stage before it has been computed.

        MuJoCo computes it first; here the values of an earlier substep, or of an earlier episode, would enter.
        """
        if self._couples_bodies:
            m, d = self.model.engine, self._data
            mjw.kinematics(m, d)
            mjw.com_pos(m, d)
            mjw.com_vel(m, d)

    def _launch_step(self, nsteps: int) -> None:
        m, d, n = self.model.engine, self._data, self._num_envs
        wp.launch(
            take_control,
            dim=n,
            inputs=[self._control, self._limited, self._pushed],
            outputs=[d.ctrl, d.xfrc_applied, self._bad],
        )
        for i in range(nsteps):
            self._renew_velocities()
            mjw.step(m, d)
            wp.launch(note_bad_rows, dim=n, inputs=[d.qpos, d.qvel, d.qacc], outputs=[self._bad])
            self.reads.after_substep(last=i == nsteps - 1)

    def _launch_reset(self, derives: bool) -> None:
        m, d, n = self.model.engine, self._data, self._num_envs
        mjw.reset_data(m, d, reset=self._mask)
        self._launch_take_over(restarts=True)
        if derives:
            self.model.derive(d, self._mask)
        if self._holding.size:
            mjw.kinematics(m, d)
            mjw.com_pos(m, d)
            mjw.tendon(m, d)
            mjw.transmission(m, d)
            inputs = [self._mask, self._holds, self._holding, self._held_range, d.actuator_length]
            wp.launch(hold_pose, dim=n, inputs=inputs, outputs=[d.ctrl])
        self._renew_velocities()
        # Of all rows: it changes nothing that a row goes on from, and only the masked rows are published.
        mjw.forward(m, d)
        self.reads.after_forward(self._mask)

    def _launch_write(self, derives: bool) -> None:
        self._launch_take_over(restarts=False)
        if derives:
            self.model.derive(self._data, self._mask)
        self.reads.refresh(self._mask)

    def _launch_take_over(self, *, restarts: bool) -> None:
        d = self._data
        inputs = [self._mask, self._given, restarts, *(self._staged[name] for name in STATE_FIELDS)]
        outputs = [d.qpos, d.qvel, d.ctrl, self._bad]
        wp.launch(write_state, dim=self._num_envs, inputs=inputs, outputs=outputs)

    # ------------------------------------------------------------------ snapshots

    def saved(self) -> dict[str, torch.Tensor]:
        """Returns live tensors of everything from which rows go on, and of everything that is read."""
        return {
            **{f"state:{name}": values for name, values in self.state.items()},
            **{f"read:{name}": values for name, values in self.reads.arrays.items()},
            **{f"field:{name}": values for name, values in self.model.fields.items()},
            **{f"derived:{name}": values for name, values in self.model.derived.items()},
            "bad": self.bad,
        }
