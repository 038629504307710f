"""Columns that a term chooses from what an entity shows."""

from __future__ import annotations

import torch

from unilab_core.entity_cfg import Index

__all__ = ["chosen"]


def chosen(values: torch.Tensor, columns: Index) -> torch.Tensor:
    """Returns some columns of (N, C, ...), in the order given; `values` itself, and no view of it, where all are meant.

    Args:
        values: What an entity shows.
        columns: As `Entity.joint_ids` returns them.
    """
    if isinstance(columns, slice) and (columns.start, columns.stop) == (0, values.shape[1]):
        return values
    return values[:, columns]
