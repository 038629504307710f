"""Rotation math on batches of unit quaternions, wxyz."""

from __future__ import annotations

from functools import lru_cache

import torch

__all__ = [
    "quat_apply",
    "quat_apply_inverse",
    "quat_conjugate",
    "quat_from_yaw",
    "quat_mul",
    "quat_yaw",
    "turn",
    "turn_inverse",
]


def quat_mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the Hamilton product a * b, (..., 4): rotate by `b`, then by `a`."""
    index, signs = _columns_times(b.device, b.dtype)
    # Each column of a times what it meets of b: four sums of four products, in the order of a's columns.
    met = b.index_select(-1, index).mul_(signs).view(*b.shape[:-1], 4, 4)
    times_w, times_x, times_y, times_z = (met * a.unsqueeze(-1)).unbind(-2)
    product: torch.Tensor = times_w + times_x + times_y + times_z
    return product


@lru_cache(maxsize=16)
def _columns_times(device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns which column of b each of a's four meets in each of the product's four, (16,) int64, and the signs."""
    index = [*(0, 1, 2, 3), *(1, 0, 3, 2), *(2, 3, 0, 1), *(3, 2, 1, 0)]
    signs = [*(1, 1, 1, 1), *(-1, 1, -1, 1), *(-1, 1, 1, -1), *(-1, -1, 1, 1)]
    with torch.inference_mode(False):  # a tensor of that mode would be of no use outside of it
        return torch.tensor(index, device=device), torch.tensor(signs, dtype=dtype, device=device)


def quat_conjugate(q: torch.Tensor) -> torch.Tensor:
    """Returns the inverse of unit quaternions, (..., 4)."""
    return torch.cat([q[..., :1], -q[..., 1:]], dim=-1)


def quat_apply(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Rotates vectors (..., 3) by unit quaternions (..., 4): body frame to world frame for a body's orientation."""
    w, xyz = q.split_with_sizes([1, 3], dim=-1)
    return turn(w, xyz, v)


def quat_apply_inverse(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Rotates vectors (..., 3) by the inverse of unit quaternions (..., 4): world frame to body frame."""
    w, xyz = q.split_with_sizes([1, 3], dim=-1)
    return turn_inverse(w, xyz, v)


def turn(w: torch.Tensor, xyz: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Does what `quat_apply` does, for a quaternion in parts: (..., 1) and (..., 3)."""
    # v + 2 w (xyz x v) + 2 xyz x (xyz x v), of which both products are one of xyz: four operators.
    inner = torch.addcmul(torch.linalg.cross(xyz, v), w, v)
    turned: torch.Tensor = torch.add(v, torch.linalg.cross(xyz, inner), alpha=2)
    return turned


def turn_inverse(w: torch.Tensor, xyz: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Does what `quat_apply_inverse` does, for a quaternion in parts: (..., 1) and (..., 3)."""
    # As `turn` by the conjugate, the signs moved into the order of the products.
    inner = torch.addcmul(torch.linalg.cross(v, xyz), w, v)
    turned: torch.Tensor = torch.add(v, torch.linalg.cross(inner, xyz), alpha=2)
    return turned


def quat_yaw(q: torch.Tensor) -> torch.Tensor:
    """Returns the heading of unit quaternions, (...) rad: the z angle of the z-y-x Euler sequence."""
    w, x, y, z = q.unbind(-1)
    return torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def quat_from_yaw(yaw: torch.Tensor) -> torch.Tensor:
    """Returns unit quaternions (..., 4) that turn by `yaw` (...) rad about z."""
    half = 0.5 * yaw
    zero = torch.zeros_like(half)
    return torch.stack([half.cos(), zero, zero, half.sin()], dim=-1)
