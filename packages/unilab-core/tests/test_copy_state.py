"""An environment goes on from where another one is, whichever backend that one runs on."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, copied, steps
from twins import HoardingEnv, differences
from velocity import VelocityEnv, actions_of, fake_backend, mujoco_backend, run

from unilab_core import EnvFaultedError, ResetRejectedError
from unisim import TensorExecution
from unisim.testing import Fault

RESIDENT = TensorExecution.DEVICE_RESIDENT
HOST = TensorExecution.HOST_BRIDGE


def reset_env(kind=VelocityEnv, *args, **options):
    env = kind(*args, **options)
    env.reset()
    return env


@pytest.mark.parametrize(("here", "there"), [(HOST, RESIDENT), (RESIDENT, HOST), (HOST, HOST)])
def test_from_a_copied_state_both_give_the_same_through_pushes_resets_and_random_models(here, there):
    with (
        reset_env(VelocityEnv, fake_backend(execution=here), seed=3) as env,
        reset_env(VelocityEnv, fake_backend(execution=there), seed=8) as other,
    ):
        generator = torch.Generator().manual_seed(0)
        run(env, 30, generator)
        run(other, 11, torch.Generator().manual_seed(1))
        other.copy_state_from(env)
        # All that is not physics is the same to the bit, the generator and the randomised model included.
        assert differences(env.state_dict()["values"], other.state_dict()["values"]) == []
        for step in range(40):
            actions = actions_of(env, generator)
            one, two = copied(env.step(actions)), copied(other.step(actions))
            assert one.keys() == two.keys()
            for name, values in one.items():
                torch.testing.assert_close(two[name], values, atol=2e-4, rtol=1e-4, msg=f"{name} in {step}")
        assert torch.equal(env.rng.get_state(), other.rng.get_state())


def test_the_engine_holds_positions_velocities_and_model_fields_of_the_other():
    with (
        reset_env(VelocityEnv, mujoco_backend(), seed=3) as env,
        reset_env(VelocityEnv, mujoco_backend(), seed=8) as other,
    ):
        run(env, 20, torch.Generator().manual_seed(0))
        run(other, 10, torch.Generator().manual_seed(1))
        before = env.state_dict()
        other.copy_state_from(env)
        assert differences(before, env.state_dict()) == []
        assert torch.equal(other.state_column("qpos"), env.state_column("qpos"))
        assert torch.equal(other.state_column("qvel"), env.state_column("qvel"))
        for name in ("body_mass", "dof_damping"):
            held, wanted = (one.state_dict()["backend"][f"field:{name}"] for one in (other, env))
            assert wanted.unique().numel() > 6
            assert torch.equal(held.float(), wanted.float()), name


def test_a_model_that_is_the_same_already_is_not_written_again():
    with (
        reset_env(VelocityEnv, fake_backend(), seed=3) as env,
        reset_env(VelocityEnv, fake_backend(), seed=3) as other,
    ):
        sent = []
        for _ in range(2):
            run(env, 1, torch.Generator().manual_seed(0))
            before = other.transfer_stats.write
            other.copy_state_from(env)
            after = other.transfer_stats.write
            sent.append((after.transfers - before.transfers, after.bytes - before.bytes))
        # Row ids, 9 positions and 8 velocities of 6 rows.
        assert sent == [(1, 6 * (8 + 4 * (9 + 8)))] * 2


def test_everything_that_an_environment_remembers_is_copied_and_nothing_of_the_other_changes():
    with HoardingEnv(3, seed=3) as env, HoardingEnv(3, seed=8) as other:
        for one in (env, other):
            one.reset()
        steps(env, 6)
        steps(other, 2)
        before = env.state_dict()
        other.copy_state_from(env)
        assert differences(before, env.state_dict()) == []
        assert differences(before["values"], other.state_dict()["values"]) == []
        steps(other, 1)
        assert differences(before, env.state_dict()) == []


def test_rows_that_wait_for_a_reset_wait_in_the_copy_too():
    with (
        reset_env(ScriptedEnv, terminate={1: [2]}, autoreset=False) as env,
        reset_env(ScriptedEnv, autoreset=False) as other,
    ):
        steps(env, 1)
        other.copy_state_from(env)
        assert other.state.terminated.tolist() == [False, False, True]
        with pytest.raises(RuntimeError, match=r"rows \[2\] wait for a reset"):
            steps(other, 1)


def test_another_task_is_refused_and_nothing_has_changed():
    with reset_env(ScriptedEnv) as env, reset_env(HoardingEnv, 3) as other:
        before = other.state_dict()
        with pytest.raises(ValueError, match="environment state: missing"):
            other.copy_state_from(env)
        assert differences(before, other.state_dict()) == []


def test_another_number_of_rows_is_refused():
    with (
        reset_env(ScriptedEnv, 3) as env,
        reset_env(ScriptedEnv, 4) as other,
        pytest.raises(ValueError, match=r"is torch\.\w+ \(3,.*expected torch\.\w+ \(4,"),
    ):
        other.copy_state_from(env)


def test_another_device_is_refused():
    with reset_env(ScriptedEnv) as env, reset_env(ScriptedEnv) as other:
        other.device = torch.device("meta")
        with pytest.raises(ValueError, match="got an environment on cpu, expected meta"):
            other.copy_state_from(env)


def test_a_failing_write_faults_the_copy_which_can_then_be_no_source():
    fault = Fault("after_first_write", call="write_rows")
    with reset_env(ScriptedEnv, faults=(fault,)) as other, reset_env(ScriptedEnv) as env:
        with pytest.raises(RuntimeError, match="injected fault in the middle of row write 0"):
            other.copy_state_from(env)
        assert other.faulted
        with pytest.raises(EnvFaultedError):
            env.copy_state_from(other)
        assert not env.faulted


def test_a_rejected_write_leaves_the_copy_as_it_was():
    fault = Fault("before_commit", call="write_rows")
    with reset_env(ScriptedEnv, faults=(fault,)) as other, reset_env(ScriptedEnv) as env:
        steps(env, 3)
        before = other.state_dict()
        with pytest.raises(ResetRejectedError):
            other.copy_state_from(env)
        after = other.state_dict()
        assert differences(before["values"], after["values"]) == []
        assert differences(before["backend"], after["backend"]) == [
            "/counts"
        ]  # of calls, which the fake keeps
        other.copy_state_from(env)
        assert other.step_counter == 3
