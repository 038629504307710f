"""A collector in a real process of its own: the same transitions, and every way in which it can end."""

import os
import select
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from off_policy_support import ECHO, DyingCfg, small, unpack
from rl_support import ScriptedEnv, ScriptedEnvCfg, python

from unilab_core import CapabilityError, ConfigError, EnvFactory, TaskSpec, list_tasks, register_task
from unilab_rl import BudgetCfg, TrainRequest, Watcher, register_algorithm, train
from unilab_rl.checkpoint import load_checkpoint_with_replay
from unilab_rl.runtime import spawned
from unilab_rl.runtime.evaluator import learner_state
from unilab_rl.runtime.spawned import CollectorError

SLOTS = 8
pytestmark = pytest.mark.timeout(300)  # a process imports torch, which takes long where many do


def make(cfg=None, *, env=None, backend="scripted", **changes):
    cfg = cfg or ScriptedEnvCfg()
    factory = EnvFactory(cfg, backend=backend, num_envs=cfg.num_envs)
    return ECHO.make_learner(
        env or ScriptedEnv(cfg), small(ECHO, **{"collectors": 1, **changes}), seed=0, factory=factory
    )


def gone(pid):
    """Whether there is no such process, not even one that nobody waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_process_collects_as_the_learner_would_and_follows_its_weights(left_in_shared_memory):
    env = ScriptedEnv()
    learner = make(env=env, num_steps_per_env=4)
    here = ECHO.make_learner(ScriptedEnv(), small(ECHO, num_steps_per_env=4), seed=0)
    source = learner.source
    try:
        for number in range(12):
            assert torch.equal(source.step(), here.source.step()), number
        pid = source.pid
        os.kill(pid, signal.SIGINT)  # as a Ctrl-C does to all processes of a terminal
        assert source.take_totals() == here.source.take_totals()
        assert env.received == []
        assert env.export_training_state() == {"version": 1, "step_counter": 12}
        learner.agent.actor.gain.data.fill_(-0.75)
        source.publish()
        followed = [unpack(source._twin.layout, source.step())["actions"].mean() for _ in range(SLOTS + 4)]
        assert followed[-1] == pytest.approx(-0.75, abs=0.2)
        metrics = source.take_metrics()
        assert 0 <= metrics["Collector/ring_occupancy"] <= SLOTS
        assert 0 <= metrics["Collector/weights_lag"] <= 1
        state = source.state()
        assert state["steps"] == 24
        assert not torch.equal(state["explorer"]["generator"], here.source.state()["explorer"]["generator"])
    finally:
        learner.close()
    learner.close()
    assert gone(pid)
    assert left_in_shared_memory() == set()
    with pytest.raises(RuntimeError, match=r"SpawnedCollector.step: it is closed"):
        source.step()


def test_an_environment_that_cannot_be_built_is_named_with_its_traceback():
    learner = make(backend="nonsense")
    try:
        with pytest.raises(
            CollectorError, match=r"(?s)failed: CapabilityError: ScriptedEnv: unknown backend.*in build"
        ):
            learner.iterate()
        pid = learner.source.pid
    finally:
        learner.close()
    assert gone(pid)


def test_a_step_that_fails_is_named_after_the_steps_before_it_arrived():
    learner = make(ScriptedEnvCfg(fail_at=6, fails_with="NonFiniteError"))
    try:
        for _ in range(5):
            learner.source.step()
        with pytest.raises(
            CollectorError, match=r"(?s)failed: NonFiniteError: boom at step 6.*rl_support.py.*in step"
        ):
            learner.source.step()
    finally:
        learner.close()


class FirstCheckpoint(Watcher):
    """Keeps what happened."""

    def __init__(self):
        self.done = []

    def on_iteration(self, progress):
        self.done.append(progress.iteration)


@pytest.fixture
def dying():
    register_algorithm(ECHO)
    if "scripted-dying" not in {task.name for task in list_tasks()}:
        register_task(
            TaskSpec(
                name="scripted-dying",
                env_cfg="off_policy_support:dying_cfg",
                learners={"echo": "off_policy_support:echo_cfg"},
                default_learner="echo",
            )
        )


@pytest.mark.usefixtures("dying")
def test_a_killed_process_ends_the_run_with_its_cause_and_a_checkpoint_that_continues(
    tmp_path, left_in_shared_memory
):
    watcher = FirstCheckpoint()
    request = TrainRequest(task="scripted-dying", backend="scripted", seed=7, runs=tmp_path / "runs")
    with pytest.raises(
        CollectorError, match=r"was ended by SIGKILL, as the system does .* after 1\d steps"
    ) as caught:
        train(replace(request, budget=BudgetCfg(iterations=9)), watcher)
    assert watcher.done == [1, 2]
    (note,) = caught.value.__notes__
    assert note.startswith("iteration 2 is saved in ")
    file = Path(note.removeprefix("iteration 2 is saved in "))
    held = load_checkpoint_with_replay(file)
    assert (held.iteration, held.env_steps, held.env_training_state["step_counter"]) == (2, 56, 14)
    assert held.env_state is None, "what the process held is lost, so a resume is warm"
    assert held.learner["replay"] is not None
    assert left_in_shared_memory() == set()
    again = make(save_interval=1000)
    again.load_state(learner_state(held), episodes_continue=False)
    assert again.agent.updates == 2 * (14 - 5)
    assert again.replay.num_transitions == 56
    again.close()


def test_a_process_that_hangs_is_ended_by_force(monkeypatch):
    monkeypatch.setattr(spawned, "_FIRST_JOIN_S", 0.2)
    learner = make(DyingCfg(hang_at=2))
    try:
        learner.source.step()
        pid = learner.source.pid
        assert not gone(pid)
    finally:
        learner.close()
    assert gone(pid)


_PARENT = """
from off_policy_support import ECHO, small
from rl_support import ScriptedEnv, ScriptedEnvCfg
from unilab_core import EnvFactory
if __name__ == "__main__":
    factory = EnvFactory(ScriptedEnvCfg(), backend="scripted", num_envs=4)
    learner = ECHO.make_learner(ScriptedEnv(), small(ECHO, collectors=1), seed=0, factory=factory)
    learner.source.step()
    print(learner.source.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is no child of its own")
def test_the_process_does_not_outlive_the_learner(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    with python(str(script), stdin=-1) as parent:
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)
        try:
            parent.kill()
            ended, _, _ = select.select([watched], [], [], 60)
        finally:
            os.close(watched)
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
    assert ended


def test_a_script_without_a_main_guard_is_told_about_it(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(_PARENT.replace('if __name__ == "__main__":', "if True:"))
    with python(str(script), stdin=-1) as parent:
        _, errors = parent.communicate(timeout=200)
    assert parent.returncode == 1
    assert "needs `if __name__ == '__main__':` around it" in errors


# ---------------------------------------------------------------- what is refused before a process is started


def test_what_cannot_be_sent_is_named():
    class Local(ScriptedEnvCfg):
        """Can't be imported."""

    with pytest.raises(
        ConfigError, match=r"a collector of its own: env.task is Local\(.*can't be sent to another process"
    ):
        make(Local(), env=ScriptedEnv(Local()))


class OnDevice(ScriptedEnv):
    """Says that it lives on a device."""

    def describe(self):
        return replace(super().describe(), capabilities={"execution": "device_resident"})


def test_an_environment_on_a_device_is_collected_in_the_learner_s_process():
    with pytest.raises(CapabilityError, match=r"lives on cpu and is collected in the learner's process"):
        make(env=OnDevice())


def test_a_state_is_loaded_before_the_first_step_and_checked():
    learner = make()
    try:
        state = learner.state()
        assert not state.exact
        other = make()
        other.load_state(state, episodes_continue=False)
        other.close()
        broken = replace(state, rng={**state.rng, "source": {**state.rng["source"], "steps": -1}})
        with pytest.raises(ValueError, match="the collector's steps are -1"):
            learner.load_state(broken, episodes_continue=False)
    finally:
        learner.close()
