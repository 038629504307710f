"""Other values of every model field of the leg."""

from __future__ import annotations

import torch
from leg_model import SENSORS, leg

from unisim import EntityCfg, SceneCfg, SimCfg
from unisim.scene_model import compile_scene

TURNED = torch.nn.functional.normalize(torch.tensor([0.9, 0.1, -0.2, 0.3]), dim=0)


def nominal(name: str) -> torch.Tensor:
    """The values of a field that the leg is compiled with."""
    scene = SceneCfg(entities={"robot": EntityCfg(spec=leg)}, sensors=SENSORS)
    return compile_scene(scene, SimCfg(gravity=(0.0, 0.0, -9.8125)))[1].fields[name].nominal_tensor()


def changed(name: str) -> torch.Tensor:
    """Other values of a field; each a float32 number, as are the nominal ones beside it."""
    values = nominal(name)
    if name in ("body_mass", "body_inertia", "dof_damping"):
        return values * 1.25
    if name == "body_ipos":
        values[1:] += torch.tensor([0.03125, -0.015625, 0.0625])
    elif name == "body_iquat":
        values[1] = TURNED
        values[2] = torch.tensor([0.5, -0.5, 0.5, 0.5])
    elif name == "geom_friction":
        values[:] = torch.tensor([0.25, 2.0**-7, 2.0**-11])
    elif name == "geom_size":
        values[1], values[4, 0] = torch.tensor([0.1875, 0.125, 0.09375]), 0.09375
    elif name == "dof_armature":
        values[6:] += 0.03125
    elif name == "dof_frictionloss":
        values[6:] += 0.25
    elif name == "actuator_gainprm":
        values[:, 0] *= 1.5
    elif name == "actuator_biasprm":
        values[0, 1:3] *= 1.25
    elif name == "actuator_forcerange":
        values[0], values[1] = torch.tensor([-2.0, 3.0]), torch.tensor([-0.5, 0.25])
    elif name == "gravity":
        values[:] = torch.tensor([0.5, 0.25, -7.0])
    return values
