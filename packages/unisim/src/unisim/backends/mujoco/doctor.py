"""What the MuJoCo backend finds on this machine: the engine, and whether images can be drawn."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from unisim.doctor import BackendDoctor, Finding, State
from unisim.errors import CapabilityError
from unisim.render import GL_REMEDY, CameraCfg

__all__ = ["MuJoCoDoctor", "draw_sample"]

_INSTALL = "pip install 'unisim[mujoco]>=2.0'"
_HEADLESS = ("egl", "osmesa")
"""Ways to OpenGL that need no screen."""
_TRY_S = 60.0


class MuJoCoDoctor(BackendDoctor):
    """Looks at MuJoCo and at OpenGL as MuJoCo finds it."""

    def checks(self) -> Mapping[str, Callable[[], Finding]]:
        """The engine, then an image."""
        return {"engine": _engine, "GL": _gl}


def _engine() -> Finding:
    if importlib.util.find_spec("mujoco") is None:
        return Finding("engine", "missing", "MuJoCo is not installed", _INSTALL)
    version = importlib.metadata.version("mujoco")
    try:
        import mujoco
        import mujoco.batch  # the part that the backend runs on; older versions lack it
    except Exception as error:  # noqa: BLE001 - an import of a binary may fail in any way
        chosen = os.environ.get("MUJOCO_GL", "")
        text = (
            f"MuJoCo {version} cannot be imported with MUJOCO_GL={chosen!r} ({type(error).__name__}: {error})"
        )
        return Finding("engine", "broken", text, _gl_remedy() if chosen else _INSTALL)
    loaded = mujoco.mj_versionString()
    if loaded != version:
        text = f"MuJoCo {version} is installed and its library is {loaded}"
        return Finding("engine", "broken", text, f"pip uninstall mujoco mujoco-core; {_INSTALL}")
    return Finding("engine", "ok", f"MuJoCo {version}")


def draw_sample() -> None:
    """Draws a few pixels of the sample scene.

    Raises:
        CapabilityError: OpenGL does not start, or it draws nothing.
    """
    from unisim.factory import make_backend
    from unisim.sample_scene import SAMPLE_SIM, sample_scene

    backend = make_backend("mujoco", sample_scene(), SAMPLE_SIM, num_envs=1)
    try:
        image = backend.render(0, CameraCfg(width=32, height=24))
    finally:
        backend.close()
    if int(image.amin()) == int(image.amax()):
        raise CapabilityError(f"an image was drawn, and every value of it is {int(image.amin())}")


def _gl() -> Finding:
    chosen = os.environ.get("MUJOCO_GL", "")
    try:
        draw_sample()
    except CapabilityError as error:
        # Without a screen nothing can be expected of the default; a way that was asked for is another thing.
        state: State = "broken" if chosen else "missing"
        return Finding("GL", state, str(error).removesuffix(f"; {GL_REMEDY}"), _gl_remedy())
    return Finding("GL", "ok", f"draws offscreen with MUJOCO_GL={chosen!r}")


def _gl_remedy() -> str:
    """Names a way that works here, if there is one."""
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    for way in _HEADLESS:
        if way != chosen and _draws_with(way):
            return f"set MUJOCO_GL={way} before Python starts; it draws here"
    return GL_REMEDY


def _draws_with(way: str) -> bool:
    """Tries another way to OpenGL, which is chosen when MuJoCo is imported: in a process of its own."""
    program = f"from {__name__} import draw_sample; draw_sample()"
    try:
        finished = subprocess.run(
            [sys.executable, "-P", "-c", program],
            env={**os.environ, "MUJOCO_GL": way},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRY_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return finished.returncode == 0
