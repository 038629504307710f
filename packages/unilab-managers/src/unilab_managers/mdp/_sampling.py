"""How event terms draw: ranges and their checks, distributions, operations, components by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, get_args

import torch

from unilab_core.errors import nearest
from unilab_core.rng import EnvRng

__all__ = [
    "Distribution",
    "Operation",
    "Range",
    "Sharing",
    "check_choice",
    "check_components",
    "check_positive",
    "check_range",
    "combine",
    "quat_from_euler",
    "sample",
    "sample_components",
]

Range = tuple[float, float]
Distribution = Literal["uniform", "log_uniform"]
Operation = Literal["add", "scale", "abs"]
Sharing = Literal["per_element", "shared"]
_NONE = (0.0, 0.0)


def check_positive(**values: float) -> None:
    """Checks that parameters are above 0.

    Raises:
        ValueError: One is not; the message names it.
    """
    for name, value in values.items():
        if not value > 0.0:
            raise ValueError(f"{name} is {value}, expected a number above 0")


def check_range(name: str, limits: Range, distribution: Distribution = "uniform") -> None:
    """Checks what draws are made from.

    Raises:
        ValueError: Not two numbers, inverted, an unknown distribution, or one of positive numbers with another low.
    """
    given: object = limits
    if not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"{name} is {given!r}, expected (low, high)")
    low, high = limits
    if low > high:
        raise ValueError(f"{name} ({low}, {high}) is inverted; expected (low, high)")
    check_choice("distribution", distribution, get_args(Distribution))
    if distribution == "log_uniform" and low <= 0.0:
        raise ValueError(f"{name} ({low}, {high}) has no logarithm; log_uniform expects 0 < low")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Checks one of a few words.

    Raises:
        ValueError: None of them; the message lists the nearest.
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; {nearest(value, choices)}")


def check_components(name: str, ranges: Mapping[str, Range], keys: Sequence[str]) -> None:
    """Checks ranges by component.

    Raises:
        ValueError: An unknown component, or a range that is none.
    """
    for key, limits in ranges.items():
        if key not in keys:
            raise ValueError(f"{name} has no component {key!r}; {nearest(key, keys)}")
        check_range(f"{name}[{key!r}]", limits)


def sample(
    rng: EnvRng, limits: Range, size: Sequence[int], distribution: Distribution = "uniform"
) -> torch.Tensor:
    """Returns float32 draws of shape `size`; a range without width gives exactly its one value."""
    low, high = limits
    if distribution == "uniform":
        return rng.uniform(low, high, size)
    # As a power, not through logarithms, for the same exactness; it may miss the upper end by rounding.
    return torch.pow(high / low, rng.uniform(0.0, 1.0, size)).mul_(low).clamp_(max=high)


def sample_components(
    rng: EnvRng, ranges: Mapping[str, Range], keys: Sequence[str], count: int
) -> torch.Tensor:
    """Returns (count, len(keys)) float32 uniform draws, one column per key; zero where `ranges` lacks the key.

    Every column is drawn, row by row, so that what one component says does not change another's numbers.
    """
    limits = tuple((float(low), float(high)) for low, high in (ranges.get(key, _NONE) for key in keys))
    width, low = _width_and_low(limits, rng.device)
    return rng.uniform(0.0, 1.0, (count, len(keys))).mul_(width).add_(low)


@lru_cache(maxsize=64)
def _width_and_low(limits: tuple[Range, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (C,) float32 each; kept, for numbers are copied to a device and a step must not wait for that."""
    with torch.inference_mode(False):  # a tensor of that mode would be of no use outside of it
        width = torch.tensor([high - low for low, high in limits], device=device)
        return width, torch.tensor([low for low, _ in limits], device=device)


def combine(values: torch.Tensor, draws: torch.Tensor, operation: Operation) -> torch.Tensor:
    """Returns `values` plus draws, times draws, or the draws in their place; broadcasts the draws."""
    if operation == "add":
        return values + draws
    if operation == "scale":
        return values * draws
    return draws.expand_as(values)


def quat_from_euler(angles: torch.Tensor) -> torch.Tensor:
    """Returns unit quaternions (..., 4), wxyz, of roll, pitch and yaw (..., 3), rad: about x, then y, then z.

    With c and s the cosines and sines of half the angles:
        w = cx cy cz + sx sy sz,  x = sx cy cz - cx sy sz,  y = cx sy cz + sx cy sz,  z = cx cy sz - sx sy cz
    """
    half = 0.5 * angles
    places, signs = _euler_factors(half.device, half.dtype)
    # The first factors of all eight products side by side, then the second, then the third.
    factors = torch.cat([half.cos(), half.sin()], dim=-1).index_select(-1, places)
    of_x, of_y, of_z = factors.view(*angles.shape[:-1], 3, 8).unbind(-2)
    products = (of_x * of_y).mul_(of_z).mul_(signs)
    return products[..., :4] + products[..., 4:]


@lru_cache(maxsize=16)
def _euler_factors(device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns where the factors are in (cx, cy, cz, sx, sy, sz), (24,) int64, and the signs of the products, (8,)."""
    cx, cy, cz, sx, sy, sz = range(6)
    places = [
        *(cx, sx, cx, cx, sx, cx, sx, sx),
        *(cy, cy, sy, cy, sy, sy, cy, sy),
        *(cz, cz, cz, sz, sz, sz, sz, cz),
    ]
    signs = [*(1, 1, 1, 1), *(1, -1, 1, -1)]
    with torch.inference_mode(False):  # as above
        return torch.tensor(places, device=device), torch.tensor(signs, dtype=dtype, device=device)
