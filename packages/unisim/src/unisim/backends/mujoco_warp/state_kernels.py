"""Kernels that write the engine's state: controls, resets, row writes, and which rows are bad.

Every kernel has one thread per row. Rows that a mask does not name are left as they are.
"""

import warp as wp

__all__ = ["hold_pose", "keep_unselected", "note_bad_rows", "take_control", "write_state"]

BAD_VALUE = wp.constant(1.0e10)
"""MuJoCo's mjMAXVAL: a larger position, velocity or acceleration makes its row bad."""


@wp.kernel(enable_backward=False)
def take_control(
    control: wp.array2d[float],
    limited: wp.array[bool],
    pushed: wp.array[int],
    ctrl: wp.array2d[float],
    xfrc_applied: wp.array2d[wp.spatial_vector],
    bad: wp.array[bool],
):
    """Splits a control (N, C) into controls and wrenches; a row that is bad becomes 0.

    Bad is what is not finite, and of an actuator without limits what is too large: the others are clamped.
    """
    row = wp.tid()
    nu = ctrl.shape[1]
    good = bool(True)
    for i in range(control.shape[1]):
        if not wp.isfinite(control[row, i]):
            good = False
        if i < nu:
            if not limited[i] and wp.abs(control[row, i]) > BAD_VALUE:
                good = False
    if not good:
        bad[row] = True
    for i in range(nu):
        if good:
            ctrl[row, i] = control[row, i]
        else:
            ctrl[row, i] = 0.0
    for j in range(pushed.shape[0]):
        wrench = wp.spatial_vector(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        if good:
            for k in range(6):
                wrench[k] = control[row, nu + 6 * j + k]
        xfrc_applied[row, pushed[j]] = wrench


@wp.func
def _is_bad(values: wp.array2d[float], row: int):
    for i in range(values.shape[1]):
        if not (wp.abs(values[row, i]) <= BAD_VALUE):  # so that NaN is bad
            return True
    return False


@wp.kernel(enable_backward=False)
def note_bad_rows(
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    qacc: wp.array2d[float],
    bad: wp.array[bool],
):
    """Marks rows whose position, velocity or acceleration is NaN, infinite or too large."""
    row = wp.tid()
    if _is_bad(qpos, row) or _is_bad(qvel, row) or _is_bad(qacc, row):
        bad[row] = True


@wp.func
def _copy_row(source: wp.array2d[float], row: int, target: wp.array2d[float]):
    for i in range(target.shape[1]):
        target[row, i] = source[row, i]


@wp.kernel(enable_backward=False)
def write_state(
    mask: wp.array[bool],
    given: wp.array[bool],
    restarts: bool,
    staged_qpos: wp.array2d[float],
    staged_qvel: wp.array2d[float],
    staged_ctrl: wp.array2d[float],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    ctrl: wp.array2d[float],
    bad: wp.array[bool],
):
    """Takes over those of positions, velocities and controls that were staged (`given[0..2]`).

    A row that restarts takes over all of them, and begins its episode without blame.
    """
    row = wp.tid()
    if not mask[row]:
        return
    if restarts or given[0]:
        _copy_row(staged_qpos, row, qpos)
    if restarts or given[1]:
        _copy_row(staged_qvel, row, qvel)
    if restarts or given[2]:
        _copy_row(staged_ctrl, row, ctrl)
    if restarts:
        bad[row] = False


@wp.kernel(enable_backward=False)
def hold_pose(
    mask: wp.array[bool],
    holds: wp.array[bool],
    actuators: wp.array[int],
    held_range: wp.array[wp.vec2],
    length: wp.array2d[float],
    ctrl: wp.array2d[float],
):
    """Sets the controls of position-biased actuators to their length, where no control was given (`holds[0]`)."""
    row = wp.tid()
    if not mask[row] or not holds[0]:
        return
    for j in range(actuators.shape[0]):
        i = actuators[j]
        ctrl[row, i] = wp.clamp(length[row, i], held_range[j][0], held_range[j][1])


@wp.kernel(enable_backward=False)
def keep_unselected(mask: wp.array[bool], saved: wp.array2d[float], values: wp.array2d[float]):
    """Puts back the saved values of rows that the mask does not name."""
    row = wp.tid()
    if not mask[row]:
        _copy_row(saved, row, values)
