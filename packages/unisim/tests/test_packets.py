"""The read packet: which columns it has and where each quantity lies."""

from __future__ import annotations

import pytest

from unisim import HostBridgeSpec
from unisim.packets import ReadLayout, spec_of
from unisim.testing import make_layout

MODEL = make_layout(sensors={"imu": (3, "acceleration"), "force": (1, "acceleration")}, sites=("robot/foot",))


def test_state_comes_first_then_sensors_bodies_and_sites():
    spec = HostBridgeSpec(sensors=("force", "imu"), bodies=("robot/base",), sites=("robot/foot",))
    blocks = [(block.key, block.start, block.stop) for block in ReadLayout(spec, MODEL).blocks]
    assert blocks == [
        ("qpos", 0, 2),
        ("qvel", 2, 4),
        ("ctrl", 4, 5),
        ("sensor:force", 5, 6),
        ("sensor:imu", 6, 9),
        ("body:robot/base", 9, 22),
        ("site:robot/foot", 22, 35),
    ]


def test_the_width_is_the_sum_of_all_columns():
    assert ReadLayout(HostBridgeSpec(state=("qvel",), sensors=("imu",)), MODEL).width == 2 + 3


def test_a_packet_of_nothing_has_no_columns():
    assert ReadLayout(HostBridgeSpec(state=()), MODEL).width == 0


def test_columns_are_found_by_key():
    layout = ReadLayout(HostBridgeSpec(sensors=("imu",)), MODEL)
    assert layout.columns("sensor:imu") == slice(5, 8)
    assert "sensor:imu" in layout
    assert "sensor:force" not in layout


def test_a_key_that_the_packet_does_not_carry_is_answered_with_the_nearest():
    with pytest.raises(KeyError, match=r"the read packet has no 'sensor:imu2'; did you mean 'sensor:imu'\?"):
        ReadLayout(HostBridgeSpec(sensors=("imu",)), MODEL).columns("sensor:imu2")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (HostBridgeSpec(state=("qps",)), r"unknown state field 'qps'; did you mean 'qpos'\?"),
        (HostBridgeSpec(sensors=("imo",)), r"unknown sensor 'imo'; did you mean 'imu'\?"),
        (HostBridgeSpec(bodies=("robot/bas",)), r"unknown body 'robot/bas'; did you mean 'robot/base'\?"),
        (HostBridgeSpec(sites=("robot/fot",)), r"unknown site 'robot/fot'; did you mean 'robot/foot'\?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_of_its_kind(spec, message):
    with pytest.raises(KeyError, match=message):
        ReadLayout(spec, MODEL)


def test_a_name_given_twice_is_refused():
    with pytest.raises(ValueError, match="'sensor:imu' is declared twice in one read packet"):
        ReadLayout(HostBridgeSpec(sensors=("imu", "imu")), MODEL)


def test_a_decimation_below_one_is_refused():
    with pytest.raises(ValueError, match="decimation is 0, expected at least 1"):
        ReadLayout(HostBridgeSpec(decimation=0), MODEL)


def test_a_record_of_substeps_has_the_sensor_s_columns_once_per_substep():
    spec = HostBridgeSpec(state=(), sensors=("force",), substep_sensors=("imu",), decimation=4)
    layout = ReadLayout(spec, MODEL)
    assert layout.columns("sensor:force") == slice(0, 1)
    assert layout.columns("substep:imu") == slice(1, 1 + 4 * 3)


def test_keys_make_the_spec_that_reads_them():
    keys = ["body:robot/base", "qvel", "substep:imu", "sensor:force", "site:robot/foot", "sensor:imu"]
    assert spec_of(keys, decimation=4) == HostBridgeSpec(
        state=("qvel",),
        sensors=("force", "imu"),
        substep_sensors=("imu",),
        bodies=("robot/base",),
        sites=("robot/foot",),
        decimation=4,
    )


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("qps", "did you mean 'qpos'"),
        ("sensr:imu", "did you mean 'sensor:imu'"),
        ("xpos", "did you mean 'qpos'"),
        ("", "valid names"),
    ],
)
def test_a_key_of_no_known_kind_is_answered_with_the_nearest(key, hint):
    with pytest.raises(KeyError, match=f"unknown key '{key}'; {hint}"):
        spec_of([key])


def test_accelerations_and_forces_follow_the_state():
    spec = HostBridgeSpec(acceleration=("qacc", "actuator_force"), sensors=("force",))
    layout = ReadLayout(spec, MODEL)
    assert [layout.columns(key) for key in ("ctrl", "qacc", "actuator_force", "sensor:force")] == [
        slice(4, 5),
        slice(5, 7),
        slice(7, 8),
        slice(8, 9),
    ]
    assert spec_of(["actuator_force", "qacc"]).acceleration == ("actuator_force", "qacc")
    with pytest.raises(KeyError, match=r"unknown acceleration field 'qac'; did you mean 'qacc'\?"):
        ReadLayout(HostBridgeSpec(acceleration=("qac",)), MODEL)
    with pytest.raises(KeyError, match=r"unknown key 'actuator_forces'; did you mean 'actuator_force'\?"):
        spec_of(["actuator_forces"])
