"""The task that is checked: its variants, its environments, and how they are driven."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import torch

from unilab_core.errors import ConfigError
from unilab_core.factory import make_env
from unilab_core.state import TorchEnvState
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import NOBODY, Place, place_of
from unilab_managers.checking.variants import bare, hurried
from unilab_managers.checking.watching import StagingWatch, around_terms
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.env_cfg import TermsCfg

__all__ = ["Drawn", "StoppedError", "TaskUnderTest", "draw_actions", "quiet", "stopping"]

Drawn = Literal["random", "zero"]
_LOGGERS = ("unisim", "unilab_core", "unilab_managers")


class StoppedError(Exception):
    """A task failed while a check ran it.

    Attributes:
        place: The term that failed, as far as the failure says.
    """

    def __init__(self, doing: str, error: Exception) -> None:
        """Notes what was being done and what went wrong."""
        notes = " ".join(getattr(error, "__notes__", ()))
        self.place: Place = place_of(notes) if place_of(notes) != NOBODY else place_of(str(error))
        super().__init__(f"{doing}: {type(error).__name__}: {error}")


class TaskUnderTest:
    """A task, and environments of it and of its variants.

    Attributes:
        name: The task's name, for people.
        cfg: Its config, without recorders and guards.
        backend: Name of the physics backend.
        device: Torch device.
        num_envs: N.
        seed: The first seed; checks that need several count on from it.
        kept: What a check has found out and others use too, by a name of its own.
        staging: Looks on while environments are built.
    """

    def __init__(
        self, name: str, cfg: TermsCfg, *, backend: str, device: str, num_envs: int, seed: int
    ) -> None:
        """Takes the settings; builds nothing yet."""
        self.name = name
        self.cfg = bare(cfg).model_copy(update={"num_envs": num_envs})
        self.backend = backend
        self.device = device
        self.num_envs = num_envs
        self.seed = seed
        self.kept: dict[str, Any] = {}
        self.staging = StagingWatch()

    @property
    def is_exact(self) -> bool:
        """Whether the same seed gives the same bits on its device."""
        return torch.device(self.device).type == "cpu"

    def inexact(self, check: str, what: str) -> Finding:
        """Returns the note that something was left out because nothing promises the same bits on the device."""
        said = f"{what} on {self.device}: nothing promises the same bits there"
        return Finding(check, "", "", said, "check on the CPU too", kind="note")

    @cached_property
    def hurried(self) -> TermsCfg:
        """The task with short episodes and timers; as it is where a term takes no shorter ones.

        Then `kept["not hurried"]` says why.
        """
        shorter = hurried(self.cfg)
        try:
            with self.env(shorter):
                return shorter
        except ConfigError as error:
            self.kept["not hurried"] = str(error)
            return self.cfg

    @contextmanager
    def env(self, cfg: TermsCfg | None = None, *, seed: int | None = None) -> Iterator[ManagerBasedRlEnv]:
        """Builds an environment, and closes it when the block ends.

        Raises:
            ConfigError: It cannot be built.
            CapabilityError: The backend or device cannot do what it needs.
        """
        with around_terms(self.staging):
            made = make_env(
                self.cfg if cfg is None else cfg,
                backend=self.backend,
                device=self.device,
                seed=self.seed if seed is None else seed,
            )
        with made:
            if not isinstance(made, ManagerBasedRlEnv):
                raise ConfigError(
                    f"{self.name} is a {type(made).__name__}, which has no terms to check; "
                    "expected a ManagerBasedRlEnv"
                )
            yield made

    def run(
        self,
        env: ManagerBasedRlEnv,
        steps: int,
        drawn: Drawn = "random",
        each: Callable[[TorchEnvState], None] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        """Steps an environment, resetting nothing but what resets itself.

        Args:
            env: The environment.
            steps: How many steps.
            drawn: Random actions between their bounds, or zeros.
            each: Called after every step.
            seed: Of random actions.

        Raises:
            StoppedError: A step failed.
        """
        act = draw_actions(env, drawn, seed)
        for step in range(1, steps + 1):
            with stopping(f"step {step}, {drawn} actions"):
                state = env.step(act())
            if each is not None:
                each(state)


def draw_actions(env: ManagerBasedRlEnv, drawn: Drawn, seed: int) -> Callable[[], torch.Tensor]:
    """Returns what makes the actions of each step, (N, A) float32: uniform between bounds (1 where infinite) or 0."""
    shape = (env.num_envs, env.num_actions)
    if drawn == "zero":
        return lambda: torch.zeros(shape, device=env.device)
    low, high = env.action_bounds
    low, high = torch.where(low.isfinite(), low, -1.0), torch.where(high.isfinite(), high, 1.0)
    generator = torch.Generator(env.device).manual_seed(seed)
    return lambda: low + (high - low) * torch.rand(shape, generator=generator, device=env.device)


@contextmanager
def stopping(doing: str) -> Iterator[None]:
    """Turns whatever a task raises into `StoppedError`.

    Raises:
        StoppedError: The block failed.
    """
    try:
        yield
    except Exception as error:  # whatever a term may raise is the task's failure, not the check's
        raise StoppedError(doing, error) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps warnings of the libraries to itself: variants with short episodes are warned of, and rows may go bad."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
