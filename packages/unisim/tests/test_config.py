"""Configs: frozen, strict, closed, finite."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from pydantic import model_validator
from unisim_support import BiasedNoiseCfg, NoiseCfg, TaskCfg, TermCfg, cube, square

from unisim import Cfg, ConfigError, FrozenDict


class WindowCfg(Cfg):
    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> WindowCfg:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class WindowHolderCfg(Cfg):
    window: WindowCfg = WindowCfg()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_envs": True}, r"num_envs: Input should be a valid integer \(got True\)"),
        ({"num_envs": "8"}, r"num_envs: Input should be a valid integer \(got '8'\)"),
        ({"num_envs": 8.0}, r"num_envs: Input should be a valid integer \(got 8.0\)"),
        ({"num_envs": 0}, r"num_envs: Input should be greater than or equal to 1 \(got 0\)"),
        ({"name": 3}, r"name: Input should be a valid string \(got 3\)"),
        ({"gravity": (0.0, 0.0)}, r"gravity\.2: Field required"),
        ({"gravity": (0.0, 0.0, math.nan)}, r"gravity\.2: Input should be a finite number \(got nan\)"),
        ({"gravity": (0.0, 0.0, math.inf)}, r"gravity\.2: Input should be a finite number \(got inf\)"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_what_was_given(given, message):
    with pytest.raises(ConfigError, match=message):
        TaskCfg(**given)


def test_an_integer_is_a_valid_real_number():
    weight = TermCfg(weight=2).weight
    assert weight == 2.0
    assert type(weight) is float


def test_a_bool_is_no_real_number():
    with pytest.raises(ConfigError, match=r"weight: Input should be a valid number \(got True\)"):
        TermCfg(weight=True)


def test_an_unknown_key_is_answered_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"^TaskCfg: num_evns: unknown key 'num_evns'; did you mean 'num_envs'\?"
    ):
        TaskCfg(num_evns=4)


def test_an_unknown_key_deep_inside_is_named_by_its_whole_path():
    with pytest.raises(
        ConfigError, match=r"terms\.upright\.wieght: unknown key 'wieght'; did you mean 'weight'\?"
    ):
        TaskCfg(terms={"upright": {"wieght": 2.0}})


def test_every_wrong_path_is_listed():
    with pytest.raises(ConfigError) as caught:
        TaskCfg(num_envs="many", name=1)
    lines = str(caught.value).splitlines()
    assert [line.strip().split(":")[0] for line in lines] == ["TaskCfg", "name", "num_envs"]


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(ConfigError, match=r"\(got 'x{50,60}\.\.\.\)"):
        TaskCfg(num_envs="x" * 500)


def test_a_field_cannot_be_assigned():
    with pytest.raises(ValueError, match="frozen"):
        TaskCfg().num_envs = 8


@pytest.mark.parametrize(
    "change",
    [
        lambda terms: terms.__setitem__("new", TermCfg()),
        lambda terms: terms.__delitem__("old"),
        lambda terms: terms.update(new=TermCfg()),
        lambda terms: terms.pop("old"),
        lambda terms: terms.popitem(),
        lambda terms: terms.clear(),
        lambda terms: terms.setdefault("new", TermCfg()),
        lambda terms: terms.__ior__({"new": TermCfg()}),
    ],
)
def test_a_mapping_of_a_config_cannot_be_changed(change):
    cfg = TaskCfg(terms={"old": TermCfg()})
    with pytest.raises(TypeError, match=r"frozen; make a changed copy with cfg\.with_"):
        change(cfg.terms)
    assert list(cfg.terms) == ["old"]


def test_a_mapping_inside_a_tuple_is_frozen_too():
    cfg = TaskCfg(limits=({"hip": 1.0},))
    with pytest.raises(TypeError, match="frozen"):
        cfg.limits[0]["hip"] = 2.0


def test_a_change_of_the_dict_that_was_given_does_not_reach_the_config():
    given = {"old": TermCfg()}
    cfg = TaskCfg(terms=given)
    given["new"] = TermCfg()
    assert list(cfg.terms) == ["old"]


def test_a_list_becomes_a_tuple():
    assert TaskCfg(gravity=[0.0, 0.0, -1.0]).gravity == (0.0, 0.0, -1.0)


def test_a_subclass_may_stand_where_its_base_is_declared():
    cfg = TermCfg(noise=BiasedNoiseCfg(bias=1.0))
    assert isinstance(cfg.noise, BiasedNoiseCfg)
    assert cfg.noise.bias == 1.0


def test_a_target_makes_the_subclass_that_it_names():
    cfg = TermCfg(noise={"_target_": "unisim_support:BiasedNoiseCfg", "bias": 2})
    assert cfg.noise == BiasedNoiseCfg(bias=2.0)


def test_a_wrong_value_below_a_target_is_named_by_its_path():
    with pytest.raises(ConfigError, match=r"noise\.bias: Input should be a valid number \(got 'a'\)"):
        TermCfg(noise={"_target_": "unisim_support:BiasedNoiseCfg", "bias": "a"})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("unisim_support:TaskCfg", "'unisim_support:TaskCfg' is not a subclass of NoiseCfg"),
        ("unisim_support:square", "'unisim_support:square' is not a subclass of NoiseCfg"),
        ("unisim_support:Nobody", "has no 'Nobody'"),
        ("nowhere", "is not an import string"),
        (3, "3 is not a subclass of NoiseCfg"),
    ],
)
def test_a_target_must_be_a_subclass_of_what_is_declared(target, message):
    with pytest.raises(ConfigError, match=message):
        TermCfg(noise={"_target_": target})


def test_a_copy_with_an_update_is_validated():
    cfg = TaskCfg()
    assert cfg.model_copy(update={"num_envs": 9}).num_envs == 9
    with pytest.raises(ConfigError, match="unknown key 'num_evns'"):
        cfg.model_copy(update={"num_evns": 9})
    with pytest.raises(ConfigError, match="num_envs"):
        cfg.model_copy(update={"num_envs": "lots"})


def test_params_become_plain_frozen_values():
    params = TermCfg(params={"std": np.float64(0.5), "ids": [1, [2]], "nested": {"a": [3]}}).params
    assert params == {"std": 0.5, "ids": (1, (2,)), "nested": {"a": (3,)}}
    assert type(params["std"]) is float
    assert isinstance(params, FrozenDict)
    assert isinstance(params["nested"], FrozenDict)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "std is nan; expected a finite number"),
        ([1.0, math.inf], r"std\[1\] is inf; expected a finite number"),
        ({"a": {1, 2}}, r"std\.a is a set; expected numbers, strings, tuples, dicts, functions or configs"),
        (np.zeros(2), "std is a ndarray"),
        (lambda: None, "lambda or a local function"),
    ],
)
def test_params_refuse_what_yaml_cannot_give_back(value, message):
    with pytest.raises(ConfigError, match=message):
        TermCfg(params={"std": value})


def test_params_hold_functions_and_configs():
    cfg = TermCfg(params={"f": cube, "noise": NoiseCfg(std=0.3)})
    assert cfg.params["f"] is cube
    assert cfg.params["noise"].std == 0.3


def test_equal_configs_are_equal_and_others_are_not():
    assert TermCfg(weight=2.0, func=square) == TermCfg(weight=2.0)
    assert TermCfg(weight=2.0) != TermCfg(weight=3.0)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda cfg: pickle.loads(pickle.dumps(cfg))])
def test_a_copied_or_pickled_config_is_equal_and_still_frozen(way):
    cfg = TaskCfg(
        terms={"a": TermCfg(params={"f": cube, "x": [1]}, noise=BiasedNoiseCfg())}, limits=({"b": 1.0},)
    )
    found = way(cfg)
    assert found == cfg
    assert isinstance(found.terms["a"].noise, BiasedNoiseCfg)
    with pytest.raises(TypeError, match="frozen"):
        found.terms["a"].params["x"] = 2


def test_an_error_of_a_whole_config_names_its_class_once():
    with pytest.raises(ConfigError) as caught:
        WindowCfg(low=2.0, high=1.0)
    assert str(caught.value) == "WindowCfg: low is above high"
    with pytest.raises(ConfigError) as caught:
        WindowHolderCfg(window={"low": 2.0, "high": 1.0})
    assert str(caught.value) == "WindowHolderCfg: window: low is above high"
