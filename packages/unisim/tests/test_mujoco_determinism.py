"""The same calls give the same bits, whatever the number of threads and the kind of batch."""

from __future__ import annotations

import pytest
import torch
from leg_model import FIELDS, leg_backend
from unisim_support import rows_mask

from unisim import HostBridgeSpec, ResetPayload
from unisim.contract import Declared

N = 6
DECLARED = Declared(FIELDS, ("robot/base",), ("robot/touch", "ground"), decimation=4)


def random_model(backend, k: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Values of six fields, each scaled by up to a quarter per row."""
    names = ("body_mass", "body_inertia", "geom_friction", "dof_damping", "actuator_gainprm", "gravity")
    model = {}
    for name in names:
        nominal = backend.model_layout.fields[name].nominal_tensor()
        factor = 0.75 + 0.5 * torch.rand(k, *[1] * nominal.ndim, generator=generator)
        model[name] = nominal.unsqueeze(0) * factor
    return model


def trajectory(persistent: bool, num_threads: int, seed: int = 5) -> torch.Tensor:
    """500 control steps with resets, row writes and randomisation: a sum of each step's packet, and the last whole."""
    generator = torch.Generator().manual_seed(seed)
    backend = leg_backend(N, declared=DECLARED, persistent=persistent, num_threads=num_threads)
    plan = backend.compile_host_bridge_io(
        HostBridgeSpec(
            sensors=tuple(sensor.name for sensor in backend.model_layout.sensors),
            bodies=backend.model_layout.bodies,
            sites=backend.model_layout.sites,
            substep_sensors=DECLARED.substep_sensors,
            decimation=4,
        )
    )
    frames = []
    for i in range(500):
        plan.write_control(torch.rand(N, 9, generator=generator) * 2.0 - 1.0)
        plan.step(4)
        plan.read()
        if i % 5 == 2:
            chosen = torch.rand(N, generator=generator) < 0.4
            ids = chosen.nonzero().flatten()
            model = random_model(backend, ids.numel(), generator) if i % 2 else {}
            qvel = torch.rand(ids.numel(), 8, generator=generator) - 0.5
            plan.apply_reset(chosen, ResetPayload(ids, qvel=qvel, model=model))
            plan.read_selected()
        if i % 11 == 3:
            row = int(torch.randint(N, (), generator=generator))
            qvel = torch.rand(1, 8, generator=generator) - 0.5
            plan.write_rows(rows_mask([row], N), ResetPayload(torch.tensor([row]), qvel=qvel))
            plan.read_selected()
        frames.append(plan.packet.clone())
    backend.close()
    return torch.stack(frames)


@pytest.fixture(scope="module")
def reference():
    return trajectory(persistent=True, num_threads=1)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])
def test_500_steps_are_the_same_to_the_bit(reference, persistent, num_threads):
    frames = trajectory(persistent, num_threads)
    differs = (frames != reference).flatten(1).any(dim=1).nonzero().flatten().tolist()
    assert not differs, f"from control step {differs[0]} on"


def test_the_trajectory_is_finite_and_its_rows_differ(reference):
    assert torch.isfinite(reference).all()
    assert len({tuple(row) for row in reference[-1].tolist()}) == N
    assert not torch.equal(trajectory(True, 1, seed=6), reference)
