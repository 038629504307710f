"""The same episodes on two backends: whether they are pairs, and how their returns compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from unilab_core import ConfigError, TorchEnv
from unilab_rl.runtime.evaluate import Episodes, Evaluation, half_width_ci95

__all__ = ["PairedEvaluation", "Starts", "pair"]

_SAME_STATE = 1e-5
"""How far apart positions and velocities of a pair may begin: a reset stages float32, which an engine may round."""


@dataclass(frozen=True)
class PairedEvaluation:
    """A policy on the backend it was trained on, the reference, and on another one: episode i of both begins alike."""

    reference: Evaluation
    other: Evaluation
    return_ratio: float | None
    """Mean return on the other backend over that on the reference; `None` where that is 0."""
    return_ratio_ci95: float | None
    """Half the width of its 95 % confidence interval, from the pairs; `None` without a ratio or for one pair."""
    return_difference: float
    """Mean over pairs of the return on the other backend minus that on the reference."""
    return_difference_ci95: float | None
    """Half the width of its 95 % confidence interval; `None` for one pair."""
    first_observation_difference: float
    """Largest difference of a first observation of a pair, command included; sensors may differ between engines."""


@dataclass(eq=False)
class Starts:
    """How episodes began, in their order, in host memory."""

    states: list[torch.Tensor] = field(default_factory=list)
    """For each time limit (N, Q + V) float32 positions and velocities."""
    observations: list[torch.Tensor] = field(default_factory=list)
    """For each time limit (N, O) float32 observations of the policy."""

    def note(self, env: TorchEnv, obs: Mapping[str, torch.Tensor]) -> None:
        """Notes the present state of all rows, which just began, and their observations."""
        parts = [env.state_column(name) for name in ("qpos", "qvel")]
        self.states.append(torch.cat(parts, dim=1).cpu())
        self.observations.append(obs["obs"].to("cpu", copy=True))


def pair(
    names: tuple[str, str], episodes: tuple[Episodes, Episodes], starts: tuple[Starts, Starts]
) -> PairedEvaluation:
    """Compares what was run on two backends, the reference first.

    Raises:
        ConfigError: Episodes that should be a pair don't begin in the same state.
    """
    first, second = (torch.stack(noted.states) for noted in starts)
    apart = (second - first).abs().amax(dim=2)
    if bool((apart > _SAME_STATE).any()):
        limit, row = divmod(int(apart.argmax()), apart.shape[1])
        raise ConfigError(
            f"no pairs: row {row} begins its time limit {limit} in another state on {names[1]} than on {names[0]} "
            f"(a position or velocity differs by {float(apart.max()):.3g}); a reset of this task depends on how "
            "episodes before went, or on what the backend computes"
        )
    seen = [torch.stack(noted.observations) for noted in starts]
    reference, other = (one.returns for one in episodes)
    difference = other - reference
    mean = float(reference.mean())
    ratio = float(other.mean()) / mean if mean else None
    # Of a ratio of means, by the delta method: the pairs' deviations from it, over the mean it is divided by.
    spread = None if ratio is None else half_width_ci95(other - ratio * reference)
    return PairedEvaluation(
        reference=episodes[0].summary(),
        other=episodes[1].summary(),
        return_ratio=ratio,
        return_ratio_ci95=None if spread is None else spread / abs(mean),
        return_difference=float(difference.mean()),
        return_difference_ci95=half_width_ci95(difference),
        first_observation_difference=float((seen[1] - seen[0]).abs().max()),
    )
