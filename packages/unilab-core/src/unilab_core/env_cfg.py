"""What every environment config says, and how it becomes an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from unisim.config import Cfg
from unisim.scene import SceneCfg, SimCfg

if TYPE_CHECKING:
    from unilab_core.env_hooks import EnvHooks

__all__ = ["TorchEnvCfg"]


class TorchEnvCfg(Cfg):
    """Base of every environment config; `build` makes the environment, so that core need not import its class."""

    scene: SceneCfg = SceneCfg()
    sim: SimCfg = SimCfg()
    decimation: Annotated[int, Field(ge=1)] = 1
    """Physics substeps per control step."""
    episode_length_s: Annotated[float, Field(gt=0)] = 10.0
    """Time limit of an episode, s."""
    num_envs: Annotated[int, Field(ge=1)] = 64
    is_finite_horizon: bool = False
    """Whether reaching the time limit is the end of the task, so that time-outs are terminations."""

    @property
    def step_dt(self) -> float:
        """Length of a control step, s."""
        return self.decimation * self.sim.timestep

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> EnvHooks:
        """Returns the `TorchEnv` that this config describes.

        Args:
            backend: Name of a physics backend.
            device: Torch device of every tensor the environment hands out.
            seed: Of the environment's own generator.
            autoreset: Whether rows that end restart within the same step.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement build()")
