"""A transition as one row of float32: what collectors hand over and what the replay takes apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from unilab_core import ConfigError, nearest

if TYPE_CHECKING:
    from unilab_core import TorchEnvState

__all__ = ["TransitionLayout", "true_next_observations"]


def true_next_observations(state: TorchEnvState) -> dict[str, torch.Tensor]:
    """Returns the observations that the last step led to, by group, (N, width): final ones where an episode ended.

    They belong into the replay only. The next action is chosen from `state.obs`, which after an automatic reset shows
    the new episode. The tensors are the environment's own, and its next step rewrites them.

    Args:
        state: What `EnvProtocol.step` returned.
    """
    return dict(state.obs if state.final_observation is None else state.final_observation)


class TransitionLayout:
    """The columns of a packed transition: observations, action, reward, next observations and three flags.

    Attributes:
        groups: The width of each observation group, in the order of its columns.
        num_actions: A.
        obs_width: O, the columns of all observation groups together.
        stored_width: O + A + 1, the leading columns that stay in the replay: observations, action, reward.
        packed_width: 2 O + A + 4, all columns; the last three are 1 or 0 for terminated, truncated and refused.
    """

    def __init__(self, groups: Mapping[str, int], num_actions: int) -> None:
        """Fixes the columns.

        Raises:
            ConfigError: There is no group, or a width is not positive.
        """
        if not groups:
            raise ConfigError("TransitionLayout: there is no observation group, expected at least one")
        for name, width in (*groups.items(), ("actions", num_actions)):
            if width < 1:
                raise ConfigError(f"TransitionLayout: {name!r} has {width} columns, expected at least 1")
        self.groups = dict(groups)
        self.num_actions = num_actions
        self.obs_width = sum(groups.values())
        self.stored_width = self.obs_width + num_actions + 1
        self.packed_width = self.stored_width + self.obs_width + 3

    def pack(
        self,
        obs: Mapping[str, torch.Tensor],
        actions: torch.Tensor,
        rewards: torch.Tensor,
        next_obs: Mapping[str, torch.Tensor],
        terminated: torch.Tensor,
        truncated: torch.Tensor,
        *,
        refused: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Copies one step of N environments into packed rows.

        Args:
            obs: The observations that were acted on, by group, (N, width) float32.
            actions: (N, A) float32, as the environment was given them.
            rewards: (N,) float32.
            next_obs: What the step led to, by group, as `true_next_observations` gives it.
            terminated: (N,) bool: the episode truly ended.
            truncated: (N,) bool: the episode was cut. Both may be true; `terminated` then decides.
            refused: (N,) bool: rows that nothing is to be learned from, `info["nonfinite_rows"]`; `None`: none.

        Returns:
            (N, packed_width) float32, fresh.

        Raises:
            KeyError: An observation group is missing or unknown; names the nearest.
            TypeError: A dtype is wrong.
            ValueError: A shape or a device is wrong.
        """
        rows, device = actions.shape[0] if actions.ndim else 0, actions.device
        columns = [
            *self._check_groups("obs", obs, rows, device),
            _checked("actions", actions, (rows, self.num_actions), torch.float32, device),
            _checked("rewards", rewards, (rows,), torch.float32, device).unsqueeze(1),
            *self._check_groups("next_obs", next_obs, rows, device),
        ]
        flags = [("terminated", terminated), ("truncated", truncated)]
        flags.append(("refused", torch.zeros_like(terminated) if refused is None else refused))
        checked = [_checked(name, flag, (rows,), torch.bool, device) for name, flag in flags]
        return torch.cat((*columns, torch.stack(checked, dim=1).to(torch.float32)), dim=1)

    def split_obs(self, packed: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns views of the groups in leading observation columns, (B, width) each of `packed` (B, O or more)."""
        widths = list(self.groups.values())
        return dict(
            zip(self.groups, packed[:, : self.obs_width].split_with_sizes(widths, dim=1), strict=True)
        )

    def _check_groups(
        self, argument: str, groups: Mapping[str, torch.Tensor], rows: int, device: torch.device
    ) -> list[torch.Tensor]:
        for name in groups:
            if name not in self.groups:
                raise KeyError(
                    f"TransitionLayout: {argument} has the unknown group {name!r}; {nearest(name, self.groups)}"
                )
        for name in self.groups:
            if name not in groups:
                raise KeyError(f"TransitionLayout: {argument} lacks the group {name!r}, got {sorted(groups)}")
        return [
            _checked(f"{argument}[{name!r}]", groups[name], (rows, width), torch.float32, device)
            for name, width in self.groups.items()
        ]


def _checked(
    name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    if tensor.dtype != dtype:
        raise TypeError(f"TransitionLayout: {name} has dtype {tensor.dtype}, expected {dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"TransitionLayout: {name} has shape {tuple(tensor.shape)}, expected {shape}")
    if tensor.device != device:
        raise ValueError(f"TransitionLayout: {name} is on {tensor.device}, expected {device} as the actions")
    return tensor
