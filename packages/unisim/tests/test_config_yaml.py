"""The way through YAML and back is the identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unisim_support import BiasedNoiseCfg, NoiseCfg, TaskCfg, TermCfg, cube, square

from unisim import BuiltinSensorCfg, Cfg, ConfigError, EntityCfg, SceneCfg, SimCfg, yaml12

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NOISE = st.one_of(
    st.builds(NoiseCfg, std=st.floats(0, 1e9)), st.builds(BiasedNoiseCfg, std=st.floats(0, 1e9), bias=FLOATS)
)
PARAMETERS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), FLOATS, st.text(), st.sampled_from([square, cube]), NOISE
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
).filter(lambda value: not (isinstance(value, dict) and value.keys() & {"_target_", "_func_"}))
TERMS = st.builds(
    TermCfg,
    func=st.sampled_from([square, cube]),
    weight=FLOATS,
    params=st.dictionaries(st.text(max_size=4), PARAMETERS, max_size=3),
    noise=st.none() | NOISE,
)
TASKS = st.builds(
    TaskCfg,
    name=st.text(max_size=8),
    num_envs=st.integers(1, 10**9),
    gravity=st.tuples(FLOATS, FLOATS, FLOATS),
    terms=st.dictionaries(st.text(max_size=4), TERMS, max_size=2),
    limits=st.lists(st.dictionaries(st.text(max_size=3), FLOATS, max_size=2), max_size=2).map(tuple),
)


@given(TASKS)
def test_a_config_that_went_through_yaml_is_equal(cfg):
    found = TaskCfg.from_yaml(cfg.to_yaml())
    assert found == cfg
    assert found.to_yaml() == cfg.to_yaml()


@given(TERMS)
def test_every_value_comes_back_with_its_own_type(cfg):
    found = TermCfg.from_yaml(cfg.to_yaml())

    def kinds(value):
        if isinstance(value, dict):
            return {key: kinds(inner) for key, inner in value.items()}
        return [kinds(inner) for inner in value] if isinstance(value, tuple) else type(value)

    assert kinds(found.params) == kinds(cfg.params)
    assert type(found.noise) is type(cfg.noise)


def test_a_scene_and_its_sensors_come_back():
    scene = SceneCfg(
        entities={
            "robot": EntityCfg(spec="unisim_support:hopper", joint_pos={"hip|knee": 0.2}, pos=(0, 0, 1))
        },
        sensors=(BuiltinSensorCfg(name="imu", kind="gyro", target="robot/imu"),),
    )
    assert SceneCfg.from_yaml(scene.to_yaml()) == scene


def test_only_what_the_field_does_not_say_is_tagged():
    data = TermCfg(noise=NoiseCfg()).to_data()
    assert data["_target_"] == "unisim_support:TermCfg"
    assert data["noise"] == {"std": 0.1}
    assert TermCfg(noise=BiasedNoiseCfg()).to_data()["noise"]["_target_"] == "unisim_support:BiasedNoiseCfg"


def test_a_config_says_its_own_class_so_that_its_base_can_read_it():
    text = SimCfg(timestep=0.001).to_yaml()
    assert isinstance(Cfg.from_yaml(text), SimCfg)


def test_numbers_in_a_document_may_be_written_as_yaml_1_2_writes_them():
    cfg = TaskCfg.from_yaml("num_envs: 012\ngravity: [0, 1e-3, -9.81]\nname: on\n")
    assert (cfg.num_envs, cfg.gravity, cfg.name) == (12, (0.0, 0.001, -9.81), "on")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n- 2\n", "run.yaml: got list, expected a mapping of TaskCfg fields"),
        ("", "run.yaml: got NoneType, expected a mapping of TaskCfg fields"),
        ("name: 'open", "run.yaml: not valid YAML 1.2"),
        ("num_evns: 3\n", "unknown key 'num_evns'"),
        ("_target_: unisim_support:TermCfg\n", "'unisim_support:TermCfg' is not a subclass of TaskCfg"),
    ],
)
def test_a_document_that_describes_no_such_config_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        TaskCfg.from_yaml(text, source="run.yaml")


def test_data_is_plain():
    data = TaskCfg(terms={"a": TermCfg(params={"f": cube, "ids": (1, 2)})}).to_data()
    assert data["terms"]["a"]["params"] == {"f": {"_func_": "unisim_support:cube"}, "ids": [1, 2]}
    assert data["terms"]["a"]["func"] == "unisim_support:square"
    assert yaml12.load(yaml12.dump(data)) == data
