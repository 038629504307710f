"""The control that holds a reset's pose is the engine's own actuator length, to the bit, however it is worked out."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from unisim_support import from_xml, reset_rows

JOINTS = """<mujoco><worldbody><body name="cart"><joint name="slide" type="slide" axis="1 0 0"/><geom size=".1"/>
  <body name="rod" pos="0 0 .3"><joint name="hinge" axis="0 1 0" ref="0.2"/><geom size=".1"/>
  <body name="ball" pos="0 0 .3"><joint name="ball" type="ball"/><geom size=".1"/></body></body></body>
  </worldbody>{tendon}<actuator>{actuators}</actuator></mujoco>"""
TENDON = """<tendon><fixed name="both"><joint joint="slide" coef=".7"/><joint joint="hinge" coef="-1.3"/></fixed>
  </tendon>"""
OF_HINGE = '<position name="h" joint="hinge" kp="5" gear="2.3"/><motor name="m" joint="slide"/>'
OF_SLIDE = '<position name="s" jointinparent="slide" kp="3" gear="-.37" ctrlrange="-.1 .1"/>'
OF_BALL = '<position name="b" joint="ball" kp="3" gear=".3 .5 .7"/>'
OF_TENDON = '<position name="t" tendon="both" kp="3" gear="1.7"/>'


def poses() -> torch.Tensor:
    """Two poses whose float32 numbers are no short fractions."""
    generator = torch.Generator().manual_seed(7)
    qpos = torch.rand(2, 6, generator=generator) - 0.5
    qpos[:, 2:] = torch.nn.functional.normalize(qpos[:, 2:], dim=1)
    return qpos


@pytest.mark.parametrize(
    "actuators",
    [OF_HINGE, OF_SLIDE + OF_HINGE, OF_HINGE + OF_BALL, OF_TENDON + OF_SLIDE],
    ids=["a hinge", "slide and hinge", "a ball beside a hinge", "a tendon beside a slide"],
)
def test_it_is_the_length_that_the_engine_works_out(simulate, actuators):
    xml = JOINTS.format(tendon=TENDON, actuators=actuators)
    backend = simulate(from_xml, 3, params={"xml": xml})
    qpos = poses()
    reset_rows(backend, [0, 2], qpos=qpos.tolist())
    held = backend.snapshot()["state"]
    model = mujoco.MjModel.from_xml_string(xml)
    biased = model.actuator_biasprm[:, 1] != 0
    limits = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-np.inf, np.inf])
    for row, pose in zip((0, 2), qpos, strict=True):
        data = mujoco.MjData(model)
        data.qpos[:] = pose.numpy()
        mujoco.mj_forward(model, data)
        expected = np.where(biased, np.clip(data.actuator_length, *limits.T), 0.0)
        given = backend._state["ctrl"][row]
        assert given.tolist() == expected.tolist()
        assert np.abs(expected[biased]).min() > 1e-3  # else nothing would be told apart
    assert torch.isfinite(held).all()
