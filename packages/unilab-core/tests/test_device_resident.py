"""The same lifecycle on a backend whose state is resident on a device: reads are live, nothing is transferred."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, copied, steps, zeros
from twins import HoardingEnv, assert_same_steps, assert_twins
from velocity import VelocityEnv, actions_of, fake_backend

from unilab_core import ResetRejectedError, SceneEntityCfg, reads
from unisim import TensorExecution
from unisim.testing import FakeBackend, Fault, make_layout

RESIDENT = TensorExecution.DEVICE_RESIDENT
BASE = SceneEntityCfg(body_names=("base",))


def resident(num_envs=3, **options):
    layout = make_layout(sensors={"imu": (3, "acceleration")}, sites=("robot/tip",))
    return FakeBackend(layout, num_envs, execution=RESIDENT, **options)


@pytest.mark.parametrize("inference", [False, True])
def test_observations_are_those_of_the_host_bridge_through_resets_pushes_and_random_models(inference):
    host, live = VelocityEnv(fake_backend(), seed=3), VelocityEnv(fake_backend(execution=RESIDENT), seed=3)
    with host, live, torch.inference_mode(inference):
        host.reset()
        live.reset()
        generator = torch.Generator().manual_seed(0)
        for step in range(200):
            actions = actions_of(host, generator)
            one, two = copied(host.step(actions)), copied(live.step(actions))
            assert one.keys() == two.keys()
            for name, values in one.items():
                # float64 behind the bridge, float32 on the device: only rounding differs
                torch.testing.assert_close(
                    two[name], values, atol=2e-4, rtol=1e-4, msg=f"{name} in step {step}"
                )
        assert host.pushes.tolist() == live.pushes.tolist()
        assert torch.equal(host.rng.get_state(), live.rng.get_state())


def test_reads_are_the_live_storage_of_the_backend():
    with VelocityEnv(fake_backend(execution=RESIDENT)) as env:
        env.reset()
        views = env._backend.get_state_views(("qpos", "body:robot/base", "sensor:robot/gyro"))
        for key, values in views.items():
            assert env._io.column(key).data_ptr() == values.data_ptr(), key
        held = env.scene["robot"].data.joint_pos
        before = held.clone()
        env.step(torch.ones(6, 2))
        assert not torch.equal(held, before)
        env.reset()
        assert torch.equal(held, env.scene["robot"].data.joint_pos)


def test_the_hooks_and_terms_of_a_task_run_unchanged():
    with (
        ScriptedEnv(backend=resident(), terminate={2: [1]}, critic=True) as env,
        ScriptedEnv(terminate={2: [1]}, critic=True) as host,
    ):
        for each in (env, host):
            each.reset()
            steps(each, 3)
            each.reset(torch.tensor([2, 0]))
        assert env.calls == host.calls
        for name, values in copied(host.state).items():
            torch.testing.assert_close(copied(env.state)[name], values)


def test_a_rejected_reset_is_taken_back_and_the_state_survives_a_round_trip():
    env, twin = (HoardingEnv(3, backend=resident(), terminate={8: [1]}, seed=3) for _ in range(2))
    with env, twin:
        for each in (env, twin):
            each.reset()
            steps(each, 3)
        env.trip("before_commit")
        with pytest.raises(ResetRejectedError):
            env.reset(torch.tensor([1]))
        env.trip(None)
        assert_twins(env, twin)
        state = env.state_dict()
        steps(env, 7)
        env_again = HoardingEnv(3, backend=resident(), terminate={8: [1]}, seed=9)
        with env_again:
            env_again.reset()
            env_again.step(zeros(env_again))
            for _ in range(3):  # as often as the saved term grew
                env_again.reset()
            with pytest.raises(ValueError, match="not of this task"):
                env_again.load_state_dict(state)  # what the term gave birth to differs
        assert_same_steps(env, env, 0)


def test_a_failure_in_the_middle_of_a_commit_faults_the_environment():
    env = ScriptedEnv(backend=resident(faults=(Fault("after_first_write", at=1),)))
    env.reset()
    with pytest.raises(RuntimeError, match="injected"):
        env.reset(torch.tensor([1]))
    assert env.faulted
    assert env.close() is None


def test_a_row_that_the_engine_calls_bad_terminates():
    with ScriptedEnv(backend=resident(faults=(Fault("nan", at=2, row=1),))) as env:
        env.reset()
        env.inject["_observe"] = lambda ids: {"obs": torch.zeros(3 if ids is None else ids.numel(), 3)}
        steps(env, 1)
        assert env.step(zeros(env)).terminated.tolist() == [False, True, False]
        assert env.step(zeros(env)).terminated.tolist() == [False, False, False]


def test_reads_outside_the_frozen_ones_are_refused_alike():
    class Late(VelocityEnv):
        late = False

        def _measure(self):
            return {"x": self.scene["robot"].data.sites(SceneEntityCfg()).pos_w.sum()} if self.late else {}

    env = Late(fake_backend(execution=RESIDENT))
    env.reset()
    env.late = True
    assert reads("body:robot/base")
    with pytest.raises(ValueError, match="a handle of no body and no site was read"):
        env.step(zeros(env))
    env.close()
