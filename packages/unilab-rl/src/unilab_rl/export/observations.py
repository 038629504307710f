"""What observations look like while a policy acts: what exports are tried on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unilab_core import NonFiniteError
from unilab_rl.contracts.algorithm import Policy
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.export.program import OBS

__all__ = ["Spread", "observed_spread"]

_STEPS = 50


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of each column of the observation.

    Attributes:
        mean: (O,) float32, on the CPU.
        std: (O,) float32, on the CPU, positive: 1 for a column that never changed.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def draw(self, num_rows: int, deviations: float, generator: torch.Generator) -> torch.Tensor:
        """Returns observations, (num_rows, O) float32, evenly up to so many standard deviations from the mean."""
        drawn = torch.rand(num_rows, self.mean.shape[0], generator=generator)
        return self.mean + self.std * (2.0 * drawn - 1.0) * deviations


def observed_spread(env: EnvProtocol, policy: Policy, *, seed: int) -> Spread:
    """Returns how observations spread over all rows and 50 steps of a policy; resets the environment.

    Args:
        env: The environment.
        policy: What acts.
        seed: Of the episodes.

    Raises:
        NonFiniteError: An observation is not finite.
    """
    with torch.no_grad():
        seen = [env.reset(seed=seed)[0][OBS].clone()]
        for _ in range(_STEPS):
            state = env.step(policy(env.observations()).contiguous())
            seen.append(state.obs[OBS].clone())
    stacked = torch.cat(seen).double().cpu()
    mean, std = stacked.mean(dim=0), stacked.std(dim=0)
    if not bool(std.isfinite().all()):
        columns = std.isfinite().logical_not().nonzero().flatten().tolist()
        raise NonFiniteError(f"the policy's observations are not finite in the columns {columns} of 'obs'")
    return Spread(mean.float(), torch.where(std > 0.0, std, 1.0).float())
