"""Where each quantity of a contact sensor lies in its columns."""

from __future__ import annotations

import pickle
from typing import get_args

import mujoco
import pytest

from unisim import ContactLayout, ContactSensorCfg, EntityCfg, SceneCfg, SimCfg, make_backend
from unisim.model_layout import CONTACT_WIDTHS, layout_digest
from unisim.scene import ContactData
from unisim.testing import make_layout

ORDER = ("found", "force", "torque", "dist", "pos", "normal", "tangent")


def test_its_quantities_are_those_of_the_config_in_the_same_order():
    assert tuple(CONTACT_WIDTHS) == get_args(ContactData) == ORDER


def test_quantities_lie_in_their_own_order_whatever_the_order_given():
    layout = ContactLayout(("pos", "found", "force"), num=3, reduce="mindist")
    assert layout.data == ("found", "force", "pos")
    assert layout.columns == {"found": slice(0, 1), "force": slice(1, 4), "pos": slice(4, 7)}
    assert (layout.width, layout.num, layout.reduce) == (7, 3, "mindist")


def test_all_quantities_make_a_slot_of_17_columns():
    layout = ContactLayout(ORDER)
    assert (layout.width, layout.num, layout.reduce) == (17, 1, "netforce")
    stops = [layout.columns[name].stop for name in ORDER]
    assert stops == [1, 4, 7, 8, 11, 14, 17]


def test_a_quantity_that_does_not_exist_is_answered_with_the_nearest():
    with pytest.raises(KeyError, match="unknown contact quantity 'forces'; did you mean 'force'"):
        ContactLayout(("found", "forces"))


def test_it_is_a_value():
    layout = ContactLayout(("force",), num=2)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert layout != ContactLayout(("force",), num=3)
    one, other = (
        layout_digest(make_layout(contacts={"feet": ContactLayout(("force",), num=1, reduce=reduce)}))
        for reduce in ("netforce", "maxforce")
    )
    assert not one.equal(other)


XML = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 .1"/>
  <body name="box" pos="0 0 .1"><freejoint/><geom name="g" type="box" size=".1 .1 .1" mass="2"/><site name="s"/>
  </body></worldbody>
  <sensor><contact name="own" geom1="g" num="2" data="force dist" reduce="maxforce"/><gyro name="gyro" site="s"/>
  </sensor></mujoco>"""


def build() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_string(XML)


def test_the_backend_describes_sensors_of_the_scene_and_of_an_entity_s_own_model():
    scene = SceneCfg(
        entities={"robot": EntityCfg(spec=build)},
        sensors=(
            ContactSensorCfg(name="net", target="robot/box"),
            ContactSensorCfg(
                name="all", target="robot/box", data=("tangent", "dist"), num=3, reduce="mindist"
            ),
        ),
    )
    backend = make_backend("mujoco", scene, SimCfg(num_threads=1), num_envs=1)
    sensors = {sensor.name: sensor for sensor in backend.model_layout.sensors}
    assert {name: sensor.contact for name, sensor in sensors.items()} == {
        "robot/own": ContactLayout(("force", "dist"), num=2, reduce="maxforce"),
        "robot/gyro": None,
        "net": ContactLayout(("found", "force")),
        "all": ContactLayout(("dist", "tangent"), num=3, reduce="mindist"),
    }
    assert [sensors[n].dim for n in ("robot/own", "net", "all")] == [8, 4, 12]
    assert backend.get_tensor_capabilities().contact_reads
    backend.close()
