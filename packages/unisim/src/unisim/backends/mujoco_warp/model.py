"""The model on the device: which fields differ per row, and the constants that derive from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp

from unisim.backends.mujoco_warp.state_kernels import keep_unselected
from unisim.errors import CapabilityError
from unisim.model_layout import ModelLayout
from unisim.randomization import engine_values
from unisim.reset import ResetPayload
from unisim.scene_model import engine_field

__all__ = ["DeviceModel", "prepare_model"]

_DERIVED = (
    "actuator_acc0",
    "body_invweight0",
    "body_subtreemass",
    "dof_invweight0",
    "geom_aabb",
    "geom_rbound",
    "tendon_invweight0",
)
"""Constants that depend on a field of `unisim.randomization.MODEL_FIELDS`.

The engine recomputes them per row only if they have N rows; it does not widen them itself.
"""

_WRAPPED = [int(mujoco.mjtWrap.mjWRAP_SPHERE), int(mujoco.mjtWrap.mjWRAP_CYLINDER)]

_DENSE_LIMIT = 60
"""Most degrees of freedom for which the engine takes a dense constraint Jacobian."""


def couples_bodies(model: Any) -> bool:  # noqa: ANN401 - a mujoco.MjModel
    """Whether two bodies are held together by a constraint (`connect`, `weld`), as closed loops are."""
    held = [int(mujoco.mjtEq.mjEQ_CONNECT), int(mujoco.mjtEq.mjEQ_WELD)]
    return bool(np.isin(model.eq_type, held).any())


def prepare_model(model: Any, declared: Sequence[str]) -> None:  # noqa: ANN401 - a mujoco.MjModel
    """Changes the settings of a compiled model that this engine has no use for.

    Raises:
        CapabilityError: The model has what is not supported here; everything is listed.
    """
    model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # there is none to disable
    dense = model.nv <= _DENSE_LIMIT
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE if dense else mujoco.mjtJacobian.mjJAC_SPARSE
    problems = [
        text
        for found, text in (
            (
                model.nhistory > 0,
                "delays of sensors or actuators inside the engine; delay observations or actions",
            ),
            (model.nflex > 0, "flexible bodies"),
            (
                couples_bodies(model) and model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4,
                "connect or weld constraints with integrator 'rk4', whose stages would take old velocities; choose "
                "another integrator",
            ),
            (
                "geom_size" in declared and np.isin(model.wrap_type, _WRAPPED).any(),
                "tendons around geoms, whose lengths do not follow a geom_size per row",
            ),
        )
        if found
    ]
    if problems:
        raise CapabilityError("MuJoCoWarpBackend: the model has " + "; ".join(problems) + ": not supported")


class DeviceModel:
    """The engine's model with N rows of each declared field.

    Attributes:
        engine: The `mujoco_warp.Model`.
        fields: Declared field to its live values, (N, *shape) float32.
        derived: Constants that derive from them, (N, width) float32 each; empty where no input of one was declared.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - a mujoco.MjModel
        layout: ModelLayout,
        num_envs: int,
        declared: Sequence[str],
    ) -> None:
        """Puts a prepared model on Warp's current device, every row nominal.

        Raises:
            CapabilityError: The engine does not support something in the model.
        """
        self._layout = layout
        self._inputs = {name for name in declared if name in mujoco.MjModel._setconst_inputs}
        widened = [name for name in declared if name != "gravity"] + (list(_DERIVED) if self._inputs else [])
        try:
            self.engine = mjw.put_model(model, batch_sizes=dict.fromkeys(widened, num_envs))
        except (NotImplementedError, ValueError) as error:
            raise CapabilityError(
                f"MuJoCoWarpBackend: MuJoCo-Warp does not support the model: {error}"
            ) from error
        # `put_model` raises it to 1e-6, which makes accelerations less exact than float32 is (docs/backends.md).
        self.engine.opt.tolerance.fill_(model.opt.tolerance)
        self.engine.opt.warn_overflow = 0  # it would print for every row in every step
        if wp.get_device().is_cuda:
            self.engine.opt.graph_conditional = wp.is_conditional_graph_supported()
        if "gravity" in declared:
            rows = np.tile(model.opt.gravity, (num_envs, 1))
            self.engine.opt.gravity = wp.array(rows, dtype=wp.vec3)
        self._arrays = {name: self._array(name) for name in declared}
        self.fields = {
            name: wp.to_torch(array).view(num_envs, *layout.fields[name].shape)
            for name, array in self._arrays.items()
        }
        self.derived = {}
        self._derived_arrays = {}
        for name in _DERIVED if self._inputs else ():
            if (array := getattr(self.engine, name)).size:
                self.derived[name] = wp.to_torch(array).view(num_envs, -1)
                self._derived_arrays[name] = wp.from_torch(self.derived[name])
        device = self.fields[declared[0]].device if declared else None
        self._nominal = {
            name: torch.tensor(layout.fields[name].nominal, dtype=torch.float64, device=device).view(
                layout.fields[name].shape
            )
            for name in declared
        }

    def _array(self, name: str) -> Any:  # noqa: ANN401 - a wp.array
        place = engine_field(name).split(".")
        holder = self.engine.opt if place[0] == "opt" else self.engine
        return getattr(holder, place[-1])

    def write(self, payload: ResetPayload) -> bool:
        """Writes the model fields of a payload; returns whether constants derive from one of them."""
        for name, values in payload.model.items():
            written = engine_values(name, values, self._nominal[name]).float()
            self.fields[name].index_copy_(0, payload.env_ids, written)
        return not self._inputs.isdisjoint(payload.model)

    @property
    def derives(self) -> bool:
        """Whether any declared field is one that constants derive from."""
        return bool(self._inputs)

    def derive(self, data: Any, mask: Any) -> None:  # noqa: ANN401 - of Warp
        """Computes the constants of the rows of a mask; it leaves what follows from the state to be computed again."""
        with self._other_rows_kept(mask):
            groups = mjw.SetConstGroup.FIXED | mjw.SetConstGroup.INERT0
            mjw.set_const(self.engine, data, groups=groups, restore=False)

    @contextmanager
    def _other_rows_kept(self, mask: Any) -> Iterator[None]:  # noqa: ANN401 - a wp.array
        # The engine computes all rows. Equal inputs need not give equal bits where threads add in any order.
        saved = {name: wp.clone(array) for name, array in self._derived_arrays.items()}
        yield
        for name, array in self._derived_arrays.items():
            wp.launch(keep_unselected, dim=array.shape[0], inputs=[mask, saved[name]], outputs=[array])

    def copy_row(self, row: int, model: Any) -> None:  # noqa: ANN401 - a mujoco.MjModel
        """Writes the fields and constants of one row into a host model; the others derive from them."""
        for name, values in self.fields.items():
            target = model.opt.gravity if name == "gravity" else getattr(model, name)
            target[:] = _nominal_or_own(values[row].cpu().double(), self._nominal[name].cpu()).numpy()
        if self._inputs:
            mujoco.mj_setConst(model, mujoco.MjData(model))
        for name, values in self.derived.items():
            target = getattr(model, name)
            target[:] = values[row].cpu().double().numpy().reshape(target.shape)


def _nominal_or_own(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    return torch.where(values == nominal.float().double(), nominal, values)
