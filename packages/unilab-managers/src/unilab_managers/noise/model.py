"""The seam between an observation term and its noise."""

from __future__ import annotations

import torch

from unilab_core.rng import EnvRng
from unisim.config import Cfg

__all__ = ["NoiseModel", "NoiseModelCfg"]


class NoiseModel:
    """The noise of one observation term in one environment: N rows, D columns. It may remember something per row.

    What it remembers are plain attributes, tensors with N first, as a class term's are: a rejected reset puts them
    back and a checkpoint keeps them.
    """

    def reset(self, reset_mask: torch.Tensor) -> None:
        """Begins the episodes of some rows; does nothing here.

        Args:
            reset_mask: (N,) bool, true where an episode begins; always of full width. To be read only.
        """

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        """Returns `values` with noise, of the same shape, to be read only; never changes `values`.

        Called once per step for all rows, and once per reset for the rows that were reset; the terms of the group are
        all computed before.

        Args:
            values: (N, D) float32; (K, D) if `env_ids` is given. They are rewritten after the call: keep a copy.
            env_ids: (K,) int64 ascending: whose values these are. None for all rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement apply()")


class NoiseModelCfg(Cfg):
    """Base of what a config says of noise. A subclass of your own may stand in a term's `noise`, by `_target_` too."""

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        """Returns the noise of a term of `dim` columns; draws nothing yet.

        Raises:
            ConfigError: A setting does not fit `dim` columns; names it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement make()")
