"""Observation terms of bodies and sites, K of them: where they are and move, seen from a root body.

The observer is the root body of the same entity, or of `frame_cfg.name`: a cube may be seen from a hand. Vectors come
frame after frame, in the order of `asset_cfg`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.rotation import quat_apply_inverse, quat_conjugate, quat_mul
from unilab_managers.mdp.frames import frames, matrix_columns
from unilab_managers.mdp.labels import columns, frame_columns

if TYPE_CHECKING:
    from unilab_core.entity_data import EntityData
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["body_ang_vel_b", "body_lin_vel_b", "body_pos_b", "body_quat_b", "body_rot6d_b"]

_VECTOR = frame_columns("x", "y", "z")


def _observer(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None
) -> EntityData:
    return env.scene[(frame_cfg or asset_cfg).name].data


@columns(unit="m", names=_VECTOR)
def body_pos_b(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None = None
) -> torch.Tensor:
    """Returns R^T (p - p_root), positions in the frame of the observing root, (N, 3 K) m.

    Args:
        env: The environment.
        asset_cfg: The entity, and its sites or bodies.
        frame_cfg: The entity whose root looks on; None: the same.
    """
    root = _observer(env, asset_cfg, frame_cfg)
    return _along(root, frames(env, asset_cfg).pos_w - root.root_pos_w[:, None])


def _relative_quat(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None
) -> torch.Tensor:
    """Returns orientations in the frame of the observing root, (N, K, 4) wxyz, either of the two signs."""
    quat = frames(env, asset_cfg).quat_w
    root = _observer(env, asset_cfg, frame_cfg).root_quat_w
    return quat_mul(_per_frame(quat_conjugate(root), quat), quat)


@columns(unit="", names=frame_columns("w", "x", "y", "z"))
def body_quat_b(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None = None
) -> torch.Tensor:
    """Returns orientations in the frame of the observing root, (N, 4 K) unit quaternions wxyz with w >= 0.

    Of the two quaternions of an orientation always the one with w >= 0, so that equal orientations look alike but near
    half a turn, where they jump; `body_rot6d_b` does not. Parameters as of `body_pos_b`.
    """
    quat = _relative_quat(env, asset_cfg, frame_cfg)
    return torch.where(quat[..., :1] < 0.0, -quat, quat).flatten(1)


@columns(unit="", names=frame_columns("xx", "xy", "xz", "yx", "yy", "yz"))
def body_rot6d_b(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None = None
) -> torch.Tensor:
    """Returns orientations in the frame of the observing root without a jump, (N, 6 K).

    The x axis and the y axis of each frame, the first two columns of its rotation matrix: the continuous representation
    of Zhou et al., "On the Continuity of Rotation Representations in Neural Networks", arXiv:1812.07035. Parameters as
    of `body_pos_b`.
    """
    return matrix_columns(_relative_quat(env, asset_cfg, frame_cfg)).flatten(1)


@columns(unit="m/s", names=_VECTOR)
def body_lin_vel_b(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None = None
) -> torch.Tensor:
    """Returns R^T v, velocities against the world along the axes of the observing root, (N, 3 K) m/s.

    Parameters as of `body_pos_b`.
    """
    return _along(_observer(env, asset_cfg, frame_cfg), frames(env, asset_cfg).lin_vel_w)


@columns(unit="rad/s", names=_VECTOR)
def body_ang_vel_b(
    env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, frame_cfg: SceneEntityCfg | None = None
) -> torch.Tensor:
    """Returns R^T w, angular velocities against the world along the axes of the observing root, (N, 3 K) rad/s.

    Parameters as of `body_pos_b`.
    """
    return _along(_observer(env, asset_cfg, frame_cfg), frames(env, asset_cfg).ang_vel_w)


def _along(root: EntityData, vectors: torch.Tensor) -> torch.Tensor:
    """Returns vectors in the world, (N, K, 3), along the axes of a root, (N, 3 K)."""
    return quat_apply_inverse(_per_frame(root.root_quat_w, vectors), vectors).flatten(1)


def _per_frame(quat: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """Repeats a quaternion per row, (N, 4), for each frame of (N, K, ...)."""
    return quat[:, None].expand(-1, of.shape[1], -1)
