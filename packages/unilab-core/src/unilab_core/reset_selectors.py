"""Row selectors: the only place where public `env_ids` and internal masks are converted."""

from __future__ import annotations

import torch

__all__ = ["ResetMaskBuffer", "reset_env_ids_mask", "resolve_reset_env_ids", "resolve_reset_mask"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def resolve_reset_env_ids(
    selector: torch.Tensor | slice | None, *, num_envs: int, device: torch.device | str, owner: str
) -> torch.Tensor:
    """Returns the selected rows as (K,) int64 on `device`, in the order given; K may be zero.

    Args:
        selector: None for all rows, a slice of them, or a 1-D integer tensor of distinct row ids.
        num_envs: N.
        device: Where the ids are needed; a tensor elsewhere is moved once.
        owner: Who asks, for the error message ("CartpoleEnv.reset").

    Raises:
        TypeError: A bool mask, or anything that is not an integer tensor, a slice or None.
        ValueError: Not 1-D, out of range, negative, or an id twice.
    """
    if selector is None:
        return torch.arange(num_envs, device=device)
    if isinstance(selector, slice):
        return torch.arange(num_envs, device=device)[selector]
    if not isinstance(selector, torch.Tensor):
        raise TypeError(
            f"{owner}: env_ids is a {type(selector).__name__}; expected a 1-D integer tensor or None, "
            "for example torch.tensor([0, 2])"
        )
    if selector.dtype == torch.bool:
        raise TypeError(f"{owner}: env_ids is a bool mask; pass row ids: mask.nonzero().flatten()")
    if selector.dtype not in _INTEGERS:
        raise TypeError(f"{owner}: env_ids is {selector.dtype}; expected an integer tensor")
    if selector.ndim != 1:
        raise ValueError(f"{owner}: env_ids has shape {tuple(selector.shape)}; expected one dimension")
    ids = selector.to(device=device, dtype=torch.int64)
    if ids.numel():
        ordered = ids.sort().values
        repeated = ordered[1:] == ordered[:-1]
        # One read decides all three: lowest, highest, and how many neighbours are equal.
        low, high, repeats = torch.stack([*ids.aminmax(), repeated.sum()]).tolist()
        if low < 0 or high >= num_envs:
            wrong = low if low < 0 else high
            raise ValueError(f"{owner}: env_ids holds {wrong}; expected 0 <= id < num_envs = {num_envs}")
        if repeats:
            twice = int(ordered[1:][repeated][0])
            raise ValueError(f"{owner}: env_ids holds {twice} more than once; expected distinct ids")
    return ids


def reset_env_ids_mask(env_ids: torch.Tensor, *, num_envs: int, device: torch.device | str) -> torch.Tensor:
    """Returns (N,) bool, true at `env_ids` (resolved ids, (K,) int64)."""
    mask = torch.zeros(num_envs, dtype=torch.bool, device=device)
    return mask.index_fill_(0, env_ids, True)


def resolve_reset_mask(
    selector: torch.Tensor | slice | None, *, num_envs: int, device: torch.device | str, owner: str
) -> torch.Tensor:
    """Returns (N,) bool, true at the selected rows; takes and raises what `resolve_reset_env_ids` does."""
    ids = resolve_reset_env_ids(selector, num_envs=num_envs, device=device, owner=owner)
    return reset_env_ids_mask(ids, num_envs=num_envs, device=device)


class ResetMaskBuffer:
    """One reusable (N,) bool mask for code that converts ids in every reset."""

    def __init__(self, num_envs: int, device: torch.device | str) -> None:
        """Allocates the mask, all false."""
        self._mask = torch.zeros(num_envs, dtype=torch.bool, device=device)

    def from_ids(self, env_ids: torch.Tensor) -> torch.Tensor:
        """Returns the buffer, true exactly at `env_ids` (K,) int64; the next call rewrites it."""
        return self._mask.zero_().index_fill_(0, env_ids, True)
