"""The backend `springs`: its own format of models, and one term of force more than the fake that it builds on."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from springs.model import Springs
from unisim import ConfigError, Declared, SceneCfg, SimCfg
from unisim.testing import FakeBackend


class SpringBackend(FakeBackend):
    """N rows of masses on springs; host memory."""

    def __init__(self, springs: Springs, num_envs: int, *, device: str, declared: Declared | None) -> None:
        kick = springs.stiffness * springs.layout.timestep

        def pull(substep: int, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"qvel": state["qvel"] - kick * state["qpos"], **_sensors(state)}

        super().__init__(
            springs.layout, num_envs, device=device, declared=declared, script=pull, reads=_sensors
        )


def _sensors(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        "sensor:place": state["qpos"],
        "sensor:rate": state["qvel"],
        "sensor:push": state["ctrl"][:, :1],
    }


def create_backend(
    scene: SceneCfg, sim: SimCfg, *, num_envs: int, device: str = "cpu", declared: Declared | None = None
) -> SpringBackend:
    """Returns the backend of a scene; see `unisim.make_backend`."""
    models = {name: entity.spec(**entity.params) for name, entity in scene.entities.items()}
    for name, model in models.items():
        if not isinstance(model, Springs):
            raise ConfigError(
                f"entity {name!r}: spec returns a {type(model).__name__}, backend 'springs' expects Springs"
            )
    if list(models) != ["robot"]:
        raise ConfigError(f"entities are {list(models)}, backend 'springs' expects one, 'robot'")
    springs = models["robot"]
    springs = replace(springs, layout=replace(springs.layout, timestep=sim.timestep))
    return SpringBackend(springs, num_envs, device=device, declared=declared)
