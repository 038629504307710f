"""The complete config of a run: what `config.yaml` holds and what a resumed run obeys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field, PositiveInt, model_validator

from unilab_core import Cfg, ConfigError
from unilab_rl.contracts.algorithm import LearnerCfg

__all__ = ["MAX_SEED", "MISSING", "BudgetCfg", "RunConfig", "config_changes"]

MAX_SEED = 2**63 - 1  # what every generator takes
MISSING = object()
"""Stands for a value of a config that isn't there, which `None` can be."""


class BudgetCfg(Cfg):
    """When a run ends: exactly one of the three."""

    iterations: PositiveInt | None = None
    """Iterations in all, those before a resume included."""

    steps: PositiveInt | None = None
    """Environment steps in all, summed over rows; the iteration that reaches them is finished."""

    minutes: float | None = Field(default=None, gt=0.0)
    """Wall-clock minutes of this process's training; a resumed run gets them anew."""

    @model_validator(mode="after")
    def _exactly_one(self) -> BudgetCfg:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"got {given or 'no budget'}, expected exactly one of iterations, steps, minutes"
            )
        return self

    def fraction(self, iterations: int, env_steps: int, elapsed_s: float) -> float:
        """Returns how much of the budget is used; the run ends at 1 or above."""
        if self.iterations is not None:
            return iterations / self.iterations
        if self.steps is not None:
            return env_steps / self.steps
        assert self.minutes is not None
        return elapsed_s / (60.0 * self.minutes)

    def __str__(self) -> str:
        amounts = {name: getattr(self, name) for name in type(self).model_fields}
        return next(f"{amount:,} {name}" for name, amount in amounts.items() if amount is not None)


class RunConfig(Cfg):
    """Everything that decides what a run does."""

    task: str
    algorithm: str
    backend: str
    device: str
    num_envs: PositiveInt
    seed: int = Field(ge=0, le=MAX_SEED)
    budget: BudgetCfg
    env: Cfg
    """The environment's complete config, overrides applied."""
    learner: LearnerCfg
    """The learner's complete config, overrides applied."""

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Returns the config in a run's `config.yaml`.

        Raises:
            ConfigError: Not readable, or not a valid config; the message names the file.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from error
        try:
            return cls.from_yaml(text, source=str(path))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def digest(self) -> str:
        """Returns a hash of the config, equal for equal configs in every process."""
        return "sha256:" + hashlib.sha256(self.to_yaml().encode()).hexdigest()


def config_changes(own: object, other: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Yields the dotted paths at which plain data differs, with both values; `MISSING` where one has none."""
    if isinstance(own, Mapping) and isinstance(other, Mapping):
        for key in [*own, *(key for key in other if key not in own)]:
            below = f"{path}.{key}" if path else str(key)
            yield from config_changes(own.get(key, MISSING), other.get(key, MISSING), below)
    elif isinstance(own, list | tuple) and isinstance(other, list | tuple) and len(own) == len(other):
        for index, pair in enumerate(zip(own, other, strict=True)):
            yield from config_changes(*pair, f"{path}.{index}")
    elif own is not other and own != other:
        yield path, own, other
