"""A small scene of this package's own, by which a backend can be tried on any machine."""

from __future__ import annotations

from typing import Any

from unisim.scene import ContactSensorCfg, EntityCfg, SceneCfg, SimCfg

__all__ = ["SAMPLE_SIM", "hopper", "sample_scene"]

_HOPPER = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1" rgba=".3 .4 .5 1"/>
    <body name="trunk" pos="0 0 .4">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size=".12 .09 .06" mass="4" rgba=".9 .6 .2 1"/>
      <body name="leg">
        <joint name="hip" axis="0 1 0" range="-1 1" damping=".3" armature=".02"/>
        <geom name="leg" type="capsule" fromto="0 0 0 0 0 -.22" size=".025" mass=".5"/>
        <geom name="foot" type="sphere" pos="0 0 -.22" size=".04" mass=".1"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="hip" joint="hip" kp="30" kv="1" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""

SAMPLE_SIM = SimCfg(timestep=0.005, num_threads=1)
"""Settings that go with `sample_scene`."""


def hopper() -> Any:  # noqa: ANN401 - mujoco ships no types
    """Returns a new `mujoco.MjSpec`: a trunk that floats above a floor on one driven leg."""
    import mujoco

    return mujoco.MjSpec.from_string(_HOPPER)


def sample_scene() -> SceneCfg:
    """Returns a scene with a free body, a limited hinge, an actuator and contacts: one of each that robots have."""
    return SceneCfg(
        entities={"hopper": EntityCfg(spec=hopper)},
        sensors=(ContactSensorCfg(name="feet", of="geom", target="hopper/foot", data=("found", "force")),),
    )
