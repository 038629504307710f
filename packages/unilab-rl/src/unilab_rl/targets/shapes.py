"""Checks of shapes and dtypes, which ask the device nothing."""

from __future__ import annotations

import torch

__all__ = ["check_flags", "check_floats"]


def check_floats(function: str, shape: tuple[int, ...], **tensors: torch.Tensor) -> None:
    """Checks that every tensor is of one shape and of one floating dtype: `(B, 1)` would broadcast without a word.

    Raises:
        TypeError: A dtype is no floating one, or differs from that of the first.
        ValueError: A shape differs from `shape`.
    """
    first: torch.Tensor | None = None
    for name, tensor in tensors.items():
        _check_shape(function, name, tensor, shape)
        if not tensor.dtype.is_floating_point:
            raise TypeError(f"{function}: {name} has dtype {tensor.dtype}, expected a floating one")
        first = tensor if first is None else first
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{function}: {name} has dtype {tensor.dtype}, expected {first.dtype} as {next(iter(tensors))} has"
            )


def check_flags(function: str, shape: tuple[int, ...], **tensors: torch.Tensor) -> None:
    """Checks that every tensor is bool and of one shape.

    Raises:
        TypeError: A dtype is not bool.
        ValueError: A shape differs from `shape`.
    """
    for name, tensor in tensors.items():
        if tensor.dtype != torch.bool:
            raise TypeError(f"{function}: {name} has dtype {tensor.dtype}, expected torch.bool")
        _check_shape(function, name, tensor, shape)


def _check_shape(function: str, name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{function}: {name} has shape {tuple(tensor.shape)}, expected {shape}")
