"""What `unilab bench` says of a learner, on one that counts and on PPO."""

from __future__ import annotations

import time

import pytest
import torch
from rl_support import COUNTING, ScriptedEnv, ScriptedEnvCfg

from unilab_core import ConfigError, TaskSpec, get_task
from unilab_core.benching.parts import LearnerCost, find_parts
from unilab_rl.runtime.bench import LearnerBench


@pytest.fixture
def still(monkeypatch):
    """Clocks that stand still: what is left is what the learner itself reports."""
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)


def test_two_iterations_are_counted_after_a_first_one(still):
    env = ScriptedEnv(ScriptedEnvCfg(num_envs=4))
    found = LearnerBench().learner(env, get_task("scripted"), "counting", {}, seed=3)
    # Two steps of 4 rows an iteration, a quarter of a second for collecting and one for learning.
    assert found == LearnerCost("counting", 2, 0.0, 125_000.0, 125_000.0, 16.0)
    assert COUNTING.made[-1].seed == 3
    assert len(env.received) == 6
    assert type(env) is ScriptedEnv
    assert not env.num_closes


def test_steps_of_the_environment_are_not_a_cost_of_the_learner(monkeypatch):
    now = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])
    step = ScriptedEnv.step

    def slow(self, actions):
        now[0] += 25_000_000
        return step(self, actions)

    monkeypatch.setattr(ScriptedEnv, "step", slow)
    found = LearnerBench().learner(ScriptedEnv(), get_task("scripted"), "counting", {}, seed=0)
    assert found is not None
    assert found.collect_us == pytest.approx(125_000.0 - 25_000.0)


def test_the_config_of_the_task_is_changed_by_overrides(still):
    LearnerBench().learner(ScriptedEnv(), get_task("scripted"), "counting", {"rate": 2.5}, seed=0)
    assert COUNTING.made[-1].cfg.rate == 2.5


@pytest.mark.parametrize(
    ("algorithm", "overrides", "text"),
    [
        ("countin", {}, "unknown algorithm 'countin'; did you mean 'counting'"),
        ("counting", {"rat": 1.0}, "--set learner.PATH=VALUE: .*rat"),
    ],
)
def test_what_is_wrong_is_named(algorithm, overrides, text):
    env = ScriptedEnv()
    with pytest.raises(ConfigError, match=text):
        LearnerBench().learner(env, get_task("scripted"), algorithm, overrides, seed=0)
    assert not env.received


def test_a_task_without_learners_has_none_unless_it_is_asked_for():
    task = TaskSpec("bare", "m:f")
    assert LearnerBench().learner(ScriptedEnv(), task, None, {}, seed=0) is None
    with pytest.raises(ConfigError, match="task 'bare' has no settings for the algorithm 'counting'"):
        LearnerBench().learner(ScriptedEnv(), task, "counting", {}, seed=0)


def test_the_learner_of_the_task_is_measured_unless_another_is_asked_for(still):
    found = LearnerBench().learner(ScriptedEnv(), get_task("scripted"), None, {}, seed=0)
    assert found is not None
    assert found.algorithm == get_task("scripted").default_learner == "counting"


def test_ppo_is_measured_and_the_global_generator_is_left_alone():
    env = ScriptedEnv(ScriptedEnvCfg(num_envs=8))
    before = torch.get_rng_state()
    found = LearnerBench().learner(env, get_task("scripted"), "PPO", {}, seed=0)
    assert found is not None
    assert found.algorithm == "ppo"
    assert len(env.received) == 3 * found.steps_per_iteration
    assert min(found.policy_us, found.collect_us, found.learn_us, found.env_steps_per_s) > 0.0
    assert torch.equal(torch.get_rng_state(), before)


def test_the_package_brings_it_to_the_command():
    assert LearnerBench in [type(part) for part in find_parts()]
