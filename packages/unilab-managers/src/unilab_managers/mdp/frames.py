"""Bodies or sites of an entity as terms name them, in the world and in another frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg, match_names
from unilab_core.reads import BodyHandle

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["frame_names", "frames", "matrix_columns"]


def frames(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> BodyHandle:
    """Returns a handle on K frames: the sites of `asset_cfg.site_names`, else the bodies of `asset_cfg.body_names`.

    Raises:
        ValueError: It names neither or both, or a name matches nothing; the message lists the nearest.
    """
    data = env.scene[asset_cfg.name].data
    return data.sites(asset_cfg) if _are_sites(asset_cfg) else data.bodies(asset_cfg)


def frame_names(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg) -> tuple[str, ...]:
    """Returns the names of the frames that `frames` returns, in their order.

    Raises:
        ValueError: As `frames`.
    """
    entity = env.scene[asset_cfg.name]
    sites = _are_sites(asset_cfg)
    names = entity.site_names if sites else entity.body_names
    wanted = asset_cfg.site_names if sites else asset_cfg.body_names
    ids = match_names(wanted, names, preserve_order=asset_cfg.preserve_order, owner=asset_cfg.name)
    return tuple(names[i] for i in ids)


def _are_sites(cfg: SceneEntityCfg) -> bool:
    if (cfg.site_names is None) == (cfg.body_names is None):
        raise ValueError(
            f"asset_cfg of {cfg.name!r} has site_names={cfg.site_names} and body_names={cfg.body_names}; "
            "expected one of the two"
        )
    return cfg.site_names is not None


def matrix_columns(quat: torch.Tensor) -> torch.Tensor:
    """Returns the first two columns of the rotation matrices of unit quaternions wxyz, (..., 4) to (..., 6)."""
    w, x, y, z = quat.unbind(dim=-1)
    return torch.stack(
        [
            1.0 - 2.0 * (y * y + z * z),
            2.0 * (x * y + w * z),
            2.0 * (x * z - w * y),
            2.0 * (x * y - w * z),
            1.0 - 2.0 * (x * x + z * z),
            2.0 * (y * z + w * x),
        ],
        dim=-1,
    )
