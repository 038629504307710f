"""Offscreen images of a MuJoCo model: where the camera is, and the renderer that is kept between frames."""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from unisim.config import Cfg
from unisim.errors import CapabilityError, nearest

if TYPE_CHECKING:
    import torch

    from unisim.model_layout import ModelLayout

__all__ = ["GL_REMEDY", "CameraCfg", "OffscreenRenderer"]

_AMBIENT, _DIFFUSE = 0.35, 0.8
_COLLISION_GROUP = 3
"""Where geoms that collide are put by convention; a viewer does not draw them unless asked."""

_Pixels = Annotated[int, Field(ge=1, le=8192)]

GL_REMEDY = (
    "set the environment variable MUJOCO_GL before Python starts: 'egl' (a GPU's driver, or Mesa's libEGL without one) "
    "or 'osmesa' (libOSMesa, without a GPU)"
)
"""What to do where OpenGL does not start."""


class CameraCfg(Cfg):
    """Where an image is taken from: a point to look at, a distance from it and two angles; and its size.

    Without `track` and `lookat` it follows the first entity that moves freely, else the first one, or looks at the
    middle of a scene without entities.
    """

    track: str | None = None
    """Entity or body that stays in the middle, as named in the composed model, for example `"robot/trunk"`."""
    lookat: tuple[float, float, float] | None = None
    """Fixed point in the world that it looks at instead, m."""
    distance: Annotated[float, Field(gt=0)] = 2.5
    """From the camera to that point, m."""
    azimuth: float = 135.0
    """Direction in which it looks, about the world's z axis from x, degrees."""
    elevation: float = -20.0
    """Its slope, degrees: negative looks down."""
    width: _Pixels = 640
    """Columns of the image."""
    height: _Pixels = 480
    """Rows of the image."""

    @model_validator(mode="after")
    def _one_target(self) -> CameraCfg:
        if self.track is not None and self.lookat is not None:
            raise ValueError(f"track {self.track!r} and lookat {self.lookat} exclude each other; give one")
        return self


def _tracked_body(camera: CameraCfg, layout: ModelLayout) -> str | None:
    """Returns the body in the middle of the image, or None: a fixed point.

    Raises:
        KeyError: No entity or body is called so; the message lists the nearest.
    """
    roots = {entity.name: entity.root_body for entity in layout.entities}
    if camera.track is not None:
        if camera.track not in (*roots, *layout.bodies):
            hint = nearest(camera.track, (*roots, *layout.bodies))
            raise KeyError(f"CameraCfg.track: unknown entity or body {camera.track!r}; {hint}")
        return roots.get(camera.track, camera.track)
    if camera.lookat is not None:
        return None
    free = [entity.root_body for entity in layout.entities if entity.root_joint is not None]
    return next(iter([*free, *roots.values()]), None)


def _load_compilers() -> None:
    """Loads Triton where it is installed, before OpenGL loads another LLVM: the other order ends the process.

    PyTorch imports it when it first needs its compiler, an optimiser's first step included. Mesa draws with an LLVM of
    its own where there is no GPU.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")


class OffscreenRenderer:
    """Draws states of one model, or of models that differ from it in values only.

    OpenGL is found as MuJoCo finds it, by the environment variable MUJOCO_GL when `mujoco` is imported first.
    """

    def __init__(self, model: Any, layout: ModelLayout) -> None:  # noqa: ANN401 - mujoco ships no types
        """Keeps `model` to write each row's values into; nothing of OpenGL is made before the first image."""
        self.model = model
        self._layout = layout
        self._renderer: Any = None

    def draw(self, data: Any, camera: CameraCfg) -> torch.Tensor:  # noqa: ANN401 - mujoco ships no types
        """Returns a new (height, width, 3) uint8 image.

        Args:
            data: A `mujoco.MjData` of `model` after a forward.
            camera: Where from.

        Raises:
            CapabilityError: There is no OpenGL; the message says what to set.
            KeyError: The camera follows what does not exist.
        """
        import mujoco
        import torch

        if self.model.nlight == 0:
            # The camera's own light is made to go with others; alone it leaves a scene in the dark.
            self.model.vis.headlight.ambient[:] = _AMBIENT
            self.model.vis.headlight.diffuse[:] = _DIFFUSE
        body = _tracked_body(camera, self._layout)
        view = mujoco.MjvCamera()
        mujoco.mjv_defaultFreeCamera(self.model, view)
        view.distance, view.azimuth, view.elevation = camera.distance, camera.azimuth, camera.elevation
        if body is not None:
            view.lookat[:] = data.xpos[self._layout.bodies.index(body)]
        elif camera.lookat is not None:
            view.lookat[:] = camera.lookat
        renderer = self._of_size(camera.width, camera.height)
        option = mujoco.MjvOption()
        option.geomgroup[_COLLISION_GROUP] = 1  # built robots have no other geoms
        renderer.update_scene(data, camera=view, scene_option=option)
        return torch.from_numpy(renderer.render())

    def _of_size(self, width: int, height: int) -> Any:  # noqa: ANN401 - mujoco ships no types
        """Returns the kept renderer, or a new one when the size is another."""
        import mujoco

        if self._renderer is None or (self._renderer.width, self._renderer.height) != (width, height):
            self.close()
            _load_compilers()
            frame = self.model.vis.global_
            frame.offwidth, frame.offheight = max(frame.offwidth, width), max(frame.offheight, height)
            try:
                self._renderer = mujoco.Renderer(self.model, height, width)
            except Exception as error:
                # What fails depends on the library: an import, a call, a missing display.
                chosen = os.environ.get("MUJOCO_GL", "")
                raise CapabilityError(
                    f"no image can be drawn: OpenGL does not start with MUJOCO_GL={chosen!r} "
                    f"({type(error).__name__}: {error}); {GL_REMEDY}"
                ) from error
        return self._renderer

    def close(self) -> None:
        """Frees what OpenGL holds; idempotent."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
