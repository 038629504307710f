"""Construction, closing, and what an environment needs to be built."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from core_support import RobotEnv, ScriptedCfg, ScriptedEnv, steps, zeros

from unilab_core import CapabilityError, ConfigError, NanGuardCfg, ResetRejectedError, TorchEnvCfg
from unisim import TensorExecution
from unisim.testing import FakeBackend, make_layout


class Watched(FakeBackend):
    """A fake that tells whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_qa_108_closing_twice_returns_nothing_twice():
    env = ScriptedEnv()
    assert env.close() is None
    assert env.close() is None


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("step", lambda env: env.step(zeros(env))),
        ("reset", lambda env: env.reset()),
        ("observations", lambda env: env.observations()),
        ("render", lambda env: env.render(0)),
    ],
)
def test_qa_108_a_closed_environment_says_so(name, call):
    env = ScriptedEnv()
    env.reset()
    env.close()
    with pytest.raises(RuntimeError, match=f"ScriptedEnv.{name}: the environment is closed"):
        call(env)


def test_qa_108_an_environment_may_be_closed_before_its_first_reset_and_then_deleted():
    env = ScriptedEnv()
    backend = env.backend
    env.close()
    env.close()
    del env
    with pytest.raises(RuntimeError, match="the backend is closed"):
        backend.bad_rows()


def test_an_environment_is_a_context_manager_that_closes_also_after_an_exception():
    with pytest.raises(KeyError), ScriptedEnv() as env:
        raise KeyError("inside")
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


def test_closing_in_an_exception_handler_keeps_the_exception():
    env = ScriptedEnv()

    def step_and_close_on_failure():
        try:
            env.step(zeros(env))
        except RuntimeError:
            env.close()
            raise

    with pytest.raises(RuntimeError, match="wait for a reset"):
        step_and_close_on_failure()
    env.close()


def test_closing_closes_the_backend():
    backend = Watched(make_layout(), 3)
    ScriptedEnv(backend=backend).close()
    assert backend.closed


@pytest.mark.parametrize(
    "hook", ["_build", "_terminations", "_rewards", "_observe", "_stage_reset", "_after_reset"]
)
def test_the_backend_is_closed_when_construction_fails(hook):
    def fail(self, *_):
        raise LookupError("no such thing")

    backend = Watched(make_layout(), 3)
    broken = type("Broken", (ScriptedEnv,), {hook: fail})
    with pytest.raises((LookupError, ConfigError), match="no such thing"):
        broken(backend=backend)
    assert backend.closed


@pytest.mark.parametrize(
    ("hook", "label"),
    [
        ("_terminations", "terminations"),
        ("_rewards", "rewards"),
        ("_advance", "advance"),
        ("_measure", "measure"),
        ("_observe", "observations"),
        ("_stage_reset", "reset"),
        ("_on_episodes_end", "on_episodes_end"),
        ("_before_commit", "before_commit"),
        ("_clear_rows", "clear_rows"),
        ("_after_commit", "after_commit"),
        ("_control", "control"),
        ("_begin_step", "begin_step"),
        ("_after_step", "after_step"),
        ("_after_reset", "after_reset"),
    ],
)
def test_a_phase_that_fails_at_construction_is_a_config_error_naming_it_and_the_cause(hook, label):
    def fail(self, *_):
        raise LookupError("no such thing")

    broken = type("Broken", (ScriptedEnv,), {hook: fail})
    with pytest.raises(ConfigError, match=f"^{label}: LookupError: no such thing$") as caught:
        broken()
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_labelled_call_that_fails_is_named_by_its_label():
    def fail():
        raise ZeroDivisionError("division by zero")

    broken = type(
        "Broken", (ScriptedEnv,), {"_recordable_calls": lambda self: [("reward term 'speed'", fail)]}
    )
    with pytest.raises(ConfigError, match="reward term 'speed': ZeroDivisionError: division by zero"):
        broken()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, r"observation groups are \[\]; expected 'obs' and optionally 'critic'"),
        ({"critic": 3}, r"observation groups are \['critic'\]"),
        ({"obs": 3, "teacher": 2}, r"observation groups are \['obs', 'teacher'\]"),
        ({"obs": 0}, "observation group 'obs' is empty"),
    ],
)
def test_other_observation_groups_are_a_config_error(spec, message):
    broken = type("Broken", (ScriptedEnv,), {"obs_groups_spec": spec})
    with pytest.raises(ConfigError, match=f"^Broken: {message}"):
        broken()


def test_an_observation_of_another_width_than_declared_is_a_config_error_at_construction():
    broken = type("Broken", (ScriptedEnv,), {"obs_groups_spec": {"obs": 5}})
    with pytest.raises(
        ConfigError, match=r"Broken._observe: group 'obs' is torch.float32 \(3, 3\), expected .*\(3, 5\)"
    ):
        broken()


def test_a_resident_state_on_another_device_than_asked_for_is_a_capability_error():
    backend = Watched(make_layout(), 3, execution=TensorExecution.DEVICE_RESIDENT)
    with pytest.raises(
        CapabilityError, match="the state lives on cpu and is never copied; .* asked for meta"
    ):
        ScriptedEnv(backend=backend, device="meta")
    assert backend.closed


def test_a_guard_on_a_backend_without_snapshots_is_a_capability_error():
    class Forgetful(Watched):
        def get_tensor_capabilities(self):
            return replace(super().get_tensor_capabilities(), snapshots=False)

    backend = Forgetful(make_layout(), 3)
    with pytest.raises(CapabilityError, match="nan_guard copies the engine's state .* no snapshots"):
        ScriptedEnv(backend=backend, cfg=ScriptedCfg(nan_guard=NanGuardCfg()))
    assert backend.closed


def test_a_cuda_device_that_is_not_there_is_a_capability_error_and_closes_the_backend():
    backend = Watched(make_layout(), 3)
    with pytest.raises(CapabilityError, match="device 'cuda:77' is not there"):
        ScriptedEnv(backend=backend, device="cuda:77")
    assert backend.closed


def test_a_device_that_the_backend_cannot_reach_is_a_capability_error():
    backend = Watched(make_layout(), 3)
    with pytest.raises(CapabilityError, match="device 'meta' is not one of"):
        ScriptedEnv(backend=backend, device="meta")
    assert backend.closed


def test_a_device_that_does_not_exist_closes_the_backend():
    backend = Watched(make_layout(), 3)
    with pytest.raises(RuntimeError, match="nowhere"):
        ScriptedEnv(backend=backend, device="nowhere")
    assert backend.closed


def test_an_image_of_a_backend_that_draws_none_is_a_capability_error():
    with ScriptedEnv() as env, pytest.raises(CapabilityError, match="not available"):
        env.render(0)


def test_construction_draws_nothing_from_the_environments_randomness():
    with ScriptedEnv(spread=1.0, seed=3) as env, ScriptedEnv(spread=0.0, seed=3) as plain:
        assert torch.equal(env.rng.get_state(), plain.rng.get_state())


def test_construction_resets_no_row_of_the_backend():
    with ScriptedEnv(spread=1.0) as env:
        assert env.transfer_stats.reset.transfers == 0
        assert env.backend.get_state_views()["qpos"].tolist() == [[0.0, 0.0]] * 3


def test_a_config_without_build_says_so():
    with pytest.raises(NotImplementedError, match=r"TorchEnvCfg does not implement build\(\)"):
        TorchEnvCfg().build(backend="mujoco", device="cpu", seed=0, autoreset=True)


@pytest.mark.parametrize("given", [{"decimation": 0}, {"episode_length_s": 0.0}, {"num_envs": 0}])
def test_sizes_and_times_of_a_config_must_be_positive(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        TorchEnvCfg(**given)


def test_a_config_says_how_long_a_control_step_is():
    assert ScriptedCfg(decimation=3).step_dt == pytest.approx(0.03)


def counts() -> tuple[int, int, int]:
    """Threads, open files and child processes of this process."""
    status = Path("/proc/self/status").read_text()
    threads = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
    children = sum(len(p.read_text().split()) for p in Path("/proc/self/task").glob("*/children"))
    return threads, len(os.listdir("/proc/self/fd")), children


def succeed(env: RobotEnv) -> None:
    env.reset(torch.tensor([1]))
    env.close()


def fault(env: RobotEnv) -> None:
    env.inject["_rewards"] = lambda: torch.full((2,), float("nan"))
    with pytest.raises(ValueError, match="reward"):
        env.step(zeros(env))
    env.close()


def reject(env: RobotEnv) -> None:
    env.inject["_before_commit"] = lambda ids: 1 / 0
    with pytest.raises(ResetRejectedError):
        env.reset()
    env.close()


def leave_by_an_exception(env: RobotEnv) -> None:
    with pytest.raises(KeyError), env:
        raise KeyError("inside")


def fail_to_construct(env: RobotEnv) -> None:
    env.close()

    def fail(self):
        raise LookupError("no such thing")

    with pytest.raises(ConfigError):
        type("Broken", (RobotEnv,), {"_rewards": fail})(num_threads=3)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts are read from /proc")
@pytest.mark.parametrize("end", [succeed, fault, reject, leave_by_an_exception, fail_to_construct])
def test_qa_108_twenty_environments_leave_no_thread_no_process_and_no_file_behind(end):
    def cycle() -> None:
        env = RobotEnv(num_threads=3)
        during.append(counts()[0])
        env.reset()
        steps(env, 1)
        end(env)
        kept.append(env)

    during: list[int] = []
    kept: list[RobotEnv] = []  # a closed environment that is still referenced holds nothing
    cycle()
    before = counts()
    for _ in range(20):
        cycle()
    after = counts()
    assert min(during) > before[0]
    assert all(abs(a - b) <= 1 for a, b in zip(after, before, strict=True))


def test_close_flushes_what_is_not_the_backends_also_after_a_fault():
    flushed = []
    backend = Watched(make_layout(), 3)
    env = type("Recording", (ScriptedEnv,), {"_before_close": lambda self: flushed.append(self.faulted)})(
        backend=backend
    )
    env.reset()
    env.inject["_rewards"] = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        env.step(zeros(env))
    env.close()
    env.close()
    assert flushed == [True]


def test_the_backend_is_closed_also_when_flushing_fails():
    backend = Watched(make_layout(), 3)
    env = type("Recording", (ScriptedEnv,), {"_before_close": lambda self: 1 / 0})(backend=backend)
    with pytest.raises(ZeroDivisionError):
        env.close()
    assert backend.closed
    assert env.close() is None
