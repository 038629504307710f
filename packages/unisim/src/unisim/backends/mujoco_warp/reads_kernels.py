"""Kernels that publish what is read: copies of the engine's arrays that change only where a mask allows it.

Every kernel has one thread per row, or per row and element.
"""

import warp as wp

__all__ = ["clear_rows", "publish_columns", "publish_frames", "record_substep"]


@wp.kernel(enable_backward=False)
def publish_columns(
    mask: wp.array[bool],
    columns: wp.array[int],
    source: wp.array2d[float],
    target: wp.array2d[float],
):
    """Copies some columns of an array."""
    row, j = wp.tid()
    if mask[row]:
        target[row, columns[j]] = source[row, columns[j]]


@wp.func
def _product(a: wp.quat, b: wp.quat):
    # The engine keeps w first, whatever Warp's own functions take a quaternion for.
    return wp.quat(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@wp.func
def _turned(quat: wp.quat, frame_quat: wp.array2d[wp.quat], row: int, i: int):
    if frame_quat.shape[1] == 0:
        return quat
    return wp.normalize(_product(quat, frame_quat[row % frame_quat.shape[0], i]))


@wp.kernel(enable_backward=False)
def publish_frames(
    mask: wp.array[bool],
    frame_bodyid: wp.array[int],
    frame_quat: wp.array2d[wp.quat],
    body_rootid: wp.array[int],
    frame_xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    cvel: wp.array2d[wp.spatial_vector],
    subtree_com: wp.array2d[wp.vec3],
    out: wp.array3d[float],
):
    """Writes pose and velocity of every frame, (N, frames, 13) with the columns of `packets.BODY_FIELDS`.

    Frames are fixed to bodies: turned against them by `frame_quat`, or bodies themselves where that has no columns.
    """
    row, i = wp.tid()
    if not mask[row]:
        return
    body = frame_bodyid[i]
    pos, quat = frame_xpos[row, i], _turned(xquat[row, body], frame_quat, row, i)
    # The engine's velocity is angular first and belongs to the tree's centre of mass: moved to the frame, v + w x r.
    spatial, centre = cvel[row, body], subtree_com[row, body_rootid[body]]
    angular = wp.vec3(spatial[0], spatial[1], spatial[2])
    linear = wp.vec3(spatial[3], spatial[4], spatial[5]) + wp.cross(angular, pos - centre)
    for k in range(3):
        out[row, i, k] = pos[k]
        out[row, i, 7 + k] = linear[k]
        out[row, i, 10 + k] = angular[k]
    for k in range(4):
        out[row, i, 3 + k] = quat[k]


@wp.kernel(enable_backward=False)
def record_substep(start: int, dim: int, sensordata: wp.array2d[float], history: wp.array2d[float]):
    """Appends a sensor's values to a history (N, T * dim), oldest first; the oldest are dropped."""
    row = wp.tid()
    kept = history.shape[1] - dim
    for i in range(kept):
        history[row, i] = history[row, i + dim]
    for i in range(dim):
        history[row, kept + i] = sensordata[row, start + i]


@wp.kernel(enable_backward=False)
def clear_rows(mask: wp.array[bool], values: wp.array2d[float]):
    """Sets rows to 0."""
    row = wp.tid()
    if mask[row]:
        for i in range(values.shape[1]):
            values[row, i] = 0.0
