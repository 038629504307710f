"""Numbers that a config gives by joint name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg, match_names

if TYPE_CHECKING:
    from unilab_managers.cfg.term import TermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["OfVelocityLimits"]


class OfVelocityLimits:
    """A term that looks at how fast joints may be: at its `max_velocity` of `asset_cfg`."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Gives each joint its limit.

        Raises:
            ValueError: A name matches no joint, two match the same, or a limit is not positive.
        """
        params = cfg.all_params()
        self._limits = _values_by_joint(
            env, params["max_velocity"], params["asset_cfg"], owner="max_velocity", rest=math.inf
        )


def _values_by_joint(
    env: ManagerBasedRlEnv,
    given: Mapping[str, float],
    asset_cfg: SceneEntityCfg,
    *,
    owner: str,
    rest: float,
) -> torch.Tensor:
    """Returns a positive number for each joint of an entity, (J,) float32.

    Args:
        env: The environment.
        given: By joint name or full-match regular expression.
        asset_cfg: The entity.
        owner: Whose they are, for the error message.
        rest: What joints have that nothing matches.

    Raises:
        ValueError: A name matches no joint, two match the same, or a number is not positive.
    """
    names = env.scene[asset_cfg.name].joint_names
    match_names(tuple(given), names, preserve_order=False, owner=owner)  # no joint twice
    found = [rest] * len(names)
    for pattern, value in given.items():
        if not value > 0.0:
            raise ValueError(f"{owner}[{pattern!r}] is {value}, expected a number > 0")
        for i in match_names((pattern,), names, preserve_order=False, owner=owner):
            found[i] = value
    return torch.tensor(found, dtype=torch.float32, device=env.device)
