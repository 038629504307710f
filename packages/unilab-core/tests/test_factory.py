"""Environments by task name or config, here and in other processes."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
import torch
from core_support import ScriptedCfg, ScriptedEnv, describe_env

from unilab_core import (
    ConfigError,
    EnvFactory,
    TaskSpec,
    TorchEnvCfg,
    UnknownNameError,
    load_env_cfg,
    make_env,
    register_task,
    registry,
)


@pytest.fixture(autouse=True)
def _tasks(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    register_task(TaskSpec("scripted", "core_support:scripted_task"))
    register_task(TaskSpec("no-config", "core_support:no_config"))
    register_task(TaskSpec("nowhere", "core_support:nobody"))


def test_a_task_is_made_by_name():
    with make_env("Scripted") as env:
        assert isinstance(env, ScriptedEnv)
        assert env.num_envs == 5


def test_a_config_is_made_as_it_is():
    with make_env(ScriptedCfg(num_envs=2), seed=3, autoreset=False) as env:
        assert (env.num_envs, env.autoreset) == (2, False)


def test_the_number_of_rows_can_be_replaced():
    with make_env("scripted", num_envs=7) as env:
        assert env.num_envs == 7


@pytest.mark.parametrize(
    "overrides", [{"decimation": 3, "sim.timestep": 0.02}, ("decimation=3", "sim.timestep=2e-2")]
)
def test_overrides_are_given_as_mapping_or_texts(overrides):
    cfg = load_env_cfg("scripted", overrides=overrides)
    assert (cfg.decimation, cfg.sim.timestep) == (3, 0.02)


def test_the_number_of_rows_wins_over_an_override():
    assert load_env_cfg("scripted", num_envs=9, overrides=("num_envs=3",)).num_envs == 9


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("decimaton=2",), r"unknown key 'decimaton'; did you mean 'decimation'\?"),
        (("sim.timestep=-1",), "sim.timestep: Input should be greater than 0"),
        (("decimation",), "expected PATH=VALUE"),
    ],
)
def test_a_wrong_override_is_a_config_error(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_env("scripted", overrides=overrides)


def test_an_unknown_task_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown task 'scriptd'; did you mean 'scripted'\?"):
        make_env("scriptd")


def test_a_task_that_returns_no_environment_config_is_named():
    with pytest.raises(
        ConfigError, match="task 'no-config': core_support:no_config returned int, expected a TorchEnvCfg"
    ):
        make_env("no-config")


def test_a_task_whose_function_does_not_exist_is_a_config_error():
    with pytest.raises(ConfigError, match="'core_support' has no 'nobody'"):
        make_env("nowhere")


def test_something_else_than_a_name_or_a_config_is_a_type_error():
    with pytest.raises(TypeError, match="make_env: task is a int, expected a task name or a TorchEnvCfg"):
        make_env(3)


def test_a_build_that_returns_no_environment_is_a_type_error():
    class Wrong(TorchEnvCfg):
        def build(self, **_):
            return 3

    with pytest.raises(TypeError, match="Wrong.build returned a int, expected a TorchEnv"):
        make_env(Wrong())


def test_equal_seeds_make_equal_environments():
    with make_env("scripted", seed=4) as first, make_env("scripted", seed=4) as second:
        assert torch.equal(first.rng.uniform(0.0, 1.0, 5), second.rng.uniform(0.0, 1.0, 5))


FACTORY = EnvFactory(ScriptedCfg(num_envs=2), seed=8, autoreset=False, overrides=("decimation=4",))


def test_a_factory_survives_pickling():
    assert pickle.loads(pickle.dumps(FACTORY)) == FACTORY


def test_a_factory_makes_the_same_environment_in_a_spawned_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(describe_env, (FACTORY,))
    assert there == describe_env(FACTORY)
    assert there[:3] == (2, pytest.approx(0.04), False)
