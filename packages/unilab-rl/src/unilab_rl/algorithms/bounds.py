"""The map between a policy's actions in [-1, 1] and those of the environment."""

from __future__ import annotations

import torch

from unilab_core import ConfigError

__all__ = ["ActionBounds"]


class ActionBounds(torch.nn.Module):
    """Maps squashed actions in [-1, 1] to the environment's bounds and back: `action = centre + half_width * squashed`.

    Its buffers belong to the environment, not to what was learned, so no state holds them.
    """

    low: torch.Tensor
    """(A,) float32: the lowest action, finite."""

    high: torch.Tensor
    """(A,) float32: the highest action, finite."""

    centre: torch.Tensor
    """(A,) float32: the middle of the bounds."""

    half_width: torch.Tensor
    """(A,) float32: half their distance, positive."""

    log_volume: torch.Tensor
    """0-d: the sum of log(half_width), what the density of a squashed action loses to that of the action, in nats."""

    def __init__(self, low: torch.Tensor, high: torch.Tensor, *, action_limit: float | None = None) -> None:
        """Takes the bounds (A,) of `EnvProtocol.action_bounds` and what replaces the infinite ones.

        Args:
            low: Lowest action; -inf where there is no bound.
            high: Highest action; inf where there is no bound.
            action_limit: `OffPolicyCfg.action_limit`.

        Raises:
            ConfigError: A bound is infinite and there is no limit; or the bounds are no range.
        """
        super().__init__()
        if low.dim() != 1 or low.shape != high.shape or low.numel() == 0:
            raise ConfigError(
                f"ActionBounds: bounds of shapes {tuple(low.shape)} and {tuple(high.shape)}, expected (A,) twice, A > 0"
            )
        low, high = _finite(low, high, action_limit)
        usable = (low < high) & torch.isfinite(high - low)
        if not bool(usable.all()):
            column = int(usable.logical_not().nonzero()[0])
            raise ConfigError(
                f"ActionBounds: action {column} is bounded by [{float(low[column]):g}, {float(high[column]):g}], "
                "expected finite bounds, the lower one first; the environment's action_bounds own them"
            )
        half_width = (high - low) / 2
        buffers = {"low": low, "high": high, "centre": low + half_width, "half_width": half_width}
        buffers["log_volume"] = half_width.log().sum()
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor.clone(), persistent=False)

    @property
    def num_actions(self) -> int:
        """The width of an action row, A."""
        return self.centre.shape[0]

    def forward(self, squashed: torch.Tensor) -> torch.Tensor:
        """Returns the actions (N, A) of squashed ones (N, A), never outside of the bounds by rounding."""
        return torch.clamp(torch.addcmul(self.centre, self.half_width, squashed), self.low, self.high)

    def squash(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the squashed actions (N, A) of actions (N, A): the inverse of `forward`."""
        return (actions - self.centre) / self.half_width

    def uniform(self, num_rows: int, generator: torch.Generator) -> torch.Tensor:
        """Returns actions (num_rows, A) drawn uniformly within the bounds."""
        shape = (num_rows, self.num_actions)
        unit = torch.rand(shape, generator=generator, device=self.centre.device, dtype=self.centre.dtype)
        return self.forward(2 * unit - 1)


def _finite(
    low: torch.Tensor, high: torch.Tensor, action_limit: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Replaces infinite bounds; raises ConfigError where there is nothing to replace them by."""
    open_low, open_high = torch.isneginf(low), torch.isposinf(high)
    unbounded = open_low | open_high
    if action_limit is None:
        if bool(unbounded.any()):
            columns = unbounded.nonzero().flatten().tolist()
            raise ConfigError(
                f"ActionBounds: actions {columns} of {low.numel()} have an infinite bound, expected finite ones, since "
                "the policy's actions fill the range between them; set learner.action_limit to half the width of a "
                "useful range, in units of the action, or give the environment's actions bounds"
            )
        return low, high
    both = open_low & open_high
    bottom = torch.where(both, -action_limit, torch.where(open_low, high - 2 * action_limit, low))
    top = torch.where(both, action_limit, torch.where(open_high, low + 2 * action_limit, high))
    return bottom, top
