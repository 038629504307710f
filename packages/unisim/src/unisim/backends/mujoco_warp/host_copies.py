"""Single rows on the host, as MuJoCo's own model and data: to draw and to export; cold path."""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np
import torch

from unisim.backends.mujoco_warp.physics import Physics
from unisim.model_layout import ModelLayout
from unisim.render import CameraCfg, OffscreenRenderer

__all__ = ["HostCopies"]


class HostCopies:
    """Copies rows of a batch into host models. The renderer is kept between images of one size."""

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - a mujoco.MjModel
        layout: ModelLayout,
        physics: Physics,
    ) -> None:
        """Keeps the compiled model that the batch was made from."""
        self._model, self._layout, self._physics = model, layout, physics
        self._renderer: OffscreenRenderer | None = None

    def draw(self, row: int, camera: CameraCfg) -> torch.Tensor:
        """Returns a new (H, W, 3) uint8 image of a row: a forward of MuJoCo's at the row's state."""
        if self._renderer is None:
            self._renderer = OffscreenRenderer(copy.copy(self._model), self._layout)
        model = self._renderer.model
        self._physics.model.copy_row(row, model)
        data = mujoco.MjData(model)
        for name in ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat"):
            if (values := self._physics.state.get(name)) is not None:
                getattr(data, name)[:] = values[row].cpu().numpy()
        mujoco.mj_forward(model, data)
        return self._renderer.draw(data, camera)

    def export(self, row: int) -> bytes:
        """Returns a row's model in MuJoCo's binary format."""
        model = copy.copy(self._model)
        self._physics.model.copy_row(row, model)
        buffer = np.empty(mujoco.mj_sizeModel(model), dtype=np.uint8)
        mujoco.mj_saveModel(model, None, buffer)
        return buffer.tobytes()

    def close(self) -> None:
        """Frees what OpenGL holds; idempotent."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
