"""Films a policy in one row of an environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from unilab_core import CameraCfg
    from unilab_rl.contracts.algorithm import Policy
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["film", "steps_per_frame"]

_MAX_RATE_HZ = 60.0  # no screen shows more


def steps_per_frame(step_dt: float) -> int:
    """Returns the least number of control steps, each `step_dt` s, with which a film has at most 60 frames a second."""
    steps = 1
    while steps * step_dt * _MAX_RATE_HZ < 1.0 - 1e-6:
        steps += 1
    return steps


def film(
    env: EnvProtocol, policy: Policy, *, row: int, camera: CameraCfg | None, steps: int, seed: int
) -> Iterator[torch.Tensor]:
    """Yields frames of one row, (height, width, 3) uint8: the first after the reset, then one in `steps_per_frame`.

    A row that ends begins its next episode in the next frame.

    Args:
        env: An environment that resets finished rows by itself; all rows are reset, from `seed`.
        policy: What acts in all rows.
        row: The row to be seen.
        camera: Where from; `None`: the default.
        steps: Control steps.
        seed: Seed of the environment's randomness.
    """
    obs, _ = env.reset(seed=seed)
    yield env.render(row, camera)
    every = steps_per_frame(env.step_dt)
    for number in range(1, steps + 1):
        obs = env.step(policy(obs)).obs
        if number % every == 0:
            yield env.render(row, camera)
