"""Sums up the logs of many steps on the device, to be read by the host once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

__all__ = ["RolloutTally", "TallyTotals"]


@dataclass(frozen=True)
class TallyTotals:
    """The sums of a tally as plain numbers, which can be added and sent to another process."""

    logs: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By key the sum over steps, and how many steps have the key."""
    episodes: dict[str, float] = field(default_factory=dict)
    """`<key>/sum` and `<key>/count` of the episodes that ended."""

    def __add__(self, other: TallyTotals) -> TallyTotals:
        """Returns the totals of the steps of both."""
        logs = dict(self.logs)
        for key, (total, steps) in other.logs.items():
            held, held_steps = logs.get(key, (0.0, 0))
            logs[key] = (held + total, held_steps + steps)
        episodes = dict(self.episodes)
        for key, value in other.episodes.items():
            episodes[key] = episodes.get(key, 0.0) + value
        return TallyTotals(logs, episodes)

    def means(self) -> dict[str, float]:
        """Returns the means by key; `return` and `length` as `Episode/return` and `Episode/length`.

        `Episode/count` is the number of episodes that ended. A key whose count is zero is left out: there is no mean.
        """
        means = {key: total / steps for key, (total, steps) in self.logs.items()}
        means["Episode/count"] = self.episodes.get("return/count", 0.0)
        for key, value in self.episodes.items():
            name = key.removesuffix("/sum")
            if name != key and self.episodes[f"{name}/count"] > 0:
                means[name if "/" in name else f"Episode/{name}"] = value / self.episodes[f"{name}/count"]
        return means


class RolloutTally:
    """Means of step logs and of finished episodes over one rollout.

    Adding never waits for the device; `totals` and `read` wait once.
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

    def totals(self) -> TallyTotals:
        """Returns the sums so far."""
        values = [*self._logs.values(), *self._episodes.values()]
        if not values:
            return TallyTotals()
        numbers = iter(torch.stack(values).tolist())
        logs = {key: (next(numbers), self._log_steps[key]) for key in self._logs}
        return TallyTotals(logs, {key: next(numbers) for key in self._episodes})

    def read(self) -> dict[str, float]:
        """Returns the means by key, as `TallyTotals.means`."""
        return self.totals().means()


def _accumulate(totals: dict[str, torch.Tensor], key: str, value: torch.Tensor) -> None:
    # float64, because a float32 sum of a long rollout loses the last digits of a count.
    value = value.detach().to(torch.float64)
    held = totals.get(key)
    totals[key] = value.clone() if held is None else held + value
