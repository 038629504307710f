"""Images of one row, and the models that rows are."""

from __future__ import annotations

import json

import pytest
import torch
from leg_model import leg_backend
from unisim_support import free_box, hopper, rows_mask, write_rows

from unisim import CameraCfg, CapabilityError, ConfigError, ResetPayload
from unisim.contract import Declared

SMALL = CameraCfg(width=64, height=48)


@pytest.fixture
def image(simulate):
    """A function that draws, or skips the test where no OpenGL is installed."""

    def draw(backend, row: int = 0, camera: CameraCfg = SMALL) -> torch.Tensor:
        try:
            return backend.render(row, camera)
        except CapabilityError as error:
            pytest.skip(f"no OpenGL on this machine: {error}")

    return draw


def place(backend, row: int, *pos: float) -> None:
    write_rows(backend, [row], qpos=[[*pos, 1.0, 0.0, 0.0, 0.0]])


# ---------------------------------------------------------------- images


def test_it_is_height_by_width_by_three_bytes(simulate, image):
    backend = simulate(hopper, 3)
    drawn = image(backend, 1, CameraCfg(width=96, height=40))
    assert (drawn.shape, drawn.dtype, drawn.device.type) == ((40, 96, 3), torch.uint8, "cpu")
    assert drawn.is_contiguous()
    assert len(torch.unique(drawn.reshape(-1, 3), dim=0)) > 10  # something is to be seen
    assert image(backend, 1, CameraCfg()).shape == (480, 640, 3)
    # Larger than the engine's own frame of 640 x 480.
    assert image(backend, 1, CameraCfg(width=800, height=600)).shape == (600, 800, 3)


def test_it_shows_its_own_row_at_its_present_state(simulate, image):
    backend = simulate(free_box, 2)
    fixed = CameraCfg(lookat=(0.0, 0.0, 1.0), distance=3.0, width=64, height=48)
    first = image(backend, 0, fixed)
    assert torch.equal(image(backend, 1, fixed), first)
    place(backend, 1, 0.0, 0.0, 9.0)  # out of sight
    assert torch.equal(image(backend, 0, fixed), first)
    empty = image(backend, 1, fixed)
    assert not torch.equal(empty, first)
    middle = (slice(20, 28), slice(28, 36))
    assert (first[middle].int() - empty[middle].int()).abs().sum() > 0


def test_a_later_image_does_not_change_an_earlier_one(simulate, image):
    backend = simulate(free_box, 1)
    first = image(backend)
    before = first.clone()
    place(backend, 0, 0.0, 0.0, 3.0)
    image(backend, 0, CameraCfg(lookat=(0.0, 0.0, 0.0), width=64, height=48))
    assert torch.equal(first, before)


def test_a_camera_follows_an_entity_or_a_body_wherever_it_goes(simulate, image):
    backend = simulate(free_box, 2)
    cameras = [
        CameraCfg(width=64, height=48),  # the first entity
        CameraCfg(track="robot", width=64, height=48),
        CameraCfg(track="robot/box", width=64, height=48),
    ]
    near = image(backend, 0, cameras[0])
    place(backend, 1, 5.0, -3.0, 4.0)
    for camera in cameras:
        apart = (image(backend, 1, camera).int() - near.int()).abs()
        # Only the light falls otherwise: the box stays in the middle.
        assert ((apart > 60).any(dim=2)).float().mean() < 0.02
    fixed = CameraCfg(lookat=(0.0, 0.0, 1.0), width=64, height=48)
    assert torch.equal(image(backend, 0, fixed), near)  # its own place
    assert not torch.equal(image(backend, 1, fixed), near)


def test_distance_azimuth_and_elevation_move_the_camera(simulate, image):
    backend = simulate(free_box, 1)

    def covered(**options: float) -> float:
        drawn = image(backend, 0, CameraCfg(width=64, height=48, **options)).int()
        return float(((drawn - drawn[0, 0]).abs().sum(dim=2) > 30).float().mean())

    # Half sizes .1 .2 .3: the face across x is .4 by .6, that across y .2 by .6, that across z .2 by .4.
    across_x = covered(azimuth=0.0, elevation=0.0)
    across_y = covered(azimuth=90.0, elevation=0.0)
    across_z = covered(azimuth=0.0, elevation=-89.0)
    assert across_x > across_y > across_z > 0.0
    assert covered(azimuth=0.0, elevation=0.0, distance=5.0) < 0.5 * across_x


def test_it_shows_the_row_s_own_sizes(image):
    backend = leg_backend(2, declared=Declared(model_fields=("geom_size",)))
    size = backend.model_layout.fields["geom_size"].nominal_tensor().unsqueeze(0).clone()
    size[0, 1] *= 3.0  # the trunk
    backend.apply_reset(rows_mask([1], 2), ResetPayload(torch.tensor([1]), model={"geom_size": size}))
    assert not torch.equal(image(backend, 1), image(backend, 0))
    backend.close()


def test_images_change_nothing_that_is_simulated(image):
    backend, twin = (leg_backend(3, persistent=False, num_threads=2) for _ in range(2))
    for i in range(10):
        ctrl = torch.full((3, 3), 0.1 * i)
        for each in (backend, twin):
            each.step_tensor(ctrl, 4)
        image(backend, i % 3)
    mine, other = backend.snapshot(), twin.snapshot()
    assert all(torch.equal(values, other[key]) for key, values in mine.items())
    backend.close()
    twin.close()


@pytest.mark.parametrize(
    ("row", "camera", "kind", "message"),
    [
        (2, None, IndexError, r"MuJoCoBackend.render: row is 2, expected 0 <= row < 2"),
        (-1, None, IndexError, r"row is -1, expected"),
        (True, None, TypeError, "MuJoCoBackend.render: row is True, expected an int"),
        (1.0, None, TypeError, "row is 1.0, expected an int"),
        (
            0,
            CameraCfg(track="robot/bx"),
            KeyError,
            "unknown entity or body 'robot/bx'; did you mean 'robot/box'",
        ),
        (
            0,
            CameraCfg(track="robt"),
            KeyError,
            "CameraCfg.track: unknown entity or body 'robt'; did you mean 'robot'",
        ),
    ],
)
def test_a_row_or_name_that_does_not_exist_is_refused(simulate, row, camera, kind, message):
    with pytest.raises(kind, match=message):
        simulate(free_box, 2).render(row, camera)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"track": "robot", "lookat": (0.0, 0.0, 0.0)}, "exclude each other; give one"),
        ({"distance": 0.0}, "distance: Input should be greater than 0"),
        ({"width": 0}, "width: Input should be greater than or equal to 1"),
        ({"height": 10_000}, "height: Input should be less than or equal to 8192"),
        ({"fov": 45.0}, "fov"),
    ],
)
def test_a_camera_that_cannot_be_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        CameraCfg(**options)


# ---------------------------------------------------------------- OpenGL

PROGRAM = """
import gc, json, os
from pathlib import Path
from unisim_support import free_box
from unisim import CameraCfg, EntityCfg, SceneCfg, SimCfg, make_backend

def make():
    scene = SceneCfg(entities={"robot": EntityCfg(spec=free_box)})
    return make_backend("mujoco", scene, SimCfg(num_threads=1), num_envs=1)

def held():
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), [s for s in status if s.startswith("Threads")]
"""


def test_a_renderer_that_fails_to_close_keeps_nothing_of_the_engine(simulate):
    class Stuck:
        def close(self) -> None:
            raise OSError("the display is gone")

    backend = simulate(free_box, 1)
    backend._renderer = Stuck()
    with pytest.raises(OSError, match="the display is gone"):
        backend.close()
    assert not hasattr(backend, "_batch")
    backend.close()  # idempotent


def test_closing_frees_what_opengl_holds(program, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    done = program(
        PROGRAM
        + """
def cycle():
    backend = make()
    for size in (32, 48):  # one renderer is kept, of the last size
        image = backend.render(0, CameraCfg(width=size, height=size))
    renderer = backend._renderer
    backend.close()
    assert renderer._renderer is None
    return float(image.float().std())

from unisim import CapabilityError
try:
    cycle()
    before = held()
    spread = [cycle() for _ in range(5)]
    print(json.dumps([before == held(), min(spread) > 1.0]))
except CapabilityError as error:
    print(json.dumps(str(error)))
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    if isinstance(found, str):
        pytest.skip(f"no OpenGL on this machine: {found}")
    assert found == [True, True]


def test_an_image_does_not_keep_pytorch_from_loading_its_compiler_later(program, monkeypatch):
    # Mesa and Triton bring an LLVM each; the process dies if Mesa's comes first.
    monkeypatch.setenv("MUJOCO_GL", "egl")
    done = program(
        PROGRAM
        + """
import torch
from unisim import CapabilityError
backend = make()
try:
    backend.render(0)
except CapabilityError as error:
    print(json.dumps(str(error)))
else:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.square().sum().backward()
    torch.optim.Adam([weight]).step()
    backend.render(0)
    print(json.dumps(True))
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    if isinstance(found, str):
        pytest.skip(f"no OpenGL on this machine: {found}")


def test_a_library_that_cannot_even_be_imported_is_named(program, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    done = program("""
from unisim import CapabilityError, SceneCfg, SimCfg, make_backend
try:
    make_backend("mujoco", SceneCfg(), SimCfg(), num_envs=1)
except CapabilityError as error:
    print(error)
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert "MuJoCo cannot be imported with MUJOCO_GL='vulkan' (RuntimeError: invalid value" in done.stdout
    assert "unset it, or set the environment variable MUJOCO_GL" in done.stdout


def test_without_opengl_the_error_says_what_to_set_and_simulation_goes_on(program, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "glx")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    done = program(
        PROGRAM
        + """
import torch
from unisim import CapabilityError
backend = make()
try:
    backend.render(0)
except CapabilityError as error:
    print(error)
backend.step_tensor(torch.zeros(1, 0), 4)
backend.close()
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no image can be drawn: OpenGL does not start with MUJOCO_GL='glx' (")
    assert "set the environment variable MUJOCO_GL before Python starts: 'egl'" in done.stdout
