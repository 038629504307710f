"""Random sequences of steps and resets against a plain Python model of one row at a time."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

EPISODE_STEPS = 4


class Row:
    """What one row must be: a few numbers, updated by hand."""

    def __init__(self) -> None:
        self.age, self.episode, self.pending = 0, -1, True
        self.last_action, self.position, self.velocity = 0.0, 0.0, 0.0
        self.terminated = self.truncated = False

    def restart(self) -> None:
        self.age, self.episode, self.pending = 0, self.episode + 1, False
        self.last_action = self.position = self.velocity = 0.0

    def step(self, action: float, ends: bool) -> None:
        for _ in range(2):  # semi-implicit Euler, 0.01 s
            self.velocity += 0.01 * action
            self.position += 0.01 * self.velocity
        self.age, self.last_action = self.age + 1, action
        self.terminated, self.truncated = ends, self.age == EPISODE_STEPS

    def obs(self) -> list[float]:
        return [self.age + 100.0 * self.episode, self.position, self.last_action]


class EnvironmentMachine(RuleBasedStateMachine):
    """An environment on the fake beside its rows as plain numbers."""

    @initialize(num_envs=st.integers(1, 4), autoreset=st.booleans())
    def build(self, num_envs, autoreset):
        self.autoreset = autoreset
        self.env = ScriptedEnv(num_envs, episode_steps=EPISODE_STEPS, autoreset=autoreset)
        self.rows = [Row() for _ in range(num_envs)]
        self.steps = 0
        self.seen = torch.zeros(num_envs, 3)
        self.finals = None

    def teardown(self):
        if hasattr(self, "env"):
            self.env.close()

    def pending(self) -> list[int]:
        return [i for i, row in enumerate(self.rows) if row.pending]

    def reset_rows(self, ids: list[int]) -> None:
        for i in ids:
            self.rows[i].restart()
            self.rows[i].terminated = self.rows[i].truncated = False

    @rule()
    def reset_all(self):
        obs, _ = self.env.reset()
        self.reset_rows(list(range(len(self.rows))))
        torch.testing.assert_close(obs["obs"], torch.tensor([row.obs() for row in self.rows]))

    @rule(data=st.data())
    def reset_some(self, data):
        ids = data.draw(st.lists(st.integers(0, len(self.rows) - 1), unique=True))
        obs, info = self.env.reset(torch.tensor(ids, dtype=torch.int64))
        cut = [self.rows[i].age for i in ids if self.rows[i].age > 0]
        self.reset_rows(ids)
        expected = torch.tensor([self.rows[i].obs() for i in ids]).reshape(len(ids), 3)
        torch.testing.assert_close(obs["obs"], expected)
        if ids:
            assert info["episode"]["length/sum"].item() == sum(cut)
            assert info["episode"]["length/count"].item() == len(cut)

    @precondition(lambda self: self.pending())
    @rule()
    def step_while_rows_wait(self):
        with pytest.raises(RuntimeError) as caught:
            self.env.step(torch.zeros(len(self.rows), 1))
        assert f"rows {self.pending()} wait" in str(caught.value)

    @precondition(lambda self: not self.pending())
    @rule(data=st.data())
    def step(self, data):
        number = len(self.rows)
        actions = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5]), min_size=number, max_size=number))
        ends = data.draw(st.lists(st.booleans(), min_size=number, max_size=number))
        self.steps += 1
        self.env.terminate[self.steps] = [i for i in range(number) if ends[i]]
        state = self.env.step(torch.tensor(actions)[:, None])
        for row, action, end in zip(self.rows, actions, ends, strict=True):
            row.step(action, end)
        assert state.reward.tolist() == [float(row.age) for row in self.rows]
        finals = torch.tensor([row.obs() for row in self.rows])
        done = [i for i, row in enumerate(self.rows) if row.terminated or row.truncated]
        flags = [(row.terminated, row.truncated) for row in self.rows]
        if done and self.autoreset:
            assert state.info["episode"]["length/sum"].item() == sum(self.rows[i].age for i in done)
        for i in done:
            if self.autoreset:
                self.rows[i].restart()
            else:
                self.rows[i].pending = True
        torch.testing.assert_close(state.obs["obs"], torch.tensor([row.obs() for row in self.rows]))
        assert list(zip(state.terminated.tolist(), state.truncated.tolist(), strict=True)) == flags
        assert (state.final_observation is not None) == bool(done)
        if done:
            torch.testing.assert_close(state.final_observation["obs"], finals)

    @invariant()
    def agrees(self):
        if not hasattr(self, "env"):
            return
        assert self.env.episode_length.tolist() == [row.age for row in self.rows]
        assert self.env.state.terminated.tolist() == [row.terminated for row in self.rows]
        assert self.env.state.truncated.tolist() == [row.truncated for row in self.rows]
        assert self.env.step_counter == self.steps
        if not any(row.episode < 0 for row in self.rows):
            expected = torch.tensor([row.obs() for row in self.rows])
            torch.testing.assert_close(self.env.observations()["obs"], expected)


TestEnvironment = EnvironmentMachine.TestCase
TestEnvironment.settings = settings(settings.get_profile("unilab"), stateful_step_count=25)
