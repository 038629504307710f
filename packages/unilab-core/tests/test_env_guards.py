"""What must not pass unseen: bad seeds, rows, shapes, graphs, layouts, and values that are not finite after a reset."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps, zeros

from unilab_core import ConfigError, EnvFaultedError, NonFiniteError
from unisim import TensorExecution
from unisim.testing import FakeBackend, make_layout


@pytest.mark.parametrize(
    ("seed", "kind"), [(-1, ValueError), (2**70, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_bad_seed_changes_nothing_and_faults_nothing(seed, kind):
    with ScriptedEnv(spread=0.5) as env, ScriptedEnv(spread=0.5) as twin:
        for one in (env, twin):
            one.reset()
            steps(one, 2)
        with pytest.raises(kind, match="seed is"):
            env.reset(seed=seed)
        assert not env.faulted
        assert torch.equal(env.step(zeros(env)).obs["obs"], twin.step(zeros(twin)).obs["obs"])
        assert torch.equal(env.reset()[0]["obs"], twin.reset()[0]["obs"])


def _push(env: ScriptedEnv, rows: object, width: int = 2) -> None:
    count = rows.numel() if isinstance(rows, torch.Tensor) else 1
    env.scene["robot"].data.write_joint_state(torch.zeros(count, width), torch.ones(count, width), rows)


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        (torch.tensor([True, False, True]), TypeError, r"convert the mask: mask.nonzero\(\).flatten\(\)"),
        (torch.tensor([0.0, 1.0]), TypeError, "no 1-D int64 tensor"),
        (torch.tensor([[0, 1]]), TypeError, "no 1-D int64 tensor"),
        (slice(0, 2), TypeError, "no 1-D int64 tensor"),
        (torch.tensor([0, -1]), ValueError, "env_ids holds -1; expected 0 <= id < num_envs = 3"),
        (torch.tensor([3]), ValueError, "env_ids holds 3; expected 0 <= id < num_envs = 3"),
    ],
)
def test_rows_of_a_write_that_are_no_row_ids_are_refused_in_a_step(rows, kind, message):
    with ScriptedEnv() as env:
        env.reset()
        env.inject["_advance"] = lambda: _push(env, rows)
        with pytest.raises(kind, match=message):
            env.step(zeros(env))


def test_a_mask_is_refused_while_a_reset_is_staged():
    with ScriptedEnv() as env:
        env.inject["_stage_reset"] = lambda ids: _push(env, torch.tensor([True, True, True]))
        with pytest.raises(ValueError, match="TypeError: .*convert the mask"):
            env.reset()


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 1), (2, 3)])
def test_values_of_a_write_are_never_broadcast(shape):
    with ScriptedEnv() as env:
        env.reset()
        data = env.scene["robot"].data
        env.inject["_advance"] = lambda: data.write_joint_state(
            torch.zeros(shape), torch.zeros(2, 2), torch.tensor([0, 1])
        )
        with pytest.raises(ValueError, match=r"write_joint_state: pos got shape .*, expected \(2, 2\)"):
            env.step(zeros(env))


def test_joints_of_a_write_that_do_not_exist_are_named():
    with ScriptedEnv() as env:
        data = env.scene["robot"].data
        env.inject["_stage_reset"] = lambda ids: data.write_joint_state(
            torch.zeros(3, 1), torch.zeros(3, 1), ids, torch.tensor([5])
        )
        with pytest.raises(
            ValueError, match="joint_ids leave the 2 joints of 'robot'; take them from Entity.joint_ids"
        ):
            env.reset()


def _nan_at(env: ScriptedEnv, row: int):
    def observe(ids):
        obs = torch.zeros(env.num_envs, 3)
        if ids is not None:
            obs[row, 1] = float("nan")
        return {"obs": obs if ids is None else obs[ids]}

    return observe


def test_an_observation_that_is_not_finite_after_a_manual_reset_is_named_at_once():
    with ScriptedEnv() as env:
        env.reset()
        env.inject["_observe"] = _nan_at(env, 2)
        with pytest.raises(NonFiniteError, match=r"ScriptedEnv.reset: obs is not finite at rows \[2\]"):
            env.reset(torch.tensor([2]))
        with pytest.raises(EnvFaultedError):
            env.step(zeros(env))


def test_an_observation_that_is_not_finite_after_an_automatic_reset_is_named_before_the_next_physics():
    with ScriptedEnv(terminate={1: [2]}) as env:
        env.reset()
        env.inject["_observe"] = _nan_at(env, 2)
        env.step(zeros(env))
        before = env.backend.get_state_views(("qpos",))["qpos"]
        with pytest.raises(NonFiniteError, match=r"ScriptedEnv.step: obs is not finite at rows \[2\]"):
            env.step(torch.ones(3, 1))
        assert env.faulted
        assert torch.equal(env.backend.get_state_views(("qpos",))["qpos"], before)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("rng.generator", "spoiled", "no state of a random generator"),
        ("step_counter", True, "step_counter"),
        ("step_counter", -1, "step_counter"),
        ("step_counter", None, "step_counter"),
        ("_pending", ["a"], "_pending"),
        ("_pending", [7], "_pending"),
    ],
)
def test_contents_of_a_state_are_checked_before_anything_is_written(path, value, message):
    with ScriptedEnv(spread=0.5) as env, ScriptedEnv(spread=0.5) as twin:
        for one in (env, twin):
            one.reset()
            steps(one, 3)
        state = env.state_dict()
        if value == "spoiled":
            value = torch.full_like(state["values"][path], 255)
        with pytest.raises(ValueError, match=message):
            env.load_state_dict({**state, "values": {**state["values"], path: value}})
        assert not env.faulted
        env.reset()
        twin.reset()
        assert torch.equal(env.step(zeros(env)).obs["obs"], twin.step(zeros(twin)).obs["obs"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: [1],
        lambda state: {**state, "version": torch.ones(2)},
        lambda state: {**state, "values": None},
        lambda state: {**state, "backend": None},
        lambda state: {**state, "backend": {key: None for key in state["backend"]}},
        lambda state: {**state, "values": {**state["values"], "_episode_length": torch.full((3,), -5)}},
    ],
)
def test_a_state_of_another_form_is_a_value_error_and_faults_nothing(spoil):
    with ScriptedEnv() as env:
        env.reset()
        with pytest.raises(ValueError, match="environment state: "):
            env.load_state_dict(spoil(env.state_dict()))
        assert not env.faulted
        env.step(zeros(env))


def test_a_failure_after_the_backend_was_restored_faults_the_environment(monkeypatch):
    with ScriptedEnv() as env:
        env.reset()
        state = env.state_dict()
        registry = type(env._registry)
        monkeypatch.setattr(registry, "load_state_dict", lambda self, state: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            env.load_state_dict(state)
        assert env.faulted


def test_a_module_inside_a_term_leaves_no_graph_in_what_is_handed_out():
    with ScriptedEnv() as env:
        env.reset()
        scale = torch.nn.Parameter(torch.ones(()))
        env.inject["_rewards"] = lambda: scale * env.episode_length.float()
        env.inject["_observe"] = lambda ids: {"obs": scale * torch.ones(3 if ids is None else ids.numel(), 3)}
        state = steps(env, 3)
        assert not state.reward.requires_grad
        assert not state.obs["obs"].requires_grad
        assert not env.reset()[0]["obs"].requires_grad


@pytest.mark.parametrize("execution", list(TensorExecution))
def test_a_control_of_any_layout_is_taken_by_both_kinds_of_backend(execution):
    layout = make_layout(sensors={"imu": (3, "acceleration")}, sites=("robot/tip",))
    with ScriptedEnv(backend=FakeBackend(layout, 3, execution=execution)) as env:
        env.reset()
        env.inject["_control"] = lambda actions: torch.ones(1, 1).expand(3, 1)
        env.step(zeros(env))
        assert torch.allclose(env.scene["robot"].data.joint_vel[:, 0], torch.full((3,), 0.02))


def test_a_write_where_no_state_may_be_written_fails_when_the_environment_is_built():
    class Writing(ScriptedEnv):
        def _rewards(self):
            _push(self, torch.tensor([0]))
            return super()._rewards()

    with pytest.raises(
        ConfigError, match="rewards: RuntimeError: .*state is written by events and commands only"
    ):
        Writing()
