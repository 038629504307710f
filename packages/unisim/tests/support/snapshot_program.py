"""A run that is cut in two: in one process up to the snapshot, in another one from it on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import torch
from leg_model import leg_backend
from unisim_support import reset_rows, rows_mask, write_rows

from unisim import HostBridgeSpec, ResetPayload
from unisim.contract import Declared

DECLARED = Declared(
    model_fields=("body_mass", "geom_friction", "gravity"),
    wrench_bodies=("robot/shank",),
    substep_sensors=("robot/touch", "ground"),
    decimation=4,
)


def make(persistent: bool, num_threads: int = 1) -> Any:
    """Five legs with everything that a snapshot must hold."""
    return leg_backend(5, declared=DECLARED, persistent=persistent, num_threads=num_threads)


def controls(steps: int, seed: int) -> list[torch.Tensor]:
    """Random controls and wrenches (5, 3 + 6)."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(5, 9, generator=generator) * 2.0 - 1.0 for _ in range(steps)]


def begin(backend: Any) -> None:
    """60 control steps with a randomising reset, a row write, and a row that goes bad."""
    fields = backend.model_layout.fields
    for i, ctrl in enumerate(controls(60, 1)):
        backend.step_tensor(ctrl, 4)
        if i == 20:
            model = {
                name: fields[name].nominal_tensor().expand(2, -1, *[-1] * (len(fields[name].shape) - 1)) * 1.3
                for name in DECLARED.model_fields
            }
            backend.apply_reset(rows_mask([1, 3], 5), ResetPayload(torch.tensor([1, 3]), model=model))
        if i == 40:
            write_rows(backend, [2], qvel=[[0.3] * 8])
        if i == 50:  # as if the engine had warned of a position that is good again
            backend._batch.warning[4, int(mujoco.mjtWarning.mjWARN_BADQPOS), 1] = 1
    assert backend.bad_rows().tolist() == [False, False, False, False, True]
    write_rows(backend, [0], qvel=[[0.1] * 8])  # so that forces are held from before a write


def go_on(backend: Any) -> dict[str, torch.Tensor]:
    """100 more control steps with a reset on the way: everything that can be read, after every step."""
    names = tuple(sensor.name for sensor in backend.model_layout.sensors)
    spec = HostBridgeSpec(
        sensors=names,
        bodies=("robot/shank",),
        sites=("robot/toe",),
        substep_sensors=DECLARED.substep_sensors,
        decimation=4,
    )
    plan = backend.compile_host_bridge_io(spec)
    frames, bad = [plan.read().clone()], [backend.bad_rows()]
    for i, ctrl in enumerate(controls(100, 2)):
        plan.write_control(ctrl)
        plan.step(4)
        plan.read()
        if i == 30:
            reset_rows(plan, [0, 4])
            plan.read_selected()
        frames.append(plan.packet.clone())
        bad.append(backend.bad_rows())
    final = {key: values for key, values in backend.snapshot().items() if key != "model"}
    return {"frames": torch.stack(frames), "bad": torch.stack(bad), **final}


def resume(folder: str, persistent: bool) -> None:
    """Restores `folder`/snapshot.pt in this process, goes on, and leaves what it read in `folder`/resumed.pt."""
    backend = make(persistent)
    for ctrl in controls(7, 3):
        backend.step_tensor(ctrl, 3)  # what it did before the restore must not matter
    backend.restore(torch.load(Path(folder) / "snapshot.pt", weights_only=True))
    torch.save(go_on(backend), Path(folder) / "resumed.pt")
    backend.close()
