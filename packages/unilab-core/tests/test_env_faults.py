"""After a failure past the point of no return only close() works; before it nothing has happened."""

from __future__ import annotations

import math

import pytest
import torch
from core_support import ScriptedEnv, assert_same, copied, steps, zeros

from unilab_core import ConfigError, EnvFaultedError, NonFiniteError, ResetRejectedError
from unisim.testing import Fault


def boom(*_):
    raise KeyError("boom")


def assert_faulted(env, cause: type[BaseException]) -> None:
    assert env.faulted
    for name, call in {
        "step": lambda: env.step(zeros(env)),
        "reset": lambda: env.reset(),
        "observations": lambda: env.observations(),
    }.items():
        with pytest.raises(EnvFaultedError, match=f"ScriptedEnv.{name}: an earlier failure left") as caught:
            call()
        assert isinstance(caught.value.__cause__, cause)
        assert "close() it and make a new one" in str(caught.value)
    assert env.close() is None
    with pytest.raises(RuntimeError, match="ScriptedEnv.step: the environment is closed"):
        env.step(zeros(env))


AFTER_CONTROL = [
    "_begin_step",
    "_terminations",
    "_rewards",
    "_advance",
    "_measure",
    "_observe",
    "_after_step",
]
AFTER_COMMIT = [
    "_clear_rows",
    "_after_commit",
    "_observe",
    "_after_reset",
]


@pytest.mark.parametrize("hook", AFTER_CONTROL)
def test_a_failure_in_a_step_after_the_checks_faults_the_environment(hook):
    env = ScriptedEnv()
    env.reset()
    env.inject[hook] = boom
    with pytest.raises(KeyError, match="boom"):
        env.step(zeros(env))
    assert_faulted(env, KeyError)


@pytest.mark.parametrize("hook", AFTER_COMMIT)
def test_a_failure_in_a_reset_after_the_commit_faults_the_environment(hook):
    env = ScriptedEnv()
    env.reset()
    env.inject[hook] = boom
    with pytest.raises(KeyError, match="boom"):
        env.reset(torch.tensor([1]))
    assert_faulted(env, KeyError)


@pytest.mark.parametrize("automatic", [True, False])
def test_a_failure_of_the_backend_in_the_middle_of_a_commit_faults_the_environment(automatic):
    env = ScriptedEnv(terminate={2: [1]}, autoreset=automatic, faults=(Fault("after_first_write", at=1),))
    env.reset()
    steps(env, 1)
    call = (lambda: env.step(zeros(env))) if automatic else (lambda: env.reset(torch.tensor([1])))
    with pytest.raises(RuntimeError, match="injected"):
        call()
    assert_faulted(env, RuntimeError)


def test_a_failure_of_physics_faults_the_environment():
    env = ScriptedEnv(faults=(Fault("step", at=3),))
    env.reset()
    steps(env, 1)
    with pytest.raises(RuntimeError, match="injected fault in substep 3"):
        env.step(zeros(env))
    assert_faulted(env, RuntimeError)


def test_an_interrupt_in_the_middle_of_a_step_faults_the_environment():
    env = ScriptedEnv()
    env.reset()

    def interrupt():
        raise KeyboardInterrupt

    env.inject["_rewards"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        env.step(zeros(env))
    assert_faulted(env, KeyboardInterrupt)


def test_a_failing_control_changes_nothing_and_faults_nothing():
    with ScriptedEnv() as env, ScriptedEnv() as twin:
        env.reset()
        twin.reset()
        env.inject["_control"] = boom
        with pytest.raises(KeyError, match="boom"):
            env.step(zeros(env))
        assert not env.faulted
        del env.inject["_control"]
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


@pytest.mark.parametrize(
    ("hook", "value", "message"),
    [
        ("_rewards", lambda *_: torch.tensor([0.0, math.nan, 0.0]), r"reward is not finite at rows \[1\]"),
        (
            "_observe",
            lambda *_: {"obs": torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, math.inf], [math.nan, 0.0, 0.0]])},
            r"obs is not finite at rows \[1, 2\], columns \['obs\[0\]', 'obs\[2\]'\]",
        ),
    ],
)
def test_a_value_that_is_not_finite_is_named_and_faults_the_environment(hook, value, message):
    env = ScriptedEnv()
    env.reset()
    env.inject[hook] = value
    with pytest.raises(NonFiniteError, match=f"ScriptedEnv.step: {message}"):
        env.step(zeros(env))
    assert_faulted(env, NonFiniteError)


def test_a_critic_value_that_is_not_finite_names_its_group():
    env = ScriptedEnv(critic=True)
    env.reset()
    env.inject["_observe"] = lambda ids: {"obs": torch.zeros(3, 3), "critic": torch.full((3, 4), math.nan)}
    with pytest.raises(NonFiniteError, match="critic is not finite at"):
        env.step(zeros(env))
    env.close()


def test_a_state_that_is_not_finite_is_found_in_the_observation():
    env = ScriptedEnv(faults=(Fault("nan", at=1, row=2),))
    env.reset()
    with pytest.raises(NonFiniteError, match=r"obs is not finite at rows \[2\], columns \['obs\[1\]'\]"):
        env.step(zeros(env))
    env.close()


@pytest.mark.parametrize(
    "hook", ["_on_episodes_end", "_stage_reset", "_before_commit", "_after_commit", "_after_reset"]
)
def test_a_reset_inside_a_reset_is_refused(hook):
    env = ScriptedEnv()
    env.reset()
    env.inject[hook] = lambda ids: env.reset(torch.tensor([0]))
    with pytest.raises(RuntimeError, match="a reset inside a reset"):
        env.reset(torch.tensor([1]))
    env.close()


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ({}, r"_observe returned groups \[\], expected \['obs'\]"),
        ({"obs": torch.zeros(3, 3), "critic": torch.zeros(3, 4)}, r"returned groups \['critic', 'obs'\]"),
        (
            {"obs": torch.zeros(3, 1)},
            r"group 'obs' is torch.float32 \(3, 1\), expected torch.float32 \(3, 3\)",
        ),
        ({"obs": torch.zeros(1, 3)}, r"group 'obs' is torch.float32 \(1, 3\)"),
        ({"obs": torch.zeros(3, 3).double()}, r"group 'obs' is torch.float64 \(3, 3\)"),
    ],
)
def test_an_observation_that_is_not_as_declared_is_named(observed, message):
    env = ScriptedEnv()
    env.reset()
    env.inject["_observe"] = lambda ids: observed
    with pytest.raises(ConfigError, match=message):
        env.step(zeros(env))
    env.close()


def test_a_staged_value_that_is_not_finite_is_rejected_by_joint_column_and_row():
    env = ScriptedEnv()
    env.reset()
    view = torch.full((1, 2), math.nan)
    env.inject["_stage_reset"] = lambda ids: env.scene["robot"].data.write_joint_state(view, view, ids)
    before = env.backend.get_state_views()
    with pytest.raises(
        ResetRejectedError, match="ScriptedEnv.reset: qpos of row 1, column 0 is nan; nothing was"
    ):
        env.reset(torch.tensor([1]))
    for name, values in env.backend.get_state_views().items():
        assert torch.equal(values, before[name])
    env.close()
