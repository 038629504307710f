"""Dotted overrides: all or none, with the nearest names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unisim_support import BiasedNoiseCfg, NoiseCfg, OpenCfg, TaskCfg, TermCfg

from unisim import Cfg, ConfigError, parse_overrides

TASK = TaskCfg(
    terms={
        "tracking": TermCfg(params={"sigma": 0.5, "command_name": "twist", "inner": {"a": 1}}),
        "alive": TermCfg(noise=BiasedNoiseCfg(bias=3.0)),
    }
)


def test_an_override_changes_one_field_of_a_copy():
    changed = TASK.with_({"terms.tracking.weight": 2.0})
    assert changed.terms["tracking"].weight == 2.0
    assert TASK.terms["tracking"].weight == 1.0
    assert changed.terms["alive"] == TASK.terms["alive"]


def test_a_params_override_keeps_its_siblings():
    params = TASK.with_({"terms.tracking.params.sigma": 1}).terms["tracking"].params
    assert params == {"sigma": 1, "command_name": "twist", "inner": {"a": 1}}


def test_params_accept_a_new_key_also_below():
    params = (
        TASK.with_({"terms.tracking.params.inner.b": 2, "terms.tracking.params.eps": 0.1})
        .terms["tracking"]
        .params
    )
    assert params["inner"] == {"a": 1, "b": 2}
    assert params["eps"] == 0.1


def test_none_disables_a_term():
    assert list(TASK.with_({"terms.tracking": None}).terms) == ["alive"]


def test_none_sets_an_optional_field():
    assert TASK.with_({"terms.alive.noise": None}).terms["alive"].noise is None


@pytest.mark.parametrize("name", ["sigma", "absent"])
def test_none_sets_a_parameter(name):
    assert TASK.with_({f"terms.tracking.params.{name}": None}).terms["tracking"].params[name] is None


def test_an_open_mapping_of_a_config_accepts_a_new_key():
    assert OpenCfg().with_({"joint_pos.hip": 0.3}).joint_pos == {"hip": 0.3}


def test_a_mapping_of_plain_numbers_accepts_a_new_key_also_as_one_choice_of_several():
    cfg = OpenCfg(scale={"knee": 1.0}).with_({"scale.hinge": 2})
    assert cfg.scale == {"knee": 1.0, "hinge": 2.0}


def test_a_new_number_is_checked_like_a_given_one():
    with pytest.raises(ConfigError, match=r"scale.*hinge: Input should be greater than 0"):
        OpenCfg().with_({"scale.hinge": -1.0})


def test_none_removes_a_number_and_one_that_is_not_there_is_refused():
    cfg = OpenCfg(joint_pos={"hip": 0.3})
    assert cfg.with_({"joint_pos.hip": None}).joint_pos == {}
    with pytest.raises(ConfigError, match=r"'joint_pos\.hop': unknown key 'hop'; did you mean 'hip'"):
        cfg.with_({"joint_pos.hop": None})


@pytest.mark.parametrize("path", ["names.hip", "terms.new"])
def test_a_mapping_of_anything_else_stays_closed(path):
    cfg = OpenCfg() if path.startswith("names") else TASK
    with pytest.raises(ConfigError, match="unknown key"):
        cfg.with_({path: "x"})


def test_a_path_that_is_no_string_is_refused():
    with pytest.raises(ConfigError, match=r"override 3 is int, expected 'path\.to\.field'"):
        TASK.with_({3: 1})


def test_overrides_that_are_no_mapping_are_refused():
    with pytest.raises(TypeError, match=r"TaskCfg\.with_: overrides is list, expected a mapping"):
        TASK.with_(["num_envs=3"])


def test_a_subclass_keeps_its_class_under_an_override():
    noise = TASK.with_({"terms.alive.noise.std": 0.9}).terms["alive"].noise
    assert noise == BiasedNoiseCfg(std=0.9, bias=3.0)


def test_a_config_class_that_no_import_string_names_can_be_overridden():
    class LocalCfg(Cfg):
        size: int = 1

    assert LocalCfg().with_({"size": 2}).size == 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("terms.trackng.weight", r"'terms\.trackng': unknown key 'trackng'; did you mean 'tracking'\?"),
        (
            "terms.tracking.wieght",
            r"'terms\.tracking\.wieght': unknown key 'wieght'; did you mean 'weight'\?",
        ),
        ("terms.disabled.weight", r"unknown key 'disabled'"),
        ("num_evns", r"'num_evns': unknown key 'num_evns'; did you mean 'num_envs'\?"),
        ("name.first", r"'name': nothing lies below it; it holds 'task'"),
        ("terms..weight", "empty name in the path"),
        ("", "empty name in the path"),
    ],
)
def test_qa_100_a_wrong_path_is_refused_with_the_nearest_names(path, message):
    with pytest.raises(ConfigError, match=message):
        TASK.with_({path: 1})


def test_qa_100_nothing_is_applied_when_one_override_is_wrong():
    before = TASK.to_yaml()
    with pytest.raises(ConfigError, match="num_evns"):
        TASK.with_({"name": "other", "num_evns": 4})
    assert TASK.to_yaml() == before


def test_a_wrong_value_is_named_by_its_dotted_path():
    with pytest.raises(
        ConfigError, match=r"terms\.tracking\.weight: Input should be a valid number \(got 'x'\)"
    ):
        TASK.with_({"terms.tracking.weight": "x"})


@pytest.mark.parametrize(
    "order", [("terms.alive", "terms.alive.weight"), ("terms.alive.weight", "terms.alive")]
)
def test_overrides_that_contradict_each_other_are_refused(order):
    with pytest.raises(ConfigError, match="contradicts"):
        TASK.with_(dict.fromkeys(order))


def test_overrides_at_once_equal_overrides_one_after_the_other():
    changes = {"num_envs": 7, "terms.tracking.weight": -1.0, "terms.alive.noise.bias": 0.5}
    one_by_one = TASK
    for path, value in changes.items():
        one_by_one = one_by_one.with_({path: value})
    assert TASK.with_(changes) == one_by_one


@given(st.integers(1, 10**6), st.floats(-1e6, 1e6), st.text(max_size=5))
def test_an_override_sets_exactly_the_value(num_envs, weight, name):
    changed = TASK.with_({"num_envs": num_envs, "terms.tracking.weight": weight, "name": name})
    assert (changed.num_envs, changed.terms["tracking"].weight, changed.name) == (num_envs, weight, name)


def test_texts_become_paths_and_yaml_values():
    texts = ["a.b=2", "c=1e-3", "d=[0, 1]", "e={f: true}", "g=on", "h=", "i=x=y", " j =1"]
    assert parse_overrides(texts) == {
        "a.b": 2,
        "c": 0.001,
        "d": [0, 1],
        "e": {"f": True},
        "g": "on",
        "h": None,
        "i": "x=y",
        "j": 1,
    }


@pytest.mark.parametrize("text", ["t=None", "t= None ", "t=null", "t=~"])
def test_none_and_null_mean_none(text):
    assert parse_overrides([text]) == {"t": None}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["weight"], "override 'weight': expected PATH=VALUE, for example"),
        (["=2"], "override '=2': expected PATH=VALUE"),
        (["a=1", "a=2"], "override 'a' is given twice"),
        (["a=[1"], r"override 'a=\[1': not valid YAML 1.2"),
    ],
)
def test_a_text_that_is_no_override_is_refused(texts, message):
    with pytest.raises(ConfigError, match=message):
        parse_overrides(texts)


def test_a_plain_mapping_replaces_a_part_whole():
    assert TASK.with_({"terms.alive": {"weight": 5}}).terms["alive"] == TermCfg(weight=5.0)
    assert TASK.with_({"terms.alive.noise": {"std": 0.2}}).terms["alive"].noise == NoiseCfg(std=0.2)


def test_a_key_that_lies_one_step_deeper_is_found_there():
    with pytest.raises(ConfigError, match=r"'sigma': unknown key 'sigma'; .*'terms'"):
        TASK.with_({"sigma": 1.0})  # two steps would be a guess
    with pytest.raises(
        ConfigError, match=r"'tracking': unknown key 'tracking'; did you mean 'terms\.tracking'\?"
    ):
        TASK.with_({"tracking.weight": 2.0})
    with pytest.raises(
        ConfigError, match=r"'terms\.tracking\.sigma': unknown key .*; did you mean 'params\.sigma'\?"
    ):
        TASK.with_({"terms.tracking.sigma": 1.0})
    with pytest.raises(ConfigError, match=r"'terms\.alive\.bias': .*; did you mean 'noise\.bias'\?"):
        TASK.with_({"terms.alive.bias": 1.0})


def test_what_nothing_lies_below_is_shown_in_short():
    long = TASK.with_({"terms.tracking.params.names": tuple(f"joint_{i}" for i in range(50))})
    with pytest.raises(ConfigError, match="nothing lies below it; it holds") as error:
        long.with_({"terms.tracking.params.names.0": "hip"})
    assert len(str(error.value)) < 200


def test_a_yaml_document_of_overrides_gives_the_same_as_the_overrides():
    text = """
    # a variant
    num_envs: 8
    terms.tracking.params.sigma: 1e-3
    terms.alive: null
    gravity: [0, 0, -1.6]
    """
    changes = {
        "num_envs": 8,
        "terms.tracking.params.sigma": 0.001,
        "terms.alive": None,
        "gravity": (0.0, 0.0, -1.6),
    }
    assert TASK.with_yaml(text) == TASK.with_(changes) != TASK


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "terms.traking.weight: 2",
            r"^low\.yaml: override 'terms\.traking': unknown key 'traking'; did you mean 'tracking'\?",
        ),
        ("num_envs: many", r"^low\.yaml: TaskCfg: num_envs: Input should be a valid integer \(got 'many'\)"),
        ("[1, 2]", r"^low\.yaml: got list, expected a mapping of overrides, for example 'rewards\."),
        ("# nothing", r"^low\.yaml: got NoneType, expected a mapping of overrides"),
        ("a: [", r"^low\.yaml: not valid YAML 1\.2: "),
    ],
)
def test_a_yaml_document_that_is_wrong_is_named(text, message):
    with pytest.raises(ConfigError, match=message):
        TASK.with_yaml(text, source="low.yaml")
