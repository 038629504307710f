"""Sums up a rollout's logs on the device, to be read by the host once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["RolloutTally"]


class RolloutTally:
    """Means of step logs and of finished episodes over one rollout.

    Adding never waits for the device; `read` waits once.
    """

    def __init__(self) -> None:
        self._logs: dict[str, torch.Tensor] = {}
        self._log_steps: dict[str, int] = {}
        self._episodes: dict[str, torch.Tensor] = {}

    def add(self, log: Mapping[str, torch.Tensor], episode_totals: Mapping[str, torch.Tensor]) -> None:
        """Adds one step.

        Args:
            log: 0-d tensors by key, averaged over the steps that have the key.
            episode_totals: 0-d tensors `<key>/sum` and `<key>/count` of the episodes that ended in the step.
        """
        for key, value in log.items():
            self._log_steps[key] = self._log_steps.get(key, 0) + 1
            _accumulate(self._logs, key, value)
        for key, value in episode_totals.items():
            _accumulate(self._episodes, key, value)

    def read(self) -> dict[str, float]:
        """Returns the means by key; `return` and `length` as `Episode/return` and `Episode/length`.

        `Episode/count` is the number of episodes that ended. A key whose count is zero is left out: there is no mean.
        """
        values = [*self._logs.values(), *self._episodes.values()]
        if not values:
            return {"Episode/count": 0.0}
        numbers = iter(torch.stack(values).tolist())
        means = {key: next(numbers) / self._log_steps[key] for key in self._logs}
        totals = {key: next(numbers) for key in self._episodes}
        means["Episode/count"] = totals.get("return/count", 0.0)
        for key in totals:
            name = key.removesuffix("/sum")
            if name != key and totals[f"{name}/count"] > 0:
                means[name if "/" in name else f"Episode/{name}"] = totals[key] / totals[f"{name}/count"]
        return means


def _accumulate(totals: dict[str, torch.Tensor], key: str, value: torch.Tensor) -> None:
    # float64, because a float32 sum of a long rollout loses the last digits of a count.
    value = value.detach().to(torch.float64)
    held = totals.get(key)
    totals[key] = value.clone() if held is None else held + value
