"""The quadruped on MuJoCo-Warp moves and reads as on MuJoCo, before and after a masked reset."""

from __future__ import annotations

import pytest
import torch

from unilab_core import make_env
from unisim import ResetPayload, make_backend
from unisim.contract import Declared, SimBackend

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

TASK = "velocity-flat-quadruped"
STEPS, SUBSTEPS, RESET_AT = 100, 4, 60
ROWS = 16


@pytest.fixture(scope="module")
def pair() -> tuple[SimBackend, SimBackend]:
    """The task's own scene and settings on MuJoCo-Warp and on MuJoCo."""
    with make_env(TASK, num_envs=1) as env:
        scene, sim = env.cfg.scene, env.cfg.sim
    assert sim.cone == "pyramidal"
    made = tuple(
        make_backend(name, scene, sim, num_envs=ROWS, declared=Declared())
        for name in ("mujoco_warp", "mujoco")
    )
    yield made
    for backend in made:
        backend.close()


def all_keys(backend: SimBackend) -> list[str]:
    layout = backend.model_layout
    return [
        *("qpos", "qvel", "ctrl", "actuator_force", "qacc"),
        *(f"sensor:{sensor.name}" for sensor in layout.sensors),
        *(f"body:{name}" for name in layout.bodies),
        *(f"site:{name}" for name in layout.sites),
    ]


def expect_agreement(warp: SimBackend, mujoco: SimBackend, where: str) -> None:
    keys = all_keys(warp)
    found, expected = warp.get_state_views(keys), mujoco.get_state_views(keys)
    for key in keys:
        scale = expected[key].abs()
        if (
            key == "qacc"
        ):  # one linear system gives all accelerations of a row: their rounding is that of the largest
            scale = scale.amax(dim=1, keepdim=True)
        excess = (found[key] - expected[key]).abs() - (1e-4 + 1e-3 * scale)
        assert (excess <= 0.0).all(), f"{where}: {key} differs by {float(excess.max()):.3g} too much"


def test_in_free_rollout_and_across_a_masked_reset_positions_agree_to_1e_5(pair, record_property):
    warp, mujoco = pair
    layout = warp.model_layout
    home = torch.tensor(
        [layout.default_qpos[joint.qpos_start] for joint in layout.joints if joint.qpos_dim == 1]
    )
    generator = torch.Generator().manual_seed(0)
    rows = torch.arange(0, ROWS, 3)
    mask = torch.zeros(ROWS, dtype=torch.bool).index_fill(0, rows, True)
    largest, moved = 0.0, 0.0
    for i in range(STEPS):
        ctrl = home + 0.3 * (torch.rand(ROWS, layout.nu, generator=generator) - 0.5)
        for backend in pair:
            backend.step_tensor(ctrl, SUBSTEPS)
        if i == RESET_AT:
            for backend in pair:
                backend.apply_reset(mask, ResetPayload(rows))
            expect_agreement(warp, mujoco, f"after the reset in step {i + 1}")
        found, expected = warp.get_state_views()["qpos"], mujoco.get_state_views()["qpos"]
        largest = max(largest, float((found - expected).abs().max()))
        moved = max(moved, float((expected - torch.tensor(layout.default_qpos)).abs().max()))
        expect_agreement(warp, mujoco, f"step {i + 1}")
    record_property("largest difference of qpos", largest)
    assert largest < 1e-5
    assert moved > 0.1
