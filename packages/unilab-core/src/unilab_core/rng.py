"""Randomness of one environment: a generator of its own; the global one is never touched."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import ClassVar

import torch

__all__ = ["EnvRng"]

Size = int | Sequence[int]


def _shape(size: Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


def _check_number(call: str, name: str, value: object) -> None:
    if not isinstance(value, torch.Tensor | Real):  # scalars of NumPy are numbers, its arrays are not
        raise TypeError(
            f"EnvRng.{call}: {name} is a {type(value).__name__}, expected a number or a torch.Tensor; convert an "
            "array with torch.as_tensor(array, dtype=torch.float32, device=rng.device)"
        )


class EnvRng:
    """Draws on one device from one seeded generator.

    Attributes:
        device: Where draws are made.
        asked: How often the generator was asked for, which is before every draw.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("device", "asked")

    def __init__(self, seed: int, device: torch.device | str) -> None:
        """Seeds a new generator on `device`."""
        self.device = torch.device(device)
        # In the place that a state knows, behind the property of that name.
        self.__dict__["generator"] = torch.Generator(device=self.device)
        self.asked = 0
        self.seed(seed)

    @property
    def generator(self) -> torch.Generator:
        """The torch generator, for functions that take one."""
        self.asked += 1
        generator: torch.Generator = self.__dict__["generator"]
        return generator

    def seed(self, seed: int) -> None:
        """Starts the sequence of `seed`.

        Raises:
            TypeError: `seed` is not an int.
            ValueError: `seed` is negative or has more than 63 bits.
        """
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"EnvRng.seed: seed is a {type(seed).__name__}, expected an int")
        if not 0 <= seed < 2**63:
            raise ValueError(f"EnvRng.seed: seed is {seed}, expected 0 <= seed < 2**63")
        self.__dict__["generator"].manual_seed(seed)

    def uniform(self, low: float | torch.Tensor, high: float | torch.Tensor, size: Size) -> torch.Tensor:
        """Returns float32 draws from [low, high) of shape `size`; the bounds broadcast.

        Raises:
            TypeError: A bound is neither a number nor a tensor; nothing was drawn.
        """
        _check_number("uniform", "low", low)
        _check_number("uniform", "high", high)
        unit = torch.rand(_shape(size), generator=self.generator, device=self.device)
        if torch.is_tensor(low) or torch.is_tensor(high):
            return unit * (high - low) + low
        # Numbers need no broadcast: in place, and left as it is where the same would come out.
        return unit if (low, high) == (0.0, 1.0) else unit.mul_(high - low).add_(low)

    def normal(self, mean: float | torch.Tensor, std: float | torch.Tensor, size: Size) -> torch.Tensor:
        """Returns float32 Gaussian draws of shape `size`; mean and standard deviation broadcast.

        Raises:
            TypeError: One of them is neither a number nor a tensor; nothing was drawn.
        """
        _check_number("normal", "mean", mean)
        _check_number("normal", "std", std)
        unit = torch.randn(_shape(size), generator=self.generator, device=self.device)
        return unit * std + mean

    def integers(self, low: int, high: int, size: Size) -> torch.Tensor:
        """Returns int64 draws from low, ..., high - 1 of shape `size`."""
        return torch.randint(low, high, _shape(size), generator=self.generator, device=self.device)

    def choice(self, values: torch.Tensor, size: Size) -> torch.Tensor:
        """Returns elements of the 1-D tensor `values`, drawn with replacement, of shape `size`."""
        return values[self.integers(0, values.numel(), size)]

    def get_state(self) -> torch.Tensor:
        """Returns the generator's state, a copy."""
        state: torch.Tensor = self.__dict__["generator"].get_state()
        return state

    def set_state(self, state: torch.Tensor) -> None:
        """Continues from a state that `get_state` returned."""
        self.__dict__["generator"].set_state(state)
