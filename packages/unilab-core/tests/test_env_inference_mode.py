"""Steps and resets may alternate between inside and outside of inference mode."""

from __future__ import annotations

import contextlib

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, assert_same, copied, zeros


def outside():
    return contextlib.nullcontext()


MODES = [
    (torch.inference_mode, outside),
    (outside, torch.inference_mode),
    (torch.no_grad, torch.inference_mode),
]


@pytest.mark.parametrize(("stepping", "resetting"), MODES)
def test_step_and_reset_work_in_different_modes(stepping, resetting):
    with (
        ScriptedEnv(3, spread=1.0, episode_steps=4, critic=True) as env,
        ScriptedEnv(3, spread=1.0, episode_steps=4, critic=True) as twin,
    ):
        with resetting():
            env.reset()
        twin.reset()
        for i in range(10):
            with stepping() if i % 2 else resetting():
                env.step(zeros(env))
            twin.step(zeros(twin))
            if i == 6:
                with resetting():
                    env.reset(torch.tensor([2, 0]))
                twin.reset(torch.tensor([2, 0]))
            assert_same(copied(env.state), copied(twin.state))


def test_buffers_are_no_inference_tensors():
    with ScriptedEnv(3) as env:
        with torch.inference_mode():
            env.reset()
            state = env.step(zeros(env))
        assert not state.obs["obs"].is_inference()
        assert not state.reward.is_inference()
        env.episode_length = torch.tensor([1, 2, 3])


def test_a_mujoco_environment_alternates_too():
    with RobotEnv(2, episode_steps=3) as env:
        with torch.inference_mode():
            env.reset()
            env.step(zeros(env))
        env.step(zeros(env))
        with torch.inference_mode():
            env.step(zeros(env))
        env.reset(torch.tensor([1]))
        env.step(zeros(env))
        assert env.episode_length.tolist() == [1, 1]


def test_what_was_read_in_inference_mode_can_be_differentiated_through_outside_of_it():
    read = lambda env: env.scene["robot"].data.root_lin_vel_b  # noqa: E731
    with RobotEnv(2, look=read) as env:
        with torch.inference_mode():
            env.reset()
            env.step(zeros(env))
            inside = read(env)
            assert read(env) is inside
        weight = torch.ones((), requires_grad=True)
        (weight * read(env)).sum().backward()
        assert torch.equal(read(env), inside)
        assert read(env) is read(env)
