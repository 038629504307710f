"""What every environment config says, and how it becomes an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from unisim.config import Cfg
from unisim.scene import SceneCfg, SimCfg

if TYPE_CHECKING:
    from unilab_core.env_hooks import EnvHooks

__all__ = ["NanGuardCfg", "TorchEnvCfg"]


class NanGuardCfg(Cfg):
    """How non-finite rewards and observations are met. Costs one copy of the engine's state a step."""

    policy: Literal["raise", "reset_row"] = "raise"
    """`"raise"`: NonFiniteError, and the environment faults. `"reset_row"`: the row terminates with reward 0 and
    its last finite observation; `info["nonfinite_rows"]` keeps it out of replay."""
    dump_dir: str = "nan_dumps"
    """Folder of the dumps that `unilab replay` steps again, relative to the working directory."""
    max_dumps: Annotated[int, Field(ge=0)] = 1
    """Most dumps of one environment; 0 writes none."""


class TorchEnvCfg(Cfg):
    """Base of every environment config; `build` makes the environment, so that core need not import its class."""

    scene: SceneCfg = SceneCfg()
    sim: SimCfg = SimCfg()
    decimation: int = 1
    """Physics substeps per control step."""
    episode_length_s: float = 10.0
    """Time limit of an episode, s."""
    num_envs: int = 64
    is_finite_horizon: bool = False
    """Whether reaching the time limit is the end of the task, so that time-outs are terminations."""
    nan_guard: NanGuardCfg | None = None
    """How non-finite values are met; None: NonFiniteError without a dump."""

    @model_validator(mode="after")
    def _positive(self) -> TorchEnvCfg:
        # Here and not on the fields, whose bounds a subclass loses when it declares another default.
        for name in ("decimation", "episode_length_s", "num_envs"):
            value = getattr(self, name)
            if value <= 0:
                raise ValueError(f"{name} is {value}, expected a positive number")
        return self

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
