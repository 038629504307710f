"""Makes environments from task names or configs; the recipe itself can be sent to another process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unilab_core.env_cfg import TorchEnvCfg
from unilab_core.errors import ConfigError
from unilab_core.registry import get_task
from unisim.config import Cfg, parse_overrides
from unisim.import_strings import import_object

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["EnvFactory", "load_env_cfg", "make_env"]

Overrides = Mapping[str, Any] | Iterable[str]


def load_env_cfg(task: str, *, num_envs: int | None = None, overrides: Overrides = ()) -> TorchEnvCfg:
    """Returns the environment config of a registered task, with overrides applied.

    Args:
        task: Name of a registered task.
        num_envs: Replaces the config's number of rows.
        overrides: Dotted path to value, or texts `"path.to.field=value"`.

    Raises:
        UnknownNameError: No such task.
        ConfigError: An override is wrong, or the task's function returns no environment config.
    """
    spec = get_task(task)
    cfg = import_object(spec.env_cfg)()
    if not isinstance(cfg, TorchEnvCfg):
        raise ConfigError(
            f"task {spec.name!r}: {spec.env_cfg} returned {type(cfg).__name__}, expected a TorchEnvCfg"
        )
    return _with_overrides(cfg, num_envs, overrides)


def _with_overrides(cfg: TorchEnvCfg, num_envs: int | None, overrides: Overrides) -> TorchEnvCfg:
    changes = dict(overrides) if isinstance(overrides, Mapping) else parse_overrides(overrides)
    if num_envs is not None:
        changes["num_envs"] = num_envs
    return cfg.with_(changes) if changes else cfg


def make_env(
    task: str | Cfg,
    *,
    backend: str = "mujoco",
    device: str = "cpu",
    num_envs: int | None = None,
    seed: int = 0,
    autoreset: bool = True,
    overrides: Overrides = (),
) -> TorchEnv:
    """Returns a new environment.

    Args:
        task: Name of a registered task, or an environment config.
        backend: Name of a physics backend.
        device: Torch device of every tensor the environment hands out.
        num_envs: Replaces the config's number of rows.
        seed: Of the environment's own generator.
        autoreset: Whether rows that end restart within the same step.
        overrides: Dotted path to value, or texts `"path.to.field=value"`.

    Raises:
        UnknownNameError: No such task.
        ConfigError: The config or an override is wrong.
        CapabilityError: The backend or device cannot do what the task needs.
    """
    if isinstance(task, str):
        cfg = load_env_cfg(task, num_envs=num_envs, overrides=overrides)
    elif isinstance(task, TorchEnvCfg):
        cfg = _with_overrides(task, num_envs, overrides)
    else:
        raise TypeError(f"make_env: task is a {type(task).__name__}, expected a task name or a TorchEnvCfg")
    from unilab_core.env import TorchEnv

    env = cfg.build(backend=backend, device=device, seed=seed, autoreset=autoreset)
    if not isinstance(env, TorchEnv):
        raise TypeError(f"{type(cfg).__name__}.build returned a {type(env).__name__}, expected a TorchEnv")
    return env


@dataclass(frozen=True)
class EnvFactory:
    """The arguments of `make_env` as picklable data: safe for spawned processes."""

    task: str | Cfg
    backend: str = "mujoco"
    device: str = "cpu"
    num_envs: int | None = None
    seed: int = 0
    autoreset: bool = True
    overrides: tuple[str, ...] = ()

    def __call__(self) -> TorchEnv:
        """Returns a new environment; raises what `make_env` does."""
        return make_env(
            self.task,
            backend=self.backend,
            device=self.device,
            num_envs=self.num_envs,
            seed=self.seed,
            autoreset=self.autoreset,
            overrides=self.overrides,
        )
