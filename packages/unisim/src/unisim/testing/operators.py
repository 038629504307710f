"""What an operator of torch does to tensors, for tests that watch operators with a dispatch mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

__all__ = ["written_tensors"]


def written_tensors(
    func: Any,  # noqa: ANN401 - torch declares no type of its operators
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[torch.Tensor]:
    """Returns the tensors that an operator writes, by its schema: in place or through `out=`, alone or in lists.

    Args:
        func: As `__torch_dispatch__` of a `TorchDispatchMode` gets it.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    arguments = func._schema.arguments
    values = dict(zip((argument.name for argument in arguments), args, strict=False)) | dict(kwargs)
    return [
        leaf
        for argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for leaf in tree_leaves(values.get(argument.name))
        if isinstance(leaf, torch.Tensor)
    ]
